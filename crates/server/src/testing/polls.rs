//! Counts the runs of tasks.

use std::cell::Cell;

thread_local! {
    static POLLS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a run of a task, so that [`Server::settle`](super::Server::settle) knows when all tasks are idle.
pub(crate) fn count_poll() {
    POLLS.set(POLLS.get() + 1);
}

/// Returns how often tasks have run on this thread.
pub(crate) fn count() -> u64 {
    POLLS.get()
}
