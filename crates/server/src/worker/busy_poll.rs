//! Busy polling: a worker without work polls its sockets for a bounded time before it sleeps, because sleeping and waking
//! up take longer than a short wait.
//!
//! It adapts: the worker polls only while the last wait for work was shorter than the bound, so that a worker with little
//! work sleeps at once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The state of a worker's thread.
struct BusyPoll {
    /// The bound; zero switches busy polling off.
    bound: Cell<Duration>,
    /// Connections were polled since the thread ran out of work for the last time.
    was_active: Cell<bool>,
    /// When the thread ran out of work.
    idle_since: Cell<Option<Instant>>,
    /// When the sockets were polled for the last time.
    polled_at: Cell<Option<Instant>>,
    /// The last wait for work was shorter than the bound.
    pays: Cell<bool>,
    /// Wakes the task that keeps the thread from sleeping.
    waker: RefCell<Option<Waker>>,
}

thread_local! {
    static THREAD: BusyPoll = const {
        BusyPoll {
            bound: Cell::new(Duration::ZERO),
            was_active: Cell::new(false),
            idle_since: Cell::new(None),
            polled_at: Cell::new(None),
            pays: Cell::new(false),
            waker: RefCell::new(None),
        }
    };
}

/// Sets the bound of this thread; zero switches busy polling off.
pub(super) fn set_bound(bound: Duration) {
    THREAD.with(|thread| thread.bound.set(bound));
}

/// Records that a connection was polled.
#[inline]
pub(super) fn record_activity() {
    THREAD.with(|thread| thread.was_active.set(true));
}

/// Runs before the thread sleeps: keeps it awake if waiting pays.
pub(crate) fn before_sleep() {
    THREAD.with(|thread| {
        if !thread.bound.get().is_zero() && thread.stays_awake(Instant::now()) {
            // Work that is pending makes the runtime poll the sockets without waiting.
            if let Some(waker) = &*thread.waker.borrow() {
                waker.wake_by_ref();
            }
        }
    });
}

/// Runs after the sockets were polled.
pub(crate) fn after_poll() {
    THREAD.with(|thread| {
        if !thread.bound.get().is_zero() {
            thread.polled_at.set(Some(Instant::now()));
        }
    });
}

/// The task that keeps the thread awake when it is woken.
pub(crate) async fn stay_awake() {
    poll_fn(|cx| {
        THREAD.with(|thread| {
            let mut waker = thread.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        });
        Poll::<()>::Pending
    })
    .await;
}

impl BusyPoll {
    /// Returns `true` if the thread polls again instead of sleeping.
    fn stays_awake(&self, now: Instant) -> bool {
        if self.was_active.replace(false) {
            if let (Some(idle), Some(polled)) = (self.idle_since.get(), self.polled_at.get()) {
                self.pays.set(polled.saturating_duration_since(idle) < self.bound.get());
            }
            self.idle_since.set(Some(now));
        }
        let is_within = |since| now.saturating_duration_since(since) < self.bound.get();
        self.pays.get() && self.idle_since.get().is_some_and(is_within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_micros(50);

    /// Waits of this many microseconds, each followed by work of a connection. Returns whether the thread stays awake at the
    /// beginning of each further wait, and at the end of the bound.
    fn waits(micros: &[u64]) -> Vec<(bool, bool)> {
        let thread = BusyPoll {
            bound: Cell::new(BOUND),
            was_active: Cell::new(true),
            idle_since: Cell::new(None),
            polled_at: Cell::new(None),
            pays: Cell::new(false),
            waker: RefCell::new(None),
        };
        let mut now = Instant::now();
        assert!(!thread.stays_awake(now), "nothing is known at first");
        let wait = |micros: &u64| {
            now += Duration::from_micros(*micros);
            thread.polled_at.set(Some(now));
            thread.was_active.set(true);
            // The work.
            now += Duration::from_micros(500);
            (thread.stays_awake(now), thread.stays_awake(now + BOUND))
        };
        micros.iter().map(wait).collect()
    }

    #[test]
    fn the_thread_stays_awake_for_the_bound_after_a_short_wait() {
        assert_eq!(waits(&[10, 49]), [(true, false), (true, false)]);
    }

    #[test]
    fn the_thread_sleeps_at_once_after_a_long_wait() {
        assert_eq!(waits(&[50, 2000]), [(false, false), (false, false)]);
        assert_eq!(waits(&[10, 60, 10]), [(true, false), (false, false), (true, false)]);
    }
}
