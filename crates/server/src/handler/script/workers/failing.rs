//! Workers that cannot be started: requests are answered at once until the next attempt.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Fitness, Slot, State};
use crate::config::Local;

/// The least pause after a worker that could not be started.
const START_PAUSE: Duration = Duration::from_secs(1);
/// Workers in a row that ended before they had answered, after which requests wait for no other.
const HOPELESS: u32 = 4;
/// Pauses before a worker is replaced grow up to this.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

impl State {
    /// Why no worker can be started, until the next attempt.
    pub(super) fn down(&self) -> Option<&Arc<str>> {
        let is_usable = |slot: &Slot| slot.fitness != Fitness::Unfit;
        let none = self.starting == 0 && !self.slots.iter().any(is_usable);
        self.down.as_ref().filter(|_| none && Instant::now() < self.not_before)
    }

    /// Notes that a worker runs as it should.
    pub(super) fn prove(&mut self) {
        self.failures = 0;
        self.down = None;
        self.is_proven = true;
    }

    /// Notes that a worker could not be started, or has ended, for this reason. Those that wait are told when no
    /// other attempt is made for them.
    pub(super) fn fail(&mut self, local: &Local, reason: &str, cannot_start: bool) -> Duration {
        let now = Instant::now();
        // Workers that were started together fail together.
        if now >= self.not_before {
            self.failures = self.failures.saturating_add(1);
            let first = if cannot_start { local.backoff.max(START_PAUSE) } else { local.backoff };
            self.not_before = now + pause(first, self.failures);
        }
        // One that starts and ends at once, again and again, is of no more use.
        let is_down = cannot_start || self.failures >= HOPELESS;
        if is_down && !self.slots.iter().any(|slot| slot.fitness != Fitness::Unfit) {
            self.is_proven = false;
            let reason: Arc<str> = reason.into();
            self.down = Some(Arc::clone(&reason));
            for waiter in std::mem::take(&mut self.waiting) {
                drop(waiter.give.send(Err(reason.to_string())));
            }
        }
        self.not_before.saturating_duration_since(now)
    }
}

/// The first pause, doubled with each failure after it.
fn pause(first: Duration, failures: u32) -> Duration {
    let factor = 1 << failures.saturating_sub(1).min(16);
    first.saturating_mul(factor).min(LONGEST_BACKOFF.max(first))
}
