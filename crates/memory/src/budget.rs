//! The bytes that the queues of one connection hold.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget of a connection whose requests share it.
///
/// A queue joins the budget of the connection whose requests are polled when it is made ([`Budget::enter`]). Queues of an
/// exhausted budget keep to [`Budget::LEAST`].
#[derive(Debug)]
pub struct Budget {
    held: AtomicUsize,
    limit: usize,
}

thread_local! {
    /// The budget that new queues join.
    static ENTERED: RefCell<Option<Arc<Budget>>> = const { RefCell::new(None) };
}

/// Ends the time in which new queues join a budget.
#[derive(Debug)]
pub struct Entered(());

impl Budget {
    /// Bytes that each queue may hold also when the budget is exhausted, so that none stops for ever.
    pub const LEAST: usize = 4 * 1024;

    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), limit })
    }

    /// Has the queues that this thread makes join the budget, until the result is dropped.
    pub fn enter(self: &Arc<Self>) -> Entered {
        ENTERED.with_borrow_mut(|entered| *entered = Some(Arc::clone(self)));
        Entered(())
    }

    /// Returns the budget that new queues of this thread join.
    pub(crate) fn entered() -> Option<Arc<Self>> {
        ENTERED.with_borrow(Clone::clone)
    }

    /// Returns `true` if the budget that new queues of this thread join is exhausted.
    pub fn is_entered_exhausted() -> bool {
        ENTERED.with_borrow(|entered| entered.as_ref().is_some_and(|budget| budget.is_exhausted()))
    }

    /// Returns the bytes that its queues hold.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns `true` if its queues hold all bytes that they may.
    pub fn is_exhausted(&self) -> bool {
        self.held() >= self.limit
    }

    /// Counts the change of a queue from `before` to `now`.
    pub(crate) fn change(&self, before: usize, now: usize) {
        // The sum wraps around zero together with its summands.
        self.held.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        ENTERED.with_borrow_mut(|entered| *entered = None);
    }
}
