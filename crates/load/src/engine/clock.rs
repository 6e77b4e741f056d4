//! The engine's clock: nanoseconds since the start of the run.

use std::time::Instant;

/// The start of a run.
#[derive(Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start.
    #[inline]
    pub(super) fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Converts seconds to nanoseconds; saturates.
pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
