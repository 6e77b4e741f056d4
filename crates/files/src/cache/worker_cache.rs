//! The first level of the cache: one for each worker.

use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_http::semantics::Method;
use hashbrown::{DefaultHashBuilder, HashTable, hash_table};
use smallvec::SmallVec;

use super::resource::Resource;
use super::shared_cache::SharedCache;
use dunlin_fs::content::StoredContent;
use dunlin_fs::validity::Validity;

/// Entries by site and raw request path, before percent-decoding. `R` is the route of an entry, which the cache keeps for
/// the caller.
///
/// Entries are boxed so that the table stays dense; key and hot fields share cache lines.
#[derive(Debug)]
pub struct WorkerCache<R> {
    table: HashTable<Rc<CacheEntry<R>>>,
    hasher: DefaultHashBuilder,
    max_entries: usize,
    /// Bytes and descriptors that the shared cache had evicted at the last sweep.
    evicted: (usize, usize),
}

/// An entry: a reference to a resource that is counted without writing to memory that other cores read. The key fills the
/// first cache line, the fields that most responses need the second.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CacheEntry<R> {
    key: EntryKey,
    /// [`Validity::epoch`] when the validity was last read.
    epoch: Cell<u64>,
    /// [`Validity::fresh_until`] at that time.
    fresh_until: Cell<u64>,
    /// The route of the requested path.
    pub route: Arc<R>,
    /// The complete 200 response, when nothing in it depends on the request or the time.
    pub prebuilt: Option<Prebuilt>,
    /// The validity of the resource.
    pub validity: Arc<Validity>,
    /// The file.
    pub resource: Arc<Resource>,
    /// The route of the file's own path, when that path differs from the requested one (an index file, or a file of a `try`
    /// list) and its route has checks.
    pub owner: Option<Arc<R>>,
}

/// A complete response in memory; see [`Representation::block`](super::resource::Representation::block).
#[derive(Debug)]
pub struct Prebuilt {
    /// Head and body.
    pub block: Bytes,
    head_length: u32,
    /// The fast path may send it: only the checks of its route apply, and it has no `Server-Timing` field and no dictionary.
    is_ready: bool,
}

impl Prebuilt {
    /// Length of the head in bytes.
    #[inline]
    pub fn head_length(&self) -> usize {
        self.head_length as usize
    }

    /// Returns the body as it is sent: empty for HEAD.
    #[inline]
    pub fn sent(&self, method: Method) -> &[u8] {
        let body = &self.block[self.head_length()..];
        if method == Method::Head { &[] } else { body }
    }
}

impl<R> CacheEntry<R> {
    /// Creates an entry for `resource` under the raw path of a site.
    pub fn new(
        (site, path): (usize, &[u8]),
        route: Arc<R>,
        resource: Arc<Resource>,
        owner: Option<Arc<R>>,
    ) -> Self {
        let (identity, settings) = (&resource.identity, &resource.settings);
        let is_plain = settings.expires.is_none()
            && identity.remote.is_none()
            && matches!(identity.body, StoredContent::Memory(_));
        // A response to a client with TLS may need more fields, or a dictionary.
        let is_ready =
            owner.is_none() && !settings.server_timing && resource.dictionaries.is_none();
        // A head never exceeds 4 GiB.
        let head_length = u32::try_from(identity.head_length).ok().filter(|_| is_plain);
        let block = || identity.block.clone();
        Self {
            key: EntryKey { site, path: SmallVec::from_slice(path) },
            // Forces `refresh` on first use.
            epoch: Cell::new(u64::MAX),
            fresh_until: Cell::new(0),
            route,
            prebuilt: head_length.map(|head_length| Prebuilt {
                block: block(),
                head_length,
                is_ready,
            }),
            validity: Arc::clone(&resource.validity),
            resource,
            owner,
        }
    }

    /// Length in bytes of the body without content coding.
    #[inline]
    pub fn length(&self) -> u64 {
        match &self.prebuilt {
            Some(prebuilt) => (prebuilt.block.len() - prebuilt.head_length()) as u64,
            None => self.resource.identity.length,
        }
    }

    /// Returns `true` if the fast path may send the prebuilt response.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.prebuilt.as_ref().is_some_and(|prebuilt| prebuilt.is_ready)
    }

    /// Returns `true` if it may be used without a check of the file. `now` is in milliseconds of the worker's clock.
    #[inline]
    fn is_fresh(&self, now: u64) -> bool {
        let epoch = Validity::epoch();
        self.epoch.get() == epoch && now < self.fresh_until.get() || self.refresh(epoch, now)
    }

    /// Reads the validity, which is in another cache line.
    #[cold]
    fn refresh(&self, epoch: u64, now: u64) -> bool {
        let is_fresh = self.validity.is_fresh(now);
        if is_fresh {
            self.epoch.set(epoch);
            self.fresh_until.set(self.validity.fresh_until());
        }
        is_fresh
    }
}

/// A site and the raw path of a request to it.
#[derive(Debug)]
struct EntryKey {
    site: usize,
    path: SmallVec<[u8; 48]>,
}

impl EntryKey {
    #[inline]
    fn is(&self, site: usize, path: &[u8]) -> bool {
        self.site == site && *self.path == *path
    }
}

impl<R> WorkerCache<R> {
    /// Creates an empty cache.
    pub fn new(max_entries: usize) -> Self {
        Self {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            max_entries,
            evicted: (0, 0),
        }
    }

    /// Takes the entries of `other` whose sites still exist.
    pub fn take_over(&mut self, other: &RefCell<Self>, has: impl Fn(usize) -> bool) {
        let mut other = other.borrow_mut();
        self.table = std::mem::take(&mut other.table);
        self.hasher = other.hasher.clone();
        self.table.retain(|entry| has(entry.key.site));
        if self.table.len() >= self.max_entries {
            self.table.clear();
        }
    }

    /// Returns the entry for a raw path, if it is fresh. `now` is in milliseconds of the worker's clock.
    #[inline]
    pub fn get(&self, site: usize, path: &[u8], now: u64) -> Option<&Rc<CacheEntry<R>>> {
        let hash = self.hasher.hash_one((site, path));
        let entry = self.table.find(hash, |entry| entry.key.is(site, path))?;
        entry.is_fresh(now).then_some(entry)
    }

    /// Inserts an entry, after it removed what the shared cache has evicted.
    pub fn insert(&mut self, shared: &SharedCache, entry: CacheEntry<R>) -> Rc<CacheEntry<R>> {
        if shared.has_evicted_much(&mut self.evicted) {
            self.sweep();
        }
        if self.table.len() >= self.max_entries {
            // Clients choose the spelling of paths, so the number of keys is unbounded. The shared cache can refill
            // this one.
            self.table.clear();
        }
        let entry = Rc::new(entry);
        let EntryKey { site, path } = &entry.key;
        let hash_of =
            |entry: &Rc<CacheEntry<R>>| self.hasher.hash_one((entry.key.site, &*entry.key.path));
        let hash = hash_of(&entry);
        match self.table.entry(hash, |known| known.key.is(*site, path), hash_of) {
            hash_table::Entry::Occupied(mut known) => *known.get_mut() = Rc::clone(&entry),
            hash_table::Entry::Vacant(place) => drop(place.insert(Rc::clone(&entry))),
        }
        entry
    }

    /// Drops the entries that are invalid or were evicted from the shared cache, so that their memory is freed.
    pub fn sweep(&mut self) {
        self.table.retain(|entry| !entry.validity.is_retired());
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    type Entry = CacheEntry<()>;

    #[test]
    fn hot_fields_fill_two_cache_lines() {
        assert_eq!((offset_of!(Entry, key), offset_of!(Entry, epoch)), (0, 64));
        assert_eq!(
            (offset_of!(Entry, prebuilt) + size_of::<Option<Prebuilt>>(), align_of::<Entry>()),
            (128, 64)
        );
    }
}
