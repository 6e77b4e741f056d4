//! The state of the response cache that all workers share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use dunlin_admission::common::CommonStore;
use dunlin_admission::sampler::SharedSampler;
use dunlin_config::Config;
use dunlin_http::Request;
use dunlin_net::blocking;
use dunlin_response_cache::flight::{Flights, Writer};
use dunlin_response_cache::key::Key;
use dunlin_response_cache::marks::Marks;
use dunlin_response_cache::memory::{Found, Memory, Purge};
use dunlin_response_cache::stored::Stored;
use dunlin_response_disk::Removal;
use tokio::sync::oneshot;

use super::tier::Tier;
use crate::route::sites::Sites;

/// The bodies on their way may hold this part of the memory of the caches, besides it, and so may responses that wait to be written.
const PART_IN_FLIGHT: u64 = 4;

/// The response cache.
#[derive(Debug)]
pub(crate) struct ResponseCache {
    pub(crate) memory: Memory,
    /// The responses on disk; `None` if the configuration names no directory.
    pub(crate) disk: Option<Arc<Tier>>,
    pub(crate) flights: Arc<Flights>,
    /// URLs whose requests do not wait for each other.
    pub(crate) marks: Marks,
    pub(crate) counts: Counts,
    /// Chooses the requests that count as uses.
    sampler: SharedSampler,
    /// Who stores has it for reading, and who removes for writing: a response whose request is older than a removal is not stored
    /// after it.
    removing: RwLock<()>,
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
    /// The cache for these sites, with memory of `store`; `None` if none of their routes needs one. Keeps what of `before` has the same
    /// bounds.
    pub(crate) fn for_sites(
        sites: &Sites,
        config: &Config,
        before: Option<&Arc<Self>>,
        (store, pools): (&Arc<CommonStore>, &Arc<blocking::Pools>),
    ) -> Option<Arc<Self>> {
        if !sites.iter().any(|site| site.caches_responses()) {
            return None;
        }
        let tier_before = before.and_then(|before| before.disk.as_ref());
        let disk = Tier::new(sites, config, tier_before, pools);
        let is_same = |before: &&Arc<Self>| {
            Arc::ptr_eq(before.memory.store(), store)
                && before.disk.as_ref().map(Arc::as_ptr) == disk.as_ref().map(Arc::as_ptr)
        };
        if let Some(before) = before.filter(is_same) {
            return Some(Arc::clone(before));
        }
        Some(Arc::new(Self {
            memory: Memory::new(Arc::clone(store)),
            disk,
            flights: Flights::new(store.bounds().bytes as u64 / PART_IN_FLIGHT),
            marks: Marks::default(),
            counts: Counts::default(),
            sampler: SharedSampler::default(),
            removing: RwLock::default(),
        }))
    }

    /// Begins to use the directory, which `before` leaves unless it is the same. The user to which the server switches has to be
    /// there.
    pub(crate) fn takes_over(this: Option<&Arc<Self>>, before: Option<&Arc<Self>>) {
        let tier = |cache: Option<&Arc<Self>>| cache.and_then(|cache| cache.disk.clone());
        let (now, then) = (tier(this), tier(before));
        if now.as_ref().map(Arc::as_ptr) == then.as_ref().map(Arc::as_ptr) {
            return;
        }
        if let Some(then) = then {
            then.disk.close();
        }
        if let Some(now) = now {
            now.start();
        }
    }

    /// Finds the response in memory for a request, and counts some of the uses of its key.
    pub(crate) fn find(&self, key: (usize, &[u8]), request: &Request<'_>) -> Found {
        let is_sampled = self.sampler.is_due();
        let found = self.memory.find(key, request, is_sampled);
        if let (true, Some(tier), Found::Response(_)) = (is_sampled, &self.disk, &found)
            && let Some(key) = tier.key(&Key { site: key.0, url: key.1.into() })
        {
            tier.disk.count(&key);
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
        if let Some(tier) = &self.disk {
            let part = self.memory.store().bounds().bytes as u64 / PART_IN_FLIGHT;
            tier.write(key, stored, part);
        }
    }

    /// While it is there, nothing is removed.
    pub(super) fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.removing.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn removing(&self) -> RwLockWriteGuard<'_, ()> {
        self.removing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what is stored for a URL.
    pub(super) fn remove(&self, key: &Key) {
        let _removing = self.removing();
        self.memory.remove(key);
        if let Some(tier) = &self.disk {
            tier.remove_url(key);
        }
    }

    /// Removes what is stored for a URL, and keeps what is on its way from being stored.
    pub(crate) fn invalidate(&self, key: &Key) {
        let _removing = self.removing();
        self.flights.invalidate(key);
        self.memory.remove(key);
        if let Some(tier) = &self.disk {
            tier.remove_url(key);
        }
    }

    /// Removes responses of the site with that number, or of all sites, and keeps those that are on their way from being
    /// stored. Returns the number of URLs, and what resolves when they are removed from the disk.
    pub(crate) fn purge(
        &self,
        site: Option<usize>,
        purge: &Purge,
    ) -> (usize, Option<oneshot::Receiver<()>>) {
        let _removing = self.removing();
        self.flights.purge(site, purge);
        let in_memory = self.memory.purge(site, purge);
        let Some(tier) = &self.disk else { return (in_memory.len(), None) };
        let number = site.map(|site| tier.number(site));
        // A site that is gone has nothing on disk.
        if number == Some(None) {
            return (in_memory.len(), None);
        }
        let (on_disk, done) = tier.remove(&Removal::Purge(number.flatten(), purge.clone()));
        let mut all: HashSet<Key> = on_disk.into_iter().collect();
        all.extend(in_memory.iter().filter_map(|key| tier.key(key)));
        (all.len(), Some(done))
    }

    /// Removes the responses of sites for which `has` returns false.
    pub(crate) fn retain_sites(&self, has: impl Fn(usize) -> bool) {
        self.memory.retain_sites(&has);
        if let Some(tier) = &self.disk {
            tier.retain_sites(has);
        }
    }

    /// Waits until no response waits to be written, at most for `limit`. Blocks.
    pub(crate) fn finish_writing(&self, limit: Duration) {
        let began = Instant::now();
        let is_writing = || self.disk.as_ref().is_some_and(|tier| tier.waiting() > 0);
        while is_writing() && began.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Counts one.
pub(super) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
