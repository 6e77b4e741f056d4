//! The layer that one loop has to itself.

use std::cell::RefCell;
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
use crate::config::Settings;
use crate::gate::Gates;

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

/// A resource as one loop holds it: counted without touching what other cores read.
#[derive(Debug)]
pub(crate) struct Hit {
    key: FrontKey,
    /// What most answers need, beside each other.
    pub(crate) version: Arc<Version>,
    pub(crate) settings: Arc<Settings>,
    /// There is a plain 200 to be sent as it is, nobody but the gates of its route has to be asked whether it
    /// may be, and the client is not told with it how long it took.
    pub(crate) is_ready: bool,
    /// The plain 200 as it is sent, when nothing about it depends on the request or the time.
    pub(crate) plain: Option<Plain>,
    pub(crate) resource: Arc<Resource>,
    /// The gates of the file's own path, when that is not the requested one: of an index file, or one
    /// that the route looks for.
    pub(crate) gates: Option<Arc<Gates>>,
}

/// A representation in memory; see [`super::Representation::block`].
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) block: Bytes,
    pub(crate) head_length: usize,
    /// See [`super::Representation::serial`].
    pub(crate) serial: u64,
}

impl Plain {
    /// The part of the body that is sent.
    #[inline]
    pub(crate) fn sent(&self, method: Method) -> &[u8] {
        let body = &self.block[self.head_length..];
        if method == Method::Head { &[] } else { body }
    }
}

impl Hit {
    /// Of a resource by that path of a site.
    pub(crate) fn new(
        (site, path): (usize, &[u8]),
        resource: Arc<Resource>,
        gates: Option<Arc<Gates>>,
    ) -> Self {
        let (identity, settings) = (&resource.identity, &resource.settings);
        let plain = settings.expires.is_none() && matches!(identity.body, Stored::Memory(_));
        Self {
            key: FrontKey { site, path: SmallVec::from_slice(path) },
            version: Arc::clone(&resource.version),
            settings: Arc::clone(settings),
            is_ready: plain && gates.is_none() && !settings.server_timing,
            plain: plain.then(|| Plain {
                block: identity.block.clone(),
                head_length: identity.head_length,
                serial: identity.serial,
            }),
            resource,
            gates,
        }
    }
}

/// A path as it stands in a request to a site.
#[derive(Debug)]
struct FrontKey {
    site: usize,
    path: SmallVec<[u8; 48]>,
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
        if !hit.version.is_fresh(now) {
            return None;
        }
        hit.version.touch();
        Some(hit)
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
