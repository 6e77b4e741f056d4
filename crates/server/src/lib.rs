//! Dunlin's server. A request flows one way: listener, transport, adapter, router, checks, handler, telemetry.

mod checks;
mod control;
mod drive;
pub mod error_log;
mod explain;
mod handler;
mod listen;
pub mod password;
mod route;
mod server;
#[cfg(test)]
mod testing;
mod transport;
mod worker;

pub use dunlin_config as config;
use dunlin_config::field_edits;
use dunlin_net::{blocking, clock, connections, log_limiter, temp_files};
use dunlin_tls as tls;
pub use explain::explain;
/// The report of the status route, as in `status.json`.
pub mod status {
    pub use crate::handler::status::{
        Bandwidth, Cache, Certificate, Client, Concurrency, Connections, ProcessReport, Rate,
        Report, Requests, Route, RouteLimits, Scripts, ServerReport, Tls,
    };
}
pub use dunlin_net::temp_files::warning as temporary_directory_warning;
pub use server::{
    Confined, Findings, Origin, Server, StartError, Takeover, certificates, confine, hindrances,
    load_directory, reload, verify,
};
