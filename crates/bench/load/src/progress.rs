//! Progress of a run, published by its workers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Progress of all workers, and the flag that stops them.
pub struct Progress {
    slots: Vec<Slot>,
    stopped: Arc<AtomicBool>,
    /// Start of the load, which may be in the future.
    began: OnceLock<Instant>,
}

/// Progress of a worker. Workers write to their own slot only.
#[derive(Default)]
pub struct Slot {
    stopped: Arc<AtomicBool>,
    snapshot: Mutex<Snapshot>,
}

/// Counts since the start of the measurement. A worker publishes them about ten times per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time of the counts since the start of the measurement, in nanoseconds; 0 during the warm-up.
    #[serde(default)]
    pub at: u64,
    /// Valid responses of the warm-up.
    #[serde(default)]
    pub warmup: u64,
    /// Valid responses.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Failures.
    pub errors: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Median response time, in nanoseconds.
    pub p50: u64,
    /// 99th percentile of the response time, in nanoseconds.
    pub p99: u64,
    /// Longest response time, in nanoseconds.
    pub max: u64,
}

impl Progress {
    /// Progress of a run with that many workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let slot = |_| Slot { stopped: Arc::clone(&stopped), ..Slot::default() };
        Self { slots: (0..workers).map(slot).collect(), stopped, began: OnceLock::new() }
    }

    /// Records the start of the load.
    pub fn begin(&self, at: Instant) {
        // A run begins once.
        let _ = self.began.set(at);
    }

    /// Returns the start of the load, which may be in the future; `None` while the run is prepared, and for other machines.
    #[must_use]
    pub fn began(&self) -> Option<Instant> {
        self.began.get().copied()
    }

    /// Returns the slot of a worker.
    #[must_use]
    pub fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Stops the run. What has been counted is kept.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the run has been stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns the flag that stops the run when set, for a signal handler.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopped)
    }

    /// Returns the sum over all workers, at the mean of their times. Percentiles are the highest of any worker.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.slots.iter().fold(Snapshot::default(), |sum, slot| {
            let own = *slot.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            Snapshot {
                at: sum.at + own.at / self.slots.len().max(1) as u64,
                warmup: sum.warmup + own.warmup,
                requests: sum.requests + own.requests,
                bytes: sum.bytes + own.bytes,
                errors: sum.errors + own.errors,
                in_flight: sum.in_flight + own.in_flight,
                p50: sum.p50.max(own.p50),
                p99: sum.p99.max(own.p99),
                max: sum.max.max(own.max),
            }
        })
    }
}

impl Slot {
    /// Returns `true` if the run has been stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Publishes the worker's counts.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}
