//! The files that a request may concern.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use dunlin_config::{Dav, EtagKind, Settings, Site, Symlinks};
use dunlin_dav::locks::Locks;
use dunlin_fs::failure::Failure;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::mode::Mode::Blocking;
use dunlin_fs::open::{open, open_directory, open_path};
use dunlin_fs::roots::Root;
use dunlin_http::semantics::path::has_hidden_segment;
use dunlin_http::semantics::{ContentCoding, EntityTag, path};
use dunlin_net::clock;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::Outcome;
use crate::shared::Shared;
use crate::source::is_source;
use crate::validators::{self, Basis};

/// The part of a site whose files a request may concern.
#[derive(Debug)]
pub struct Tree {
    pub(super) shared: Arc<Shared>,
    pub(super) site: Arc<Site>,
    pub(super) route: Arc<Settings>,
    pub(super) rules: Arc<Dav>,
    pub(super) root: Arc<Root>,
    /// The routes with conditions whose patterns match the path of the request.
    conditional: Vec<usize>,
}

/// A file or a collection.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) fd: OwnedFd,
    pub(super) metadata: FileMetadata,
    pub(super) is_collection: bool,
}

/// A name in an open directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) directory: OwnedFd,
    pub(super) name: Vec<u8>,
}

/// The beginning of the names of files that are not complete.
const TEMPORARY: &[u8] = b".dunlin-dav-";

impl Tree {
    /// Returns the tree of a request for `path` of a route with WebDAV. Opens its root.
    ///
    /// # Errors
    /// If the route has no WebDAV, or the root cannot be opened.
    pub fn new(
        shared: &Arc<Shared>,
        site: &Arc<Site>,
        route: &Arc<Settings>,
        path: &[u8],
    ) -> Result<Self, Failure> {
        let rules = Arc::clone(route.dav.as_ref().ok_or(Failure::Missing)?);
        let root = shared.root(&route.root).map_err(|error| {
            tracing::error!("root {}: {error}", route.root.display());
            Failure::Broken
        })?;
        let (shared, site, route) = (Arc::clone(shared), Arc::clone(site), Arc::clone(route));
        let conditional = site.matching_conditional(path);
        Ok(Self { shared, site, route, rules, root, conditional })
    }

    /// Returns `true` if the request may concern a path: it is not hidden, and its route has the same files, rules and checks.
    pub(super) fn permits(&self, path: &[u8], is_collection: bool) -> bool {
        let is_temporary = |name: &[u8]| name.starts_with(TEMPORARY);
        if path.contains(&0)
            || !self.route.hidden && has_hidden_segment(path)
            || path.split(|&byte| byte == b'/').any(is_temporary)
        {
            return false;
        }
        let is_same = |path: &[u8]| {
            let other = self.site.route(path);
            Arc::ptr_eq(&other, &self.route)
                || other.dav == self.route.dav
                    && other.root == self.route.root
                    && other.hidden == self.route.hidden
                    && other.internal == self.route.internal
                    && other.check_rules == self.route.check_rules
        };
        // Conditions of other routes were not evaluated for the request.
        let is_decided = |path: &[u8]| {
            let matching = self.site.matching_conditional(path);
            matching.iter().all(|route| self.conditional.contains(route))
        };
        let permits = |path: &[u8]| is_same(path) && is_decided(path);
        if is_collection { permits(&[path, b"/"].concat()) } else { permits(path) }
    }

    /// Returns the error for a path that the request may not change.
    pub(super) fn check_permitted(&self, path: &[u8], is_collection: bool) -> Result<(), Outcome> {
        if self.permits(path, is_collection) { Ok(()) } else { Err(Outcome::of(403)) }
    }

    /// Opens what is at a path; `None` if nothing is there that clients can see.
    pub(super) fn find(&self, path: &[u8]) -> Result<Option<Item>, Failure> {
        let file = path.strip_prefix(b"/").unwrap_or(path);
        let fd = match open(&self.root, file, Symlinks::Deny, Blocking) {
            Ok(fd) => fd,
            Err(Failure::Missing) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let Some((metadata, is_collection)) = self.visible(file, &fd)? else { return Ok(None) };
        if !self.permits(path, is_collection) {
            return Ok(None);
        }
        Ok(Some(Item { fd, metadata, is_collection }))
    }

    /// Returns what an open file is; `None` if it is protected, or a program.
    fn visible(&self, file: &[u8], fd: &OwnedFd) -> Result<Option<(FileMetadata, bool)>, Failure> {
        let metadata = FileMetadata::of(fd).map_err(|_| Failure::Broken)?;
        match metadata.file_type() {
            FileType::Directory => return Ok(Some((metadata, true))),
            FileType::RegularFile => {}
            _ => return Err(Failure::Forbidden),
        }
        if self.shared.protected.check(&metadata, Blocking).is_err()
            || self.is_program(file, fd, &metadata)
        {
            return Ok(None);
        }
        Ok(Some((metadata, false)))
    }

    /// Returns `true` if a route of the site runs the file, or would.
    pub(super) fn is_program(&self, file: &[u8], fd: &OwnedFd, metadata: &FileMetadata) -> bool {
        is_source(&self.shared, &self.route, &self.root, file, fd, metadata)
    }

    /// Returns the error for a member of a collection that the request may not remove.
    pub(super) fn check_removable(&self, path: &[u8], kind: FileType) -> Result<(), Outcome> {
        self.check_permitted(path, kind == FileType::Directory)?;
        // The link is removed, and not what it leads to.
        if kind != FileType::RegularFile {
            return Ok(());
        }
        let file = path.strip_prefix(b"/").unwrap_or(path);
        let fd = open_path(&self.root, file, Symlinks::Deny, Blocking)?;
        match self.visible(file, &fd)? {
            Some(_) => Ok(()),
            None => Err(Outcome::of(403)),
        }
    }

    /// Returns the entry of a path, whose collection must be there.
    pub(super) fn entry(&self, path: &[u8]) -> Result<Entry, Outcome> {
        let (parent, name) = split(path).ok_or(Outcome::of(403))?;
        self.check_permitted(parent, true)?;
        let parent = parent.strip_prefix(b"/").unwrap_or(parent);
        let directory = open_directory(&self.root, parent, Symlinks::Deny, Blocking);
        let directory = directory.map_err(|failure| match failure {
            Failure::Missing => Outcome::of(409),
            failure => failure.into(),
        })?;
        Ok(Entry { directory, name: name.to_vec() })
    }

    /// Returns the names in a collection, at most `max`, in their order.
    pub(super) fn names(&self, path: &[u8], max: usize) -> Result<Vec<Vec<u8>>, Failure> {
        let file = path.strip_prefix(b"/").unwrap_or(path);
        let directory = open_directory(&self.root, file, Symlinks::Deny, Blocking)?;
        let entries = Dir::new(directory).map_err(|_| Failure::Broken)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|_| Failure::Broken)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || name.starts_with(TEMPORARY) {
                continue;
            }
            if names.len() >= max {
                break;
            }
            names.push(name.to_vec());
        }
        names.sort();
        Ok(names)
    }

    /// Returns the path of a resource for clients.
    pub(super) fn href(&self, path: &[u8], is_collection: bool) -> String {
        let slash: &[u8] = if is_collection { b"/" } else { b"" };
        path::encode(&[path, slash].concat())
    }

    /// Returns the entity tag of a file, as GET has it. One that is made of the content is only made if `is_needed`.
    pub(super) fn tag(&self, item: &Item, is_needed: bool) -> Option<EntityTag> {
        if item.is_collection {
            return None;
        }
        let digest = match self.route.etag {
            EtagKind::Sha256 if is_needed => Some(self.digest(item)?),
            _ => None,
        };
        self.basis(item).entity_tag(digest.as_ref(), ContentCoding::Identity)
    }

    /// Returns when the item was changed, in seconds since 1970.
    pub(super) fn modified(&self, item: &Item) -> Option<u64> {
        self.basis(item).last_modified()
    }

    fn basis<'a>(&'a self, item: &'a Item) -> Basis<'a> {
        let file_system = self.root.file_system(&item.fd, &item.metadata);
        let (settings, metadata, seen) = (&self.route, &item.metadata, validators::now());
        Basis { settings, metadata, file_system, seen }
    }

    fn digest(&self, item: &Item) -> Option<[u8; 32]> {
        let mut hasher = Sha256::new();
        let mut file = File::from(item.fd.try_clone().ok()?);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer).ok()? {
                0 => return Some(hasher.finalize().into()),
                count => hasher.update(&buffer[..count]),
            }
        }
    }

    /// Returns the path by which the locks of the server know a resource.
    pub(super) fn lock_path(&self, path: &[u8]) -> Vec<u8> {
        [&*self.root.path, path].concat()
    }

    pub(super) fn locks(&self) -> MutexGuard<'_, Locks> {
        self.shared.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Returns the type of what has the name, which may be a symlink; `None` if there is nothing.
    pub(super) fn kind(&self) -> Result<Option<FileType>, Outcome> {
        match statat(&self.directory, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Returns the collection of a path and the name in it; `None` for the root.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = memchr::memrchr(b'/', path)?;
    Some((&path[..slash], &path[slash + 1..]))
}

/// Returns the response to a request that has failed with an error of the system.
pub(super) fn failed(error: impl Into<io::Error>) -> Outcome {
    let error = error.into();
    let of = error.raw_os_error().map(Errno::from_raw_os_error);
    Outcome::of(match of {
        Some(Errno::NOENT | Errno::NOTDIR) => 409,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::LOOP) => 403,
        Some(Errno::NAMETOOLONG | Errno::INVAL) => 403,
        // Insufficient Storage.
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::TOOBIG | Errno::OPNOTSUPP) => 507,
        Some(Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR) => 409,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => 503,
        // The name is on another file system.
        Some(Errno::XDEV) => 502,
        _ => {
            tracing::error!("WebDAV: {error}");
            500
        }
    })
}

/// Returns the name of a file that is not complete. It is hidden, and no other one has it.
pub(super) fn temporary_name() -> Vec<u8> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let unique = format!("{}-{}-{count}", std::process::id(), clock::monotonic_millis());
    [TEMPORARY, unique.as_bytes()].concat()
}
