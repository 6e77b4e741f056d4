//! Files that a confined process may use.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Files that may be used: each entry is a file, or a directory with everything beneath it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedPaths {
    /// Files that may be read.
    pub read: Vec<PathBuf>,
    /// Files that may be written, created and removed.
    pub write: Vec<PathBuf>,
    /// Directories in which sockets may be created and removed.
    pub sockets: Vec<PathBuf>,
    /// Files that may be executed and read.
    pub execute: Vec<PathBuf>,
}
