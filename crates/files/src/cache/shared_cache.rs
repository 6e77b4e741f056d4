//! The second level of the cache: shared by all workers, within bounds that the response cache shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dunlin_admission::common::{Cache, CommonStore, Entries, Entry, Id, downcast};
pub(crate) use dunlin_admission::store::Cost;

use super::resource::Resource;

/// The key of a resource: its site and decoded path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The serial number of the site, which no other site of the process has or had.
    pub site: usize,
    /// The decoded path.
    pub path: Box<[u8]>,
}

/// Resources by path; [`dunlin_admission::store`] describes what is admitted and evicted.
#[derive(Debug)]
pub struct SharedCache {
    store: Arc<CommonStore>,
    /// Counters for the status page.
    pub counters: Arc<CacheCounters>,
}

/// A resource in the store.
#[derive(Debug)]
struct Cached {
    resource: Arc<Resource>,
    counters: Arc<CacheCounters>,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct CacheCounters {
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
    /// Bytes of all evicted entries.
    evicted_bytes: AtomicUsize,
    /// Descriptors of all evicted entries.
    evicted_descriptors: AtomicUsize,
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
    /// Returns the counts with the names of the reasons.
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
    /// The cache does not have it. `admit`: the admission policy accepts it.
    Missing {
        /// The resource is to be loaded and inserted.
        admit: bool,
    },
}

impl Entry for Cached {
    /// Retires the resource. It stays valid: an invalidation would make every worker check all of its entries.
    fn evicted(&self, cost: Cost) {
        let counters = &self.counters;
        counters.evicted_bytes.fetch_add(cost.bytes, Ordering::Relaxed);
        counters.evicted_descriptors.fetch_add(cost.descriptors, Ordering::Relaxed);
        counters.evictions.room.fetch_add(1, Ordering::Relaxed);
        self.resource.validity.retire();
    }
}

impl Key {
    fn id(&self) -> Id<'_> {
        Id { cache: Cache::Files, site: self.site, name: &self.path }
    }
}

impl SharedCache {
    /// Creates a cache in that store, without resources.
    pub(crate) fn new(store: Arc<CommonStore>) -> Self {
        Self { store, counters: Arc::default() }
    }

    /// Returns the store, which other caches may share.
    pub fn store(&self) -> &Arc<CommonStore> {
        &self.store
    }

    /// Returns the hash of a key, for [`SharedCache::count`].
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        self.store.hash(key.id())
    }

    /// Returns the resource of `key`, unless it was invalidated.
    pub fn get(&self, key: &Key) -> Option<Arc<Resource>> {
        self.get_from(&mut self.store.lock(), self.hash(key), key.id())
    }

    /// Returns the resource of the file at `path` of a site, or whether to insert it. A request that is `sampled` counts as a
    /// use; when the cache is full, only such a request has something admitted.
    pub fn look_up(&self, site: usize, path: &[u8], sampled: bool) -> LookUp {
        let id = Id { cache: Cache::Files, site, name: path };
        let hash = self.store.hash(id);
        let mut store = self.store.lock();
        if sampled {
            store.count(hash);
        }
        if let Some(resource) = self.get_from(&mut store, hash, id) {
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
        if let Some(mut store) = self.store.try_lock() {
            hashes.iter().for_each(|&hash| store.count(hash));
        }
    }

    /// Inserts `resource` and evicts others to make room for it. A resource that exceeds the bounds by itself, or that is
    /// used less than what is cached, is not inserted.
    pub(crate) fn insert(&self, resource: &Arc<Resource>) {
        let (id, cost) = (resource.key.id(), resource.cost());
        let entry = Cached { resource: Arc::clone(resource), counters: Arc::clone(&self.counters) };
        let keyed = (self.store.hash(id), id);
        match self.store.insert(self.store.lock(), keyed, Arc::new(entry), cost) {
            Err(_) => {
                self.counters.rejected.fetch_add(1, Ordering::Relaxed);
            }
            Ok(replaced) => {
                resource.set_cached();
                self.counters.admitted.fetch_add(1, Ordering::Relaxed);
                end(replaced, &self.counters.evictions.changed);
            }
        }
    }

    /// Updates the cost of a resource after an encoded variant was added to it.
    pub(crate) fn recount(&self, resource: &Arc<Resource>) {
        let id = resource.key.id();
        let is_it = |cached: &Cached| Arc::ptr_eq(&cached.resource, resource);
        self.store.set_cost(self.store.hash(id), id, resource.cost(), is_it);
    }

    /// Expires every resource: its file is checked before the next use.
    pub(crate) fn expire_all(&self) {
        for cached in self.store.lock().values().filter_map(downcast::<Cached>) {
            cached.resource.validity.limit_fresh_until(0);
        }
    }

    /// Expires the resources of these objects: the store has to confirm them before the next use.
    pub(crate) fn expire_objects(&self, bucket: &str, keys: &[String]) {
        let is_named = |resource: &Resource| {
            resource.object().is_some_and(|object| {
                *object.bucket == *bucket
                    && keys.iter().any(|key| object.key == *key || is_sibling(&object.key, key))
            })
        };
        for cached in self.store.lock().values().filter_map(downcast::<Cached>) {
            if is_named(&cached.resource) {
                cached.resource.validity.limit_fresh_until(0);
            }
        }
    }

    /// Invalidates and removes every resource.
    pub fn clear(&self) {
        self.remove_if(|_, _| true, &self.counters.evictions.cleared);
    }

    /// Evicts every resource that holds a descriptor.
    pub fn release_descriptors(&self) {
        self.remove_if(|_, cost| cost.descriptors > 0, &self.counters.evictions.descriptors);
    }

    /// Removes the resources of sites for which `has` returns false.
    pub(crate) fn retain_sites(&self, has: impl Fn(usize) -> bool) {
        self.remove_if(|site, _| !has(site), &self.counters.evictions.cleared);
    }

    /// Invalidates and removes the resources whose site and cost `is_out` accepts, for a reason that `counter` counts.
    fn remove_if(&self, is_out: impl Fn(usize, Cost) -> bool, counter: &AtomicU64) {
        let is_out = |key: &_, _: &Cached, cost| {
            let dunlin_admission::common::Key { site, .. } = key;
            is_out(*site, cost)
        };
        end(self.store.remove_if(Cache::Files, is_out), counter);
    }

    /// Size in bytes of the largest file that is copied into the cache.
    pub(crate) fn largest_copy(&self) -> u64 {
        (self.store.bounds().bytes / 8) as u64
    }

    /// Returns `true` if more than an eighth of the bounds was evicted since `seen`, so that a worker should sweep its own
    /// cache. Updates `seen` in that case.
    pub(crate) fn has_evicted_much(&self, seen: &mut (usize, usize)) -> bool {
        let bytes = self.counters.evicted_bytes.load(Ordering::Relaxed);
        let descriptors = self.counters.evicted_descriptors.load(Ordering::Relaxed);
        let bounds = self.store.bounds();
        let much =
            bytes - seen.0 > bounds.bytes / 8 || descriptors - seen.1 > bounds.descriptors / 8;
        if much {
            *seen = (bytes, descriptors);
        }
        much
    }

    /// Current bytes, entries and descriptors.
    pub fn usage(&self) -> (usize, usize, usize) {
        let Cost { bytes, entries, descriptors } = self.store.used_by(Cache::Files);
        (bytes, entries, descriptors)
    }

    fn get_from(&self, store: &mut Entries, hash: u64, id: Id<'_>) -> Option<Arc<Resource>> {
        let cached: &Cached = CommonStore::get(store, hash, id)?;
        let resource = Arc::clone(&cached.resource);
        if !resource.validity.is_invalidated() {
            return Some(resource);
        }
        store.remove(hash, &id.to_key());
        self.counters.evictions.changed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Returns `true` if `key` is that of a precompressed sibling of an object.
fn is_sibling(object: &str, key: &str) -> bool {
    key.strip_prefix(object).is_some_and(|suffix| matches!(suffix, ".br" | ".gz" | ".zst"))
}

/// Invalidates resources that were removed, for a reason that `counter` counts.
fn end(removed: impl IntoIterator<Item = Arc<dyn Entry>>, counter: &AtomicU64) {
    for entry in removed {
        if let Some(cached) = downcast::<Cached>(&entry) {
            cached.resource.validity.invalidate();
        }
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
