//! Other servers: those of a shared store, and those that a report adds up.

use serde::{Deserialize, Serialize};

/// The servers that share their state, as this one sees them. Counters start at 0 with the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetReport {
    /// The store is reachable.
    pub connected: bool,
    /// Servers that were seen lately, with this one.
    pub servers: u64,
    /// Exchanges of rate limits with the store.
    pub exchanges: u64,
    /// Messages of other servers.
    pub messages: u64,
    /// Times that the store was lost.
    pub losses: u64,
}

/// The servers that a report adds up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaSum {
    /// Name of the SRV records that have their addresses.
    pub name: String,
    /// Why the name cannot be resolved; the servers are those of before.
    pub error: Option<String>,
    /// By address.
    pub each: Vec<Replica>,
}

/// One of the servers that a report adds up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Replica {
    /// Address and port.
    pub address: String,
    /// Time of its start, in seconds since 1970; `None` if it has never responded.
    pub started: Option<f64>,
    /// Age of its report in seconds.
    pub age: Option<f64>,
    /// Requests since its start.
    pub requests: u64,
    /// Why it has no newer report.
    pub error: Option<String>,
}

impl ReplicaSum {
    /// Returns `true` if `other` adds up the same processes, so that the difference of the reports is what happened between
    /// them.
    pub fn is_of_same(&self, other: &Self) -> bool {
        let processes = |sum: &Self| -> Vec<_> {
            let counted = sum.each.iter().filter(|replica| replica.started.is_some());
            counted.map(|replica| (replica.address.clone(), replica.started)).collect()
        };
        processes(self) == processes(other)
    }
}
