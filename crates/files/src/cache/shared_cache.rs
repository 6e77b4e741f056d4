//! The second level of the cache: shared by all workers, bounded by bytes, entries and descriptors.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use dunlin_admission::store::Cost;
use dunlin_admission::store::{Inserted, Store};
use hashbrown::DefaultHashBuilder;

use super::resource::Resource;

/// The key of a resource: its site and decoded path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The serial number of the site, which no other site of the process has or had.
    pub site: usize,
    /// The decoded path.
    pub path: Box<[u8]>,
}

/// Resources by path; [`Store`] describes what is admitted and evicted.
#[derive(Debug)]
pub struct SharedCache {
    bounds: Cost,
    hasher: DefaultHashBuilder,
    store: Mutex<Store<Key, Arc<Resource>>>,
    /// Counters for the status page.
    pub counters: Counters,
    /// Bytes and descriptors of all evicted entries since the start.
    evicted: (AtomicUsize, AtomicUsize),
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Responses from the cache.
    pub hits: AtomicU64,
    /// Bytes of the bodies of these responses.
    pub hit_bytes: AtomicU64,
    /// Requests that the cache could not serve.
    pub misses: AtomicU64,
    /// Bytes of the files of these requests.
    pub miss_bytes: AtomicU64,
    /// Files that were admitted.
    pub admitted: AtomicU64,
    /// Requests whose file was not admitted, as it is used less than those in the cache.
    pub rejected: AtomicU64,
    /// Removed entries.
    pub evictions: Evictions,
}

/// Removed entries by reason.
#[derive(Debug, Default)]
pub struct Evictions {
    /// Others are used more often.
    pub room: AtomicU64,
    /// The file has changed.
    pub changed: AtomicU64,
    /// Descriptors were needed for connections.
    pub descriptors: AtomicU64,
    /// Another configuration, or everything was invalidated.
    pub cleared: AtomicU64,
}

impl Evictions {
    /// The counts with the names of the reasons.
    pub fn by_reason(&self) -> [(&'static str, u64); 4] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("room", count(&self.room)),
            ("changed", count(&self.changed)),
            ("descriptors", count(&self.descriptors)),
            ("cleared", count(&self.cleared)),
        ]
    }
}

/// The result of [`SharedCache::look_up`].
#[derive(Debug)]
pub enum LookUp {
    /// The cache has it.
    Found(Arc<Resource>),
    /// The cache does not have it. `admit`: it is worth its memory.
    Missing {
        /// Whether to load and insert it.
        admit: bool,
    },
}

impl SharedCache {
    /// The bounds of the cache.
    pub(crate) fn bounds(&self) -> Cost {
        self.bounds
    }

    /// An empty cache.
    pub(crate) fn new(bounds: Cost) -> Self {
        Self {
            bounds,
            hasher: DefaultHashBuilder::default(),
            store: Mutex::new(Store::new(bounds)),
            counters: Counters::default(),
            evicted: Default::default(),
        }
    }

    /// The hash of a key, for [`SharedCache::count`].
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The resource of `key`, unless it was invalidated.
    pub fn get(&self, key: &Key) -> Option<Arc<Resource>> {
        self.get_from(&mut self.lock(), self.hash(key), key)
    }

    /// The resource of `key`, or whether to insert it. A request that is `sampled` counts as a use; when the cache is full,
    /// only such a request has something admitted.
    pub fn look_up(&self, key: &Key, sampled: bool) -> LookUp {
        let hash = self.hash(key);
        let mut store = self.lock();
        if sampled {
            store.count(hash);
        }
        if let Some(resource) = self.get_from(&mut store, hash, key) {
            return LookUp::Found(resource);
        }
        let admit = store.has_room() || sampled && store.would_displace(hash);
        if !admit {
            self.counters.rejected.fetch_add(1, Ordering::Relaxed);
        }
        LookUp::Missing { admit }
    }

    /// Counts uses of keys with these hashes. Drops them while another worker uses the cache, so that no hit waits.
    pub(crate) fn count(&self, hashes: &[u64]) {
        if let Ok(mut store) = self.store.try_lock() {
            hashes.iter().for_each(|&hash| store.count(hash));
        }
    }

    /// Inserts `resource` and evicts others to make room for it. A resource that exceeds the bounds by itself, or that is
    /// used less than those in the cache, is not inserted.
    pub(crate) fn insert(&self, resource: &Arc<Resource>) {
        let (key, cost) = (resource.key.clone(), resource.cost());
        let hash = self.hash(&key);
        match self.lock().insert((hash, key), Arc::clone(resource), cost) {
            Inserted::Rejected => {
                self.counters.rejected.fetch_add(1, Ordering::Relaxed);
            }
            Inserted::Stored { replaced, evicted } => {
                resource.set_cached();
                self.counters.admitted.fetch_add(1, Ordering::Relaxed);
                self.end(replaced, &self.counters.evictions.changed);
                self.end_evicted(evicted);
            }
        }
    }

    /// Updates the cost of a resource after an encoded variant was added to it.
    pub(crate) fn recount(&self, resource: &Arc<Resource>) {
        let key = &resource.key;
        let is_it = |stored: &Arc<Resource>| Arc::ptr_eq(stored, resource);
        let evicted = self.lock().set_cost((self.hash(key), key), resource.cost(), is_it);
        self.end_evicted(evicted);
    }

    /// Expires every resource: its file is checked before the next use.
    pub(crate) fn expire_all(&self) {
        for resource in self.lock().values() {
            resource.validity.limit_fresh_until(0);
        }
    }

    /// Invalidates and removes every resource.
    pub fn clear(&self) {
        let removed = self.lock().remove_if(|_, _, _| true);
        self.end(removed, &self.counters.evictions.cleared);
    }

    /// Evicts every resource that holds a descriptor.
    pub fn release_descriptors(&self) {
        let removed = self.lock().remove_if(|_, _, cost| cost.descriptors > 0);
        self.end(removed, &self.counters.evictions.descriptors);
    }

    /// Removes the resources of sites for which `has` returns false.
    pub(crate) fn retain_sites(&self, has: impl Fn(usize) -> bool) {
        let removed = self.lock().remove_if(|key, _, _| !has(key.site));
        self.end(removed, &self.counters.evictions.cleared);
    }

    /// Size in bytes of the largest file that is copied into the cache.
    pub(crate) fn largest_copy(&self) -> u64 {
        (self.bounds.bytes / 8) as u64
    }

    /// Whether more than an eighth of the bounds was evicted since `seen`, so that a worker should sweep its own cache.
    /// Updates `seen` in that case.
    pub(crate) fn has_evicted_much(&self, seen: &mut (usize, usize)) -> bool {
        let bytes = self.evicted.0.load(Ordering::Relaxed);
        let descriptors = self.evicted.1.load(Ordering::Relaxed);
        let much = bytes - seen.0 > self.bounds.bytes / 8
            || descriptors - seen.1 > self.bounds.descriptors / 8;
        if much {
            *seen = (bytes, descriptors);
        }
        much
    }

    /// Current bytes, entries and descriptors.
    pub fn usage(&self) -> (usize, usize, usize) {
        let Cost { bytes, entries, descriptors } = self.lock().used();
        (bytes, entries, descriptors)
    }

    fn get_from(
        &self,
        store: &mut Store<Key, Arc<Resource>>,
        hash: u64,
        key: &Key,
    ) -> Option<Arc<Resource>> {
        let resource = Arc::clone(store.get(hash, key)?);
        if !resource.validity.is_invalidated() {
            return Some(resource);
        }
        store.remove(hash, key);
        self.counters.evictions.changed.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Invalidates resources that were removed, for a reason that `counter` counts.
    fn end(&self, removed: impl IntoIterator<Item = Arc<Resource>>, counter: &AtomicU64) {
        for resource in removed {
            resource.validity.invalidate();
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Retires resources that made room for others. They stay valid: an invalidation would make every worker check all of
    /// its entries.
    fn end_evicted(&self, evicted: Vec<(Arc<Resource>, Cost)>) {
        for (resource, cost) in evicted {
            self.evicted.0.fetch_add(cost.bytes, Ordering::Relaxed);
            self.evicted.1.fetch_add(cost.descriptors, Ordering::Relaxed);
            resource.validity.retire();
            self.counters.evictions.room.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Store<Key, Arc<Resource>>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
