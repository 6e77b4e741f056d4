//! Detecting whether a file has changed.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Metadata that change with the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns the current version; `None` if there is no such file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for FileVersion {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            // The time of change (ctime): programs can set back the time of modification.
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Files and their versions at some time.
#[derive(Debug, Default)]
pub(super) struct WatchedFiles(Vec<(PathBuf, Option<FileVersion>)>);

impl WatchedFiles {
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(
            paths
                .into_iter()
                .map(|path| (FileVersion::of(&path), path))
                .map(|(s, p)| (p, s))
                .collect(),
        )
    }

    /// Returns the first file that has changed since.
    pub(super) fn changed(&self) -> Option<&Path> {
        let changed = self.0.iter().find(|(path, stamp)| FileVersion::of(path) != *stamp);
        changed.map(|(path, _)| path.as_path())
    }
}

/// Returns the absolute paths in a list of NUL-terminated ones.
pub(super) fn paths(list: &[u8]) -> Vec<PathBuf> {
    let paths = list.split(|&byte| byte == 0).filter(|path| path.starts_with(b"/"));
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}
