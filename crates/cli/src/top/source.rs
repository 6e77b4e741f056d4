//! The source of the reports: one server, or the replicas of a service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin_status::{BlockingReplicas, Replicas, Report};

use super::figures::{Figures, History};
use crate::remote::Remote;

/// The source of the reports.
pub(crate) enum Source {
    /// One server, or the sum that it has made of several.
    Server(Remote),
    /// The servers that SRV records name.
    Fleet(BlockingReplicas),
}

/// The reports of one moment.
pub(crate) struct Reports {
    /// By address.
    each: BTreeMap<String, Report>,
    /// Why replicas have none.
    pub(crate) failures: Vec<String>,
}

/// Maximum wait for the report of a replica.
const LIMIT: Duration = Duration::from_secs(10);

impl Source {
    /// Returns the servers of the SRV records of `name`, with their status routes at `path`. `resolvers` are the name
    /// servers, or those of the system if there are none.
    ///
    /// # Errors
    /// The system lacks a resource that the client needs.
    pub(crate) fn fleet(name: &str, resolvers: &[SocketAddr], path: &str) -> Result<Self, String> {
        let replicas = Replicas::new(name, resolvers.to_vec(), path, LIMIT);
        BlockingReplicas::new(replicas).map(Self::Fleet).map_err(|error| error.to_string())
    }

    /// Returns what the server has kept of the time before, for charts of one second in `step`.
    pub(crate) fn history(&self, step: usize) -> History {
        let Self::Server(server) = self else { return History::default() };
        let text =
            server.status("/history").and_then(|found| found.text().map_err(|e| e.to_string()));
        text.map_or_else(|_| History::default(), |text| History::kept(&text, step))
    }

    /// Fetches the reports.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn fetch(&self) -> Result<Reports, String> {
        match self {
            Self::Server(server) => {
                let each = BTreeMap::from([(String::new(), fetch(server)?)]);
                Ok(Reports { each, failures: Vec::new() })
            }
            Self::Fleet(replicas) => Reports::of(replicas),
        }
    }
}

impl Reports {
    fn of(replicas: &BlockingReplicas) -> Result<Self, String> {
        let (mut each, mut failures) = (BTreeMap::new(), Vec::new());
        for (address, result) in replicas.fetch()? {
            match result {
                Ok(report) => _ = each.insert(address.to_string(), report),
                Err(error) => failures.push(format!("{address}: {error}")),
            }
        }
        if each.is_empty() {
            return Err(failures.join("; "));
        }
        Ok(Self { each, failures })
    }

    /// Returns how many servers have a report, of all.
    pub(crate) fn counted(&self) -> String {
        format!("{} of {}", self.each.len(), self.each.len() + self.failures.len())
    }

    /// Returns the figures since the reports `then`. A server that has joined counts from its second report on, so that its
    /// earlier requests are no burst.
    pub(crate) fn since(&self, then: &Self) -> Figures {
        let both = || {
            let both = self.each.iter().map(|(address, now)| (now, then.each.get(address)));
            both.filter_map(|(now, then)| Some((now, comparable(then?, now))))
        };
        let now: Vec<_> = both().map(|(now, _)| now.clone()).collect();
        let then: Vec<_> = both().map(|(_, then)| then.clone()).collect();
        Figures::new(&Report::sum(&now), &Report::sum(&then))
    }
}

/// Returns the earlier report, or the later one if they add up other servers.
fn comparable<'a>(then: &'a Report, now: &'a Report) -> &'a Report {
    match (&then.replicas, &now.replicas) {
        (Some(before), Some(after)) if !before.is_of_same(after) => now,
        _ => then,
    }
}

fn fetch(server: &Remote) -> Result<Report, String> {
    let text = server.status("/status.json")?.text().map_err(|error| error.to_string())?;
    serde_json::from_str(&text)
        .map_err(|error| format!("the server's status is malformed: {error}"))
}
