//! Servers side by side: scenarios, the servers' adapters, the runs, and the report of them.

pub mod adapter;
pub mod diff;
mod fixture;
mod machine;
pub mod report;
mod resolver;
pub mod results;
pub mod run;
pub mod scenario;
mod server;
pub mod statistics;
