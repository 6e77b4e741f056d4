//! The health of a store: it responds, or it does not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dunlin_net::clock::monotonic_millis;

/// The health of a store, with one line in the log for each change.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Since when it does not respond.
    failed: Mutex<Option<Instant>>,
    /// When the next request may be sent while it does not respond, in milliseconds of the monotonic clock.
    next: AtomicU64,
}

/// While a store does not respond, it gets one request in this time.
const PAUSE: u64 = 1000;

impl Health {
    /// Returns `true` if the store does not respond.
    pub(crate) fn is_down(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns `true` if a request may be sent now: the store responds, or another attempt is due.
    pub(crate) fn may_send(&self) -> bool {
        if !self.is_down() {
            return true;
        }
        let (now, next) = (monotonic_millis(), self.next.load(Ordering::Relaxed));
        let (order, later) = (Ordering::Relaxed, now + PAUSE);
        now >= next && self.next.compare_exchange(next, later, order, order).is_ok()
    }

    /// Records a response.
    pub(crate) fn responded(&self, bucket: &str) {
        let since = self.lock().take();
        if let Some(since) = since {
            tracing::info!(
                "object store {bucket}: it responds again, after {:.1} s",
                since.elapsed().as_secs_f64()
            );
        }
    }

    /// Records that there was no response, or an error.
    pub(crate) fn failed(&self, bucket: &str, error: &str) {
        let mut failed = self.lock();
        if failed.is_some() {
            return;
        }
        *failed = Some(Instant::now());
        self.next.store(monotonic_millis() + PAUSE, Ordering::Relaxed);
        drop(failed);
        tracing::warn!(
            "object store {bucket}: {error}; what is cached is sent although it may be stale, and other requests get 503"
        );
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code panics under the lock.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
