//! Files that a confined process may use.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Files that may be used: each a file, or a directory with all that is beneath it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedPaths {
    /// What may be read.
    pub read: Vec<PathBuf>,
    /// What may be written, made and removed.
    pub write: Vec<PathBuf>,
    /// Where sockets may be made and removed.
    pub sockets: Vec<PathBuf>,
    /// What may be run, and read.
    pub execute: Vec<PathBuf>,
}
