//! Timers of connections.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A priority queue of timers.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Timers {
    /// Sets a timer for connection `index`. It is void if the slot has another `generation` when it expires.
    pub(super) fn add(&mut self, due: u64, index: u32, generation: u32) {
        self.heap.push(Reverse((due, index, generation)));
    }

    /// Returns the time of the next timer.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    /// Returns the index and generation of an expired timer.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u32, u32)> {
        let Reverse((due, index, generation)) = *self.heap.peek()?;
        if due > now {
            return None;
        }
        self.heap.pop();
        Some((index, generation))
    }
}
