//! The deadlines of an endpoint's connections.
//!
//! Most deadlines move on before they pass. A connection therefore has one entry, for its earliest deadline since the entry was
//! made; when that has passed, the entry moves to the current deadline. The timer of the system is set only for an entry that is
//! earlier than all others.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::time::Instant;

use dunlin_net::clock;
use dunlin_net::timer::Timer;

/// The deadlines of connections, which are numbered.
pub(crate) struct Timers {
    entries: RefCell<BinaryHeap<Reverse<(Instant, usize)>>>,
    timer: Timer,
    /// The time for which the timer is set.
    armed: Cell<Option<Instant>>,
}

impl Timers {
    pub(crate) fn new() -> io::Result<Self> {
        let timer = Timer::new()?;
        Ok(Self { entries: RefCell::default(), timer, armed: Cell::new(None) })
    }

    /// Adds an entry.
    pub(crate) fn add(&self, at: Instant, number: usize) {
        self.entries.borrow_mut().push(Reverse((at, number)));
        self.arm(at);
    }

    /// Removes and returns an entry that has passed.
    pub(crate) fn take(&self, now: Instant) -> Option<(Instant, usize)> {
        let mut entries = self.entries.borrow_mut();
        let Reverse((at, _)) = entries.peek()?;
        if *at > now {
            return None;
        }
        entries.pop().map(|Reverse(entry)| entry)
    }

    /// Resolves when an entry may have passed.
    pub(crate) async fn passed(&self) -> io::Result<()> {
        self.timer.fired().await?;
        self.armed.set(None);
        Ok(())
    }

    /// Sets the timer for the first entry.
    pub(crate) fn rearm(&self) {
        let first = self.entries.borrow().peek().map(|Reverse((at, _))| *at);
        if let Some(at) = first {
            self.arm(at);
        }
    }

    fn arm(&self, at: Instant) {
        if self.armed.get().is_some_and(|armed| armed <= at) {
            return;
        }
        let after = at.saturating_duration_since(clock::now());
        // The kernel rejects no duration that a connection has.
        if self.timer.set(after).is_ok() {
            self.armed.set(Some(at));
        }
    }
}
