//! The choice of connections that are evicted to make room for new ones.
//!
//! The order is: connections that wait for the client to close; those without a complete request, of addresses that have
//! many of them; idle ones; all others without a complete request. Within each class the oldest is first. A connection
//! with a response in progress is never evicted.

use std::collections::{HashMap, HashSet};
use std::task::Waker;

use slab::Slab;

use super::{Slot, Waiting};
use crate::address::Peer;

/// The connections that are evicted next, in reverse order.
#[derive(Debug, Default)]
pub(super) struct EvictionCandidates {
    found: Vec<(u64, usize)>,
    /// The time of the last search, and the number of searches at that time.
    at: u64,
    searches: usize,
    /// The last search found more than are kept.
    is_cut: bool,
}

/// The rules by which the connections of a worker compete for room.
pub(super) struct Pressure {
    now: u64,
    /// No connection can be accepted, and half of the connections have not sent a complete request. The oldest of those are
    /// evicted without grace, so that a flood of them does not block other clients. Each lives until the flood has replaced
    /// all others.
    is_crowded: bool,
    /// Addresses with many connections without a complete request.
    heavy: HashSet<Peer>,
}

/// Maximum number of connections that a search keeps.
const FOUND: usize = 1024;
/// The number of searches in a tick that keep the first class only: more connections of that class may be added before the
/// next class is due.
const SEARCHES: usize = 16;
/// An address with more connections without a complete request than this number and this share of all is heavy.
const FEW: usize = 16;
const SHARE: usize = 16;
/// A rank is a class and, within it, milliseconds of the worker's clock.
const CLASS: u32 = 60;

impl Slot {
    /// Returns `true` if the client has not sent a complete request: it has sent nothing, or part of a request head, a
    /// handshake or a PROXY header.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self.waiting, Waiting::First | Waiting::Head)
    }

    /// Returns the rank of the connection: the lowest is evicted first. [`None`] when it may not be evicted.
    fn rank(&self, pressure: &Pressure) -> Option<u64> {
        let (class, since) = match self.waiting {
            _ if self.deadline == 0 => return None,
            Waiting::Linger => (0, self.deadline),
            Waiting::First | Waiting::Head => {
                if pressure.now < self.evictable_after && !pressure.is_crowded {
                    return None;
                }
                (if pressure.heavy.contains(&self.network) { 1 } else { 3 }, self.evictable_after)
            }
            Waiting::Idle => (2, self.deadline),
            _ => return None,
        };
        Some(class << CLASS | since)
    }

    /// Makes the connection end itself. False when it has no waker.
    fn evict(&mut self) -> bool {
        self.waker.as_ref().map(Waker::wake_by_ref).is_some_and(|()| {
            self.deadline = 0;
            true
        })
    }
}

impl Pressure {
    pub(super) fn of(slots: &Slab<Slot>, now: u64, is_full: bool) -> Self {
        let unfinished = slots.iter().filter(|(_, slot)| slot.is_unfinished()).count();
        let mut heavy = HashSet::new();
        if unfinished > FEW {
            let max = FEW.max(slots.len() / SHARE);
            let counts = count_unfinished(slots).into_iter();
            heavy.extend(counts.filter(|&(_, count)| count > max).map(|(network, _)| network));
        }
        Self { now, is_crowded: is_full && unfinished * 2 >= slots.len(), heavy }
    }

    /// Returns the lowest rank of all; [`u64::MAX`] when none may be evicted.
    pub(super) fn first(&self, slots: &Slab<Slot>) -> u64 {
        slots.iter().filter_map(|(_, slot)| slot.rank(self)).min().unwrap_or(u64::MAX)
    }
}

impl EvictionCandidates {
    /// See [`Connections::evict`](super::Connections::evict).
    pub(super) fn evict(
        &mut self,
        slots: &mut Slab<Slot>,
        max: usize,
        now: u64,
        is_full: bool,
    ) -> (usize, u64) {
        let mut evicted = 0;
        if self.at != now {
            self.found.clear();
        }
        while evicted < max {
            let Some((rank, key)) = self.found.pop() else {
                // If the last search kept all, there is at most one per tick.
                if self.at == now && !self.is_cut {
                    break;
                }
                self.find(slots, now, is_full);
                if self.found.is_empty() {
                    break;
                }
                continue;
            };
            // A connection whose rank has changed was used since the search.
            let anyway = Pressure { now, is_crowded: true, heavy: HashSet::new() };
            let value = |rank: u64| rank & ((1 << CLASS) - 1);
            if let Some(slot) = slots.get_mut(key)
                && slot.rank(&anyway).is_some_and(|found| value(found) == value(rank))
                && slot.evict()
            {
                evicted += 1;
            }
        }
        (evicted, self.found.last().map_or(u64::MAX, |&(rank, _)| rank))
    }

    fn find(&mut self, slots: &Slab<Slot>, now: u64, is_full: bool) {
        self.searches = if self.at == now { self.searches + 1 } else { 1 };
        let pressure = Pressure::of(slots, now, is_full);
        let ranked = slots.iter().filter_map(|(key, slot)| Some((slot.rank(&pressure)?, key)));
        let mut found: Vec<_> = ranked.collect();
        let all = found.len();
        if self.searches <= SEARCHES
            && let Some(&(first, _)) = found.iter().min()
        {
            found.retain(|&(rank, _)| rank >> CLASS == first >> CLASS);
        }
        if found.len() > FOUND {
            found.select_nth_unstable(FOUND);
            found.truncate(FOUND);
        }
        self.is_cut = all > found.len() || self.searches <= SEARCHES;
        found.sort_unstable_by(|one, other| other.cmp(one));
        (self.found, self.at) = (found, now);
    }
}

/// See [`Connections::bound_addresses`](super::Connections::bound_addresses).
pub(super) fn bound_addresses(
    slots: &mut Slab<Slot>,
    max: usize,
    now: u64,
) -> (usize, Option<Peer>) {
    if slots.len() <= max {
        return (0, None);
    }
    let (mut evicted, mut address) = (0, None);
    for (network, count) in count_unfinished(slots) {
        let Some(excess) = count.checked_sub(max).filter(|&excess| excess > 0) else { continue };
        let of_network = slots.iter().filter(|(_, slot)| {
            slot.is_unfinished()
                && slot.network == network
                && slot.deadline > 0
                && now >= slot.evictable_after
        });
        let mut oldest: Vec<_> =
            of_network.map(|(key, slot)| (slot.evictable_after, key)).collect();
        oldest.sort_unstable();
        for (_, key) in oldest.into_iter().take(excess) {
            evicted += usize::from(slots.get_mut(key).is_some_and(Slot::evict));
            address = Some(network);
        }
    }
    (evicted, address)
}

/// Returns the number of connections without a complete request of each address. Unix sockets do not count.
fn count_unfinished(slots: &Slab<Slot>) -> HashMap<Peer, usize> {
    let mut counts = HashMap::new();
    for (_, slot) in slots.iter() {
        if slot.is_unfinished() && slot.deadline > 0 && slot.network != Peer::Unix {
            *counts.entry(slot.network).or_insert(0) += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::task::Context;

    use super::super::{Connections, GRACE};
    use super::*;

    const LATER: u64 = GRACE + 1;

    fn address(last: u8) -> Peer {
        Peer::Ip(IpAddr::from([192, 0, 2, last]))
    }

    fn add(connections: &Connections, now: u64, network: Peer) -> usize {
        let key = connections.add(now, network);
        connections.set_waker(key, &Context::from_waker(Waker::noop()));
        key
    }

    fn evict(connections: &Connections, max: usize, now: u64) -> usize {
        connections.evict(max, now, false).0
    }

    #[test]
    fn the_oldest_idle_ones_are_evicted_first_and_busy_ones_never() {
        let connections = Connections::default();
        let keys: Vec<usize> = (0..1_000).map(|_| add(&connections, 0, address(1))).collect();
        for (number, &key) in keys.iter().enumerate() {
            let waiting = if number % 2 == 0 { Waiting::Idle } else { Waiting::Handler };
            connections.wait(key, waiting, 10_000 - number as u64);
        }
        let rank = |deadline: u64| 2 << CLASS | deadline;
        assert_eq!(connections.scan(1, false).first_victim, rank(10_000 - 998));
        assert_eq!(connections.evict(1, 1, false), (1, rank(10_000 - 996)));
        assert!(connections.is_evicted(keys[998]) && !connections.is_evicted(keys[996]));
        // A connection that became busy after the search is skipped.
        connections.wait(keys[996], Waiting::Handler, u64::MAX);
        assert_eq!(evict(&connections, 2, 1), 2);
        assert!(connections.is_evicted(keys[994]) && connections.is_evicted(keys[992]));
        assert_eq!(evict(&connections, 1_000, 2), 499 - 3, "all idle ones");
        assert_eq!(connections.evict(1, 2, false), (0, u64::MAX));
    }

    #[test]
    fn a_new_connection_has_a_grace_unless_there_is_a_crowd() {
        let connections = Connections::default();
        let keys = [5_000, 5_001].map(|now| add(&connections, now, address(1)));
        connections.wait(keys[0], Waiting::First, 65_000);
        connections.wait_for_head(keys[1], 5_500, 15_000);
        assert_eq!(connections.evict(1, 5_999, false), (0, u64::MAX));
        assert_eq!(connections.scan(5_999, false).first_victim, u64::MAX);
        assert_eq!(connections.scan(6_000, false).first_victim, 3 << CLASS | 6_000);
        assert_eq!(evict(&connections, 1, 6_000), 1);
        assert!(connections.is_evicted(keys[0]));
        // The first head counts from the beginning of the connection, and a crowd has no grace.
        assert_eq!(connections.evict(1, 5_800, true).0, 1);
        assert!(connections.is_evicted(keys[1]));
    }

    #[test]
    fn a_later_head_counts_from_its_beginning() {
        let connections = Connections::default();
        let key = add(&connections, 0, address(1));
        connections.wait(key, Waiting::Idle, 75_000);
        connections.wait_for_head(key, 50_000, 60_000);
        assert_eq!(evict(&connections, 1, 50_000 + GRACE - 1), 0);
        assert_eq!(evict(&connections, 1, 50_000 + GRACE), 1);
    }

    #[test]
    fn unfinished_requests_of_an_address_with_many_go_before_idle_connections() {
        let connections = Connections::default();
        let few = add(&connections, 0, address(2));
        let idle = add(&connections, 0, address(3));
        connections.wait(idle, Waiting::Idle, 75_000);
        let many: Vec<_> = (0..FEW as u64 + 1).map(|n| add(&connections, n, address(1))).collect();
        let lingering = add(&connections, 0, address(4));
        connections.wait(lingering, Waiting::Linger, 2_000);
        let mut order = Vec::new();
        for _ in 0..many.len() + 3 {
            assert_eq!(evict(&connections, 1, LATER + 100), 1);
            let all = many.iter().chain([&few, &idle, &lingering]);
            let next = all.filter(|&&key| connections.is_evicted(key) && !order.contains(&key));
            let next: Vec<_> = next.copied().collect();
            order.extend(next);
        }
        let expected: Vec<_> = [lingering].into_iter().chain(many).chain([idle, few]).collect();
        assert_eq!(order, expected);
    }

    #[test]
    fn more_victims_than_are_found_at_a_time_are_evicted_within_a_tick() {
        let connections = Connections::default();
        for _ in 0..3 * FOUND {
            add(&connections, 0, address(1));
        }
        assert_eq!(evict(&connections, 3 * FOUND, LATER), 3 * FOUND);
        assert_eq!(evict(&connections, 1, LATER), 0);
    }

    #[test]
    fn unfinished_requests_of_an_address_are_limited() {
        let connections = Connections::default();
        let mine: Vec<_> = (0..10).map(|now| add(&connections, now, address(1))).collect();
        let other = add(&connections, 0, address(2));
        for _ in 0..10 {
            add(&connections, 0, Peer::Unix);
        }
        assert_eq!(connections.bound_addresses(7, 5), (0, None), "within the grace");
        assert_eq!(connections.bound_addresses(7, LATER + 10), (3, Some(address(1))));
        assert!(mine[..3].iter().all(|&key| connections.is_evicted(key)));
        assert!(!mine[3..].iter().chain([&other]).any(|&key| connections.is_evicted(key)));
        assert_eq!(connections.bound_addresses(7, LATER + 10), (0, None));
    }
}
