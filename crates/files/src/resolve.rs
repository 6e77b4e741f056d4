//! Loads the file of a path as a resource, and caches it if the route permits that.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::FileType;

use super::cache::resource::{Origin, Resource};
use super::encoded;
use super::load::{self, Loaded};
use super::search::{Found, Opener, Wanted, search};
use super::shared::Shared;
use super::source::is_source;
use dunlin_config::Settings;
use dunlin_fs::failure::Failure;
use dunlin_fs::follow;
use dunlin_fs::metadata::FileMetadata;
use dunlin_fs::mode::Mode;
use dunlin_fs::open::{open, open_directory};
use dunlin_fs::protected::Protected;
use dunlin_fs::roots::Root;
use dunlin_fs::validity::Validity;

/// The parameters of a resolution, besides the path.
pub struct Resolver<'a> {
    /// The state that the workers share.
    pub shared: &'a Shared,
    /// The serial number of the site; see [`Key`](crate::cache::shared_cache::Key).
    pub site: usize,
    /// The resource that the cache has for the path.
    pub previous: Option<Arc<Resource>>,
    /// The file is cached, if the route permits that.
    pub keep: bool,
    /// A copy of the content is cached even if the file is large.
    pub copy: bool,
    /// Milliseconds of the worker's clock.
    pub now: u64,
    /// The resolution may wait for a disk.
    pub mode: Mode,
}

impl Resolver<'_> {
    /// Returns `true` if files of this route are cached.
    pub(super) fn keeps(&self, settings: &Settings) -> bool {
        self.keep && settings.cache.enabled
    }
}

/// The result of a resolution.
pub type Resolved = Result<Found<Arc<Resource>, File>, Failure>;

/// Searches for the file of `wanted` and loads it. Caches it if the route permits that.
pub fn resolve(wanted: &Wanted<'_>, resolver: &Resolver<'_>) -> Resolved {
    search(wanted, || {
        let path = &wanted.route.root;
        let root = resolver.shared.root(path).map_err(|error| {
            tracing::error!("root {}: {error}", path.display());
            Failure::Broken
        })?;
        Ok(ResourceOpener { resolver, root })
    })
}

/// Opens a regular file that is not protected; it may be a program. Returns `None` for a directory.
pub(super) fn open_file(
    root: &Root,
    file: &[u8],
    settings: &Settings,
    protected: &Protected,
    mode: Mode,
) -> Result<Option<(OwnedFd, FileMetadata)>, Failure> {
    let fd = open(root, file, settings.symlinks, mode)?;
    let metadata = FileMetadata::of(&fd).map_err(|_| Failure::Broken)?;
    match metadata.file_type() {
        FileType::RegularFile => {}
        FileType::Directory => return Ok(None),
        _ => return Err(Failure::Forbidden),
    }
    protected.check(&metadata, mode)?;
    Ok(Some((fd, metadata)))
}

/// Loads files as resources.
struct ResourceOpener<'a> {
    resolver: &'a Resolver<'a>,
    root: Arc<Root>,
}

impl Opener for ResourceOpener<'_> {
    type File = Arc<Resource>;
    type Directory = File;

    fn file(&self, wanted: &Wanted<'_>, file: &[u8], is_probe: bool) -> Resolved {
        let shared = self.resolver.shared;
        let validity = Arc::new(Validity::default());
        let followed = self.resolver.keeps(wanted.route)
            && shared
                .watch
                .as_deref()
                .is_some_and(|watch| follow::follow(watch, &self.root, file, &validity));
        let result = self.open(wanted, file, is_probe, (&validity, followed));
        if followed && !matches!(result, Ok(Found::File(_))) {
            drop(validity);
            if let Some(watch) = &shared.watch {
                follow::forget(watch, &self.root, file);
            }
        }
        result
    }

    fn directory(&self, wanted: &Wanted<'_>, directory: &[u8]) -> Result<File, Failure> {
        let symlinks = wanted.route.symlinks;
        open_directory(&self.root, directory, symlinks, self.resolver.mode).map(File::from)
    }
}

impl ResourceOpener<'_> {
    fn open(
        &self,
        wanted: &Wanted<'_>,
        file: &[u8],
        is_probe: bool,
        (validity, followed): (&Arc<Validity>, bool),
    ) -> Resolved {
        let Resolver { shared, mode, .. } = *self.resolver;
        let settings = wanted.route;
        let opened = open_file(&self.root, file, settings, &shared.protected, mode)?;
        let Some((fd, metadata)) = opened else { return Ok(Found::Directory) };
        let file_system = self.root.file_system(&fd, &metadata);
        // A file with other names can be changed by one that is not watched.
        let watched = followed
            && metadata.links <= 1
            && file_system.notifies
            && shared
                .watch
                .as_deref()
                .is_some_and(|watch| follow::follow_real(watch, &self.root, &fd, file, validity));
        if is_source(shared, settings, &self.root, file, &fd, &metadata) {
            return wanted.run_elsewhere(file).map(Found::Elsewhere);
        }
        if let Some(previous) = self.unchanged(file, &metadata)? {
            load::set_freshness(self.resolver, &previous, file_system, watched);
            return Ok(Found::File(previous));
        }
        let validity = Arc::clone(validity);
        let opened = Loaded { fd, metadata, file, file_system, validity, watched };
        let resource = Arc::new(load::load(wanted, self.resolver, &self.root, opened)?);
        if self.resolver.keeps(settings) && !is_probe {
            shared.cache.insert(&resource);
        }
        Ok(Found::File(resource))
    }

    /// Returns the previous resource, when neither the file nor any of its siblings has changed.
    fn unchanged(
        &self,
        file: &[u8],
        metadata: &FileMetadata,
    ) -> Result<Option<Arc<Resource>>, Failure> {
        let Resolver { shared, previous, copy, mode, .. } = self.resolver;
        let Some(previous) = previous else { return Ok(None) };
        let is_same = *previous.file == *file
            && matches!(&previous.origin, Origin::File(then) if then.same_content(metadata))
            && previous.is_settled()
            && !previous.validity.is_invalidated()
            && !copy
            && encoded::has_same_siblings(shared, &self.root, previous, *mode)?;
        Ok(is_same.then(|| Arc::clone(previous)))
    }
}
