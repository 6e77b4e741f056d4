//! The state of the response cache that all workers share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use dunlin_admission::common::CommonStore;
use dunlin_admission::sampler::SharedSampler;
use dunlin_http::ChunkQueue;
use dunlin_response_cache::flight::{Flights, Writer};
use dunlin_response_cache::key::Key;
use dunlin_response_cache::memory::{Found, Memory, Purge};
use dunlin_response_cache::presented::Presented;
use dunlin_response_cache::stored::Stored;
use dunlin_response_cache::uncacheable_marks::UncacheableMarks;
use dunlin_response_disk::Removal;
use tokio::sync::oneshot;

use crate::disk_cache::DiskCache;
use crate::route::sites::Sites;

/// The bodies on their way may hold this part of the memory of the caches, besides it.
const PART_IN_FLIGHT: u64 = 4;

/// The response cache.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    pub(crate) memory: Memory,
    /// The responses on disk; `None` if the configuration names no directory.
    pub(crate) disk: Option<Arc<DiskCache>>,
    pub(crate) flights: Arc<Flights>,
    /// URLs whose requests do not wait for each other.
    pub(crate) marks: UncacheableMarks,
    pub(crate) counts: Counts,
    /// Chooses the requests that count as uses.
    sampler: SharedSampler,
    /// A store holds it for reading, and a removal for writing at its beginning: a response whose request is older than a
    /// removal is not stored after it.
    changes: RwLock<()>,
}

/// Requests by their outcome, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) revalidated: AtomicU64,
    pub(crate) collapsed: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) bypassed: AtomicU64,
}

impl ResponseCache {
    /// Returns the cache for these sites, with memory of `store`, and with `disk`; `None` if none of their routes needs one.
    /// Keeps `before` if it has the same of both.
    pub(crate) fn for_sites(
        sites: &Sites,
        before: Option<&Arc<Self>>,
        (store, disk): (&Arc<CommonStore>, Option<&Arc<DiskCache>>),
    ) -> Option<Arc<Self>> {
        if !sites.iter().any(|site| site.caches_responses()) {
            return None;
        }
        let is_same = |before: &&Arc<Self>| {
            Arc::ptr_eq(before.memory.store(), store)
                && before.disk.as_ref().map(Arc::as_ptr) == disk.map(Arc::as_ptr)
        };
        if let Some(before) = before.filter(is_same) {
            return Some(Arc::clone(before));
        }
        let in_flight = ChunkQueue::most_held(store.bounds().bytes as u64 / PART_IN_FLIGHT);
        Some(Arc::new(Self {
            memory: Memory::new(Arc::clone(store)),
            disk: disk.cloned(),
            flights: Flights::new(in_flight),
            marks: UncacheableMarks::default(),
            counts: Counts::default(),
            sampler: SharedSampler::default(),
            changes: RwLock::default(),
        }))
    }

    /// Returns `true` if a request is one of those that count as uses of their keys.
    pub(super) fn is_sampled(&self) -> bool {
        self.sampler.is_due()
    }

    /// Finds the response in memory for a request, which counts as a use of its key if it is sampled.
    pub(super) fn find(
        &self,
        key: (usize, &[u8]),
        request: &dyn Presented,
        is_sampled: bool,
    ) -> Found {
        let found = self.memory.find(key, request, is_sampled);
        if let (true, Some(disk), Found::Response(_)) = (is_sampled, &self.disk, &found)
            && let Some(key) = disk.key(&Key { site: key.0, url: key.1.into() })
        {
            disk.disk.count(&key);
        }
        found
    }

    /// Stores the response whose body has ended, if it is to be stored.
    pub(super) fn store_end(&self, key: &Key, writer: &mut Writer) -> Option<Arc<Stored>> {
        let _changes = self.changing();
        let stored = Arc::new(writer.end()?);
        self.store(key, &stored);
        Some(stored)
    }

    /// Stores a response in place of `before`, which was validated.
    pub(super) fn update(&self, key: &Key, before: &Stored, stored: &Arc<Stored>) {
        /// Responses with a shorter lifetime are validated again soon: seconds.
        const LONG: u64 = 60;
        if stored.head.fields == before.head.fields && stored.head.freshness.lifetime < LONG {
            // The one on disk differs in its age only.
            self.memory.insert(key, stored);
        } else {
            self.store(key, stored);
        }
    }

    fn store(&self, key: &Key, stored: &Arc<Stored>) {
        self.memory.insert(key, stored);
        if let Some(disk) = &self.disk {
            disk.write(key, stored);
        }
    }

    /// While it is there, no removal begins.
    pub(super) fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what was about to be stored is stored. A removal that goes on from there finds it: what comes later is either
    /// new, or `mark` has marked it as removed, or it was not found on disk any more.
    fn end_changes_with(&self, mark: impl FnOnce()) {
        let _changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        mark();
    }

    fn end_changes(&self) {
        self.end_changes_with(|| {});
    }

    /// Removes what is stored for a URL.
    pub(super) fn remove(&self, key: &Key) {
        if let Some(disk) = &self.disk {
            disk.remove_url(key);
            self.end_changes();
        }
        self.memory.remove(key);
    }

    /// Removes what is stored for a URL, and keeps what is on its way from being stored.
    pub(crate) fn invalidate(&self, key: &Key) {
        self.end_changes_with(|| self.flights.invalidate(key));
        self.remove(key);
    }

    /// Removes responses of the site with that number, or of all sites, and keeps those that are on their way from being
    /// stored. Returns the number of URLs, and what resolves when they are removed from the disk. Takes time in proportion to the
    /// number of stored responses, but does not keep others from using them.
    pub(crate) fn purge(
        &self,
        site: Option<usize>,
        purge: &Purge,
    ) -> (usize, Option<oneshot::Receiver<()>>) {
        self.end_changes_with(|| self.flights.purge(site, purge));
        let in_memory = || self.memory.purge(site, purge);
        let Some(disk) = &self.disk else { return (in_memory().len(), None) };
        let number = site.map(|site| disk.number(site));
        // A site that is gone has nothing on disk.
        if number == Some(None) {
            return (in_memory().len(), None);
        }
        let (on_disk, done) = disk.remove(&Removal::Purge(number.flatten(), purge.clone()));
        self.end_changes();
        let mut all: HashSet<Key> = on_disk.into_iter().collect();
        all.extend(in_memory().iter().filter_map(|key| disk.key(key)));
        (all.len(), Some(done))
    }

    /// Removes the responses of sites for which `has` returns false.
    pub(crate) fn retain_sites(&self, has: impl Fn(usize) -> bool) {
        self.memory.retain_sites(has);
    }
}

/// Counts one.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
