//! From a decoded path to what it is: a file, a directory, or nothing.

use std::fs::File;
use std::sync::Arc;

use dunlin_http::semantics::path::has_hidden_segment;
use rustix::fs::FileType;

use super::file_system::FileSystem;
use super::load::{self, Loaded};
use super::open::{open, open_directory};
use super::roots::Root;
use super::source::is_source;
use super::{encoded, follow};
use crate::cache::content::FileMetadata;
use crate::cache::{Resource, Validity};
use crate::config::{Candidate, Settings, Site, TryStep};
use crate::worker::SharedState;

/// What is looked for.
pub(super) struct Wanted<'a> {
    pub(super) shared: &'a SharedState,
    pub(super) site: &'a Arc<Site>,
    pub(super) settings: &'a Arc<Settings>,
    /// Decoded, with its leading slash.
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
    /// What it was when it was last looked at.
    pub(super) previous: Option<Arc<Resource>>,
    /// A copy is to be kept that cannot change, although the file is large.
    pub(super) copy: bool,
    /// Milliseconds of the worker's clock.
    pub(super) now: u64,
}

/// Whether the search may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No: [`Failure::WouldBlock`] says that it would have to.
    Inline,
    Blocking,
}

/// What a path is.
pub(super) enum Found {
    Resource(Arc<Resource>),
    /// A directory that was asked for without its slash.
    Directory,
    /// A directory without an index file, to be listed.
    Listing(File),
    /// A status that a `try` list ends in.
    Status(u16),
    /// Another path of the site, whose route responds.
    Elsewhere(Candidate),
}

/// Why a path is nothing that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Missing,
    /// It is there, and is not for the client: by permission, by kind, or by leading out.
    Forbidden,
    /// It is a directory without an index file, and not to be listed.
    Unlisted,
    /// Descriptors or memory have run out.
    Exhausted,
    /// An error that the log has told of.
    Broken,
    WouldBlock,
}

/// Finds what `wanted` is, and keeps it in the store when its route is cached.
pub(super) fn resolve(wanted: &Wanted<'_>, mode: Mode) -> Result<Found, Failure> {
    let settings = wanted.settings;
    if !settings.hidden && has_hidden_segment(wanted.path) {
        return Err(Failure::Missing);
    }
    let root = wanted.shared.root(&settings.root).map_err(|error| {
        tracing::error!("root {}: {error}", settings.root.display());
        Failure::Broken
    })?;
    let search = Search { wanted, root: &root, mode, is_probe: false };
    if settings.try_files.is_empty() {
        return search.path(wanted.path);
    }
    search.all()
}

/// Whether `candidate` is `path` with a slash behind it.
pub(crate) fn is_slash_of(candidate: &[u8], path: &[u8]) -> bool {
    candidate.strip_suffix(b"/") == Some(path)
}

struct Search<'a> {
    wanted: &'a Wanted<'a>,
    root: &'a Root,
    mode: Mode,
    /// Only whether there is something matters; it does not become the resource of the request's path.
    is_probe: bool,
}

impl Search<'_> {
    /// Looks for the paths of the `try` list in turn.
    fn all(&self) -> Result<Found, Failure> {
        let Wanted { settings, path, query, site, .. } = *self.wanted;
        let mut last = Failure::Missing;
        for (at, step) in settings.try_files.iter().enumerate() {
            let candidate = match step {
                TryStep::Status(status) => return Ok(Found::Status(*status)),
                TryStep::Path(step) => step.expand(path, query),
            };
            let Some(candidate) = candidate else { continue };
            let is_last = at + 1 == settings.try_files.len();
            if is_last && !Arc::ptr_eq(site.route(&candidate.path), settings) {
                return Ok(Found::Elsewhere(candidate));
            }
            if !settings.hidden && has_hidden_segment(&candidate.path) {
                continue;
            }
            let is_probe = is_slash_of(&candidate.path, path);
            match (Self { is_probe, ..*self }).path(&candidate.path) {
                // A directory counts only when the list asks for one by its slash.
                Ok(Found::Directory) => {}
                // `{path}/` has found one, but the request is without the slash.
                Ok(_) if is_probe => return Ok(Found::Directory),
                Err(failure @ (Failure::Missing | Failure::Forbidden | Failure::Unlisted)) => {
                    last = failure;
                }
                result => return result,
            }
        }
        Err(last)
    }

    fn path(&self, path: &[u8]) -> Result<Found, Failure> {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let Some(directory) = relative.strip_suffix(b"/").or(relative.is_empty().then_some(b""))
        else {
            return self.file(relative);
        };
        for name in &self.wanted.settings.index {
            let mut file = directory.to_vec();
            if !file.is_empty() {
                file.push(b'/');
            }
            file.extend_from_slice(name.as_bytes());
            match self.file(&file) {
                Ok(Found::Directory) | Err(Failure::Missing) => {}
                result => return result,
            }
        }
        let symlinks = self.wanted.settings.symlinks;
        let fd = open_directory(self.root, directory, symlinks, self.mode)?;
        if self.wanted.settings.listing {
            Ok(Found::Listing(File::from(fd)))
        } else {
            Err(Failure::Unlisted)
        }
    }

    /// A path without a slash at its end.
    fn file(&self, file: &[u8]) -> Result<Found, Failure> {
        let Wanted { settings, shared, .. } = self.wanted;
        // Never shown as text, whatever has changed since it was looked for.
        if settings.script.as_ref().is_some_and(|script| script.is_script(file)) {
            return Err(Failure::Missing);
        }
        let validity = Arc::new(Validity::default());
        let followed = settings.cache.enabled && follow::follow(shared, self.root, file, &validity);
        let result = self.open(file, &validity, followed);
        if followed && !matches!(result, Ok(Found::Resource(_))) {
            drop(validity);
            follow::forget(shared, self.root, file);
        }
        result
    }

    fn open(
        &self,
        file: &[u8],
        validity: &Arc<Validity>,
        followed: bool,
    ) -> Result<Found, Failure> {
        let settings = self.wanted.settings;
        let fd = open(self.root, file, settings.symlinks, self.mode)?;
        let metadata = FileMetadata::of(&fd).map_err(|_| Failure::Broken)?;
        match metadata.file_type() {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Found::Directory),
            _ => return Err(Failure::Forbidden),
        }
        self.wanted.shared.protected.check(&fd, self.mode)?;
        let file_system = FileSystem::of(&fd);
        // A file with other names can be changed by one that is not watched.
        let watched = followed
            && metadata.links <= 1
            && file_system.notifies
            && follow::follow_real(self.wanted.shared, self.root, &fd, file, validity);
        if is_source(self.wanted.shared, settings, self.root, file, &fd, &metadata) {
            return self.run_elsewhere(file);
        }
        if let Some(previous) = self.unchanged(file, &metadata)? {
            load::trust(self.wanted, &previous, file_system, watched);
            return Ok(Found::Resource(previous));
        }
        let validity = Arc::clone(validity);
        let opened = Loaded { fd, metadata, file, file_system, validity, watched };
        let resource = Arc::new(load::load(self.wanted, self.root, opened, self.mode)?);
        if settings.cache.enabled && !self.is_probe {
            self.wanted.shared.cache.insert(Arc::clone(&resource));
        }
        Ok(Found::Resource(resource))
    }

    /// A program is missing here, unless a route runs it by its own path, which was not requested itself: it is an
    /// index, or one of a `try` list.
    fn run_elsewhere(&self, file: &[u8]) -> Result<Found, Failure> {
        let Wanted { settings, path, query, site, .. } = *self.wanted;
        let url = [b"/", file].concat();
        let route = site.route(&url);
        if url == path || route.script.is_none() || Arc::ptr_eq(route, settings) {
            return Err(Failure::Missing);
        }
        let query = query.map(<[u8]>::to_vec);
        // The configuration has chosen an index, in whatever directory.
        let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_fixed = settings.index.iter().any(|index| index.as_bytes() == name);
        Ok(Found::Elsewhere(Candidate { path: url, query, is_fixed }))
    }

    /// The previous resource, when neither the file nor any of its siblings has changed.
    fn unchanged(
        &self,
        file: &[u8],
        metadata: &FileMetadata,
    ) -> Result<Option<Arc<Resource>>, Failure> {
        let Some(previous) = &self.wanted.previous else { return Ok(None) };
        let is_same = *previous.file == *file
            && previous.metadata.same_content(metadata)
            && previous.is_settled()
            && !previous.validity.is_invalidated()
            && !self.wanted.copy
            && encoded::has_same_siblings(self.wanted.shared, self.root, previous, self.mode)?;
        Ok(is_same.then(|| Arc::clone(previous)))
    }
}
