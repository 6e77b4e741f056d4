//! A worker's idea of the time: read once a tick, used by every request in between.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_http::semantics::date;
use rustix::time::{ClockId, clock_gettime};

/// How often [`Clock::update`] is called while there are connections.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Time that is at most one [`TICK`] old.
#[derive(Debug)]
pub(crate) struct Clock {
    /// Milliseconds of the monotonic clock, which no change of the date moves.
    now: Cell<u64>,
    /// Seconds since 1970.
    unix: Cell<u64>,
    /// One moment, by the monotonic clock and since 1970.
    anchor: Cell<(Instant, Duration)>,
    date_line: RefCell<Vec<u8>>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let clock = Self {
            now: Cell::new(0),
            unix: Cell::new(u64::MAX),
            anchor: Cell::new((Instant::now(), Duration::ZERO)),
            date_line: RefCell::default(),
        };
        clock.update();
        clock
    }

    pub(crate) fn update(&self) {
        self.now.set(monotonic_millis());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.anchor.set((Instant::now(), since_1970));
        let unix = since_1970.as_secs();
        if self.unix.replace(unix) != unix {
            let mut line = self.date_line.borrow_mut();
            line.clear();
            line.extend_from_slice(b"Date: ");
            line.extend_from_slice(&date::format(unix));
            line.extend_from_slice(b"\r\n");
        }
    }

    /// How long the next tick is to be waited for: not longer than the second of the date lasts, so that no response has
    /// the date of the second before.
    pub(crate) fn until_tick() -> Duration {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        until_tick_at(since_1970)
    }

    /// Milliseconds since some moment before the start.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    /// Seconds since 1970.
    #[inline]
    pub(crate) fn unix(&self) -> u64 {
        self.unix.get()
    }

    /// That moment since 1970, without asking the system: exact but for what the date was set by since the
    /// last tick.
    #[inline]
    pub(crate) fn since_1970(&self, moment: Instant) -> Duration {
        let (anchor, since_1970) = self.anchor.get();
        match moment.checked_duration_since(anchor) {
            Some(later) => since_1970 + later,
            None => since_1970.saturating_sub(anchor - moment),
        }
    }

    /// Hands over the `Date: …` line with its CR LF.
    #[inline]
    pub(crate) fn with_date_line<R>(&self, use_line: impl FnOnce(&[u8]) -> R) -> R {
        use_line(&self.date_line.borrow())
    }
}

/// See [`Clock::until_tick`].
fn until_tick_at(since_1970: Duration) -> Duration {
    let next_second =
        Duration::from_secs(1) - Duration::from_nanos(since_1970.subsec_nanos().into());
    // A timer may be early by less than that.
    TICK.min(next_second + Duration::from_millis(1))
}

/// The monotonic clock, in milliseconds.
pub(crate) fn monotonic_millis() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
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
