//! Dunlin's server. A request flows one way: listener, transport, engine, router, checks, handler, telemetry.

mod blocking;
mod cache;
mod checks;
mod clock;
pub mod config;
mod connection_limits;
mod connections;
mod control;
mod drive;
pub mod error_log;
mod exchange;
mod explain;
mod fs;
mod handler;
mod listen;
mod log_limiter;
pub mod password;
mod route;
mod server;
mod spawn;
mod telemetry;
mod temp_files;
#[cfg(test)]
mod testing;
mod tls;
mod transport;
mod worker;

pub use explain::explain;
pub use handler::script::{LAUNCH, SCRIPTS, cold_programs, launch};
/// What the status route tells, as `status.json` has it.
pub mod status {
    pub use crate::handler::status::{
        Bandwidth, Cache, Certificate, Client, Concurrency, Connections, ProcessReport, Rate,
        Report, Requests, Route, RouteLimits, Scripts, ServerReport, Tls,
    };
}
pub use server::{
    Confined, Findings, Origin, Server, StartError, Takeover, confine, hindrances, verify,
};
pub use telemetry::PHASES;
pub use telemetry::live::{Filter, FilterError};
pub use temp_files::warning as temporary_directory_warning;
