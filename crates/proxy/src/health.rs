//! The health of an upstream: the results of its requests and of its health checks.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::turn::Turn;

/// The health of an upstream.
#[derive(Debug)]
pub(crate) struct Health {
    /// Failed requests in a row.
    pub(crate) failures: AtomicU32,
    /// Until when it is not used because requests have failed, in milliseconds since [`START`].
    pub(crate) ejected_until: AtomicU64,
    /// The number of ejections in a row, without a request that succeeded.
    pub(crate) ejections: AtomicU32,
    /// The last health checks have failed.
    is_down: AtomicBool,
    /// When it was healthy again by its health checks, in milliseconds since [`START`]; 0 for never.
    recovered: AtomicU64,
    /// Health checks in a row whose result differs from `is_down`.
    checks: AtomicU32,
    /// A health check is on its way.
    pub(crate) checking: Turn,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The share at which a slow start begins.
const FIRST_SHARE: f64 = 0.1;

pub(crate) fn millis(now: Instant) -> u64 {
    now.saturating_duration_since(*START).as_millis() as u64
}

impl Default for Health {
    fn default() -> Self {
        LazyLock::force(&START);
        Self {
            failures: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            ejections: AtomicU32::new(0),
            is_down: AtomicBool::new(false),
            recovered: AtomicU64::new(0),
            checks: AtomicU32::new(0),
            checking: Turn::default(),
        }
    }
}

impl Health {
    /// Returns `true` if requests have neither failed lately nor have the health checks.
    pub(crate) fn is_available(&self, now: Instant) -> bool {
        !self.is_ejected(now) && !self.is_down.load(Ordering::Relaxed)
    }

    /// Failed requests in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(crate) fn is_ejected(&self, now: Instant) -> bool {
        let until = self.ejected_until.load(Ordering::Relaxed);
        until != 0 && millis(now) < until
    }

    /// Returns the share of its requests that it gets, between 0 and 1: it rises for `slow_start` after it is available
    /// again.
    pub(crate) fn share(&self, slow_start: Duration, now: Instant) -> f64 {
        let since = self.ejected_until.load(Ordering::Relaxed);
        let since = since.max(self.recovered.load(Ordering::Relaxed));
        let elapsed = millis(now).saturating_sub(since) as f64;
        match since {
            0 => 1.0,
            _ => (elapsed / slow_start.as_millis().max(1) as f64).clamp(FIRST_SHARE, 1.0),
        }
    }

    /// Notes that the health checks succeed again.
    pub(crate) fn note_recovery(&self, now: Instant) {
        self.recovered.store(millis(now).max(1), Ordering::Relaxed);
    }

    /// Notes a request that succeeded. Returns `true` if it ends a series of ejections.
    pub(crate) fn note_success(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        self.ejections.load(Ordering::Relaxed) != 0
            && self.ejections.swap(0, Ordering::Relaxed) != 0
    }

    /// Notes the result of a health check. Returns the new state, if it has changed: it takes `needed` equal results.
    pub(crate) fn note_check(&self, is_good: bool, needed: u32) -> Option<bool> {
        if is_good != self.is_down.load(Ordering::Relaxed) {
            self.checks.store(0, Ordering::Relaxed);
            return None;
        }
        if self.checks.fetch_add(1, Ordering::Relaxed) + 1 < needed {
            return None;
        }
        self.checks.store(0, Ordering::Relaxed);
        self.is_down.store(!is_good, Ordering::Relaxed);
        Some(is_good)
    }
}

/// The average time to a response, which rises at once and falls slowly (peak EWMA).
#[derive(Debug, Default)]
pub(crate) struct ResponseTime {
    /// Nanoseconds; 0 before the first response.
    average: AtomicU64,
    /// When it was noted last, in milliseconds since [`START`].
    noted: AtomicU64,
}

/// After this time, a measurement counts a third.
const DECAY: Duration = Duration::from_secs(10);
/// An average that was noted within this time has hardly decayed.
const FRESH_MS: u64 = 100;

impl ResponseTime {
    /// Notes the time of a response. Concurrent calls may lose one of them.
    pub(crate) fn note(&self, time: Duration, now: Instant) {
        let time = time.as_nanos() as f64;
        let now = millis(now);
        let before = self.average.load(Ordering::Relaxed) as f64;
        let elapsed = now.saturating_sub(self.noted.swap(now, Ordering::Relaxed));
        let kept = (-(elapsed as f64 + 1.0) / DECAY.as_millis() as f64).exp();
        let average = if time > before { time } else { before * kept + time * (1.0 - kept) };
        self.average.store(average.max(1.0) as u64, Ordering::Relaxed);
    }

    /// Returns the average in nanoseconds. It decays without responses: an upstream that was slow once gets another request.
    pub(crate) fn nanos(&self, now: Instant) -> u64 {
        let average = self.average.load(Ordering::Relaxed);
        match millis(now).saturating_sub(self.noted.load(Ordering::Relaxed)) {
            0..FRESH_MS => average,
            elapsed => {
                (average as f64 * (-(elapsed as f64) / DECAY.as_millis() as f64).exp()) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_checks_have_to_agree() {
        let health = Health::default();
        assert_eq!(health.note_check(false, 2), None);
        assert_eq!(health.note_check(true, 2), None);
        assert_eq!(health.note_check(false, 2), None);
        assert_eq!(health.note_check(false, 2), Some(false));
        assert_eq!(health.note_check(true, 1), Some(true));
    }

    #[test]
    fn the_response_time_rises_at_once_and_falls_slowly() {
        let time = ResponseTime::default();
        let now = Instant::now();
        time.note(Duration::from_millis(1), now);
        time.note(Duration::from_millis(100), now);
        assert_eq!(time.nanos(now), 100_000_000);
        time.note(Duration::from_millis(1), now);
        assert!(time.nanos(now) > 99_000_000);
        let later = now + Duration::from_secs(100);
        assert!(time.nanos(later) < 1_000_000, "an upstream without requests is tried again");
        time.note(Duration::from_millis(1), later);
        assert!((1_000_000..2_000_000).contains(&time.nanos(later)));
    }
}
