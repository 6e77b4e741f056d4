//! The account of the memory that the queues of a process hold, and its limit.
//!
//! # What it does
//! A queue has a [`Reservation`] and states in it the bytes that it holds: whole buffers, also those of which only a part is
//! in use, and [`CHUNK`] for each chunk. [`held`] is the sum of all reservations. Beyond [`set_limit`] the memory is
//! exhausted ([`is_exhausted`]): the server rejects new work, and what has begun goes on.
//!
//! # Contract
//! The account is one for the process, as the memory is. All functions can be called from any thread; none takes a lock.
//! Each thread counts in a cell of its own, so that a change of a reservation writes to no memory that another thread
//! reads often. [`is_exhausted`] reads a flag. A thread compares the sum with the limit whenever its reservations have
//! grown by [`STEP`], and whenever it calls [`update`], which it does regularly. So the process may exceed the limit by
//! [`STEP`] for each thread.
//!
//! The requests of one connection share a [`Budget`], which the queues join that are made while they are polled.
//!
//! A limit alone does not bound a queue: each has its own bound, and waits or fails beyond it.
//!
//! # Example
//! ```
//! use dunlin_memory::{CHUNK, Reservation, held};
//!
//! let before = held();
//! let mut reservation = Reservation::new();
//! reservation.set(1_000 + CHUNK);
//! assert_eq!(held() - before, 1_064);
//! drop(reservation);
//! assert_eq!(held(), before);
//! ```

mod account;
mod budget;
pub mod thread;

use std::sync::Arc;

pub use self::account::{
    Change, STEP, held, is_exhausted, limit, reject, rejected, set_limit, take_change, update,
};
pub use self::budget::{Budget, Entered};

/// Bytes that a chunk of a queue costs besides its content: its place in the queue and its share of an allocation.
pub const CHUNK: usize = 64;

/// The bytes that one queue holds. Dropping it returns them.
#[derive(Debug, Default)]
pub struct Reservation {
    bytes: usize,
    /// The budget of its connection, if it has joined one.
    budget: Option<Arc<Budget>>,
}

impl Reservation {
    /// Creates a reservation of no bytes.
    pub const fn new() -> Self {
        Self { bytes: 0, budget: None }
    }

    /// Returns a reservation of no bytes, in the budget of the connection whose requests this thread polls, if there is one.
    pub fn of_connection() -> Self {
        Self { bytes: 0, budget: Budget::entered() }
    }

    /// Returns a reservation of no bytes in the same budget.
    pub fn sibling(&self) -> Self {
        Self { bytes: 0, budget: self.budget.clone() }
    }

    /// Returns the share of a queue in the budget of its connection.
    #[inline]
    pub fn share(&self) -> usize {
        self.budget.as_ref().map_or(usize::MAX, |budget| budget.share())
    }

    /// Changes the reservation to `bytes`.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            account::change(bytes as i64 - self.bytes as i64);
            if let Some(budget) = &self.budget {
                budget.change(self.bytes, bytes);
            }
            self.bytes = bytes;
        }
    }

    /// Enlarges the reservation.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_add(bytes));
    }

    /// Reduces the reservation.
    #[inline]
    pub fn remove(&mut self, bytes: usize) {
        self.set(self.bytes.saturating_sub(bytes));
    }

    /// Returns the bytes that are reserved.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_counts_in_the_budget_that_was_entered_when_it_was_made() {
        let budget = Budget::new(100);
        let mut before = Reservation::of_connection();
        let entered = budget.enter();
        let (mut within, mut other) = (Reservation::of_connection(), Reservation::new());
        drop(entered);
        let mut after = Reservation::of_connection();
        for reservation in [&mut before, &mut within, &mut other, &mut after] {
            reservation.set(99);
        }
        assert!(budget.held() == 99 && within.share() < 10_000);
        assert_eq!((before.share(), after.share()), (usize::MAX, usize::MAX));
        within.set(30);
        assert!((10_000..20_000).contains(&within.share()));
        within.set(20);
        assert_eq!(within.share(), usize::MAX);
        let ended = std::thread::spawn(move || drop(within));
        ended.join().unwrap();
        assert_eq!(budget.held(), 0);
        drop((before, other, after));
        thread::forget();
    }

    #[test]
    fn a_reservation_counts_what_it_holds_until_it_is_dropped() {
        let mut first = Reservation::new();
        first.add(100);
        let mut second = Reservation::new();
        second.set(50);
        second.remove(20);
        assert_eq!((first.bytes(), second.bytes(), thread::held()), (100, 30, 130));
        second.remove(100);
        assert_eq!(thread::held(), 100);
        drop(first);
        assert_eq!(thread::held(), 0);
    }

    #[test]
    fn a_reservation_may_end_on_another_thread() {
        let mut moved = Reservation::new();
        moved.set(1 << 30);
        assert!(held() >= 1 << 30);
        std::thread::spawn(move || drop(moved)).join().unwrap();
        assert!(held() < 1 << 30);
        thread::forget();
    }

    #[test]
    fn the_memory_is_exhausted_beyond_the_limit_and_available_well_below_it() {
        thread::set_limit(Some(1_000));
        let mut reservation = Reservation::new();
        reservation.set(1_000);
        assert!(!is_exhausted());
        reservation.set(1_001);
        assert!(is_exhausted());
        reservation.set(900);
        assert!(is_exhausted(), "the flag does not change with each chunk");
        reservation.set(875);
        assert!(!is_exhausted());
        thread::set_limit(None);
    }
}
