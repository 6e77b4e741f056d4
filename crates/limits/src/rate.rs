//! Request rate limits per client, by the generic cell rate algorithm (GCRA).
//!
//! For each key the table holds the theoretical arrival time (TAT): when all earlier requests are worked off
//! at the limit's rate. A request conforms if it is at most `burst` intervals ahead of that time.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::lease::{Granted, Terms};
use crate::prehashed::Prehashed;
use crate::shared_rate::{ClientReport, Leases, Servers, client_id};
use dunlin_config::RateRules;
use dunlin_net::address::Peer;
use dunlin_net::clock;

/// A rate limit. All workers share it.
#[derive(Debug)]
pub struct RateLimit {
    rules: RateRules,
    origin: Instant,
    /// Interval between two requests at the limit's rate, in nanoseconds.
    interval: u64,
    /// Keyed, so that clients cannot construct collisions.
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// The limit is shared with other servers: it has leases in place of `shards`.
    leases: Option<Leases>,
}

/// A key by which requests are counted.
pub trait ClientKey: Hash {
    /// Writes what distinguishes the client from others, in the same way on all servers.
    fn describe(&self, to: &mut Vec<u8>);
}

/// Result for one request, for `RateLimit` (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateStatus {
    /// The request is allowed.
    pub allowed: bool,
    /// Number of further requests that are allowed now.
    pub remaining: u64,
    /// Nanoseconds until a rejected request is allowed.
    pub retry: u64,
    /// Nanoseconds until the whole burst is available again.
    pub reset: u64,
}

/// Counters of a rate limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateCounts {
    /// Requests within the limit.
    pub passed: u64,
    /// Requests beyond the limit, rejected or only counted.
    pub rejected: u64,
}

/// A part of the table, in two generations. When `young` is full it becomes `old`, and the previous `old` is
/// dropped with the clients that were idle longest. An evicted client starts with a full burst, so an attack with
/// many keys does not lock out other clients.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<u64, u64, Prehashed>,
    old: HashMap<u64, u64, Prehashed>,
    counts: RateCounts,
}

const SHARDS: usize = 16;
/// Maximum of clients in one generation of a shard: the table holds at least the latest 65,536.
const GENERATION: usize = 4_096;

impl RateLimit {
    /// Creates a limit with these rules.
    pub fn new(rules: RateRules) -> Self {
        Self {
            interval: (rules.period.as_nanos() / u128::from(rules.requests.max(1))).max(1) as u64,
            rules,
            origin: clock::now(),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            leases: None,
        }
    }

    /// Creates a limit that `servers` share by a store. `scope` names its site and route.
    pub fn shared(rules: RateRules, scope: &str, servers: &Servers) -> Self {
        let leases = Leases::new(&rules, scope, servers);
        Self { shards: Box::default(), leases: Some(leases), ..Self::new(rules) }
    }

    /// Returns the rules of the limit.
    pub fn rules(&self) -> &RateRules {
        &self.rules
    }

    /// Counts a request of the client with that key.
    pub fn request(&self, key: impl ClientKey, now: Instant) -> RateStatus {
        let now = self.nanos(now);
        let hash = self.hasher.hash_one(&key);
        let mut status = match &self.leases {
            None => self.request_at(hash, now),
            Some(leases) => leases.request(hash, || name_in_store(&key), now),
        };
        status.allowed |= self.rules.dry_run;
        status
    }

    /// Returns the counters of the limit.
    pub fn counts(&self) -> RateCounts {
        if let Some(leases) = &self.leases {
            return leases.counts();
        }
        let mut sum = RateCounts::default();
        for shard in &self.shards {
            let RateCounts { passed, rejected } = lock(shard).counts;
            sum.passed += passed;
            sum.rejected += rejected;
        }
        sum
    }

    fn nanos(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// Counts a request; `now` is in nanoseconds since `origin`.
    fn request_at(&self, key: u64, now: u64) -> RateStatus {
        let burst = self.interval * u64::from(self.rules.burst.max(1));
        let shard = &self.shards[(key >> 60) as usize % SHARDS];
        let Shard { young, old, counts } = &mut *lock(shard);
        // Theoretical arrival time of the next request.
        let due = young.entry(key).or_insert_with(|| old.remove(&key).unwrap_or(0));
        let start = (*due).max(now);
        let after = start + self.interval;
        if after - now > burst {
            let reset = start - now;
            counts.rejected += 1;
            return RateStatus { allowed: false, remaining: 0, retry: after - now - burst, reset };
        }
        *due = after;
        counts.passed += 1;
        if young.len() >= GENERATION {
            *old = std::mem::take(young);
        }
        let ahead = after - now;
        let remaining = (burst - ahead) / self.interval;
        RateStatus { allowed: true, remaining, retry: 0, reset: ahead }
    }

    /// Returns the value of `RateLimit-Policy`: the burst and the seconds in which it becomes available.
    pub fn policy(&self) -> String {
        let name = self.rules.name();
        let burst = self.rules.burst.max(1);
        let window = seconds(self.interval * u64::from(burst));
        format!("\"{name}\";q={burst};w={window}")
    }

    /// Returns the value of `RateLimit`.
    pub fn state(&self, status: &RateStatus) -> String {
        let name = self.rules.name();
        format!("\"{name}\";r={};t={}", status.remaining, seconds(status.reset))
    }
}

/// The exchange of a limit that several servers share with its store. All of it does nothing for other limits.
impl RateLimit {
    /// Returns the name of the limit in the store; `None` if it is not shared.
    pub fn name_in_store(&self) -> Option<&str> {
        self.leases.as_ref().map(Leases::name)
    }

    /// Returns the rate and the burst for the store; `None` if it is not shared.
    pub fn terms(&self) -> Option<Terms> {
        self.leases.as_ref().map(Leases::terms)
    }

    /// Takes the reports for the store. Each is settled by [`grant`](Self::grant) or [`take_back`](Self::take_back).
    pub fn reports(&self, now: Instant) -> Vec<ClientReport> {
        let leases = self.leases.as_ref();
        leases.map(|leases| leases.reports(self.nanos(now))).unwrap_or_default()
    }

    /// Takes the store's response to a report.
    pub fn grant(&self, report: &ClientReport, granted: Granted, now: Instant) {
        if let Some(leases) = &self.leases {
            leases.apply(report, granted, self.nanos(now));
        }
    }

    /// Takes back a report that the store may not have received.
    pub fn take_back(&self, report: &ClientReport) {
        if let Some(leases) = &self.leases {
            leases.take_back(report);
        }
    }

    /// Continues without the store: this server allows its part of the limit, 1/n for n servers.
    pub fn disconnect(&self) {
        if let Some(leases) = &self.leases {
            leases.disconnect();
        }
    }
}

fn name_in_store(key: &impl ClientKey) -> [u8; 16] {
    let mut text = Vec::with_capacity(64);
    key.describe(&mut text);
    client_id(&text)
}

impl ClientKey for () {
    fn describe(&self, _to: &mut Vec<u8>) {}
}

impl ClientKey for &str {
    fn describe(&self, to: &mut Vec<u8>) {
        self.as_bytes().describe(to);
    }
}

impl ClientKey for &[u8] {
    fn describe(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(b"text:");
        to.extend_from_slice(self);
    }
}

impl ClientKey for Peer {
    fn describe(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(format!("address:{self}").as_bytes());
    }
}

/// Ignores poisoning: a shard is consistent after every statement.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts nanoseconds to whole seconds, rounded up.
pub fn seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dunlin_config::RateKey;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limit(requests: u32, burst: u32) -> RateLimit {
        let period = Duration::from_secs(1);
        RateLimit::new(RateRules {
            requests,
            period,
            burst,
            by: RateKey::Address,
            sends_fields: false,
            dry_run: false,
            status: 429,
            shared: false,
        })
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let limit = limit(10, 20);
        let mut statuses = (0..25).map(|_| limit.request_at(7, SECOND));
        for left in (0..20).rev() {
            let status = statuses.next().unwrap();
            assert!(status.allowed);
            assert_eq!(status.remaining, left);
        }
        let rejected = statuses.next().unwrap();
        let expected =
            RateStatus { allowed: false, remaining: 0, retry: SECOND / 10, reset: 2 * SECOND };
        assert_eq!(rejected, expected);
        assert!(
            !statuses.next().unwrap().allowed,
            "a rejected request is not counted against the client"
        );
        assert!(!limit.request_at(7, SECOND + rejected.retry - 1).allowed);
        assert!(limit.request_at(7, SECOND + rejected.retry).allowed);
        let passed = (0..10_000_u64)
            .filter(|millis| limit.request_at(7, 2 * SECOND + millis * 1_000_000).allowed)
            .count();
        assert!((100..=109).contains(&passed), "{passed} in ten seconds at 10/s, 9 from before");
    }

    #[test]
    fn clients_do_not_share_a_limit_and_many_keys_lock_out_no_client() {
        let limit = limit(1, 2);
        let key = |client: u64| limit.hasher.hash_one(client);
        assert!(limit.request_at(key(1), SECOND).allowed);
        assert!(limit.request_at(key(1), SECOND).allowed);
        assert!(!limit.request_at(key(1), SECOND).allowed);
        for other in 2..1_000_000_u64 {
            assert!(limit.request_at(key(other), SECOND).allowed);
        }
        let held: usize = limit
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum();
        assert!(held <= 2 * SHARDS * GENERATION);
    }

    #[test]
    fn an_active_client_is_not_evicted() {
        let limit = limit(1, 1);
        let key = |client: u64| limit.hasher.hash_one(client);
        assert!(limit.request_at(key(0), SECOND).allowed);
        for other in 1..500_000_u64 {
            limit.request_at(key(other), SECOND);
            if other % 10_000 == 0 {
                assert!(!limit.request_at(key(0), SECOND).allowed);
            }
        }
    }

    #[test]
    fn response_fields_are_in_whole_seconds() {
        let limit = limit(10, 25);
        assert_eq!(limit.policy(), "\"10/s by address\";q=25;w=3");
        let status = limit.request_at(1, SECOND);
        assert_eq!(limit.state(&status), "\"10/s by address\";r=24;t=1");
    }
}
