//! From a decoded path to what it is: a file, a directory, or nothing.

use std::fs::File;
use std::sync::Arc;

use dunlin_http::semantics::path::has_hidden_segment;
use rustix::fs::FileType;

use super::load::{self, Loaded};
use super::open::{open, open_directory};
use super::roots::Root;
use crate::cache::stored::Facts;
use crate::cache::{Resource, Version};
use crate::config::{Settings, TryStep};
use crate::event_loop::Shared;

/// What is looked for.
pub(super) struct Wanted<'a> {
    pub(super) shared: &'a Shared,
    pub(super) site: usize,
    pub(super) settings: &'a Arc<Settings>,
    /// Decoded, with its leading slash.
    pub(super) path: &'a [u8],
    /// What it was when it was last looked at.
    pub(super) previous: Option<Arc<Resource>>,
    /// A copy is to be kept that cannot change, although the file is large.
    pub(super) copy: bool,
    /// Milliseconds of the loop's clock.
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
}

/// Why a path is nothing that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Missing,
    /// It is there, and is not for the client: by permission, by kind, or by leading out.
    Forbidden,
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
    let root = wanted.shared.roots.get(&settings.root).map_err(|error| {
        tracing::error!("root {}: {error}", settings.root.display());
        Failure::Broken
    })?;
    let search = Search { wanted, root: &root, mode };
    if settings.try_files.is_empty() {
        return search.path(wanted.path);
    }
    let mut last = Failure::Missing;
    for step in &settings.try_files {
        let candidate = match step {
            TryStep::Status(status) => return Ok(Found::Status(*status)),
            TryStep::Path(template) => template.expand(wanted.path),
        };
        if !settings.hidden && has_hidden_segment(&candidate) {
            continue;
        }
        match search.path(&candidate) {
            // A directory counts only when the list asks for one by its slash.
            Ok(Found::Directory) => {}
            Err(failure @ (Failure::Missing | Failure::Forbidden)) => last = failure,
            result => return result,
        }
    }
    Err(last)
}

struct Search<'a> {
    wanted: &'a Wanted<'a>,
    root: &'a Root,
    mode: Mode,
}

impl Search<'_> {
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
            Err(Failure::Forbidden)
        }
    }

    /// A path without a slash at its end.
    fn file(&self, file: &[u8]) -> Result<Found, Failure> {
        let Wanted { settings, shared, .. } = self.wanted;
        // Never shown as text, whatever has changed since it was looked for.
        if settings.script.as_ref().is_some_and(|script| script.is_script(file)) {
            return Err(Failure::Missing);
        }
        let version = Arc::new(Version::default());
        let followed = settings.cache.enabled && self.follow(file, &version);
        let result = self.open(file, &version, followed);
        if followed && !matches!(result, Ok(Found::Resource(_))) {
            drop(version);
            let (directory, name) = self.place(file);
            if let Some(watch) = &shared.watch {
                watch.forget(&directory, name);
            }
        }
        result
    }

    fn open(&self, file: &[u8], version: &Arc<Version>, followed: bool) -> Result<Found, Failure> {
        let settings = self.wanted.settings;
        let fd = open(self.root, file, settings.symlinks, self.mode)?;
        let facts = Facts::of(&fd).map_err(|_| Failure::Broken)?;
        match facts.file_type() {
            FileType::RegularFile => {}
            FileType::Directory => return Ok(Found::Directory),
            _ => return Err(Failure::Forbidden),
        }
        let watched =
            followed && load::is_notified(&fd, &facts) && self.follow_real(&fd, file, version);
        if let Some(previous) = self.unchanged(file, &facts) {
            load::trust(self.wanted, &previous, watched);
            return Ok(Found::Resource(previous));
        }
        let opened = Loaded { fd, facts, file, version: Arc::clone(version), watched };
        let resource = Arc::new(load::load(self.wanted, self.root, opened, self.mode)?);
        if settings.cache.enabled {
            self.wanted.shared.store.insert(Arc::clone(&resource));
        }
        Ok(Found::Resource(resource))
    }

    /// What was known before, when it still holds.
    fn unchanged(&self, file: &[u8], facts: &Facts) -> Option<Arc<Resource>> {
        let previous = self.wanted.previous.as_ref()?;
        let weak = previous.identity.etag.as_ref().is_some_and(|tag| tag.weak);
        let same = *previous.file == *file && previous.facts.same_content(facts);
        (same && !weak && !previous.version.is_stale() && !self.wanted.copy)
            .then(|| Arc::clone(previous))
    }

    fn follow(&self, file: &[u8], version: &Arc<Version>) -> bool {
        let Some(watch) = &self.wanted.shared.watch else { return false };
        let (directory, name) = self.place(file);
        watch.follow(&self.root.path, &directory, name, version)
    }

    /// Follows the file by its true name as well, when symlinks led to it.
    fn follow_real(&self, fd: &std::os::fd::OwnedFd, file: &[u8], version: &Arc<Version>) -> bool {
        use std::os::fd::AsRawFd;
        let Some(watch) = &self.wanted.shared.watch else { return false };
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let Ok(real) = rustix::fs::readlink(link, Vec::new()) else { return false };
        let real = real.as_bytes();
        let (directory, name) = self.place(file);
        let Some(slash) = memchr::memrchr(b'/', real) else { return false };
        let (real_directory, real_name) = (&real[..slash], &real[slash + 1..]);
        if *real_directory == *directory && real_name == name {
            return true;
        }
        let beneath = real_directory.starts_with(&self.root.path);
        let root = if beneath { &*self.root.path } else { real_directory };
        watch.follow(root, real_directory, real_name, version)
    }

    /// The absolute directory of `file`, and its name there.
    fn place<'f>(&self, file: &'f [u8]) -> (Vec<u8>, &'f [u8]) {
        let mut directory = self.root.path.to_vec();
        let Some(slash) = memchr::memrchr(b'/', file) else { return (directory, file) };
        directory.push(b'/');
        directory.extend_from_slice(&file[..slash]);
        (directory, &file[slash + 1..])
    }
}
