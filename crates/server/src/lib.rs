//! Dunlin's server. A request flows one way: listener, transport, adapter, router, checks, handler, telemetry.

mod checks;
mod component;
mod control;
mod disk_cache;
mod drive;
pub mod error_log;
mod explain;
mod fleet;
mod handler;
mod listen;
mod maintenance;
pub mod password;
mod route;
mod server;
mod start_program;
#[cfg(test)]
mod testing;
mod worker;

pub use component::compile_component;
pub use explain::explain;
/// The report of the status route, as in `status.json`.
pub mod status {
    pub use crate::component::Component;
    pub use crate::handler::status::{
        Bandwidth, BlockingReplicas, Cache, Certificate, Client, Concurrency, Connections,
        FleetReport, ObjectStore, ProcessReport, Rate, Replica, ReplicaSum, Replicas, Report,
        Reports, Requests, Responses, Route, RouteLimits, Scripts, ServerReport, Tls,
    };
}
pub use server::{
    Confined, Findings, Origin, Server, StartError, Takeover, certificates, confine, hindrances,
    load_directory, reload, unresolved_names, verify,
};
