//! The directories that routes serve from, kept open.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use rustix::fs::{Mode, OFlags, fstat, open, stat};

/// An open root directory.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) fd: OwnedFd,
    /// Absolute and without symlinks at the time of opening.
    pub(crate) path: Box<[u8]>,
}

/// Open root directories by the path that the configuration names.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    open: RwLock<HashMap<PathBuf, Arc<Root>>>,
}

impl Roots {
    /// The root at `path`, opened when it is not yet.
    pub(crate) fn get(&self, path: &Path) -> io::Result<Arc<Root>> {
        if let Some(root) = self.open.read().unwrap_or_else(PoisonError::into_inner).get(path) {
            return Ok(Arc::clone(root));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        let canonical = path.canonicalize()?;
        let root = Arc::new(Root { fd, path: canonical.as_os_str().as_bytes().into() });
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(path.to_owned(), Arc::clone(&root));
        Ok(root)
    }

    /// Lets go of roots whose path leads elsewhere now, as after a deployment that exchanges a
    /// symlink. True when there was one.
    pub(crate) fn check(&self) -> bool {
        let moved = |path: &PathBuf, root: &Arc<Root>| match (stat(path), fstat(&root.fd)) {
            (Ok(now), Ok(then)) => (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino),
            _ => true,
        };
        let any = {
            let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
            open.iter().any(|(path, root)| moved(path, root))
        };
        if any {
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            open.retain(|path, root| !moved(path, root));
        }
        any
    }
}
