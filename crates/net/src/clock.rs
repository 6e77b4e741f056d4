//! The sources of time, and the copy of a worker, which is updated once a tick and used by all requests in between.
//!
//! With the feature `testing` a test can stop and advance the time of its thread (`manual`).

#[cfg(any(test, feature = "testing"))]
pub mod manual;
pub mod system;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::time::{Duration, Instant};

use dunlin_http::semantics::date;
use futures_util::future::{Either, select};

#[cfg(any(test, feature = "testing"))]
pub use self::manual::{ManualSleep as Sleep, monotonic_millis, now, since_1970};
#[cfg(not(any(test, feature = "testing")))]
pub use self::system::{Sleep, monotonic_millis, now, since_1970};

/// Resolves after `time`.
pub async fn sleep(time: Duration) {
    Sleep::until(now() + time).await;
}

/// Returns the output of `future`; [`None`] when `limit` passes first.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    match select(pin!(future), Sleep::until(now() + limit)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// The interval of [`Clock::update`] while there are connections.
pub const TICK: Duration = Duration::from_millis(100);

/// The time of a worker, at most one [`TICK`] old.
#[derive(Debug)]
pub struct Clock {
    /// Milliseconds of the monotonic clock, which setting the date does not change.
    now: Cell<u64>,
    /// Seconds since 1970.
    unix: Cell<u64>,
    /// One moment, on the monotonic clock and since 1970.
    anchor: Cell<(Instant, Duration)>,
    date_line: RefCell<Vec<u8>>,
}

impl Clock {
    /// Creates a clock with the current time.
    pub fn new() -> Self {
        let clock = Self {
            now: Cell::new(0),
            unix: Cell::new(u64::MAX),
            anchor: Cell::new((now(), Duration::ZERO)),
            date_line: RefCell::default(),
        };
        clock.update();
        clock
    }

    /// Reads the time.
    pub fn update(&self) {
        self.now.set(monotonic_millis());
        let since_1970 = since_1970();
        self.anchor.set((now(), since_1970));
        let unix = since_1970.as_secs();
        if self.unix.replace(unix) != unix {
            let mut line = self.date_line.borrow_mut();
            line.clear();
            line.extend_from_slice(b"Date: ");
            line.extend_from_slice(&date::format(unix));
            line.extend_from_slice(b"\r\n");
        }
    }

    /// Returns the time until the next tick: at most until the second of the date ends, so that no response has the date of
    /// the previous second.
    pub fn until_tick() -> Duration {
        until_tick_at(since_1970())
    }

    /// Milliseconds of the monotonic clock.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Seconds since 1970.
    #[inline]
    pub fn unix(&self) -> u64 {
        self.unix.get()
    }

    /// `moment` since 1970, without a system call: exact, except for changes of the date since the last tick.
    #[inline]
    pub fn since_1970(&self, moment: Instant) -> Duration {
        let (anchor, since_1970) = self.anchor.get();
        match moment.checked_duration_since(anchor) {
            Some(later) => since_1970 + later,
            None => since_1970.saturating_sub(anchor - moment),
        }
    }

    /// Calls `use_line` with the line `Date: …` and its CR LF.
    #[inline]
    pub fn with_date_line<R>(&self, use_line: impl FnOnce(&[u8]) -> R) -> R {
        use_line(&self.date_line.borrow())
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// See [`Clock::until_tick`].
fn until_tick_at(since_1970: Duration) -> Duration {
    let next_second =
        Duration::from_secs(1) - Duration::from_nanos(since_1970.subsec_nanos().into());
    // A timer may fire early by less than a millisecond.
    TICK.min(next_second + Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_ends_with_the_second() {
        let after = |millis| until_tick_at(Duration::from_millis(millis)).as_millis();
        assert_eq!([after(5_000), after(5_900), after(5_950), after(5_999)], [100, 100, 51, 2]);
    }
}
