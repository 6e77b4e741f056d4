//! Work that one task at a time does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The right to do work that one task does at a time.
#[derive(Debug, Default)]
pub(crate) struct Turn(Arc<AtomicBool>);

/// A task does the work until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken(Arc<AtomicBool>);

impl Turn {
    /// Takes the work; `None` if another task does it.
    pub(crate) fn take(&self) -> Option<Taken> {
        (!self.0.swap(true, Ordering::Acquire)).then(|| Taken(Arc::clone(&self.0)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
