//! Concurrency limit of a route, with one FIFO queue for all workers.
//!
//! A request that gets no permit waits in the queue. After `burst_after` it runs without a permit if fewer than `burst_concurrent`
//! requests run. It is rejected after `queue_timeout`, or at once when the queue is full. When its client
//! disconnects, its [`Waiter`] is dropped and leaves the queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dunlin_config::ConcurrencyRules;
use dunlin_net::clock::{Sleep, now};

/// A concurrency limit. All workers share it.
#[derive(Debug)]
pub struct Concurrency {
    rules: ConcurrencyRules,
    origin: Instant,
    state: Mutex<State>,
}

/// Gauges and counters of a concurrency limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConcurrencyCounts {
    /// Requests that hold a permit.
    pub running: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// Requests that run or have run.
    pub served: u64,
    /// Requests that wait or have waited.
    pub queued: u64,
    /// Requests that ran without a free permit after `burst_after`.
    pub overdue: u64,
    /// Requests that were rejected because the queue was full.
    pub rejected: u64,
    /// Requests that were rejected after `queue_timeout`.
    pub expired: u64,
    /// Requests whose client disconnected while they waited.
    pub left: u64,
}

/// The client to which a request counts: a hash of its address or user.
pub type Owner = u64;

/// Result of [`Concurrency::enter`].
#[derive(Debug)]
pub enum Entry {
    /// The request can run while it holds the permit.
    Run(Permit),
    /// The request waits. The future resolves to a permit, or to `None` after the queue timeout.
    Wait(Waiter),
    /// The queue is full. Contains the seconds for `Retry-After`.
    Busy(u64),
}

/// Permit to run. Dropping it returns it.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Concurrency>,
    owner: Option<Owner>,
}

/// A request in the queue: a future that resolves to a permit, or to `None` after `queue_timeout`.
#[derive(Debug)]
pub struct Waiter {
    shared: Arc<Concurrency>,
    serial: u64,
    owner: Option<Owner>,
    /// When it entered the queue, in milliseconds since the limit's origin.
    since: u64,
    /// Not resolved yet.
    is_open: bool,
    sleep: Option<Sleep>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// In order of arrival.
    queue: BTreeMap<u64, Waiting>,
    /// The first in the queue of each client that has not used up its share of the permits: those that can be next.
    first: BTreeSet<u64>,
    owners: HashMap<Owner, Load>,
    /// The requests that count to no client.
    others: Load,
    counts: ConcurrencyCounts,
}

#[derive(Debug)]
struct Waiting {
    owner: Option<Owner>,
    since: u64,
    waker: Option<Waker>,
}

/// Requests of one client, or of all if there is no limit per client.
#[derive(Debug, Default)]
struct Load {
    running: usize,
    /// In order of arrival.
    waiting: BTreeSet<u64>,
}

impl Concurrency {
    /// Creates a limit with these rules.
    pub fn new(rules: ConcurrencyRules) -> Self {
        Self { rules, origin: now(), state: Mutex::default() }
    }

    /// Requests a permit. `owner` is the client to which it counts, if there is a limit per client.
    pub fn enter(self: &Arc<Self>, owner: Option<Owner>, now: Instant) -> Entry {
        self.enter_at(owner, now.saturating_duration_since(self.origin).as_millis() as u64)
    }

    /// Counts a request whose response is sent before the next request is read and needs a permit for no time.
    /// Succeeds if a permit is free and `leaves` returns `true`; changes nothing otherwise.
    pub fn passes_at_once(&self, owner: Option<Owner>, leaves: impl FnOnce() -> bool) -> bool {
        let (mut state, rules) = (self.lock(), &self.rules);
        let has_permit =
            state.counts.running < rules.max_concurrent && state.is_below_share(owner, rules);
        let passes = has_permit && leaves();
        state.counts.served += u64::from(passes);
        passes
    }

    /// Returns the rules of the limit.
    pub fn rules(&self) -> &ConcurrencyRules {
        &self.rules
    }

    /// Returns the seconds for `Retry-After`.
    pub fn retry_after(&self) -> u64 {
        self.rules.burst_after.unwrap_or(self.rules.queue_timeout).as_secs().clamp(1, 60)
    }

    /// Returns the counters of the limit.
    pub fn counts(&self) -> ConcurrencyCounts {
        let state = self.lock();
        ConcurrencyCounts { waiting: state.queue.len(), ..state.counts }
    }

    fn now(&self) -> u64 {
        now().saturating_duration_since(self.origin).as_millis() as u64
    }

    fn enter_at(self: &Arc<Self>, owner: Option<Owner>, now: u64) -> Entry {
        let mut state = self.lock();
        let rules = &self.rules;
        let permit = || Entry::Run(Permit { shared: Arc::clone(self), owner });
        // This does not overtake the queue: every waiting request that could run runs already.
        if state.counts.running < rules.max_concurrent && state.is_below_share(owner, rules) {
            state.run(owner, rules);
            return permit();
        }
        let is_full = state.queue.len() >= rules.queue || state.fills_queue(owner, rules);
        if rules.dry_run {
            let beyond = state.counts.running.saturating_sub(rules.max_concurrent) >= rules.queue;
            state.counts.rejected += u64::from(beyond);
            state.counts.queued += u64::from(!beyond);
            state.run(owner, rules);
            return permit();
        }
        if is_full {
            state.counts.rejected += 1;
            return Entry::Busy(self.retry_after());
        }
        state.counts.queued += 1;
        let serial = state.next;
        state.next += 1;
        state.queue.insert(serial, Waiting { owner, since: now, waker: None });
        state.change(owner, rules, |load| {
            load.waiting.insert(serial);
        });
        let shared = Arc::clone(self);
        Entry::Wait(Waiter { shared, serial, owner, since: now, is_open: true, sleep: None })
    }

    /// Admits requests from the head of the queue while permits are free.
    fn admit(&self, state: &mut State, now: u64) {
        let rules = &self.rules;
        while let Some(&serial) = state.first.first() {
            let Some(waiting) = state.queue.get(&serial) else { return };
            let running = state.counts.running;
            let is_overdue = rules
                .burst_after
                .is_some_and(|wait| waiting.since + wait.as_millis() as u64 <= now);
            if running >= rules.max_concurrent && !(running < rules.burst_concurrent && is_overdue)
            {
                return;
            }
            let Some(waiting) = state.remove(serial, rules) else { return };
            state.counts.overdue += u64::from(running >= rules.max_concurrent);
            state.run(waiting.owner, rules);
            if let Some(waker) = waiting.waker {
                waker.wake();
            }
        }
    }

    /// Ignores poisoning: the state is consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn run(&mut self, owner: Option<Owner>, rules: &ConcurrencyRules) {
        self.counts.running += 1;
        self.counts.served += 1;
        self.change(owner, rules, |load| load.running += 1);
    }

    fn is_below_share(&self, owner: Option<Owner>, rules: &ConcurrencyRules) -> bool {
        owner.is_none()
            || rules.max_per_client.is_none()
            || self.load(owner).is_none_or(|load| load.is_below_share(owner, rules))
    }

    /// Returns `true` if the client's share of the queue is used up. The share of the queue is proportional to
    /// the share of permits.
    fn fills_queue(&self, owner: Option<Owner>, rules: &ConcurrencyRules) -> bool {
        rules.max_per_client.is_some_and(|share| {
            let part = (rules.queue.saturating_mul(share) / rules.max_concurrent.max(1)).max(1);
            self.load(owner).is_some_and(|load| load.waiting.len() >= part)
        })
    }

    fn load(&self, owner: Option<Owner>) -> Option<&Load> {
        owner.map_or(Some(&self.others), |owner| self.owners.get(&owner))
    }

    fn remove(&mut self, serial: u64, rules: &ConcurrencyRules) -> Option<Waiting> {
        let waiting = self.queue.remove(&serial)?;
        self.change(waiting.owner, rules, |load| {
            load.waiting.remove(&serial);
        });
        Some(waiting)
    }

    /// Changes the load of a client, and which of its requests can be the next one.
    fn change(
        &mut self,
        owner: Option<Owner>,
        rules: &ConcurrencyRules,
        change: impl FnOnce(&mut Load),
    ) {
        let load = match owner {
            Some(owner) => self.owners.entry(owner).or_default(),
            None => &mut self.others,
        };
        let before = load.first(owner, rules);
        change(load);
        let after = load.first(owner, rules);
        if load.running == 0
            && load.waiting.is_empty()
            && let Some(owner) = owner
        {
            self.owners.remove(&owner);
        }
        if before != after {
            if let Some(serial) = before {
                self.first.remove(&serial);
            }
            self.first.extend(after);
        }
    }
}

impl Load {
    fn is_below_share(&self, owner: Option<Owner>, rules: &ConcurrencyRules) -> bool {
        owner.is_none() || rules.max_per_client.is_none_or(|share| self.running < share)
    }

    /// Returns the first waiting request, if the client has not used up its share of the permits.
    fn first(&self, owner: Option<Owner>, rules: &ConcurrencyRules) -> Option<u64> {
        self.waiting.first().copied().filter(|_| self.is_below_share(owner, rules))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.counts.running -= 1;
        state.change(self.owner, &self.shared.rules, |load| load.running -= 1);
        if !state.queue.is_empty() {
            self.shared.admit(&mut state, self.shared.now());
        }
    }
}

/// State of a [`Waiter`].
enum Progress {
    Run,
    Expired,
    /// Poll again at this time at the latest.
    Until(u64),
}

impl Waiter {
    fn advance(&mut self, now: u64, waker: &Waker) -> Progress {
        let shared = &self.shared;
        let mut state = shared.lock();
        shared.admit(&mut state, now);
        let Some(waiting) = state.queue.get_mut(&self.serial) else { return Progress::Run };
        let expires_at = self.since + shared.rules.queue_timeout.as_millis() as u64;
        if now >= expires_at {
            state.remove(self.serial, &shared.rules);
            state.counts.expired += 1;
            return Progress::Expired;
        }
        match &mut waiting.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        let runs_at = shared.rules.burst_after.map(|wait| self.since + wait.as_millis() as u64);
        Progress::Until(runs_at.filter(|&at| at > now).unwrap_or(expires_at).min(expires_at))
    }
}

impl Future for Waiter {
    /// `None` after `queue_timeout`.
    type Output = Option<Permit>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Permit>> {
        let this = self.get_mut();
        loop {
            let until = match this.advance(this.shared.now(), cx.waker()) {
                Progress::Run => {
                    this.is_open = false;
                    let shared = Arc::clone(&this.shared);
                    return Poll::Ready(Some(Permit { shared, owner: this.owner }));
                }
                Progress::Expired => {
                    this.is_open = false;
                    return Poll::Ready(None);
                }
                Progress::Until(until) => until,
            };
            // Add one, as the clock counts whole milliseconds.
            let deadline = this.shared.origin + Duration::from_millis(until + 1);
            let sleep = this.sleep.get_or_insert_with(|| Sleep::until(deadline));
            sleep.reset(deadline);
            if Pin::new(sleep).poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let mut state = self.shared.lock();
        if state.remove(self.serial, &self.shared.rules).is_some() {
            state.counts.left += 1;
            return;
        }
        // It was admitted, but never polled again: return its permit.
        drop(state);
        drop(Permit { shared: Arc::clone(&self.shared), owner: self.owner });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: ConcurrencyRules = ConcurrencyRules {
        max_concurrent: 2,
        queue: 3,
        burst_concurrent: 2,
        burst_after: None,
        queue_timeout: Duration::from_secs(30),
        max_per_client: None,
        dry_run: false,
    };

    fn throttle(rules: ConcurrencyRules) -> Arc<Concurrency> {
        Arc::new(Concurrency::new(rules))
    }

    fn enter(throttle: &Arc<Concurrency>, owner: Option<Owner>) -> Entry {
        throttle.enter(owner, Instant::now())
    }

    fn permit(entry: Entry) -> Permit {
        match entry {
            Entry::Run(permit) => permit,
            other => panic!("{other:?}"),
        }
    }

    fn waiter(entry: Entry) -> Waiter {
        match entry {
            Entry::Wait(waiter) => waiter,
            other => panic!("{other:?}"),
        }
    }

    /// Polls the waiter at that time and takes its permit.
    fn runs(waiter: &mut Waiter, now: u64) -> Option<Permit> {
        match waiter.advance(now, Waker::noop()) {
            Progress::Run => {
                waiter.is_open = false;
                Some(Permit { shared: Arc::clone(&waiter.shared), owner: waiter.owner })
            }
            _ => None,
        }
    }

    #[test]
    fn requests_run_in_order_of_arrival() {
        let throttle = throttle(RULES);
        let first = permit(enter(&throttle, None));
        let second = permit(enter(&throttle, None));
        let mut waiters: Vec<_> = (0..3).map(|_| waiter(enter(&throttle, None))).collect();
        assert!(matches!(enter(&throttle, None), Entry::Busy(30)));
        assert!(waiters.iter_mut().all(|waiter| runs(waiter, 0).is_none()));
        drop(first);
        assert!(runs(&mut waiters[1], 0).is_none());
        let third = runs(&mut waiters[0], 0).unwrap();
        drop(second);
        drop(third);
        assert!(runs(&mut waiters[1], 0).is_some() && runs(&mut waiters[2], 0).is_some());
        let counts = throttle.counts();
        assert_eq!((counts.running, counts.waiting), (0, 0));
        assert_eq!((counts.served, counts.queued, counts.rejected), (5, 3, 1));
    }

    #[test]
    fn a_dropped_waiter_returns_its_permit_even_if_it_was_admitted() {
        let throttle = throttle(ConcurrencyRules { max_concurrent: 1, ..RULES });
        let first = permit(enter(&throttle, None));
        let leaving = waiter(enter(&throttle, None));
        let given = waiter(enter(&throttle, None));
        let mut last = waiter(enter(&throttle, None));
        drop(leaving);
        drop(first);
        assert!(runs(&mut last, 0).is_none(), "the permit belongs to the waiter before");
        drop(given);
        assert!(runs(&mut last, 0).is_some());
        assert_eq!((throttle.counts().running, throttle.counts().left), (0, 1));
    }

    #[test]
    fn a_response_that_is_sent_at_once_needs_a_free_permit_but_holds_none() {
        let rules = ConcurrencyRules { max_per_client: Some(1), ..RULES };
        let throttle = throttle(rules);
        let passes = |owner, leaves| throttle.passes_at_once(owner, || leaves);
        assert!(passes(Some(1), true) && passes(Some(1), true), "no permit is held");
        assert!(!passes(Some(1), false));
        let first = permit(enter(&throttle, Some(1)));
        assert!(!passes(Some(1), true), "the client has its share");
        let second = permit(enter(&throttle, Some(2)));
        assert!(!passes(Some(3), true), "all permits are taken");
        let counts = throttle.counts();
        assert_eq!((counts.running, counts.served, counts.rejected), (2, 4, 0));
        drop((first, second));
        assert!(passes(Some(1), true) && throttle.lock().owners.is_empty());
    }

    #[test]
    fn an_overdue_request_runs_unless_most_is_reached() {
        let rules = ConcurrencyRules {
            burst_concurrent: 3,
            burst_after: Some(Duration::from_secs(10)),
            ..RULES
        };
        let throttle = throttle(rules);
        let places = [permit(enter(&throttle, None)), permit(enter(&throttle, None))];
        let mut first = waiter(throttle.enter_at(None, 0));
        let mut second = waiter(throttle.enter_at(None, 5_000));
        assert!(runs(&mut first, 9_999).is_none());
        let overdue = runs(&mut first, 10_000).unwrap();
        assert!(runs(&mut second, 16_000).is_none(), "most are running");
        drop(overdue);
        assert!(runs(&mut second, 16_000).is_some());
        assert_eq!((throttle.counts().overdue, places.len()), (2, 2));
    }

    #[test]
    fn a_request_that_has_waited_too_long_is_rejected() {
        let throttle = throttle(RULES);
        let _places = [permit(enter(&throttle, None)), permit(enter(&throttle, None))];
        let mut waiting = waiter(throttle.enter_at(None, 1_000));
        assert!(matches!(waiting.advance(30_999, Waker::noop()), Progress::Until(31_000)));
        assert!(matches!(waiting.advance(31_000, Waker::noop()), Progress::Expired));
        waiting.is_open = false;
        assert_eq!((throttle.counts().waiting, throttle.counts().expired), (0, 1));
    }

    #[test]
    fn the_next_request_is_the_first_whose_client_has_not_its_share() {
        let rules = ConcurrencyRules {
            max_concurrent: 5,
            queue: 40,
            burst_concurrent: 5,
            max_per_client: Some(2),
            ..RULES
        };
        let throttle = throttle(rules);
        let (mut permits, mut waiters) = (Vec::new(), Vec::new());
        let mut random = 1_u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (random >> 40) as usize;
            match number % 4 {
                0 if !permits.is_empty() => drop(permits.swap_remove(number / 4 % permits.len())),
                1 if !waiters.is_empty() => drop(waiters.swap_remove(number / 4 % waiters.len())),
                2 => match enter(&throttle, Some(number as u64 / 4 % 7)) {
                    Entry::Run(permit) => permits.push(permit),
                    Entry::Wait(waiter) => waiters.push(waiter),
                    Entry::Busy(_) => {}
                },
                _ => waiters.retain_mut(|waiter| {
                    permits.extend(runs(waiter, 0));
                    waiter.is_open
                }),
            }
            let state = throttle.lock();
            let mut seen = BTreeSet::new();
            let first = state.queue.iter().filter(|(_, waiting)| {
                seen.insert(waiting.owner) && state.is_below_share(waiting.owner, &rules)
            });
            let first: BTreeSet<u64> = first.map(|(serial, _)| *serial).collect();
            assert_eq!(state.first, first);
            assert!(first.is_empty() || state.counts.running == rules.max_concurrent);
        }
        drop((permits, waiters));
        let state = throttle.lock();
        assert!(state.owners.is_empty() && state.first.is_empty() && state.counts.running == 0);
    }

    #[test]
    fn a_share_of_a_very_long_queue_is_no_overflow() {
        let rules = ConcurrencyRules { queue: usize::MAX, max_per_client: Some(3), ..RULES };
        let throttle = throttle(rules);
        let _running = [permit(enter(&throttle, Some(1))), permit(enter(&throttle, Some(1)))];
        drop(waiter(enter(&throttle, Some(1))));
    }

    #[test]
    fn a_client_is_limited_to_its_share_of_permits_and_queue() {
        let rules = ConcurrencyRules {
            max_concurrent: 4,
            queue: 8,
            burst_concurrent: 4,
            max_per_client: Some(1),
            ..RULES
        };
        let throttle = throttle(rules);
        let (greedy, modest) = (Some(1), Some(2));
        let running = permit(enter(&throttle, greedy));
        let mut waiting = [waiter(enter(&throttle, greedy)), waiter(enter(&throttle, greedy))];
        assert!(matches!(enter(&throttle, greedy), Entry::Busy(_)), "a quarter of the queue");
        let other = permit(enter(&throttle, modest));
        assert!(runs(&mut waiting[0], 0).is_none());
        drop(other);
        assert!(runs(&mut waiting[0], 0).is_none(), "a permit of another client changes nothing");
        drop(running);
        let next = runs(&mut waiting[0], 0).unwrap();
        assert!(runs(&mut waiting[1], 0).is_none());
        drop((next, waiting));
        assert!(throttle.lock().owners.is_empty());
    }

    #[test]
    fn a_dry_run_counts_and_admits_every_request() {
        let throttle = throttle(ConcurrencyRules { dry_run: true, ..RULES });
        let places: Vec<_> = (0..7).map(|_| permit(enter(&throttle, None))).collect();
        let counts = throttle.counts();
        assert_eq!((counts.running, counts.queued, counts.rejected), (7, 3, 2));
        drop(places);
        assert_eq!(throttle.counts().running, 0);
    }
}
