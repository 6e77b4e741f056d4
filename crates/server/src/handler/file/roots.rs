//! The directories that routes serve from, kept open, and opened again when their paths lead elsewhere.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use rustix::io::Errno;

use crate::cache::Watch;
use crate::clock::monotonic_millis;

/// An open root directory.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) fd: OwnedFd,
    /// Absolute and without symlinks at the time of opening.
    pub(crate) path: Box<[u8]>,
    /// Device and inode.
    identity: (u64, u64),
}

impl Root {
    /// Its path as it was when it was opened.
    pub(crate) fn place(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }
}

/// Open root directories by the path that the configuration names.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    open: RwLock<HashMap<PathBuf, Entry>>,
    /// Counts the calls of [`Roots::suspect`].
    suspicions: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    root: Arc<Root>,
    /// When the path was last found to lead to it, in milliseconds of the monotonic clock.
    checked: AtomicU64,
    /// [`Roots::suspicions`] and [`Watch::clearings`], added up, before that.
    suspicions: AtomicU64,
}

/// What a path leads to.
pub(crate) struct Lookup {
    pub(crate) root: io::Result<Arc<Root>>,
    /// It led to another directory before, so that nothing that was found there holds any more.
    pub(crate) has_moved: bool,
}

impl Roots {
    /// The root at `path`, opened when it is not yet, or when the path leads elsewhere now. `watch` notifies of the
    /// latter; besides, the path is looked at again after `trusted` milliseconds.
    pub(crate) fn get(&self, path: &Path, watch: Option<&Watch>, trusted: u64) -> Lookup {
        let now = monotonic_millis();
        let suspicions =
            self.suspicions.load(Ordering::Acquire) + watch.map_or(0, Watch::clearings);
        let is_suspected = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            match open.get(path) {
                Some(entry) if entry.is_trusted(now, suspicions, trusted) => {
                    return Lookup { root: Ok(Arc::clone(&entry.root)), has_moved: false };
                }
                Some(entry) if entry.suspicions.load(Ordering::Relaxed) == suspicions => {
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
                if let Some(entry) = open.get(path).filter(|_| is_exhausted(&error)) {
                    return Lookup { root: Ok(Arc::clone(&entry.root)), has_moved: false };
                }
                let has_moved = open.remove(path).is_some();
                return Lookup { root: Err(error), has_moved };
            }
        };
        if is_suspected
            && let Some(entry) = open.get(path)
            && entry.root.identity == opened.identity
            && entry.root.path == opened.path
        {
            entry.checked.store(now, Ordering::Relaxed);
            entry.suspicions.store(suspicions, Ordering::Relaxed);
            return Lookup { root: Ok(Arc::clone(&entry.root)), has_moved: false };
        }
        let (checked, suspicions) = (AtomicU64::new(now), AtomicU64::new(suspicions));
        let entry = Entry { root: Arc::clone(&opened), checked, suspicions };
        let has_moved = open.insert(path.to_owned(), entry).is_some();
        Lookup { root: Ok(opened), has_moved }
    }

    /// The paths that are open.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.keys().cloned().collect()
    }

    /// Has every path looked at again, and followed again, before it is used.
    pub(crate) fn suspect(&self) {
        self.suspicions.fetch_add(1, Ordering::Release);
    }

    /// Closes the roots that are not `used`.
    pub(crate) fn retain(&self, used: impl Fn(&Path) -> bool) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.retain(|path, _| used(path));
    }
}

/// Whether the error says nothing of the path.
fn is_exhausted(error: &io::Error) -> bool {
    let errors = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    errors.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl Entry {
    fn is_trusted(&self, now: u64, suspicions: u64, trusted: u64) -> bool {
        self.suspicions.load(Ordering::Relaxed) == suspicions
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
            fd,
            path: canonical.as_os_str().as_bytes().into(),
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    /// Whether `path` leads to it.
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
        assert_eq!(look(), (b"one".to_vec(), false), "it was looked at a moment ago");
        roots.suspect();
        assert_eq!(look(), (b"two".to_vec(), true));
        assert_eq!(look(), (b"two".to_vec(), false));
        roots.suspect();
        assert_eq!(look(), (b"two".to_vec(), false));
        // The same directory by another way, as which programs are started and changes followed.
        fs::rename(at("two"), at("three")).unwrap();
        symlink("three", at("two")).unwrap();
        roots.suspect();
        assert_eq!(look(), (b"three".to_vec(), true));
        fs::remove_file(at("current")).unwrap();
        roots.suspect();
        assert_eq!(look(), (b"".to_vec(), true), "it is not there");
        fs::create_dir(at("current")).unwrap();
        assert_eq!(look(), (b"current".to_vec(), false));
        roots.retain(|_| false);
        assert!(roots.paths().is_empty());
    }
}
