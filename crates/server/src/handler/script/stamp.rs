//! Whether a file is still the one that it was.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What changes when a file's content does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// `None` when there is no such file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|facts| Self::from(&facts))
    }
}

impl From<&Metadata> for Stamp {
    fn from(facts: &Metadata) -> Self {
        Self {
            device: facts.dev(),
            inode: facts.ino(),
            size: facts.size(),
            // The time of change and not that of modification, which programs can set back.
            changed: (facts.ctime(), facts.ctime_nsec()),
        }
    }
}

/// Files as they were at some time.
#[derive(Debug, Default)]
pub(super) struct Watched(Vec<(PathBuf, Option<Stamp>)>);

impl Watched {
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(paths.into_iter().map(|path| (Stamp::of(&path), path)).map(|(s, p)| (p, s)).collect())
    }

    /// The first one that is not what it was.
    pub(super) fn changed(&self) -> Option<&Path> {
        let changed = self.0.iter().find(|(path, stamp)| Stamp::of(path) != *stamp);
        changed.map(|(path, _)| path.as_path())
    }
}

/// The absolute paths in a list in which each ends in a NUL.
pub(super) fn paths(list: &[u8]) -> Vec<PathBuf> {
    let paths = list.split(|&byte| byte == 0).filter(|path| path.starts_with(b"/"));
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}
