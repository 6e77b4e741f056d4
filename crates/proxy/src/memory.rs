//! The memory for bodies that are collected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that the bodies of a group may take.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes.
    left: AtomicU64,
}

/// A part of the memory. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes) })
    }

    /// Takes `bytes`; `None` if fewer are left.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let take = |left: u64| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Reservation { memory: Arc::clone(self), bytes })
    }
}

impl Reservation {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned() {
        let memory = Memory::new(100);
        let first = memory.reserve(60).unwrap();
        assert!(memory.reserve(41).is_none());
        let second = memory.reserve(40).unwrap();
        drop(first);
        assert!(memory.reserve(60).is_some());
        drop(second);
        assert!(memory.reserve(100).is_some());
    }
}
