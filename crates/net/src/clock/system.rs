//! The clocks of the system.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the current moment of the monotonic clock.
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the time since 1970.
#[inline]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the monotonic clock, in milliseconds.
#[inline]
pub fn monotonic_millis() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// A future that resolves at a deadline.
#[derive(Debug)]
pub struct Sleep(Pin<Box<tokio::time::Sleep>>);

impl Sleep {
    /// Resolves at `deadline`.
    pub fn until(deadline: Instant) -> Self {
        Self(Box::pin(tokio::time::sleep_until(deadline.into())))
    }

    /// Replaces the deadline.
    pub fn reset(&mut self, deadline: Instant) {
        self.0.as_mut().reset(deadline.into());
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
