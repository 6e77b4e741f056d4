//! The reading of a file in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::once::SharedOnce;
use crate::cache::resource::Resource;

/// A file that is being read, for all that wait for it.
#[derive(Debug, Default)]
pub(super) struct Restoration {
    pub(super) resource: SharedOnce<Option<Arc<Resource>>>,
    /// The object has changed since the file was found.
    pub(super) is_outdated: AtomicBool,
}

impl Restoration {
    /// Records that the object has changed since the file was found.
    pub(super) fn set_outdated(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
    }
}
