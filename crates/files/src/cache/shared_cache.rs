//! The second level of the cache: shared by all workers, bounded by bytes, entries and descriptors.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use super::resource::Resource;

/// The key of a resource: its site and decoded path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The serial number of the site, which no other site of the process has or had.
    pub site: usize,
    /// The decoded path.
    pub path: Box<[u8]>,
}

/// Bounds of a [`SharedCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Maximum memory in bytes.
    pub(crate) bytes: usize,
    /// Maximum number of entries.
    pub(crate) entries: usize,
    /// Maximum number of open descriptors.
    pub(crate) descriptors: usize,
}

/// Resources by path. Eviction follows the CLOCK algorithm: an entry that was used since the hand last passed it gets
/// another round.
#[derive(Debug)]
pub struct SharedCache {
    bounds: Bounds,
    inner: Mutex<Inner>,
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
    /// Requests that the cache could not serve.
    pub misses: AtomicU64,
    /// Entries that were removed to make room.
    pub evictions: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    map: HashMap<Key, Entry>,
    clock: VecDeque<Key>,
    bytes: usize,
    descriptors: usize,
}

#[derive(Debug)]
struct Entry {
    resource: Arc<Resource>,
    bytes: usize,
    descriptors: usize,
}

impl SharedCache {
    /// The bounds of the cache.
    pub(crate) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// An empty cache.
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            inner: Mutex::default(),
            counters: Counters::default(),
            evicted: Default::default(),
        }
    }

    /// The resource of `key`, unless it was invalidated.
    pub fn get(&self, key: &Key) -> Option<Arc<Resource>> {
        let mut inner = self.lock();
        let resource = inner.map.get(key)?.resource.clone();
        if resource.validity.is_invalidated() {
            inner.remove(key);
            return None;
        }
        resource.validity.mark_used();
        Some(resource)
    }

    /// Inserts `resource` and evicts others to make room for it. A resource that exceeds the bounds by itself is not
    /// inserted, and its file is checked on each use.
    pub(crate) fn insert(&self, resource: Arc<Resource>) {
        let key = resource.key.clone();
        let (bytes, descriptors) = resource.cost();
        if bytes > self.bounds.bytes || descriptors > self.bounds.descriptors {
            resource.validity.set_fresh_until(0);
            return;
        }
        let mut inner = self.lock();
        if let Some(old) = inner.remove(&key) {
            old.validity.invalidate();
        }
        inner.bytes += bytes;
        inner.descriptors += descriptors;
        inner.map.insert(key.clone(), Entry { resource, bytes, descriptors });
        inner.clock.push_back(key);
        self.make_room(&mut inner);
    }

    /// Updates the cost of a resource after an encoded variant was added to it.
    pub(crate) fn recount(&self, resource: &Arc<Resource>) {
        let (bytes, descriptors) = resource.cost();
        let mut inner = self.lock();
        let Some(entry) =
            inner.map.get_mut(&resource.key).filter(|e| Arc::ptr_eq(&e.resource, resource))
        else {
            return;
        };
        let (old_bytes, old_descriptors) = (entry.bytes, entry.descriptors);
        (entry.bytes, entry.descriptors) = (bytes, descriptors);
        inner.bytes = inner.bytes - old_bytes + bytes;
        inner.descriptors = inner.descriptors - old_descriptors + descriptors;
        self.make_room(&mut inner);
    }

    /// Expires every resource: its file is checked before the next use.
    pub(crate) fn expire_all(&self) {
        for entry in self.lock().map.values() {
            entry.resource.validity.limit_fresh_until(0);
        }
    }

    /// Invalidates and removes every resource.
    pub fn clear(&self) {
        let mut inner = self.lock();
        for entry in inner.map.values() {
            entry.resource.validity.invalidate();
        }
        *inner = Inner::default();
    }

    /// Evicts every resource that holds a descriptor.
    pub fn release_descriptors(&self) {
        let mut inner = self.lock();
        let open = |(key, entry): (&Key, &Entry)| (entry.descriptors > 0).then(|| key.clone());
        let open: Vec<Key> = inner.map.iter().filter_map(open).collect();
        for key in open {
            if let Some(resource) = inner.remove(&key) {
                resource.validity.invalidate();
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Removes the resources of sites for which `has` returns false.
    pub(crate) fn retain_sites(&self, has: impl Fn(usize) -> bool) {
        let mut inner = self.lock();
        let gone: Vec<Key> = inner.map.keys().filter(|key| !has(key.site)).cloned().collect();
        for key in gone {
            if let Some(resource) = inner.remove(&key) {
                resource.validity.invalidate();
            }
        }
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
        let inner = self.lock();
        (inner.bytes, inner.map.len(), inner.descriptors)
    }

    fn make_room(&self, inner: &mut Inner) {
        while inner.bytes > self.bounds.bytes
            || inner.map.len() > self.bounds.entries
            || inner.descriptors > self.bounds.descriptors
        {
            let Some(key) = inner.clock.pop_front() else { return };
            let Some(entry) = inner.map.get(&key) else { continue };
            let validity = &entry.resource.validity;
            if !validity.is_invalidated() && validity.take_used() {
                inner.clock.push_back(key);
                continue;
            }
            self.evicted.0.fetch_add(entry.bytes, Ordering::Relaxed);
            self.evicted.1.fetch_add(entry.descriptors, Ordering::Relaxed);
            if let Some(resource) = inner.remove(&key) {
                if !resource.validity.is_invalidated() {
                    self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                }
                resource.validity.invalidate();
            }
        }
        // Removed keys stay in the clock; drop them when they outnumber the live ones.
        if inner.clock.len() > 2 * inner.map.len() + 64 {
            let Inner { map, clock, .. } = inner;
            let mut seen = hashbrown::HashSet::new();
            clock.retain(|key| map.contains_key(key) && seen.insert(key.clone()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remove(&mut self, key: &Key) -> Option<Arc<Resource>> {
        let entry = self.map.remove(key)?;
        self.bytes -= entry.bytes;
        self.descriptors -= entry.descriptors;
        Some(entry.resource)
    }
}
