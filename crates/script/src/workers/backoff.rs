//! Workers that cannot be started. Until the next attempt, requests fail at once instead of waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::{PoolState, Slot, WorkerStatus};
use dunlin_config::Local;

/// The shortest pause after a worker that could not be started.
const START_PAUSE: Duration = Duration::from_secs(1);
/// After this number of workers in a row that ended before they had responded, requests wait for no other.
const HOPELESS: u32 = 4;
/// The pause before a worker is replaced grows up to this.
const MAX_PAUSE: Duration = Duration::from_secs(30);

impl PoolState {
    /// Returns why no worker can be started, until the next attempt.
    pub(super) fn down(&self) -> Option<&Arc<str>> {
        let has_none = self.starting == 0 && !self.has_usable_worker();
        self.down.as_ref().filter(|_| has_none && Instant::now() < self.not_before)
    }

    /// Notes that a worker runs as it should.
    pub(super) fn note_success(&mut self) {
        self.failures = 0;
        self.down = None;
        self.is_proven = true;
    }

    /// Notes that a worker could not be started, or has ended, for this reason. Returns the pause before the next attempt. Requests that wait
    /// fail when no attempt is made for them.
    pub(super) fn note_failure(
        &mut self,
        local: &Local,
        reason: &str,
        cannot_start: bool,
    ) -> Duration {
        let now = Instant::now();
        // Workers that were started together fail together: one failure.
        if now >= self.not_before {
            self.failures = self.failures.saturating_add(1);
            let first = if cannot_start { local.backoff.max(START_PAUSE) } else { local.backoff };
            self.not_before = now + pause(first, self.failures);
        }
        let is_down = cannot_start || self.failures >= HOPELESS;
        if is_down && !self.has_usable_worker() {
            self.is_proven = false;
            let reason: Arc<str> = reason.into();
            self.down = Some(Arc::clone(&reason));
            self.fail_waiting(&reason);
        }
        self.not_before.saturating_duration_since(now)
    }

    /// Fails the requests that wait.
    pub(super) fn fail_waiting(&mut self, reason: &str) {
        for waiter in std::mem::take(&mut self.queue) {
            drop(waiter.reply.send(Err(reason.to_owned())));
        }
    }

    /// Ends the pause: the next attempt may be made at once.
    pub(super) fn clear_failures(&mut self) {
        self.failures = 0;
        self.not_before = Instant::now();
        self.down = None;
    }

    fn has_usable_worker(&self) -> bool {
        self.slots.iter().any(|slot: &Slot| slot.status != WorkerStatus::Unusable)
    }
}

/// Returns the `first` pause, doubled with each failure after the first.
fn pause(first: Duration, failures: u32) -> Duration {
    let factor = 1 << failures.saturating_sub(1).min(16);
    first.saturating_mul(factor).min(MAX_PAUSE.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_maximum() {
        let first = Duration::from_millis(100);
        assert_eq!(pause(first, 1), first);
        assert_eq!(pause(first, 2), 2 * first);
        assert_eq!(pause(first, 5), 16 * first);
        assert_eq!(pause(first, 100), MAX_PAUSE);
        assert_eq!(pause(2 * MAX_PAUSE, 1), 2 * MAX_PAUSE, "a longer one is configured");
    }
}
