//! The sum of the reports of several servers, collected while it is viewed.
//!
//! A thread of its own resolves, requests and adds up, so that no worker does: workers get the text of the last sum. The thread
//! ends when there is no viewer.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dunlin_config::StatusFleet;
use tokio::runtime::Builder;

use crate::collectors::{Collectors, Entry, Latest};
use crate::replicas::Replicas;
use crate::report::{Replica, ReplicaSum, Report, seconds};

/// The servers, as far as they are known.
struct Known {
    fleet: StatusFleet,
    replicas: Replicas,
    /// Why the name could not be resolved.
    error: Option<String>,
    each: BTreeMap<SocketAddr, State>,
}

/// What is known of one server.
#[derive(Default)]
struct State {
    /// Its last report, and when it came.
    last: Option<(Report, Instant)>,
    /// Why there is no later one.
    error: Option<String>,
}

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum wait for the report of a server.
const LIMIT: Duration = Duration::from_secs(1);
/// Maximum wait for the addresses.
const RESOLVE: Duration = Duration::from_secs(5);

/// Begins to view the sum of these servers, which `resolvers` find. A thread collects it, if none does.
///
/// # Errors
/// When the thread cannot start.
pub fn subscribe(
    collectors: &Arc<Collectors>,
    fleet: &StatusFleet,
    resolvers: &[SocketAddr],
) -> io::Result<Latest> {
    let (latest, entry) = collectors.subscribe(fleet, resolvers);
    if let Some(entry) = entry {
        // It leaves the list if the thread cannot start.
        std::thread::Builder::new().name("replicas".into()).spawn(move || run(&entry))?;
    }
    Ok(latest)
}

fn run(entry: &Entry) {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(collect(entry)),
        Err(error) => tracing::error!("status: replicas cannot be added up: {error}"),
    }
}

async fn collect(entry: &Entry) {
    let collector = entry.collector();
    let mut known = Known::new(&collector.fleet, &collector.resolvers);
    while !entry.leave_unwatched() {
        known.update().await;
        match known.sum() {
            Ok(text) => _ = collector.latest.send_replace(Some(text.into())),
            Err(error) => tracing::error!("status: adding up the replicas: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl Known {
    fn new(fleet: &StatusFleet, resolvers: &[SocketAddr]) -> Self {
        let replicas = Replicas::new(&fleet.name, resolvers.to_vec(), &fleet.path, LIMIT);
        Self { fleet: fleet.clone(), replicas, error: None, each: BTreeMap::new() }
    }

    /// Resolves the name, and requests the reports. Without a name server, the servers are those of before.
    async fn update(&mut self) {
        let resolved = tokio::time::timeout(RESOLVE, self.replicas.addresses()).await;
        let resolved = resolved.unwrap_or_else(|_| Err("no name server has responded".into()));
        self.error = match resolved {
            Ok(addresses) => {
                self.each.retain(|address, _| addresses.contains(address));
                for address in addresses {
                    self.each.entry(address).or_default();
                }
                None
            }
            Err(error) => Some(error),
        };
        let addresses: Vec<_> = self.each.keys().copied().collect();
        for (address, result) in self.replicas.fetch(&addresses).await {
            let state = self.each.entry(address).or_default();
            match result {
                Ok(report) => {
                    *state = State { last: Some((report, Instant::now())), error: None };
                }
                Err(error) => state.error = Some(error),
            }
        }
    }

    /// Returns the sum of the last reports, as JSON.
    fn sum(&self) -> serde_json::Result<String> {
        let reports: Vec<_> =
            self.each.values().filter_map(|state| Some(state.last.as_ref()?.0.clone())).collect();
        let mut sum = Report::sum(&reports);
        // Old reports must not stop the time.
        sum.server.time = seconds(SystemTime::now());
        let each = self.each.iter().map(|(address, state)| Replica {
            address: address.to_string(),
            started: state.last.as_ref().map(|(report, _)| report.server.started),
            age: state.last.as_ref().map(|(_, at)| at.elapsed().as_secs_f64()),
            requests: state.last.as_ref().map_or(0, |(report, _)| report.requests.total),
            error: state.error.clone(),
        });
        sum.replicas = Some(ReplicaSum {
            name: self.fleet.name.clone(),
            error: self.error.clone(),
            each: each.collect(),
        });
        serde_json::to_string(&sum)
    }
}
