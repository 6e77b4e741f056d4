//! The state of the file side of one worker.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::resource::Resource;
use super::cache::shared_cache::LookUp;
use super::cache::worker_cache::{CacheEntry, WorkerCache};
use super::descriptor_cache::DescriptorCache;
use super::shared::Shared;
use dunlin_admission::sampler::Sampler;
use dunlin_net::clock::Clock;

/// The state of one worker with one configuration. `R` is the type of the caller's routes.
#[derive(Debug)]
pub struct Worker<R> {
    /// The state that the workers share.
    pub shared: Arc<Shared>,
    /// The first level of the cache.
    pub cache: RefCell<WorkerCache<R>>,
    pub(super) clock: Rc<Clock>,
    pub(super) kept: RefCell<DescriptorCache>,
    /// Responses from the cache, the bytes of their bodies, and other responses, since [`Worker::publish_counts`].
    hits: Cell<u64>,
    hit_bytes: Cell<u64>,
    misses: Cell<u64>,
    miss_bytes: Cell<u64>,
    sampler: Sampler,
}

impl<R> Worker<R> {
    /// Creates a worker whose cache has at most `max_entries` entries.
    pub fn new(shared: Arc<Shared>, clock: Rc<Clock>, max_entries: usize) -> Self {
        Self {
            shared,
            cache: RefCell::new(WorkerCache::new(max_entries)),
            clock,
            kept: RefCell::default(),
            hits: Cell::new(0),
            hit_bytes: Cell::new(0),
            misses: Cell::new(0),
            miss_bytes: Cell::new(0),
            sampler: Sampler::default(),
        }
    }

    /// Returns the resource that the shared cache has for the decoded `path` of a site, or whether to insert it.
    pub fn look_up(&self, site: usize, path: &[u8]) -> LookUp {
        self.shared.cache.look_up(site, path, self.sampler.is_due())
    }

    /// Returns `true` if `resource` may be used without a check of the file and without a copy of its content.
    pub fn is_usable(&self, resource: &Resource) -> bool {
        resource.validity.is_fresh(self.clock.now()) && !self.shared.is_worth_a_copy(resource)
    }

    /// Updates the clock if `Last-Modified` (seconds since 1970) would be later than `Date`: the worker reads the clock only
    /// once per tick.
    pub fn update_clock_for(&self, last_modified: Option<u64>) {
        if last_modified.is_some_and(|date| date > self.clock.unix()) {
            self.clock.update();
        }
    }

    /// Counts a response from an entry of the worker's cache.
    #[inline]
    pub fn count_hit(&self, entry: &CacheEntry<R>) {
        self.add_hit(entry.length());
        if self.sampler.is_due() {
            let shared = &self.shared.cache;
            let hash = shared.hash(&entry.resource.key);
            self.sampler.hit(hash, |hashes| shared.count(hashes));
        }
    }

    /// Counts a response from the shared cache, where [`Worker::look_up`] has found it.
    pub fn count_shared_hit(&self, resource: &Resource) {
        self.add_hit(resource.identity.length);
    }

    #[inline]
    fn add_hit(&self, length: u64) {
        self.hits.set(self.hits.get() + 1);
        self.hit_bytes.set(self.hit_bytes.get() + length);
    }

    /// Counts a request that the cache could not serve.
    pub fn count_miss(&self) {
        self.misses.set(self.misses.get() + 1);
    }

    /// Counts the bytes of a file that the cache did not have.
    pub fn count_miss_bytes(&self, length: u64) {
        self.miss_bytes.set(self.miss_bytes.get() + length);
    }

    /// Frees what the worker holds of evicted and invalidated files, and closes the files that it keeps open.
    pub fn sweep(&self) {
        self.publish_counts();
        self.cache.borrow_mut().sweep();
        self.kept.borrow_mut().clear();
    }

    /// Returns `true` if a request was counted since [`Worker::publish_counts`].
    pub fn has_counts(&self) -> bool {
        self.hits.get() > 0 || self.misses.get() > 0
    }

    /// Adds the counts of this worker to those of the shared cache.
    pub fn publish_counts(&self) {
        let counters = &self.shared.cache.counters;
        counters.hits.fetch_add(self.hits.take(), Ordering::Relaxed);
        counters.hit_bytes.fetch_add(self.hit_bytes.take(), Ordering::Relaxed);
        counters.misses.fetch_add(self.misses.take(), Ordering::Relaxed);
        counters.miss_bytes.fetch_add(self.miss_bytes.take(), Ordering::Relaxed);
    }
}
