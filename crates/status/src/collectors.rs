//! The sums of several servers that are viewed. `collector` has the threads that make them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_config::StatusFleet;
use tokio::sync::watch;

/// The last sum as JSON; `None` before the first one.
pub type Latest = watch::Receiver<Option<Arc<str>>>;

/// The sums that are viewed.
#[derive(Debug, Default)]
pub struct Collectors(Mutex<Vec<Arc<Collector>>>);

/// What a thread collects.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) fleet: StatusFleet,
    pub(crate) resolvers: Vec<SocketAddr>,
    pub(crate) latest: watch::Sender<Option<Arc<str>>>,
}

impl Collectors {
    /// Adds a viewer of the sum of these servers. Returns the new entry, which a thread has to fill, if there was none.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        fleet: &StatusFleet,
        resolvers: &[SocketAddr],
    ) -> (Latest, Option<Entry>) {
        let mut all = self.lock();
        let of_these = |one: &&Arc<Collector>| one.fleet == *fleet && one.resolvers == resolvers;
        if let Some(collector) = all.iter().find(of_these) {
            return (collector.latest.subscribe(), None);
        }
        let (latest, receiver) = watch::channel(None);
        let (fleet, resolvers) = (fleet.clone(), resolvers.to_vec());
        let collector = Arc::new(Collector { fleet, resolvers, latest });
        all.push(Arc::clone(&collector));
        (receiver, Some(Entry { collectors: Arc::clone(self), collector }))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Collector>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A collector in the list, which its thread leaves when it ends.
pub(crate) struct Entry {
    collectors: Arc<Collectors>,
    collector: Arc<Collector>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.collectors.lock().retain(|other| !Arc::ptr_eq(other, &self.collector));
    }
}

impl Entry {
    pub(crate) fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Leaves the list if there is no viewer, so that no further one can come. Returns whether it did.
    pub(crate) fn leave_unwatched(&self) -> bool {
        let mut all = self.collectors.lock();
        let is_unwatched = self.collector.latest.receiver_count() == 0;
        if is_unwatched {
            all.retain(|other| !Arc::ptr_eq(other, &self.collector));
        }
        is_unwatched
    }
}
