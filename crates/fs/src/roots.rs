//! The root directories of routes: kept open, and reopened when their paths resolve to other directories.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;

use super::file_system::FileSystem;
use super::metadata::FileMetadata;
use super::watch::Watch;
use dunlin_net::clock::monotonic_millis;

/// An open root directory.
#[derive(Debug)]
pub struct Root {
    /// The directory.
    pub fd: OwnedFd,
    /// The absolute path without symlinks, at the time of opening.
    pub path: Box<[u8]>,
    /// Device and inode.
    identity: (u64, u64),
    /// The file system of the directory.
    file_system: FileSystem,
}

impl Root {
    /// Returns the file system of an open file with this metadata, which was reached from the root.
    pub fn file_system(&self, fd: impl AsFd, file: &FileMetadata) -> FileSystem {
        // The open directory keeps its file system mounted, so that no other one has its device number.
        if file.device == self.identity.0 { self.file_system } else { FileSystem::of(fd) }
    }

    /// Returns the real path at the time of opening.
    pub fn place(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }
}

/// Open root directories by configured path, which is compared byte by byte.
#[derive(Debug, Default)]
pub struct Roots {
    open: RwLock<HashMap<OsString, Entry>>,
    /// Number of calls of [`Roots::revalidate`].
    revalidations: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    root: Arc<Root>,
    /// Time of the last successful check of the path, in milliseconds of the monotonic clock.
    checked: AtomicU64,
    /// The sum of [`Roots::revalidations`] and [`Watch::clearings`] before that check.
    revalidations: AtomicU64,
}

/// The result of a lookup.
pub struct Lookup {
    /// The open directory.
    pub root: io::Result<Arc<Root>>,
    /// The path resolved to another directory before: everything cached from it is invalid.
    pub has_moved: bool,
}

impl Roots {
    /// Returns the root at `path`. Opens it on first use, and again when the path resolves to another directory. `watch`
    /// reports such changes; in addition, the path is checked after `trusted` milliseconds.
    pub fn get(&self, path: &Path, watch: Option<&Watch>, trusted: u64) -> Lookup {
        let now = monotonic_millis();
        let revalidations =
            self.revalidations.load(Ordering::Acquire) + watch.map_or(0, Watch::clearings);
        let needs_check = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            match open.get(path.as_os_str()) {
                Some(entry) if entry.is_trusted(now, revalidations, trusted) => {
                    return Lookup { root: Ok(Arc::clone(&entry.root)), has_moved: false };
                }
                Some(entry) if entry.revalidations.load(Ordering::Relaxed) == revalidations => {
                    if entry.root.is_at(path) {
                        entry.checked.store(now, Ordering::Relaxed);
                        return Lookup { root: Ok(Arc::clone(&entry.root)), has_moved: false };
                    }
                    true
                }
                entry => entry.is_some(),
            }
        };
        if let Some(watch) = watch {
            watch.follow_path(path.as_os_str().as_bytes());
        }
        let opened = Root::open(path);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let opened = match opened {
            Ok(root) => Arc::new(root),
            Err(error) => {
                if let Some(entry) = open.get(path.as_os_str()).filter(|_| is_exhausted(&error)) {
                    return Lookup { root: Ok(Arc::clone(&entry.root)), has_moved: false };
                }
                let has_moved = open.remove(path.as_os_str()).is_some();
                return Lookup { root: Err(error), has_moved };
            }
        };
        if needs_check
            && let Some(entry) = open.get(path.as_os_str())
            && entry.root.identity == opened.identity
            && entry.root.path == opened.path
        {
            entry.checked.store(now, Ordering::Relaxed);
            entry.revalidations.store(revalidations, Ordering::Relaxed);
            return Lookup { root: Ok(Arc::clone(&entry.root)), has_moved: false };
        }
        let (checked, revalidations) = (AtomicU64::new(now), AtomicU64::new(revalidations));
        let entry = Entry { root: Arc::clone(&opened), checked, revalidations };
        let has_moved = open.insert(path.into(), entry).is_some();
        Lookup { root: Ok(opened), has_moved }
    }

    /// Returns the paths of the open roots.
    pub fn paths(&self) -> Vec<PathBuf> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.keys().map(PathBuf::from).collect()
    }

    /// Makes every path be checked and watched again before its next use.
    pub fn revalidate(&self) {
        self.revalidations.fetch_add(1, Ordering::Release);
    }

    /// Closes the roots that are not `used`.
    pub fn retain(&self, used: impl Fn(&Path) -> bool) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.retain(|path, _| used(Path::new(path)));
    }
}

/// Returns `true` if the error does not concern the path.
fn is_exhausted(error: &io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    errors.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl Entry {
    fn is_trusted(&self, now: u64, revalidations: u64, trusted: u64) -> bool {
        self.revalidations.load(Ordering::Relaxed) == revalidations
            && now.saturating_sub(self.checked.load(Ordering::Relaxed)) < trusted
    }
}

impl Root {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        let canonical = path.canonicalize()?;
        Ok(Self {
            file_system: FileSystem::of(&fd),
            fd,
            path: canonical.as_os_str().as_bytes().into(),
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    /// Returns `true` if `path` resolves to it.
    fn is_at(&self, path: &Path) -> bool {
        stat(path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("one")).unwrap();
        fs::create_dir(at("two")).unwrap();
        symlink("one", at("current")).unwrap();
        let roots = Roots::default();
        let look = || {
            let Lookup { root, has_moved } = roots.get(&at("current"), None, u64::MAX);
            let name = root.map(|root| root.path.rsplit(|&b| b == b'/').next().unwrap().to_vec());
            (name.unwrap_or_default(), has_moved)
        };
        assert_eq!(look(), (b"one".to_vec(), false));
        fs::remove_file(at("current")).unwrap();
        symlink("two", at("current")).unwrap();
        assert_eq!(look(), (b"one".to_vec(), false), "it is still trusted");
        roots.revalidate();
        assert_eq!(look(), (b"two".to_vec(), true));
        assert_eq!(look(), (b"two".to_vec(), false));
        roots.revalidate();
        assert_eq!(look(), (b"two".to_vec(), false));
        // The same directory by another path; programs are started and changes watched by the real path.
        fs::rename(at("two"), at("three")).unwrap();
        symlink("three", at("two")).unwrap();
        roots.revalidate();
        assert_eq!(look(), (b"three".to_vec(), true));
        fs::remove_file(at("current")).unwrap();
        roots.revalidate();
        assert_eq!(look(), (b"".to_vec(), true), "it does not exist");
        fs::create_dir(at("current")).unwrap();
        assert_eq!(look(), (b"current".to_vec(), false));
        roots.retain(|_| false);
        assert!(roots.paths().is_empty());
    }
}
