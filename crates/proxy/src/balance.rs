//! The choice of an upstream for a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dunlin_config::Balance;

use crate::group::Group;
use crate::upstream::Upstream;

/// The properties that the choice of an upstream may depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// Numbers of upstreams that the request was sent to before.
    pub(crate) tried: &'a [usize],
    /// The value that requests with the same upstream have in common.
    pub(crate) key: &'a [u8],
    /// Number of the upstream that the client's cookie names.
    pub(crate) sticky: Option<usize>,
    pub(crate) now: Instant,
}

impl Group {
    /// Chooses an upstream that was not tried. Those that have failed lately, or whose health check fails, are chosen only
    /// if there is no other. `None` if all were tried.
    pub(crate) fn choose(&self, choice: Choice<'_>) -> Option<&Arc<Upstream>> {
        if let [only] = &self.upstreams[..] {
            return (!choice.tried.contains(&only.id)).then_some(only);
        }
        let untried = |upstream: &&Arc<Upstream>| !choice.tried.contains(&upstream.id);
        let is_available = |upstream: &&Arc<Upstream>| upstream.health.is_available(choice.now);
        let first = self.first_priority(&untried, &is_available);
        let is_first = |upstream: &&Arc<Upstream>| first.is_none_or(|it| upstream.priority == it);
        let available =
            || self.upstreams.iter().filter(untried).filter(is_available).filter(is_first);
        if let Some(id) = choice.sticky
            && let Some(sticky) = available().find(|upstream| upstream.id == id)
        {
            return Some(sticky);
        }
        if available().next().is_none() {
            return self.choose_from(&|| self.upstreams.iter().filter(untried), choice);
        }
        if !self.rules.slow_start.is_zero() && !matches!(self.rules.balance, Balance::Hash(_)) {
            let turn = self.next.load(Ordering::Relaxed);
            let is_warm = |upstream: &&Arc<Upstream>| self.takes_turn(upstream, turn, choice.now);
            let warm = || available().filter(is_warm);
            if warm().next().is_some() {
                return self.choose_from(&warm, choice);
            }
        }
        self.choose_from(&available, choice)
    }

    /// Returns the lowest priority of an upstream that fits both; `None` if all have the same.
    fn first_priority(
        &self,
        a: &impl Fn(&&Arc<Upstream>) -> bool,
        b: &impl Fn(&&Arc<Upstream>) -> bool,
    ) -> Option<u16> {
        let fit = || self.upstreams.iter().filter(a).filter(b);
        self.has_priorities.then(|| fit().map(|upstream| upstream.priority).min()).flatten()
    }

    /// Returns `true` if an upstream that is available again is considered for a request: the more often, the longer it is.
    fn takes_turn(&self, upstream: &Upstream, turn: usize, now: Instant) -> bool {
        let share = upstream.health.share(self.rules.slow_start, now);
        let random = mix(turn as u64 ^ (upstream.id as u64) << 32) >> 11;
        share >= 1.0 || (random as f64) < share * (1_u64 << 53) as f64
    }

    fn choose_from<'g, I>(
        &'g self,
        candidates: &impl Fn() -> I,
        choice: Choice<'_>,
    ) -> Option<&'g Arc<Upstream>>
    where
        I: Iterator<Item = &'g Arc<Upstream>>,
    {
        // Another attempt takes no turn of another request.
        let step = usize::from(choice.tried.is_empty());
        let turn = self.next.fetch_add(step, Ordering::Relaxed);
        match self.rules.balance {
            Balance::LeastLoaded => two_choices(candidates, turn, choice.now),
            Balance::LeastConnections => least_connections(candidates, turn),
            Balance::RoundRobin => by_turn(candidates, turn),
            Balance::Hash(_) => by_hash(candidates, choice.key),
        }
    }
}

/// Returns the less loaded of two that are chosen at random. With the choice of two, workers that see old numbers do not all
/// choose the same upstream.
fn two_choices<'g, I>(
    candidates: &impl Fn() -> I,
    turn: usize,
    now: Instant,
) -> Option<&'g Arc<Upstream>>
where
    I: Iterator<Item = &'g Arc<Upstream>>,
{
    let count = candidates().count();
    if count <= 1 {
        return candidates().next();
    }
    let random = mix(turn as u64);
    let first = (random as u32) as usize % count;
    let step = 1 + (random >> 32) as usize % (count - 1);
    let second = (first + step) % count;
    let (first, second) = (candidates().nth(first)?, candidates().nth(second)?);
    Some(if second.load(now) < first.load(now) { second } else { first })
}

/// Returns the one with the fewest requests in progress for its weight; in turn if several have.
fn least_connections<'g, I>(candidates: &impl Fn() -> I, turn: usize) -> Option<&'g Arc<Upstream>>
where
    I: Iterator<Item = &'g Arc<Upstream>>,
{
    let count = candidates().count();
    let start = turn % count.max(1);
    let rotated = candidates().skip(start).chain(candidates().take(start));
    rotated.min_by(|a, b| a.requests_per_weight().total_cmp(&b.requests_per_weight()))
}

/// Each in turn, as often as its weight.
fn by_turn<'g, I>(candidates: &impl Fn() -> I, turn: usize) -> Option<&'g Arc<Upstream>>
where
    I: Iterator<Item = &'g Arc<Upstream>>,
{
    let weight = |upstream: &Arc<Upstream>| upstream.weight as usize;
    let total: usize = candidates().map(weight).sum();
    let mut place = turn % total.max(1);
    candidates().find(|upstream| {
        let is_it = place < weight(upstream);
        place = place.saturating_sub(weight(upstream));
        is_it
    })
}

/// Returns the one with the highest hash of `key` and its name (rendezvous hashing): if an upstream is gone, only its
/// requests go to others.
fn by_hash<'g, I>(candidates: &impl Fn() -> I, key: &[u8]) -> Option<&'g Arc<Upstream>>
where
    I: Iterator<Item = &'g Arc<Upstream>>,
{
    let score = |upstream: &Arc<Upstream>| {
        let mut hash = FNV;
        for &byte in upstream.name.as_bytes().iter().chain(b"\0").chain(key) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        // A number between 0 and 1, which a weight moves towards 1.
        let place = ((mix(hash) >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        f64::from(upstream.weight) / -place.min(1.0 - f64::EPSILON).ln()
    };
    candidates().max_by(|a, b| score(a).total_cmp(&score(b)))
}

/// The start value of FNV-1a, which is the same in every process: a restart keeps the choice.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// Distributes a number over all 64 bits (SplitMix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::group;

    fn chosen(group: &Group, tried: &[usize], key: &[u8]) -> usize {
        let choice = Choice { tried, key, sticky: None, now: Instant::now() };
        let upstream = group.choose(choice).unwrap();
        group.upstreams.iter().position(|other| other.id == upstream.id).unwrap()
    }

    fn counts(group: &Group, requests: usize) -> Vec<usize> {
        let mut counts = vec![0; group.upstreams.len()];
        for number in 0..requests {
            counts[chosen(group, &[], number.to_string().as_bytes())] += 1;
        }
        counts
    }

    #[test]
    fn upstreams_take_turns_as_often_as_their_weight() {
        let group = group("balance = 'round-robin'", &[1, 3]);
        assert_eq!(counts(&group, 400), [100, 300]);
    }

    #[test]
    fn a_busy_upstream_gets_no_request() {
        for balance in ["least-loaded", "least-connections"] {
            let group = group(&format!("balance = '{balance}'"), &[1, 1]);
            group.upstreams[0].in_flight.store(10, Ordering::Relaxed);
            group
                .upstreams
                .iter()
                .for_each(|upstream| upstream.note_time(Duration::from_millis(1)));
            assert_eq!(counts(&group, 100), [0, 100], "{balance}");
        }
    }

    #[test]
    fn a_slow_upstream_gets_no_request() {
        let group = group("", &[1, 1]);
        group.upstreams[1].note_time(Duration::from_secs(5));
        group.upstreams[0].note_time(Duration::from_millis(1));
        assert_eq!(counts(&group, 100), [100, 0]);
    }

    #[test]
    fn an_upstream_that_is_available_again_gets_more_and_more_requests() {
        let group = group("balance = 'round-robin', slow_start = '10s'", &[1, 1]);
        let start = Instant::now();
        group.upstreams[0].health.note_check(false, 1);
        group.upstreams[0].health.note_recovery(start);
        group.upstreams[0].health.note_check(true, 1);
        let share = |seconds| {
            let now = start + Duration::from_secs(seconds);
            let choice = Choice { tried: &[], key: &[], sticky: None, now };
            let is_it = |_: &usize| group.choose(choice).unwrap().id == group.upstreams[0].id;
            (0..1000).filter(is_it).count()
        };
        let shares = [0, 5, 11].map(share);
        assert!((20..100).contains(&shares[0]), "{shares:?}");
        assert!((180..320).contains(&shares[1]), "{shares:?}");
        assert_eq!(shares[2], 500);
    }

    #[test]
    fn a_cookie_keeps_its_upstream_while_it_is_available() {
        let group = group("eject = { failures = 1 }", &[1, 1, 1]);
        let sticky = &group.upstreams[1];
        let choice = Choice { tried: &[], key: &[], sticky: Some(sticky.id), now: Instant::now() };
        assert!((0..10).all(|_| group.choose(choice).unwrap().id == sticky.id));
        let tried = [sticky.id];
        assert_ne!(group.choose(Choice { tried: &tried, ..choice }).unwrap().id, sticky.id);
        group.note_failure(sticky, choice.now);
        assert_ne!(group.choose(choice).unwrap().id, sticky.id);
    }

    #[test]
    fn a_key_keeps_its_upstream_when_another_is_gone() {
        let group = group("balance = 'hash:X-User'", &[1, 1, 2]);
        let before: Vec<_> =
            (0..1000_u32).map(|key| chosen(&group, &[], &key.to_le_bytes())).collect();
        let gone = group.upstreams[0].id;
        for (key, &at) in (0..1000_u32).zip(&before) {
            let now = chosen(&group, &[gone], &key.to_le_bytes());
            assert!(if at == 0 { now != 0 } else { now == at });
        }
        let share = before.iter().filter(|&&at| at == 2).count();
        assert!((400..600).contains(&share), "{share} of 1000 for half of the weight");
    }

    #[test]
    fn failed_upstreams_are_chosen_only_if_there_is_no_other() {
        let group =
            group("balance = 'round-robin', eject = { failures = 1, share = 100 }", &[1, 1]);
        let now = Instant::now();
        group.note_failure(&group.upstreams[0], now);
        assert_eq!(counts(&group, 10), [0, 10]);
        group.note_failure(&group.upstreams[1], now);
        assert_eq!(counts(&group, 10), [5, 5]);
    }
}
