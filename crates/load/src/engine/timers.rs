//! What connections wait for: a time each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The connections that wait for a time, soonest first.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Timers {
    /// Wakes connection `index` at `due`, unless its `generation` is another by then.
    pub(super) fn add(&mut self, due: u64, index: u32, generation: u32) {
        self.heap.push(Reverse((due, index, generation)));
    }

    /// The soonest time that is waited for.
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    /// A connection and generation whose time has come.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u32, u32)> {
        let Reverse((due, index, generation)) = *self.heap.peek()?;
        if due > now {
            return None;
        }
        self.heap.pop();
        Some((index, generation))
    }
}
