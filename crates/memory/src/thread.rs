//! The account of one thread. Tests, whose server runs on one thread, have a limit of their own, and read what it holds.

use std::cell::Cell;

use super::account::{STEP, exceeds, next_cell};

/// The account of a thread.
pub(crate) struct Own {
    /// The number of its cell among those of the process.
    pub(crate) cell: usize,
    held: Cell<i64>,
    /// The value of `held` at the last comparison of the process with its limit.
    compared: Cell<i64>,
    limit: Cell<Option<u64>>,
    is_exhausted: Cell<bool>,
}

thread_local! {
    pub(crate) static OWN: Own = Own {
        cell: next_cell(),
        held: Cell::new(0),
        compared: Cell::new(0),
        limit: const { Cell::new(None) },
        is_exhausted: const { Cell::new(false) },
    };
}

impl Own {
    /// Counts a change. Returns `true` if the process is to be compared with its limit.
    pub(crate) fn count(&self, bytes: i64) -> bool {
        let held = self.held.get() + bytes;
        self.held.set(held);
        if let Some(limit) = self.limit.get() {
            let held = u64::try_from(held).unwrap_or(0);
            self.is_exhausted.set(exceeds(held, limit, self.is_exhausted.get()));
        }
        let grown = held - self.compared.get();
        if grown.abs() < STEP {
            return false;
        }
        self.compared.set(held);
        grown > 0
    }
}

/// Returns the bytes of reservations that were made on this thread, less those that were dropped on it.
pub fn held() -> i64 {
    OWN.with(|own| own.held.get())
}

/// Forgets what this thread holds.
pub fn forget() {
    OWN.with(|own| own.held.set(0));
}

/// Sets a limit that applies on this thread in place of that of the process.
pub fn set_limit(bytes: Option<u64>) {
    OWN.with(|own| {
        own.limit.set(bytes);
        own.is_exhausted.set(false);
        own.count(0);
    });
}

/// Returns `true` if this thread has a limit and exceeds it; `None` if it has none.
#[inline]
pub(crate) fn is_exhausted() -> Option<bool> {
    OWN.with(|own| own.limit.get().map(|_| own.is_exhausted.get()))
}
