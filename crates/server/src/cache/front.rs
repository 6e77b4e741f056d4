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

use super::resource::Resource;
use super::store::Store;
use super::stored::Stored;
use super::watch::Version;
use crate::checks::Checks;
use crate::config::Settings;

/// Resources by site and path as it stands in the request, before any decoding.
///
/// With many files what costs is memory that is in no processor's cache: the table has only references, and
/// what is compared stands with what is used next.
#[derive(Debug, Default)]
pub(crate) struct Front {
    table: HashTable<Rc<Hit>>,
    hasher: DefaultHashBuilder,
    most: usize,
    retired: (usize, usize),
}

/// A resource as one worker holds it: counted without touching what other cores read. What is compared stands in
/// one line of a processor's cache, and what most answers need in the next.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Hit {
    key: FrontKey,
    /// What [`Version::changes`] was when the version was last looked at, and until when it is trusted.
    seen: Cell<u64>,
    until: Cell<u64>,
    pub(crate) settings: Arc<Settings>,
    /// The plain 200 as it is sent, when nothing about it depends on the request or the time.
    pub(crate) plain: Option<Plain>,
    pub(crate) version: Arc<Version>,
    pub(crate) resource: Arc<Resource>,
    /// The gates of the file's own path, when that is not the requested one: of an index file, or one
    /// that the route looks for.
    pub(crate) checks: Option<Arc<Checks>>,
}

/// A representation in memory; see [`super::Representation::block`].
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) block: Bytes,
    head_length: u32,
    /// Nobody but the gates of its route has to be asked whether it may be sent as it is, and the client is not
    /// told with it how long it took.
    is_ready: bool,
}

impl Plain {
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

impl Hit {
    /// Of a resource by that path of a site.
    pub(crate) fn new(
        (site, path): (usize, &[u8]),
        resource: Arc<Resource>,
        checks: Option<Arc<Checks>>,
    ) -> Self {
        let (identity, settings) = (&resource.identity, &resource.settings);
        let is_plain = settings.expires.is_none() && matches!(identity.body, Stored::Memory(_));
        let is_ready = checks.is_none() && !settings.server_timing;
        // No head is as long as could not be told.
        let head_length = u32::try_from(identity.head_length).ok().filter(|_| is_plain);
        let block = || identity.block.clone();
        Self {
            key: FrontKey { site, path: SmallVec::from_slice(path) },
            // It is looked at with the first use.
            seen: Cell::new(u64::MAX),
            until: Cell::new(0),
            settings: Arc::clone(settings),
            plain: head_length.map(|head_length| Plain { block: block(), head_length, is_ready }),
            version: Arc::clone(&resource.version),
            resource,
            checks,
        }
    }

    /// Whether there is a plain 200 that may be sent as it is.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.plain.as_ref().is_some_and(|plain| plain.is_ready)
    }

    /// Whether it may be used now (in milliseconds) without asking the disk.
    #[inline]
    fn is_fresh(&self, now: u64) -> bool {
        let changes = Version::changes();
        self.seen.get() == changes && now < self.until.get() || self.look(changes, now)
    }

    /// Looks at the version, which is elsewhere in memory.
    #[cold]
    fn look(&self, changes: u64, now: u64) -> bool {
        let is_fresh = self.version.is_fresh(now);
        if is_fresh {
            self.version.touch();
            self.seen.set(changes);
            self.until.set(self.version.trusted_until());
        }
        is_fresh
    }
}

/// A path as it stands in a request to a site.
#[derive(Debug)]
struct FrontKey {
    site: usize,
    path: SmallVec<[u8; 40]>,
}

impl FrontKey {
    fn is(&self, site: usize, path: &[u8]) -> bool {
        self.site == site && *self.path == *path
    }
}

impl Front {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Takes over what another knows of sites that there still are.
    pub(crate) fn take_over(&mut self, other: &RefCell<Self>, has: impl Fn(usize) -> bool) {
        let mut other = other.borrow_mut();
        self.table = std::mem::take(&mut other.table);
        self.hasher = other.hasher.clone();
        self.table.retain(|hit| has(hit.key.site));
        if self.table.len() >= self.most {
            self.table.clear();
        }
    }

    /// What that path is, if it is known and may be used now (`now` in milliseconds).
    #[inline]
    pub(crate) fn get(&self, site: usize, path: &[u8], now: u64) -> Option<&Rc<Hit>> {
        let hash = self.hasher.hash_one((site, path));
        let hit = self.table.find(hash, |hit| hit.key.is(site, path))?;
        hit.is_fresh(now).then_some(hit)
    }

    pub(crate) fn insert(&mut self, store: &Store, hit: Hit) -> Rc<Hit> {
        if store.has_retired_much(&mut self.retired) {
            self.sweep();
        }
        if self.table.len() >= self.most {
            // Spellings of paths are the client's to choose, so that there is no end to them;
            // the store has what is needed to fill this again.
            self.table.clear();
        }
        let hit = Rc::new(hit);
        let FrontKey { site, path } = &hit.key;
        let hash_of = |hit: &Rc<Hit>| self.hasher.hash_one((hit.key.site, &*hit.key.path));
        let hash = hash_of(&hit);
        match self.table.entry(hash, |known| known.key.is(*site, path), hash_of) {
            Entry::Occupied(mut known) => *known.get_mut() = Rc::clone(&hit),
            Entry::Vacant(place) => drop(place.insert(Rc::clone(&hit))),
        }
        hit
    }

    /// Lets go of what is not to be used any more, so that its memory is free.
    pub(crate) fn sweep(&mut self) {
        self.table.retain(|hit| !hit.version.is_stale());
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn what_most_answers_need_is_in_two_lines_of_a_processors_cache() {
        assert_eq!((offset_of!(Hit, key), offset_of!(Hit, seen)), (0, 64));
        assert_eq!(
            (offset_of!(Hit, plain) + size_of::<Option<Plain>>(), align_of::<Hit>()),
            (128, 64)
        );
    }
}
