//! The bytes that the queues of one connection hold.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Reservation;

/// The budget of a connection whose requests share it.
///
/// A queue joins the budget of the connection whose requests are polled when it is made ([`Budget::enter`]). The more all
/// queues hold, the less may each hold ([`Budget::share`]), so that many that are not read leave room for further ones.
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
    /// Bytes that each queue may hold while half of the budget is in use, so that none stops for ever.
    const LEAST: usize = 4 * 1024;
    /// Bytes that each queue may hold while a quarter of the budget is in use.
    const MIDDLE: usize = 16 * 1024;

    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), limit })
    }

    /// Has the queues that this thread makes join the budget, until the result is dropped.
    pub fn enter(self: &Arc<Self>) -> Entered {
        ENTERED.with_borrow_mut(|entered| *entered = Some(Arc::clone(self)));
        Entered(())
    }

    /// Returns a reservation of no bytes in this budget.
    pub fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { bytes: 0, budget: Some(Arc::clone(self)) }
    }

    /// Returns the budget that new queues of this thread join.
    pub(crate) fn entered() -> Option<Arc<Self>> {
        ENTERED.with_borrow(Clone::clone)
    }

    /// Returns the share of a queue in the budget that new queues of this thread join.
    pub fn entered_share() -> usize {
        ENTERED.with_borrow(|entered| entered.as_ref().map_or(usize::MAX, |budget| budget.share()))
    }

    /// Returns the bytes that each queue may hold now, whatever its own limit is.
    pub fn share(&self) -> usize {
        let held = self.held();
        match () {
            () if held < self.limit / 4 => usize::MAX,
            () if held < self.limit / 2 => Self::MIDDLE,
            () => Self::LEAST,
        }
    }

    /// Returns the bytes that its queues hold.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
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
