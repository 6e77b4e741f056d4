//! Detection of changed files.

use std::path::Path;
use std::time::SystemTime;

/// Identifies the state of a file: modification time, size and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp(Option<(SystemTime, u64, u64)>);

impl FileStamp {
    /// Creates the state of the file at `path` now.
    pub(crate) fn of(path: impl AsRef<Path>) -> Self {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path).ok();
        Self(metadata.and_then(|data| Some((data.modified().ok()?, data.len(), data.ino()))))
    }
}
