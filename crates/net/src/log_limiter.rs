//! Rate limit for log messages that clients can cause.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Permits one message per second.
#[derive(Debug, Default)]
pub struct LogLimiter(AtomicU64);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl LogLimiter {
    /// Creates a limiter that permits a message now.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns `true` if a message is due: none was permitted in this second.
    pub fn is_due(&self) -> bool {
        self.is_due_at(START.elapsed().as_secs() + 1)
    }

    fn is_due_at(&self, second: u64) -> bool {
        self.0.swap(second, Ordering::Relaxed) != second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_permitted_per_second() {
        let log_limiter = LogLimiter::new();
        let permitted = [1, 1, 1, 2, 2, 5].map(|second| log_limiter.is_due_at(second));
        assert_eq!(permitted, [true, false, false, true, false, true]);
    }
}
