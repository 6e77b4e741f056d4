//! Why a path cannot be opened or served.

use std::fmt;

/// Why a path cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It does not exist, or must look as if it did not.
    Missing,
    /// It exists but must not be served: its permissions or its type forbid it, or a symlink leads out of the root.
    Forbidden,
    /// It is a directory without an index file, and `listing` is off.
    Unlisted,
    /// Descriptors or memory have run out.
    Exhausted,
    /// The object store that has it does not respond.
    Unavailable,
    /// An error that the log reports.
    Broken,
    /// The operation would have to wait for a disk; see [`Mode`](super::mode::Mode).
    WouldBlock,
}

impl Failure {
    /// Returns the status of the response.
    pub fn status(self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::Forbidden | Self::Unlisted => 403,
            Self::Exhausted | Self::Unavailable => 503,
            Self::Broken | Self::WouldBlock => 500,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "no such file, or it may not be served",
            Self::Forbidden => {
                "it may not be read, is not a regular file, or lies behind a symlink that `symlinks` does not allow"
            }
            Self::Unlisted => "it has no index file, and `listing` is off",
            Self::Exhausted => "descriptors or memory have run out",
            Self::Unavailable => "the object store does not respond",
            Self::Broken => "it cannot be opened",
            Self::WouldBlock => "it is not in memory",
        })
    }
}
