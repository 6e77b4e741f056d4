//! The layer that one worker has to itself.

use std::cell::{Cell, RefCell};
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_http::semantics::Method;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use super::content::StoredContent;
use super::resource::Resource;
use super::shared_cache::SharedCache;
use super::watch::Validity;
use crate::checks::Checks;
use crate::config::Settings;

/// Resources by site and path as it stands in the request, before any decoding.
///
/// With many files what costs is memory that is in no processor's cache: the table has only references, and
/// what is compared stands with what is used next.
#[derive(Debug, Default)]
pub(crate) struct WorkerCache {
    table: HashTable<Rc<CacheEntry>>,
    hasher: DefaultHashBuilder,
    most: usize,
    evicted: (usize, usize),
}

/// A resource as one worker holds it: counted without touching what other cores read. What is compared stands in
/// one line of a processor's cache, and what most answers need in the next.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct CacheEntry {
    key: EntryKey,
    /// What [`Validity::epoch`] was when the version was last looked at, and until when it is trusted.
    seen: Cell<u64>,
    until: Cell<u64>,
    pub(crate) settings: Arc<Settings>,
    /// The plain 200 as it is sent, when nothing about it depends on the request or the time.
    pub(crate) prebuilt: Option<Prebuilt>,
    pub(crate) validity: Arc<Validity>,
    pub(crate) resource: Arc<Resource>,
    /// The gates of the file's own path, when that is not the requested one: of an index file, or one
    /// that the route looks for.
    pub(crate) checks: Option<Arc<Checks>>,
}

/// A representation in memory; see [`super::Representation::block`].
#[derive(Debug)]
pub(crate) struct Prebuilt {
    pub(crate) block: Bytes,
    head_length: u32,
    /// Nobody but the gates of its route has to be asked whether it may be sent as it is, and the client is not
    /// told with it how long it took.
    is_ready: bool,
}

impl Prebuilt {
    /// Bytes of the head.
    #[inline]
    pub(crate) fn head_length(&self) -> usize {
        self.head_length as usize
    }

    /// The part of the body that is sent.
    #[inline]
    pub(crate) fn sent(&self, method: Method) -> &[u8] {
        let body = &self.block[self.head_length()..];
        if method == Method::Head { &[] } else { body }
    }
}

impl CacheEntry {
    /// Of a resource by that path of a site.
    pub(crate) fn new(
        (site, path): (usize, &[u8]),
        resource: Arc<Resource>,
        checks: Option<Arc<Checks>>,
    ) -> Self {
        let (identity, settings) = (&resource.identity, &resource.settings);
        let is_plain =
            settings.expires.is_none() && matches!(identity.body, StoredContent::Memory(_));
        let is_ready = checks.is_none() && !settings.server_timing;
        // No head is as long as could not be told.
        let head_length = u32::try_from(identity.head_length).ok().filter(|_| is_plain);
        let block = || identity.block.clone();
        Self {
            key: EntryKey { site, path: SmallVec::from_slice(path) },
            // It is looked at with the first use.
            seen: Cell::new(u64::MAX),
            until: Cell::new(0),
            settings: Arc::clone(settings),
            prebuilt: head_length.map(|head_length| Prebuilt {
                block: block(),
                head_length,
                is_ready,
            }),
            validity: Arc::clone(&resource.validity),
            resource,
            checks,
        }
    }

    /// Whether there is a plain 200 that may be sent as it is.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.prebuilt.as_ref().is_some_and(|prebuilt| prebuilt.is_ready)
    }

    /// Whether it may be used now (in milliseconds) without asking the disk.
    #[inline]
    fn is_fresh(&self, now: u64) -> bool {
        let changes = Validity::epoch();
        self.seen.get() == changes && now < self.until.get() || self.look(changes, now)
    }

    /// Looks at the version, which is elsewhere in memory.
    #[cold]
    fn look(&self, changes: u64, now: u64) -> bool {
        let is_fresh = self.validity.is_fresh(now);
        if is_fresh {
            self.validity.mark_used();
            self.seen.set(changes);
            self.until.set(self.validity.fresh_until());
        }
        is_fresh
    }
}

/// A path as it stands in a request to a site.
#[derive(Debug)]
struct EntryKey {
    site: usize,
    path: SmallVec<[u8; 40]>,
}

impl EntryKey {
    fn is(&self, site: usize, path: &[u8]) -> bool {
        self.site == site && *self.path == *path
    }
}

impl WorkerCache {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Takes over what another knows of sites that there still are.
    pub(crate) fn take_over(&mut self, other: &RefCell<Self>, has: impl Fn(usize) -> bool) {
        let mut other = other.borrow_mut();
        self.table = std::mem::take(&mut other.table);
        self.hasher = other.hasher.clone();
        self.table.retain(|entry| has(entry.key.site));
        if self.table.len() >= self.most {
            self.table.clear();
        }
    }

    /// What that path is, if it is known and may be used now (`now` in milliseconds).
    #[inline]
    pub(crate) fn get(&self, site: usize, path: &[u8], now: u64) -> Option<&Rc<CacheEntry>> {
        let hash = self.hasher.hash_one((site, path));
        let entry = self.table.find(hash, |entry| entry.key.is(site, path))?;
        entry.is_fresh(now).then_some(entry)
    }

    pub(crate) fn insert(&mut self, shared: &SharedCache, entry: CacheEntry) -> Rc<CacheEntry> {
        if shared.has_evicted_much(&mut self.evicted) {
            self.sweep();
        }
        if self.table.len() >= self.most {
            // Spellings of paths are the client's to choose, so that there is no end to them;
            // the store has what is needed to fill this again.
            self.table.clear();
        }
        let entry = Rc::new(entry);
        let EntryKey { site, path } = &entry.key;
        let hash_of =
            |entry: &Rc<CacheEntry>| self.hasher.hash_one((entry.key.site, &*entry.key.path));
        let hash = hash_of(&entry);
        match self.table.entry(hash, |known| known.key.is(*site, path), hash_of) {
            Entry::Occupied(mut known) => *known.get_mut() = Rc::clone(&entry),
            Entry::Vacant(place) => drop(place.insert(Rc::clone(&entry))),
        }
        entry
    }

    /// Lets go of what is not to be used any more, so that its memory is free.
    pub(crate) fn sweep(&mut self) {
        self.table.retain(|entry| !entry.validity.is_invalidated());
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn what_most_answers_need_is_in_two_lines_of_a_processors_cache() {
        assert_eq!((offset_of!(CacheEntry, key), offset_of!(CacheEntry, seen)), (0, 64));
        assert_eq!(
            (
                offset_of!(CacheEntry, prebuilt) + size_of::<Option<Prebuilt>>(),
                align_of::<CacheEntry>()
            ),
            (128, 64)
        );
    }
}
