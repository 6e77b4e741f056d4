//! The status of a server: what it reports of itself, and the forms in which it is read.
//!
//! # What it does
//! - [`Report`] is the state of a server, as `status.json` has it. The server fills it in.
//! - The module `table` is the one list of what the numbers of the report mean: a row for each metric, with its name, kind,
//!   unit and help, how it is read from the report, and how it adds up over servers. The metrics ([`metrics`]) and the sum of
//!   several servers ([`Report::sum`]) follow from it.
//! - [`Replicas`] fetches the reports of the servers that SRV records name, and [`subscribe`] adds them up while the sum is
//!   viewed. [`page`] is the status page.
//!
//! # Contract
//! Counters start at 0 with the process. The report of another version may lack fields: they are 0 or absent.

mod collector;
mod collectors;
mod exposition;
mod history;
mod metric;
pub mod page;
mod replicas;
mod report;
mod rules;
mod sum;
mod table;

pub use self::collector::subscribe;
pub use self::collectors::{Collectors, Latest};
pub use self::exposition::Form;
pub use self::history::{History, Totals, fresh, percentile};
pub use self::replicas::{BlockingReplicas, Replicas, Reports};
pub use self::report::{
    Bandwidth, Cache, Certificate, Client, Component, Concurrency, Connections, Disk, FleetReport,
    ObjectStore, ProcessReport, Rate, Replica, ReplicaSum, Report, Requests, Responses, Route,
    RouteLimits, Scripts, ServerReport, Tls, Upstream, seconds,
};
pub use self::table::metrics;
