//! The state of the file side of one worker.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::resource::{Representation, Resource};
use super::cache::shared_cache::Key;
use super::cache::worker_cache::WorkerCache;
use super::shared::Shared;
use super::uncached;
use dunlin_net::clock::Clock;

/// The state of one worker with one configuration. `R` is the type of the caller's routes.
#[derive(Debug)]
pub struct Worker<R> {
    /// The state that the workers share.
    pub shared: Arc<Shared>,
    /// The first level of the cache.
    pub cache: RefCell<WorkerCache<R>>,
    /// Heads of files whose content is not cached.
    pub(super) heads: RefCell<WorkerCache<R>>,
    pub(super) clock: Rc<Clock>,
    /// Responses from the cache and others, since [`Worker::publish_counts`].
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl<R> Worker<R> {
    /// A worker whose cache has at most `max_entries` entries.
    pub fn new(shared: Arc<Shared>, clock: Rc<Clock>, max_entries: usize) -> Self {
        Self {
            shared,
            cache: RefCell::new(WorkerCache::new(max_entries)),
            heads: RefCell::new(WorkerCache::new(uncached::MAX_ENTRIES)),
            clock,
            hits: Cell::new(0),
            misses: Cell::new(0),
        }
    }

    /// The resource that the shared cache has for `key`.
    pub fn cached(&self, key: &Key) -> Option<Arc<Resource>> {
        self.shared.cache.get(key)
    }

    /// Whether `resource` may be used without a check of the file and without a copy of its content.
    pub fn is_usable(&self, resource: &Resource) -> bool {
        resource.validity.is_fresh(self.clock.now()) && !self.shared.is_worth_a_copy(resource)
    }

    /// Updates the clock if `Last-Modified` of the representation would be later than `Date`: the worker reads the clock
    /// only once per tick.
    pub fn update_clock_for(&self, form: &Representation) {
        if form.last_modified.is_some_and(|date| date > self.clock.unix()) {
            self.clock.update();
        }
    }

    /// Counts a response from the cache.
    #[inline]
    pub fn count_hit(&self) {
        self.hits.set(self.hits.get() + 1);
    }

    /// Counts a request that the cache could not serve.
    pub fn count_miss(&self) {
        self.misses.set(self.misses.get() + 1);
    }

    /// Whether a request was counted since [`Worker::publish_counts`].
    pub fn has_counts(&self) -> bool {
        self.hits.get() > 0 || self.misses.get() > 0
    }

    /// Adds the counts of this worker to those of the shared cache.
    pub fn publish_counts(&self) {
        let counters = &self.shared.cache.counters;
        counters.hits.fetch_add(self.hits.take(), Ordering::Relaxed);
        counters.misses.fetch_add(self.misses.take(), Ordering::Relaxed);
    }
}
