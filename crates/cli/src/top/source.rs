//! Where the reports come from: one server, or the replicas of a service.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;

use dunlin_server::status::Report;

use super::figures::Figures;
use crate::remote::{Remote, expect_ok};

/// Where the reports come from.
pub(crate) enum Source {
    /// One server.
    Server(Remote),
    /// The servers that SRV records name.
    Fleet(Fleet),
}

/// The replicas of a service.
pub(crate) struct Fleet {
    /// Name of the records.
    pub(crate) name: String,
    /// Name servers; those of the system if there are none.
    pub(crate) resolvers: Vec<SocketAddr>,
    /// Path of the status route of each.
    pub(crate) path: String,
}

/// The reports of one moment.
pub(crate) struct Reports {
    /// By address.
    each: BTreeMap<String, Report>,
    /// Why replicas have none.
    pub(crate) failures: Vec<String>,
}

impl Source {
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
            Self::Fleet(fleet) => fleet.fetch(),
        }
    }
}

impl Fleet {
    fn fetch(&self) -> Result<Reports, String> {
        let addresses = dunlin_server::replicas(&self.name, &self.resolvers)?;
        let fetched: Vec<(String, Result<Report, String>)> = thread::scope(|scope| {
            let threads: Vec<_> = addresses
                .iter()
                .map(|address| scope.spawn(|| (address.to_string(), self.fetch_from(*address))))
                .collect();
            // A thread that panicked has printed why.
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let (mut each, mut failures) = (BTreeMap::new(), Vec::new());
        for (address, result) in fetched {
            match result {
                Ok(report) => {
                    each.insert(address, report);
                }
                Err(error) => failures.push(format!("{address}: {error}")),
            }
        }
        if each.is_empty() {
            return Err(failures.join("; "));
        }
        Ok(Reports { each, failures })
    }

    fn fetch_from(&self, address: SocketAddr) -> Result<Report, String> {
        fetch(&Remote::new(&format!("http://{address}{}", self.path))?)
    }
}

impl Reports {
    /// How many servers have a report, of all.
    pub(crate) fn counted(&self) -> String {
        format!("{} of {}", self.each.len(), self.each.len() + self.failures.len())
    }

    /// The figures since the reports `then`. A server that has joined counts from its second report on, so that its earlier
    /// requests are no burst.
    ///
    /// # Errors
    /// The reports cannot be added up.
    pub(crate) fn since(&self, then: &Self) -> Result<Figures, String> {
        let both = || self.each.keys().filter(|address| then.each.contains_key(*address));
        let of = |reports: &Self| {
            let reports: Vec<Report> =
                both().filter_map(|address| reports.each.get(address)).cloned().collect();
            Report::sum(&reports).map_err(|error| format!("adding up the replicas: {error}"))
        };
        Ok(Figures::new(&of(self)?, &of(then)?))
    }
}

fn fetch(server: &Remote) -> Result<Report, String> {
    let text = expect_ok(server.get("/status.json"))?.text().map_err(|error| error.to_string())?;
    serde_json::from_str(&text)
        .map_err(|error| format!("the server's status is malformed: {error}"))
}
