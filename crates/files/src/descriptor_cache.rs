//! Open descriptors of files that are requested again and again, but whose content no cache holds.
//!
//! A request for such a file costs a read and a check; the file is not opened, and the fields of its response are built
//! once. Change notifications invalidate a kept file, so that only watched files are kept. No file is kept for longer than
//! about a second: the worker clears its table once a second, and when descriptors are needed elsewhere.

use std::hash::BuildHasher;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dunlin_config::Settings;
use dunlin_fs::content::ContentFile;
use dunlin_fs::file_system::FileSystem;
use dunlin_fs::follow;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::roots::Root;
use dunlin_fs::validity::Validity;
use dunlin_fs::watch::Watch;
use dunlin_http::FieldLines;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::media_type::ContentType;

/// The maximum of kept files of one worker.
const MAX: usize = 256;
/// Paths that are remembered in order to recognize one that is requested again. A power of two.
const RECENT: usize = 256;

/// The kept files of one worker, with one configuration.
#[derive(Debug)]
pub(super) struct DescriptorCache {
    table: HashTable<Entry>,
    /// The hashes of paths that were requested recently, by their last bits.
    recent: Box<[u64]>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct Entry {
    watched: Watched,
    file: CachedDescriptor,
}

/// A path whose changes invalidate a validity, as long as this exists.
#[derive(Debug)]
struct Watched {
    watch: Arc<Watch>,
    root: Arc<Root>,
    /// The address of the route's settings, which exist as long as the configuration of the worker.
    route: usize,
    /// Beneath the root.
    path: Box<[u8]>,
    validity: Arc<Validity>,
}

/// A kept file.
#[derive(Debug)]
pub(super) struct CachedDescriptor {
    /// The open file.
    pub(super) content: Arc<ContentFile>,
    /// The content type by the name of the file.
    pub(super) content_type: ContentType,
    /// The fields of the response with the whole file.
    pub(super) fields: FieldLines,
    /// Seconds since 1970.
    pub(super) last_modified: Option<u64>,
}

/// A file that is to be kept, if it can be opened.
pub(super) struct Candidate {
    hash: u64,
    watched: Watched,
}

impl Default for DescriptorCache {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            recent: vec![0; RECENT].into(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl DescriptorCache {
    /// Returns the kept file at `path`, unless it has changed or its time is over. `now` is in milliseconds of the worker's
    /// clock.
    pub(super) fn get(
        &mut self,
        settings: &Settings,
        path: &[u8],
        now: u64,
    ) -> Option<&CachedDescriptor> {
        if self.table.is_empty() {
            return None;
        }
        let (hash, route) = self.hash(settings, path);
        let found = self.table.find_entry(hash, |entry| entry.is(route, path)).ok()?;
        if !found.get().watched.validity.is_fresh(now) {
            found.remove();
            return None;
        }
        Some(&found.into_mut().file)
    }

    /// Removes the kept file at `path`, which has changed.
    pub(super) fn remove(&mut self, settings: &Settings, path: &[u8]) {
        let (hash, route) = self.hash(settings, path);
        if let Ok(found) = self.table.find_entry(hash, |entry| entry.is(route, path)) {
            found.remove();
        }
    }

    /// Begins to watch the file at `path`, if it is to be kept: it was requested a short time ago, too. The caller opens it
    /// after this call.
    pub(super) fn candidate(
        &mut self,
        settings: &Settings,
        (watch, root): (Option<&Arc<Watch>>, &Arc<Root>),
        path: &[u8],
    ) -> Option<Candidate> {
        let watch = watch?;
        let (hash, route) = self.hash(settings, path);
        let recent = &mut self.recent[hash as usize % RECENT];
        if *recent != hash {
            *recent = hash;
            return None;
        }
        let (watch, root) = (Arc::clone(watch), Arc::clone(root));
        let watched = Watched { watch, root, route, path: path.into(), validity: Arc::default() };
        let Watched { watch, root, path, validity, .. } = &watched;
        follow::follow(watch, root, path, validity).then_some(Candidate { hash, watched })
    }

    /// Keeps a file until `until`, in milliseconds of the worker's clock.
    pub(super) fn insert(&mut self, candidate: Candidate, file: CachedDescriptor, until: u64) {
        if self.table.len() >= MAX {
            self.clear();
        }
        let Candidate { hash, watched } = candidate;
        watched.validity.set_fresh_until(until);
        let entry = Entry { watched, file };
        // The caller has looked for the path before, so that it is not in the table.
        self.table.insert_unique(hash, entry, |entry| self.hasher.hash_one(entry.watched.key()));
    }

    /// Closes all kept files.
    pub(super) fn clear(&mut self) {
        self.table.clear();
    }

    fn hash(&self, settings: &Settings, path: &[u8]) -> (u64, usize) {
        let route = std::ptr::from_ref(settings).addr();
        (self.hasher.hash_one((route, path)), route)
    }
}

impl Candidate {
    /// Returns `true` if all changes of the file that was opened are watched.
    pub(super) fn is_watched(
        &self,
        fd: &OwnedFd,
        metadata: &FileMetadata,
        file_system: FileSystem,
    ) -> bool {
        let Watched { watch, root, path, validity, .. } = &self.watched;
        // A file with other names can be changed by one that is not watched.
        metadata.links <= 1
            && file_system.notifies
            && follow::follow_real(watch, root, fd, path, validity)
    }
}

impl Entry {
    fn is(&self, route: usize, path: &[u8]) -> bool {
        self.watched.key() == (route, path)
    }
}

impl Watched {
    fn key(&self) -> (usize, &[u8]) {
        (self.route, &self.path)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Only names without a validity are forgotten.
        self.validity = Arc::default();
        follow::forget(&self.watch, &self.root, &self.path);
    }
}
