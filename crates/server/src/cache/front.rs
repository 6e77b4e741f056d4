//! The layer that one loop has to itself.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{Equivalent, HashMap};

use super::resource::Resource;
use super::store::Store;
use super::stored::Stored;
use super::watch::Version;
use crate::config::Settings;
use crate::gate::Gates;

/// Resources by site and path as it stands in the request, before any decoding.
#[derive(Debug, Default)]
pub(crate) struct Front {
    map: HashMap<FrontKey, Rc<Hit>>,
    most: usize,
    retired: (usize, usize),
}

/// A resource as one loop holds it: counted without touching what other cores read.
#[derive(Debug)]
pub(crate) struct Hit {
    /// What most answers need, beside each other.
    pub(crate) version: Arc<Version>,
    pub(crate) settings: Arc<Settings>,
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

impl Hit {
    pub(crate) fn new(resource: Arc<Resource>, gates: Option<Arc<Gates>>) -> Self {
        let identity = &resource.identity;
        let plain =
            resource.settings.expires.is_none() && matches!(identity.body, Stored::Memory(_));
        Self {
            version: Arc::clone(&resource.version),
            settings: Arc::clone(&resource.settings),
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

#[derive(Debug, PartialEq, Eq, Hash)]
struct FrontKey {
    site: usize,
    path: Box<[u8]>,
}

#[derive(Hash)]
struct FrontKeyRef<'a> {
    site: usize,
    path: &'a [u8],
}

impl Equivalent<FrontKey> for FrontKeyRef<'_> {
    fn equivalent(&self, key: &FrontKey) -> bool {
        self.site == key.site && self.path == &*key.path
    }
}

impl Front {
    pub(crate) fn new(most: usize) -> Self {
        Self { map: HashMap::new(), most, retired: (0, 0) }
    }

    /// Takes over what another knows of sites that there still are.
    pub(crate) fn take_over(&mut self, other: &RefCell<Self>, has: impl Fn(usize) -> bool) {
        self.map = std::mem::take(&mut other.borrow_mut().map);
        self.map.retain(|key, _| has(key.site));
        if self.map.len() >= self.most {
            self.map.clear();
        }
    }

    /// What that path is, if it is known and may be used now (`now` in milliseconds).
    #[inline]
    pub(crate) fn get(&self, site: usize, path: &[u8], now: u64) -> Option<&Rc<Hit>> {
        let hit = self.map.get(&FrontKeyRef { site, path })?;
        if !hit.version.is_fresh(now) {
            return None;
        }
        hit.version.touch();
        Some(hit)
    }

    pub(crate) fn insert(&mut self, store: &Store, site: usize, path: &[u8], hit: Hit) -> Rc<Hit> {
        if store.has_retired_much(&mut self.retired) {
            self.sweep();
        }
        if self.map.len() >= self.most {
            // Spellings of paths are the client's to choose, so that there is no end to them;
            // the store has what is needed to fill this again.
            self.map.clear();
        }
        let hit = Rc::new(hit);
        self.map.insert(FrontKey { site, path: path.into() }, Rc::clone(&hit));
        hit
    }

    /// Lets go of what is not to be used any more, so that its memory is free.
    pub(crate) fn sweep(&mut self) {
        self.map.retain(|_, hit| !hit.version.is_stale());
    }
}
