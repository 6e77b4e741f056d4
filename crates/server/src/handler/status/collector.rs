//! The sum of the reports of several servers, collected while it is viewed.
//!
//! A thread of its own resolves, requests and adds up, so that no worker does: workers get the text of the last sum. The thread
//! ends when there is no viewer.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dunlin_config::StatusFleet;
use tokio::runtime::Builder;
use tokio::sync::watch;

use super::replicas::Replicas;
use super::report::{Replica, ReplicaSum, Report, seconds};

/// The last sum as JSON; `None` before the first one.
pub(crate) type Latest = watch::Receiver<Option<Arc<str>>>;

/// The sums that are viewed.
#[derive(Debug, Default)]
pub(crate) struct Collectors(Mutex<Vec<Arc<Collector>>>);

/// What a thread collects.
#[derive(Debug)]
struct Collector {
    fleet: StatusFleet,
    resolvers: Vec<SocketAddr>,
    latest: watch::Sender<Option<Arc<str>>>,
}

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

impl Collectors {
    /// Begins to view the sum of these servers, which `resolvers` find.
    ///
    /// # Errors
    /// When the thread cannot start.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        fleet: &StatusFleet,
        resolvers: &[SocketAddr],
    ) -> io::Result<Latest> {
        let mut all = self.lock();
        let of_these = |one: &&Arc<Collector>| one.fleet == *fleet && one.resolvers == resolvers;
        if let Some(collector) = all.iter().find(of_these) {
            return Ok(collector.latest.subscribe());
        }
        let (latest, receiver) = watch::channel(None);
        let (fleet, resolvers) = (fleet.clone(), resolvers.to_vec());
        let collector = Arc::new(Collector { fleet, resolvers, latest });
        all.push(Arc::clone(&collector));
        drop(all);
        // It leaves the list if the thread cannot start.
        let entry = Entry { collectors: Arc::clone(self), collector };
        std::thread::Builder::new().name("replicas".into()).spawn(move || entry.run())?;
        Ok(receiver)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Collector>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A collector in the list, which its thread leaves when it ends.
struct Entry {
    collectors: Arc<Collectors>,
    collector: Arc<Collector>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.collectors.lock().retain(|other| !Arc::ptr_eq(other, &self.collector));
    }
}

impl Entry {
    fn run(self) {
        match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.collect()),
            Err(error) => tracing::error!("status: replicas cannot be added up: {error}"),
        }
    }

    async fn collect(&self) {
        let Collector { fleet, resolvers, latest } = &*self.collector;
        let mut known = Known::new(fleet, resolvers);
        while !self.is_unwatched() {
            known.update().await;
            match known.sum() {
                Ok(text) => _ = latest.send_replace(Some(text.into())),
                Err(error) => tracing::error!("status: adding up the replicas: {error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether there is no viewer. No further one can come then.
    fn is_unwatched(&self) -> bool {
        let mut all = self.collectors.lock();
        let is_unwatched = self.collector.latest.receiver_count() == 0;
        if is_unwatched {
            all.retain(|other| !Arc::ptr_eq(other, &self.collector));
        }
        is_unwatched
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

    /// The sum of the last reports, as JSON.
    fn sum(&self) -> serde_json::Result<String> {
        let reports: Vec<_> =
            self.each.values().filter_map(|state| Some(state.last.as_ref()?.0.clone())).collect();
        let mut sum = Report::sum(&reports)?;
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
