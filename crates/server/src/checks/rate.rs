//! Request rate limits: the generic cell rate algorithm (GCRA), for each client by itself.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::keyed::Keyed;
use super::{CheckInput, Decision, Rejection};

/// A limit as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RateRules {
    /// So many requests,
    pub(crate) requests: u32,
    /// in so long a time.
    pub(crate) period: Duration,
    /// Requests that may come at once.
    pub(crate) burst: u32,
    /// Whose requests are counted together.
    pub(crate) by: By,
    /// Every answer says what is left.
    pub(crate) tells: bool,
    /// Nothing is refused, only counted.
    pub(crate) dry_run: bool,
}

/// Whose requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// An address; of IPv6 a network of /64, which one client has to itself.
    Address,
    /// A user, or an address where there is none.
    User,
    /// Those with the same value of this field; without it, an address.
    Header(String),
    /// All of the route.
    Route,
}

/// A limit that all workers share.
#[derive(Debug)]
pub(crate) struct RateLimit {
    rules: RateRules,
    origin: Instant,
    /// Between two requests at the limit, in nanoseconds.
    interval: u64,
    /// Nobody can choose keys that meet in one place.
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

/// What a client has left, for `RateLimit` (draft-ietf-httpapi-ratelimit-headers).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateStatus {
    pub(crate) allowed: bool,
    /// Requests that may still come at once.
    pub(crate) remaining: u64,
    /// Nanoseconds until a refused request would be allowed.
    pub(crate) retry: u64,
    /// Nanoseconds until all of the burst may come again.
    pub(crate) reset: u64,
}

/// What a limit has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RateCounts {
    pub(crate) passed: u64,
    /// Requests beyond the limit, refused or only counted.
    pub(crate) refused: u64,
}

/// Part of the clients. When `young` is full it becomes `old`, and what was old is forgotten: those who
/// have not been seen for longest. A client who is forgotten has its burst again, so that whoever comes
/// under many keys shuts nobody out.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<u64, u64, Keyed>,
    old: HashMap<u64, u64, Keyed>,
    counts: RateCounts,
}

const SHARDS: usize = 16;
/// Clients that one generation of a shard holds: 65,536 in all are never forgotten.
const GENERATION: usize = 4_096;

/// Asks all limits of a route; the first that is exceeded refuses.
pub(super) fn check(limits: &[Arc<RateLimit>], input: &CheckInput<'_, '_>) -> Decision {
    for limit in limits {
        let status = limit.count(input);
        if status.allowed && !limit.rules.tells {
            continue;
        }
        let (policy, state) = (limit.policy(), limit.state(&status));
        if status.allowed {
            input.context.add_field("RateLimit-Policy", policy);
            input.context.add_field("RateLimit", state);
            continue;
        }
        let refused = Rejection::new(429)
            .with("Retry-After", seconds(status.retry).to_string())
            .with("RateLimit-Policy", policy)
            .with("RateLimit", state);
        return Decision::Reject(refused);
    }
    Decision::Allow
}

impl RateLimit {
    pub(crate) fn new(rules: RateRules) -> Self {
        Self {
            interval: (rules.period.as_nanos() / u128::from(rules.requests.max(1))).max(1) as u64,
            rules,
            origin: Instant::now(),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    pub(crate) fn rules(&self) -> &RateRules {
        &self.rules
    }

    fn count(&self, input: &CheckInput<'_, '_>) -> RateStatus {
        let (address, now) = (|| input.context.client.address.network(), input.now);
        match &self.rules.by {
            By::Address => self.request(address(), now),
            By::Route => self.request((), now),
            By::User => match input.context.user() {
                Some(user) => self.request(user, now),
                None => self.request(address(), now),
            },
            By::Header(name) => match field(input, name) {
                Some(value) => self.request(value, now),
                None => self.request(address(), now),
            },
        }
    }

    /// Counts a request of whoever `key` stands for.
    fn request(&self, key: impl Hash, now: Instant) -> RateStatus {
        let now = now.saturating_duration_since(self.origin).as_nanos() as u64;
        let mut status = self.request_at(self.hasher.hash_one(key), now);
        status.allowed |= self.rules.dry_run;
        status
    }

    pub(crate) fn counts(&self) -> RateCounts {
        let mut sum = RateCounts::default();
        for shard in &self.shards {
            let RateCounts { passed, refused } = lock(shard).counts;
            sum.passed += passed;
            sum.refused += refused;
        }
        sum
    }

    /// `now` is in nanoseconds since `origin`.
    fn request_at(&self, key: u64, now: u64) -> RateStatus {
        let burst = self.interval * u64::from(self.rules.burst.max(1));
        let shard = &self.shards[(key >> 60) as usize % SHARDS];
        let Shard { young, old, counts } = &mut *lock(shard);
        // When everything that came before has been worked off at the limit's rate.
        let due = young.entry(key).or_insert_with(|| old.remove(&key).unwrap_or(0));
        let start = (*due).max(now);
        let after = start + self.interval;
        if after - now > burst {
            let reset = start - now;
            counts.refused += 1;
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

    /// The value of `RateLimit-Policy`: how many requests may come in how many seconds.
    fn policy(&self) -> String {
        let name = self.rules.name();
        let burst = self.rules.burst.max(1);
        let window = seconds(self.interval * u64::from(burst));
        format!("\"{name}\";q={burst};w={window}")
    }

    /// The value of `RateLimit`.
    fn state(&self, status: &RateStatus) -> String {
        let name = self.rules.name();
        format!("\"{name}\";r={};t={}", status.remaining, seconds(status.reset))
    }
}

/// The value of the request's first field of that name.
fn field<'a>(input: &CheckInput<'a, '_>, name: &str) -> Option<&'a [u8]> {
    let mut fields = input.request.fields();
    fields.find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
}

impl RateRules {
    /// What clients know the limit by.
    fn name(&self) -> String {
        let unit = match self.period.as_secs() {
            60 => "m",
            3600 => "h",
            86_400 => "d",
            _ => "s",
        };
        let by = match &self.by {
            By::Address => "address",
            By::User => "user",
            By::Header(name) => name,
            By::Route => "route",
        };
        format!("{}/{unit} by {by}", self.requests)
    }
}

impl fmt::Display for RateRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dry_run = if self.dry_run { ", only counted" } else { "" };
        write!(f, "{}, at once {}{dry_run}", self.name(), self.burst)
    }
}

/// A shard is whole after every statement, so that a panic elsewhere spoils nothing.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whole seconds, rounded up: who waits for them has waited long enough.
pub(crate) fn seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limit(requests: u32, burst: u32) -> RateLimit {
        let period = Duration::from_secs(1);
        RateLimit::new(RateRules {
            requests,
            period,
            burst,
            by: By::Address,
            tells: false,
            dry_run: false,
        })
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let limit = limit(10, 20);
        let mut statuses = (0..25).map(|_| limit.request_at(7, SECOND));
        for left in (0..20).rev() {
            let status = statuses.next().unwrap();
            assert!(status.allowed);
            assert_eq!(status.remaining, left);
        }
        let refused = statuses.next().unwrap();
        let expected =
            RateStatus { allowed: false, remaining: 0, retry: SECOND / 10, reset: 2 * SECOND };
        assert_eq!(refused, expected);
        assert!(!statuses.next().unwrap().allowed, "being refused costs nothing");
        assert!(!limit.request_at(7, SECOND + refused.retry - 1).allowed);
        assert!(limit.request_at(7, SECOND + refused.retry).allowed);
        let passed = (0..10_000_u64)
            .filter(|millis| limit.request_at(7, 2 * SECOND + millis * 1_000_000).allowed)
            .count();
        assert!((100..=109).contains(&passed), "{passed} in ten seconds at 10/s, 9 from before");
    }

    #[test]
    fn clients_do_not_share_a_limit_and_many_keys_shut_nobody_out() {
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
    fn who_goes_on_asking_is_not_forgotten() {
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
    fn fields_say_what_is_left_in_whole_seconds() {
        let limit = limit(10, 25);
        assert_eq!(limit.policy(), "\"10/s by address\";q=25;w=3");
        let status = limit.request_at(1, SECOND);
        assert_eq!(limit.state(&status), "\"10/s by address\";r=24;t=1");
    }
}
