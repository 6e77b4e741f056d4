//! The engine's clock: nanoseconds since the start of the run.

use std::thread;
use std::time::{Duration, Instant};

/// The start of a run, which may be in the future.
#[derive(Clone, Copy)]
pub(super) struct Clock(Instant);

/// Time before the start from which on a thread spins, since a sleep may take that much longer than requested.
const SPIN: Duration = Duration::from_micros(300);
/// Longest sleep between two checks whether the run has been stopped.
const SLEEP: Duration = Duration::from_millis(20);

impl Clock {
    pub(super) fn new(start: Instant) -> Self {
        Self(start)
    }

    /// Nanoseconds since the start; 0 before it.
    #[inline]
    pub(super) fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    /// Waits until a time after the start, unless the run is stopped.
    pub(super) fn wait(self, after: Duration, is_stopped: impl Fn() -> bool) {
        let end = self.0 + after;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() || is_stopped() {
                return;
            }
            match rest.checked_sub(SPIN) {
                Some(sleep) if !sleep.is_zero() => thread::sleep(sleep.min(SLEEP)),
                _ => std::hint::spin_loop(),
            }
        }
    }
}

/// Converts seconds to nanoseconds; saturates.
pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
