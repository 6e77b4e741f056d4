//! A script that a path names.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The script for a request.
#[derive(Debug, Default)]
pub(super) struct Located {
    pub(super) program: PathBuf,
    /// The program as text, for the log.
    pub(super) label: Arc<str>,
    /// `SCRIPT_NAME`: the URL's path up to the end of the script's name.
    pub(super) name: Vec<u8>,
    /// `PATH_INFO`: the rest of the URL's path, empty or with a slash at its front.
    pub(super) info: Vec<u8>,
    /// The query of a `try` list, which replaces the request's.
    pub(super) query: Option<Vec<u8>>,
    /// Whether workers that run an older version of the program were replaced since it was found.
    pub(super) is_refreshed: AtomicBool,
}

impl Located {
    /// The same with the query of a `try` list.
    pub(super) fn with(self: Arc<Self>, query: Option<Vec<u8>>) -> Arc<Self> {
        match Arc::try_unwrap(self) {
            Ok(located) => Arc::new(Self { query, ..located }),
            Err(located) => located,
        }
    }
}
