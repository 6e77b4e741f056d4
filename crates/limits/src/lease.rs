//! The share of one server in a rate limit that several servers share, for one client. It is a pure state machine: time and the
//! responses of the store come from its caller.
//!
//! The store has a bucket of tokens for each client: `burst` at most, refilled at the limit's rate. A server spends in advance
//! and reports later, so that no request waits for the store. It may spend
//!
//! - *credit*: its part, 1/n, of what the store had at the last exchange, and of what has been refilled since. What it spends
//!   of that it *owes*, and the next exchange takes it from the bucket.
//! - *tokens*, which the store has granted to this server alone, because it expects more requests than its credit covers. They
//!   left the bucket when they were granted; those that are not needed are returned.
//!
//! A bucket that was overdrawn grants nothing until it is refilled, so over time the servers together spend what the rate
//! allows. Without the store, only the credit is left: 1/n of the rate, with 1/n of the burst.

use std::time::Duration;

/// A limit in the units of the state machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Tokens per nanosecond.
    pub rate: f64,
    /// Maximum of tokens.
    pub burst: f64,
}

/// The report of a server about a client, with its demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// Tokens that were spent and have not been reported; negative for tokens that are returned.
    pub owed: f64,
    /// Tokens that the server needs until the exchange after the next one.
    pub needed: f64,
}

/// The response of the store to a [`Report`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Granted {
    /// Tokens that this server alone may spend.
    pub tokens: f64,
    /// Tokens that are left in the bucket; negative if it is overdrawn.
    pub level: f64,
}

/// The share of this server for one client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RateLease {
    /// Tokens of the server's own part.
    credit: f64,
    /// Time to which `credit` is refilled, in nanoseconds.
    refilled: u64,
    tokens: f64,
    owed: f64,
    /// The level of the bucket at the last exchange, and its time.
    level: f64,
    exchanged: u64,
    /// Requests per exchange, smoothed.
    demand: f64,
    /// Requests since the last report.
    requests: u32,
    /// Time of the last report.
    reported: u64,
    /// Time of the last request.
    last: u64,
    store: StoreState,
}

/// Result of the last exchange with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreState {
    /// There was no exchange yet.
    Unknown,
    Reachable,
    /// The store is unreachable: only the local credit applies, and the debt is at most the part of it that is spent.
    Lost,
}

/// Interval between two exchanges. Servers vary theirs by up to half, so that no server is always the first to find new tokens.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Exchanges for whose requests a server requests tokens.
const HORIZON: f64 = 2.0;
/// Maximum of intervals between two exchanges that are taken for the next ones, too.
const MAX_INTERVALS: f64 = 5.0;
/// Time without requests after which tokens are returned, in nanoseconds.
const IDLE: u64 = 500_000_000;
/// Weight of the last exchange in the demand. A rising demand counts at once.
const WEIGHT: f64 = 0.3;

impl Terms {
    /// Capacity of the bucket: at least what is refilled between two exchanges, which would be lost otherwise.
    pub fn capacity(&self) -> f64 {
        self.burst.max(self.rate * INTERVAL.as_nanos() as f64 * 2.0)
    }

    /// Maximum credit of one of `servers`: at least one request can be served.
    fn most_credit(&self, servers: f64) -> f64 {
        (self.burst / servers).max(1.0)
    }
}

impl RateLease {
    /// Creates the share for a client of which this server has seen nothing lately.
    pub(crate) fn new(terms: &Terms, servers: f64, now: u64) -> Self {
        Self {
            credit: terms.most_credit(servers),
            refilled: now,
            tokens: 0.0,
            owed: 0.0,
            level: terms.burst,
            exchanged: now,
            demand: 0.0,
            requests: 0,
            reported: now,
            last: now,
            store: StoreState::Unknown,
        }
    }

    /// Spends a token for a request. Returns `false` if there is none.
    pub(crate) fn request(&mut self, terms: &Terms, servers: f64, now: u64) -> bool {
        self.refill(terms, servers, now);
        if self.store == StoreState::Reachable
            && now.saturating_sub(self.last) as f64 * terms.rate >= terms.burst
        {
            // The bucket may be full, unless the client was at other servers.
            self.credit = self.credit.max(terms.most_credit(servers));
        }
        self.last = now;
        self.requests = self.requests.saturating_add(1);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
        } else if self.credit >= 1.0 {
            self.credit -= 1.0;
            self.owed += 1.0;
        } else {
            return false;
        }
        true
    }

    /// Adds to the credit the part of this server of what was refilled since.
    fn refill(&mut self, terms: &Terms, servers: f64, now: u64) {
        let refill = now.saturating_sub(self.refilled) as f64 * terms.rate / servers;
        self.credit = (self.credit + refill).min(terms.most_credit(servers)).max(self.credit);
        self.refilled = self.refilled.max(now);
    }

    /// Returns `true` if the store has to know more than it does: [`report`](Self::report) is due.
    pub(crate) fn is_due(&self) -> bool {
        self.requests > 0 || self.owed != 0.0 || self.tokens > 0.0
    }

    /// Takes the report for the store.
    pub(crate) fn report(&mut self, terms: &Terms, servers: f64, now: u64) -> Report {
        // A busy machine exchanges less often.
        let intervals = now.saturating_sub(self.reported) as f64 / INTERVAL.as_nanos() as f64;
        let intervals = intervals.max(1.0);
        let seen = f64::from(self.requests) / intervals;
        self.demand = seen.max(self.demand * (1.0 - WEIGHT) + seen * WEIGHT);
        (self.requests, self.reported) = (0, now);
        if self.store == StoreState::Lost {
            // What was spent without the store was the part of this server, which time has refilled since.
            self.refill(terms, servers, now);
            self.owed = self.owed.min((terms.most_credit(servers) - self.credit).max(0.0));
        }
        let in_one = terms.rate * INTERVAL.as_nanos() as f64;
        let mut owed = self.owed.min(terms.most_credit(servers) + in_one);
        self.owed = 0.0;
        if now.saturating_sub(self.last) > IDLE {
            owed -= self.tokens;
            self.tokens = 0.0;
            return Report { owed, needed: 0.0 };
        }
        let horizon = HORIZON * intervals.min(MAX_INTERVALS);
        let most = (in_one * horizon).max(1.0);
        let expected = match self.demand * horizon {
            none if none < 0.01 => 0.0,
            some => some.clamp(1.0, most),
        };
        Report { owed, needed: (expected - self.tokens).max(0.0) }
    }

    /// Takes back a report that the store may not have received: what was spent stays owed. Tokens that were returned stay so.
    pub(crate) fn take_back(&mut self, report: &Report) {
        self.owed += report.owed.max(0.0);
    }

    /// Takes the response of the store.
    pub(crate) fn apply(&mut self, granted: Granted, terms: &Terms, servers: f64, now: u64) {
        self.tokens += granted.tokens.max(0.0);
        self.level = granted.level;
        self.exchanged = now;
        self.store = StoreState::Reachable;
        let part = granted.level / servers;
        // There may be more servers than tokens. While many tokens are left, each server can spend one.
        let part = if granted.level >= terms.burst / 2.0 { part.max(1.0) } else { part };
        // Requests since the report have spent of the new credit.
        self.credit = part - self.owed;
        self.refilled = now;
    }

    /// Drops the state that an unreachable store does not need: only the local credit applies until it is reachable.
    pub(crate) fn disconnect(&mut self, terms: &Terms, servers: f64) {
        self.store = StoreState::Lost;
        self.requests = 0;
        self.owed = self.owed.min(terms.most_credit(servers));
        self.tokens = 0.0;
    }

    /// Returns the number of further requests that this server allows now.
    pub(crate) fn remaining(&self) -> u64 {
        (self.tokens + self.credit.max(0.0)) as u64
    }

    /// Nanoseconds until the bucket of all servers is full, as far as this server knows.
    pub(crate) fn reset(&self, terms: &Terms, now: u64) -> u64 {
        let refilled = now.saturating_sub(self.exchanged) as f64 * terms.rate;
        let level = self.level + refilled - self.owed;
        ((terms.burst - level).max(0.0) / terms.rate) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TERMS: Terms = Terms { rate: 100.0 / SECOND as f64, burst: 90.0 };

    fn spend(lease: &mut RateLease, servers: f64, now: u64, requests: usize) -> usize {
        (0..requests).filter(|_| lease.request(&TERMS, servers, now)).count()
    }

    #[test]
    fn without_the_store_a_server_has_its_part_of_rate_and_burst() {
        let mut lease = RateLease::new(&TERMS, 3.0, 0);
        assert_eq!(spend(&mut lease, 3.0, 0, 100), 30);
        let passed: usize =
            (1..=3000).map(|millis| spend(&mut lease, 3.0, millis * 1_000_000, 1)).sum();
        assert!((99..=101).contains(&passed), "{passed} in three seconds at 100/3 per second");
        // A pause makes no more than the burst.
        assert_eq!(spend(&mut lease, 3.0, 100 * SECOND, 100), 30);
    }

    #[test]
    fn what_is_spent_of_the_credit_is_owed_and_what_was_granted_is_not() {
        let mut lease = RateLease::new(&TERMS, 3.0, 0);
        assert_eq!(spend(&mut lease, 3.0, 0, 20), 20);
        let report = lease.report(&TERMS, 3.0, 50_000_000);
        assert_eq!(report.owed, 20.0);
        assert_eq!(
            report.needed, 10.0,
            "no more than the rate allows until the next exchange but one"
        );
        lease.apply(Granted { tokens: 7.0, level: 0.0 }, &TERMS, 3.0, 50_000_000);
        assert_eq!(spend(&mut lease, 3.0, 50_000_000, 20), 7);
        assert_eq!(lease.report(&TERMS, 3.0, 100_000_000).owed, 0.0);
    }

    #[test]
    fn requests_between_report_and_response_are_owed_once() {
        let mut lease = RateLease::new(&TERMS, 3.0, 0);
        assert_eq!(spend(&mut lease, 3.0, 0, 10), 10);
        assert_eq!(lease.report(&TERMS, 3.0, 0).owed, 10.0);
        assert_eq!(spend(&mut lease, 3.0, 0, 5), 5);
        lease.apply(Granted { tokens: 0.0, level: 60.0 }, &TERMS, 3.0, 0);
        assert_eq!(spend(&mut lease, 3.0, 0, 100), 15, "a third of 60, less 5");
        assert_eq!(lease.report(&TERMS, 3.0, 0).owed, 20.0);
    }

    #[test]
    fn what_was_spent_without_the_store_is_owed_until_time_has_refilled_it() {
        let after = |pause| {
            let mut lease = RateLease::new(&TERMS, 3.0, 0);
            lease.apply(Granted { tokens: 0.0, level: 90.0 }, &TERMS, 3.0, 0);
            for tenth in 0..60 {
                spend(&mut lease, 3.0, tenth * SECOND / 10, 20);
                lease.disconnect(&TERMS, 3.0);
            }
            let now = 59 * SECOND / 10 + pause;
            spend(&mut lease, 3.0, now, 1);
            lease.report(&TERMS, 3.0, now).owed
        };
        // Parts of a token were left.
        for (pause, owed) in [(0, 30.0), (SECOND * 3 / 10, 20.0), (2 * SECOND, 1.0)] {
            assert!((after(pause) - owed).abs() < 1.0, "{} after {pause}", after(pause));
        }
    }

    #[test]
    fn what_the_store_has_not_received_is_owed_still() {
        let mut lease = RateLease::new(&TERMS, 3.0, 0);
        assert_eq!(spend(&mut lease, 3.0, 0, 20), 20);
        let report = lease.report(&TERMS, 3.0, 0);
        assert!(!lease.is_due());
        spend(&mut lease, 3.0, 0, 5);
        lease.take_back(&report);
        assert!(lease.is_due());
        assert_eq!(lease.report(&TERMS, 3.0, 0).owed, 25.0);
        lease.take_back(&Report { owed: -8.0, needed: 0.0 });
        assert_eq!(lease.report(&TERMS, 3.0, 0).owed, 0.0, "the store may have the tokens");
    }

    #[test]
    fn tokens_that_are_not_needed_are_returned() {
        let mut lease = RateLease::new(&TERMS, 3.0, 0);
        spend(&mut lease, 3.0, 0, 40);
        lease.report(&TERMS, 3.0, 0);
        lease.apply(Granted { tokens: 8.0, level: 0.0 }, &TERMS, 3.0, 0);
        assert!(lease.is_due());
        let report = lease.report(&TERMS, 3.0, SECOND);
        assert_eq!((report.owed, report.needed), (-8.0, 0.0));
        assert!(!lease.is_due());
    }
}
