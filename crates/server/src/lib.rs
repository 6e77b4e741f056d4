//! Dunlin's server. Data flows one way: listen, transport, engine, route, gate, handler, record.

mod blocking;
mod cache;
pub mod client;
mod clock;
pub mod config;
mod connection_limits;
mod connections;
mod control;
mod drive;
mod early_hints;
pub mod error_log;
mod event_loop;
mod gate;
mod handler;
mod listen;
pub mod password;
mod record;
mod response;
mod route;
mod scratch;
mod seldom;
mod server;
mod spawn;
mod stream;
mod tls;
mod transport;
mod whole_answer;

pub use handler::script::{LAUNCH, SCRIPTS, cold_programs, launch};
/// What the status route tells, as `status.json` has it.
pub mod status {
    pub use crate::handler::status::{
        Bandwidth, Cache, Certificate, Client, Concurrency, Connections, ProcessReport, Rate,
        Report, Requests, Route, RouteLimits, Scripts, ServerReport, Tls,
    };
}
pub use record::PHASES;
pub use record::watch::{Filter, FilterError};
pub use scratch::warning as temporary_directory_warning;
pub use server::{
    Confined, Findings, Origin, Server, StartError, Takeover, confine, hindrances, verify,
};
