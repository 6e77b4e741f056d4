//! What a run tells while it goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::Tally;

/// A place for each loop; loops write to their own and to nothing else.
pub struct Progress {
    slots: Vec<Slot>,
    stopped: Arc<AtomicBool>,
}

/// One loop's place.
#[derive(Default)]
pub struct Slot {
    stopped: Arc<AtomicBool>,
    told: Mutex<Told>,
}

/// What a loop tells some ten times a second. Everything counts from the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Right answers.
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
    /// For that many loops.
    #[must_use]
    pub fn new(loops: usize) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let slot = |_| Slot { stopped: Arc::clone(&stopped), ..Slot::default() };
        Self { slots: (0..loops).map(slot).collect(), stopped }
    }

    /// The place of one loop.
    #[must_use]
    pub fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Ends the run; what was counted so far stays.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// What ends the run when it is set, for a signal handler.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopped)
    }

    /// What all loops have told, together; of percentiles, the highest of any loop.
    #[must_use]
    pub fn told(&self) -> Told {
        self.slots.iter().fold(Told::default(), |sum, slot| {
            let told = *slot.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            Told {
                requests: sum.requests + told.requests,
                bytes: sum.bytes + told.bytes,
                errors: sum.errors + told.errors,
                in_flight: sum.in_flight + told.in_flight,
                p50: sum.p50.max(told.p50),
                p99: sum.p99.max(told.p99),
                max: sum.max.max(told.max),
            }
        })
    }
}

impl Slot {
    /// Whether the run is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Tells how far the loop is.
    pub(crate) fn publish(&self, tally: &Tally, in_flight: u64) {
        let told = Told {
            requests: tally.requests,
            bytes: tally.bytes,
            errors: tally.errors.values().sum(),
            in_flight,
            p50: tally.latency.value_at_quantile(0.5),
            p99: tally.latency.value_at_quantile(0.99),
            max: tally.latency.max(),
        };
        *self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = told;
    }
}
