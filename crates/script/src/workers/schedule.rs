//! Scheduling decisions of a pool: which worker gets a request, how many workers to start, how many requests may wait, which idle workers
//! to end. All of them are functions of what the pool knows and of the time; none has a clock or a lock.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

/// A worker that responds faster than this on average is given requests ahead: waiting behind another request then costs less
/// than a wake-up for each.
const QUICK: Duration = Duration::from_millis(1);
/// A worker whose oldest request takes longer than this is given none ahead.
const STALLED: Duration = Duration::from_millis(5);
/// The average before any request was served: too slow for requests ahead.
pub(super) const UNKNOWN: Duration = Duration::from_millis(10);

/// Requests that one worker has at once.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Capacity {
    /// Requests that it works on at the same time.
    pub(in super::super) concurrent: usize,
    /// Requests that it works on or is given ahead.
    pub(in super::super) pipelined: usize,
}

impl Capacity {
    /// One request at a time.
    pub(in super::super) const ONE: Self = Self { concurrent: 1, pipelined: 1 };
}

/// A worker that may be given a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Requests that it has.
    pub(super) active: usize,
    /// When it got the oldest of them.
    pub(super) oldest: Option<Instant>,
    /// The open connection is registered with the thread that the request is on.
    pub(super) is_near: bool,
    /// When it last finished a request.
    pub(super) idle_since: Instant,
}

impl Candidate {
    fn has_room(&self, capacity: Capacity, average: Duration, now: Instant) -> bool {
        let is_stalled = self.oldest.is_some_and(|oldest| now - oldest >= STALLED);
        self.active < capacity.concurrent
            || self.active < capacity.pipelined && average < QUICK && !is_stalled
    }
}

/// Chooses the least busy worker with room for a request; among equals one whose connection is near, then the one that was used last,
/// so that superfluous workers become idle. `average` is the recent time of a request.
pub(super) fn choose<T>(
    candidates: impl Iterator<Item = (T, Candidate)>,
    capacity: Capacity,
    average: Duration,
    now: Instant,
) -> Option<T> {
    candidates
        .filter(|(_, candidate)| candidate.has_room(capacity, average, now))
        .min_by_key(|(_, candidate)| {
            (candidate.active, !candidate.is_near, Reverse(candidate.idle_since))
        })
        .map(|(worker, _)| worker)
}

/// Returns the moving average after a request that took `took`.
pub(super) fn average(before: Duration, took: Duration) -> Duration {
    before * 7 / 8 + took / 8
}

/// The workers of a pool and the requests that wait for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// Requests that wait for a worker.
    pub(super) waiting: usize,
    /// Workers that run.
    pub(super) workers: usize,
    /// Workers that are being started.
    pub(super) starting: usize,
    /// Workers to keep, and to have at most.
    pub(super) min: usize,
    pub(super) max: usize,
    /// Requests that a worker works on at the same time.
    pub(super) concurrent: usize,
    /// No worker has shown yet that the application can be loaded: one of them tries it for all.
    pub(super) is_unproven: bool,
}

impl Demand {
    /// Returns how many workers to start now.
    pub(super) fn workers_to_start(&self) -> usize {
        let (limit, min, max) = match self.is_unproven {
            true => (1, self.min.min(1), self.max.min(1)),
            false => (usize::MAX, self.min, self.max),
        };
        let existing = self.workers + self.starting;
        let wanted = self.waiting.div_ceil(self.concurrent.max(1)).min(limit);
        let for_waiting = wanted.saturating_sub(self.starting);
        let for_minimum = min.saturating_sub(existing);
        for_waiting.max(for_minimum).min(max.saturating_sub(existing))
    }

    /// Returns how many requests may wait. Those whose worker is being started do not count against the `queue`.
    pub(super) fn queue_room(&self, queue: usize) -> usize {
        let coming = match self.is_unproven {
            true => self.max.saturating_sub(self.workers),
            false => self.starting,
        };
        queue + coming * self.concurrent
    }
}

/// Returns `true` if a worker without requests ends now: one that is being drained, or one of the `spare` workers above the
/// minimum that was idle for too long. A worker that ends is no longer spare.
pub(super) fn ends(is_draining: bool, idle: Duration, limit: Duration, spare: &mut usize) -> bool {
    let ends = is_draining || *spare > 0 && idle >= limit;
    if ends {
        *spare = spare.saturating_sub(1);
    }
    ends
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAST: Duration = Duration::from_micros(100);
    const SLOW: Duration = Duration::from_millis(2);

    fn idle(now: Instant, since: u64) -> Candidate {
        let idle_since = now - Duration::from_secs(since);
        Candidate { active: 0, oldest: None, is_near: false, idle_since }
    }

    fn busy(now: Instant, active: usize, oldest: Duration) -> Candidate {
        Candidate { active, oldest: Some(now - oldest), is_near: true, idle_since: now }
    }

    fn chosen(
        candidates: &[Candidate],
        capacity: Capacity,
        average: Duration,
        now: Instant,
    ) -> Option<usize> {
        choose(candidates.iter().copied().enumerate(), capacity, average, now)
    }

    #[test]
    fn the_least_busy_worker_is_chosen_then_a_near_one_then_the_last_used() {
        let now = Instant::now();
        let capacity = Capacity { concurrent: 4, pipelined: 4 };
        let candidates =
            [busy(now, 1, FAST), idle(now, 9), Candidate { is_near: true, ..idle(now, 5) }];
        assert_eq!(chosen(&candidates, capacity, SLOW, now), Some(2));
        assert_eq!(chosen(&[idle(now, 9), idle(now, 3)], capacity, SLOW, now), Some(1));
    }

    #[test]
    fn only_a_fast_worker_without_a_stall_gets_requests_ahead() {
        let now = Instant::now();
        let capacity = Capacity { concurrent: 1, pipelined: 64 };
        let fresh = [busy(now, 1, FAST)];
        assert_eq!(chosen(&fresh, capacity, FAST, now), Some(0));
        assert_eq!(chosen(&fresh, capacity, SLOW, now), None);
        assert_eq!(chosen(&fresh, capacity, UNKNOWN, now), None);
        assert_eq!(chosen(&[busy(now, 1, STALLED)], capacity, FAST, now), None);
    }

    #[test]
    fn one_worker_is_started_until_the_application_has_loaded() {
        let demand = Demand {
            waiting: 10,
            workers: 0,
            starting: 0,
            min: 2,
            max: 4,
            concurrent: 1,
            is_unproven: true,
        };
        assert_eq!(demand.workers_to_start(), 1);
        assert_eq!(Demand { starting: 1, ..demand }.workers_to_start(), 0);
        assert_eq!(
            demand.queue_room(5),
            9,
            "the requests that four workers would take wait as well"
        );
        let proven = Demand { is_unproven: false, ..demand };
        assert_eq!(proven.workers_to_start(), 4);
        assert_eq!(Demand { waiting: 0, ..proven }.workers_to_start(), 2);
        assert_eq!(Demand { starting: 3, ..proven }.queue_room(5), 8);
    }

    #[test]
    fn spare_workers_end_when_they_were_idle_for_too_long_and_draining_ones_at_once() {
        let mut spare = 1;
        assert!(!ends(false, SLOW, UNKNOWN, &mut spare));
        assert!(ends(false, UNKNOWN, UNKNOWN, &mut spare));
        assert!(!ends(false, UNKNOWN, UNKNOWN, &mut spare), "the minimum is kept");
        assert!(ends(true, Duration::ZERO, UNKNOWN, &mut spare));
    }

    proptest! {
        #[test]
        fn a_worker_never_has_more_requests_than_its_capacity(
            loads in proptest::collection::vec((0_usize..10, 0_u64..20), 0..8),
            concurrent in 1_usize..5,
            ahead in 0_usize..5,
            average in 0_u64..3_000,
        ) {
            let now = Instant::now();
            let capacity = Capacity { concurrent, pipelined: concurrent + ahead };
            let average = Duration::from_micros(average);
            let candidates: Vec<_> = loads
                .iter()
                .map(|&(active, age)| match active {
                    0 => idle(now, age),
                    _ => busy(now, active, Duration::from_millis(age)),
                })
                .collect();
            match chosen(&candidates, capacity, average, now) {
                Some(at) => {
                    let least = loads.iter().map(|load| load.0).min();
                    let bound = if average < QUICK { capacity.pipelined } else { concurrent };
                    prop_assert!(loads[at].0 < bound);
                    prop_assert!(Some(loads[at].0) == least || least >= Some(concurrent));
                }
                None => prop_assert!(loads.iter().all(|load| load.0 >= concurrent)),
            }
        }

        #[test]
        fn workers_are_started_up_to_the_maximum_and_only_while_there_is_demand(
            waiting in 0_usize..40,
            workers in 0_usize..10,
            starting in 0_usize..10,
            min in 0_usize..6,
            max in 1_usize..10,
            concurrent in 1_usize..5,
            is_unproven in any::<bool>(),
        ) {
            let demand =
                Demand { waiting, workers, starting, min, max, concurrent, is_unproven };
            let more = demand.workers_to_start();
            prop_assert!(more == 0 || workers + starting + more <= max);
            prop_assert!(waiting == 0 || workers + starting + more > 0, "a request waits for ever");
            let after = Demand { starting: starting + more, ..demand };
            prop_assert_eq!(after.workers_to_start(), 0, "the decision is complete");
            prop_assert!(demand.queue_room(7) >= 7);
        }
    }
}
