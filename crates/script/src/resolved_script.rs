//! A script that a path names.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The script for a request.
#[derive(Debug, Default)]
pub struct ResolvedScript {
    pub(super) program: PathBuf,
    /// The program as text, for the log.
    pub(super) label: Arc<str>,
    /// `SCRIPT_NAME`: the URL's path up to the end of the script's name.
    pub(super) name: Vec<u8>,
    /// `PATH_INFO`: the rest of the URL's path, empty or with a slash at its front. Encoded slashes are slashes.
    pub(super) info: Vec<u8>,
    /// The query of a `try` list, which replaces the request's.
    pub(super) query: Option<Vec<u8>>,
    /// Workers that run an older version of the program were replaced since it was found.
    pub(super) is_refreshed: AtomicBool,
}

impl ResolvedScript {
    /// Creates the script `program`. `name` is `SCRIPT_NAME`, `info` is `PATH_INFO`.
    pub fn new(program: PathBuf, name: &[u8], info: &[u8]) -> Self {
        Self { program, name: name.to_vec(), info: info.to_vec(), ..Self::default() }
    }

    /// Returns `SCRIPT_NAME`.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns `PATH_INFO`.
    pub fn info(&self) -> &[u8] {
        &self.info
    }

    /// Creates the same with the query of a `try` list.
    pub(super) fn with(self: Arc<Self>, query: Option<Vec<u8>>) -> Arc<Self> {
        match Arc::try_unwrap(self) {
            Ok(located) => Arc::new(Self { query, ..located }),
            Err(located) => located,
        }
    }
}
