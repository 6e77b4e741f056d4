//! Sums of the durations of request phases.

use crate::{PHASES, Timings};

/// Sums by phase, in the order of [`PHASES`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PhaseSums {
    /// Requests that had the phase.
    requests: [u64; PHASES.len()],
    nanos: [u64; PHASES.len()],
}

impl PhaseSums {
    #[inline]
    pub(super) fn count(&mut self, timings: &Timings) {
        for (phase, nanos) in timings.all().into_iter().enumerate() {
            if let Some(nanos) = nanos {
                self.requests[phase] += 1;
                self.nanos[phase] = self.nanos[phase].saturating_add(nanos);
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for phase in 0..PHASES.len() {
            self.requests[phase] += other.requests[phase];
            self.nanos[phase] = self.nanos[phase].saturating_add(other.nanos[phase]);
        }
    }

    /// Returns name, number of requests and total nanoseconds of each phase that a request had.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let sums = self.requests.iter().zip(&self.nanos);
        let named = PHASES.into_iter().zip(sums);
        named.map(|(name, (&requests, &nanos))| (name, requests, nanos)).filter(|sum| sum.1 > 0)
    }
}
