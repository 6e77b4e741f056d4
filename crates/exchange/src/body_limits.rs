//! Limits of request bodies, for every version of HTTP: size and rate.

use dunlin_http::RequestError;

/// The body is larger than the limit.
pub const TOO_LARGE: RequestError =
    RequestError { status: 413, reason: "the body is larger than the limit" };
/// Nothing of the body has come for too long.
pub const STALLED: RequestError = RequestError { status: 408, reason: "the body took too long" };
const TOO_SLOW: RequestError = RequestError { status: 408, reason: "the body comes too slowly" };

/// The rate at which a client must send a request body.
#[derive(Debug, Clone, Copy)]
pub struct BodyRate {
    /// The time in milliseconds after which the average rate counts, and in which something must come.
    pub timeout: u64,
    /// The minimum in bytes per second; 0 for none.
    pub minimum: u64,
}

/// A body that is received, measured against its limits.
#[derive(Debug)]
pub(crate) struct BodyLimits {
    max: u64,
    received: u64,
    /// Since when the client alone determines the rate, in milliseconds of the worker's clock, and the bytes received since.
    since: u64,
    received_since: u64,
    /// The response is on its way, and its handler has timeouts of its own. What the client sends may depend on it.
    has_response: bool,
}

impl BodyLimits {
    /// Creates the limits of a body of at most `max` bytes, which starts to arrive at `now`.
    pub(crate) fn new(max: u64, now: u64) -> Self {
        Self { max, received: 0, since: now, received_since: 0, has_response: false }
    }

    /// Counts bytes received at `now`.
    ///
    /// # Errors
    /// If the body is too large, or too slow: the average rate counts once the timeout has passed, unless the response has begun.
    pub(crate) fn take(
        &mut self,
        bytes: usize,
        now: u64,
        rate: BodyRate,
    ) -> Result<(), RequestError> {
        self.received += bytes as u64;
        self.received_since += bytes as u64;
        if self.received > self.max {
            return Err(TOO_LARGE);
        }
        let elapsed = now.saturating_sub(self.since);
        let is_slow = !self.has_response
            && elapsed > rate.timeout
            && self.received_since.saturating_mul(1000) / elapsed < rate.minimum;
        if is_slow { Err(TOO_SLOW) } else { Ok(()) }
    }

    /// Ends the measurement of the rate: the response begins.
    pub(crate) fn begin_response(&mut self) {
        self.has_response = true;
    }

    /// Begins to measure the rate at `now`, since no response is on its way any more.
    pub(crate) fn end_response(&mut self, now: u64) {
        self.has_response = false;
        self.restart(now);
    }

    /// Restarts the measurement of the rate at `now`: until then the handler did not keep up, and the client is not slow.
    pub(crate) fn restart(&mut self, now: u64) {
        (self.since, self.received_since) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: BodyRate = BodyRate { timeout: 30_000, minimum: 500 };

    #[test]
    fn a_body_may_have_so_many_bytes() {
        let mut limits = BodyLimits::new(10, 0);
        assert_eq!(limits.take(10, 0, RATE), Ok(()));
        assert_eq!(limits.take(1, 0, RATE), Err(TOO_LARGE));
    }

    #[test]
    fn the_average_rate_counts_once_the_timeout_has_passed() {
        let mut limits = BodyLimits::new(1 << 20, 1_000);
        assert_eq!(limits.take(1, 31_000, RATE), Ok(()));
        assert_eq!(limits.take(1, 31_001, RATE), Err(TOO_SLOW));
        limits.restart(31_001);
        assert_eq!(limits.take(1, 61_001, RATE), Ok(()));
        assert_eq!(limits.take(15_500, 62_001, RATE), Ok(()));
        assert_eq!(limits.take(0, 62_031, RATE), Err(TOO_SLOW));
        limits.begin_response();
        assert_eq!(limits.take(1, 1_000_000, RATE), Ok(()));
        limits.restart(1_000_000);
        assert_eq!(limits.take(1, 2_000_000, RATE), Ok(()));
        limits.end_response(2_000_000);
        assert_eq!(limits.take(1, 2_030_000, RATE), Ok(()));
        assert_eq!(limits.take(1, 2_030_001, RATE), Err(TOO_SLOW));
    }
}
