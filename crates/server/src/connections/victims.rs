//! Which connections are closed to make room for new ones.
//!
//! In this order: those that only wait for the client to close; those without a complete request of addresses that have
//! many of them; those that are idle; the rest of those without a complete request. Of each kind the oldest goes first.
//! A connection whose request is being answered is never closed to make room.

use std::collections::{HashMap, HashSet};
use std::task::Waker;

use slab::Slab;

use super::{Slot, Waiting};
use crate::transport::Peer;

/// The connections that are closed next, as they were found: the first of them last.
#[derive(Debug, Default)]
pub(super) struct Victims {
    found: Vec<(u64, usize)>,
    /// When they were looked for, and how often at that time.
    at: u64,
    looks: usize,
    /// There are more than were kept.
    is_cut: bool,
}

/// How the connections of a worker compete for room.
pub(super) struct Pressure {
    now: u64,
    /// There is no room, and half of the connections have not sent a complete request: the oldest of those are closed without
    /// a grace, so that a flood of them does not keep others waiting. Each has as long as the flood takes to replace all.
    is_crowded: bool,
    /// Addresses with many connections that have not sent a complete request.
    heavy: HashSet<Peer>,
}

/// How many victims are found at a time.
const FOUND: usize = 1024;
/// The number of times in a tick that only those of the first class are kept, as others of that class may come before the next is due.
const LOOKS: usize = 16;
/// The number of connections that an address may have without a complete request, and a share of all, before they go first.
const FEW: usize = 16;
const SHARE: usize = 16;
/// A rank is a class and, within it, milliseconds of the worker's clock.
const CLASS: u32 = 60;

impl Slot {
    /// Whether the connection has not sent a complete request: it has sent nothing, or part of a head, of a handshake or of a
    /// PROXY header.
    pub(super) fn is_unfinished(&self) -> bool {
        matches!(self.waiting, Waiting::First | Waiting::Head)
    }

    /// When it is closed to make room, compared with others: the lowest rank first. `None` when it may not be.
    fn rank(&self, pressure: &Pressure) -> Option<u64> {
        let (class, since) = match self.waiting {
            _ if self.deadline == 0 => return None,
            Waiting::Linger => (0, self.deadline),
            Waiting::First | Waiting::Head => {
                if pressure.now < self.ripe && !pressure.is_crowded {
                    return None;
                }
                (if pressure.heavy.contains(&self.network) { 1 } else { 3 }, self.ripe)
            }
            Waiting::Idle => (2, self.deadline),
            _ => return None,
        };
        Some(class << CLASS | since)
    }

    /// Has the connection end itself. False when it cannot be woken.
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
            let most = FEW.max(slots.len() / SHARE);
            let counts = count_unfinished(slots).into_iter();
            heavy.extend(counts.filter(|&(_, count)| count > most).map(|(network, _)| network));
        }
        Self { now, is_crowded: is_full && unfinished * 2 >= slots.len(), heavy }
    }

    /// The lowest rank of all; [`u64::MAX`] when none may be closed.
    pub(super) fn first(&self, slots: &Slab<Slot>) -> u64 {
        slots.iter().filter_map(|(_, slot)| slot.rank(self)).min().unwrap_or(u64::MAX)
    }
}

impl Victims {
    /// See [`Connections::evict`](super::Connections::evict).
    pub(super) fn evict(
        &mut self,
        slots: &mut Slab<Slot>,
        most: usize,
        now: u64,
        is_full: bool,
    ) -> (usize, u64) {
        let mut evicted = 0;
        if self.at != now {
            self.found.clear();
        }
        while evicted < most {
            let Some((rank, key)) = self.found.pop() else {
                // Without more than were kept, all are looked at once a tick at most.
                if self.at == now && !self.is_cut {
                    break;
                }
                self.find(slots, now, is_full);
                if self.found.is_empty() {
                    break;
                }
                continue;
            };
            // What is not as it was found has been used since.
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
        self.looks = if self.at == now { self.looks + 1 } else { 1 };
        let pressure = Pressure::of(slots, now, is_full);
        let ranked = slots.iter().filter_map(|(key, slot)| Some((slot.rank(&pressure)?, key)));
        let mut found: Vec<_> = ranked.collect();
        let all = found.len();
        if self.looks <= LOOKS
            && let Some(&(first, _)) = found.iter().min()
        {
            found.retain(|&(rank, _)| rank >> CLASS == first >> CLASS);
        }
        if found.len() > FOUND {
            found.select_nth_unstable(FOUND);
            found.truncate(FOUND);
        }
        self.is_cut = all > found.len() || self.looks <= LOOKS;
        found.sort_unstable_by(|one, other| other.cmp(one));
        (self.found, self.at) = (found, now);
    }
}

/// See [`Connections::bound_addresses`](super::Connections::bound_addresses).
pub(super) fn bound_addresses(
    slots: &mut Slab<Slot>,
    most: usize,
    now: u64,
) -> (usize, Option<Peer>) {
    if slots.len() <= most {
        return (0, None);
    }
    let (mut evicted, mut address) = (0, None);
    for (network, count) in count_unfinished(slots) {
        let Some(excess) = count.checked_sub(most).filter(|&excess| excess > 0) else { continue };
        let of_network = slots.iter().filter(|(_, slot)| {
            slot.is_unfinished() && slot.network == network && slot.deadline > 0 && now >= slot.ripe
        });
        let mut oldest: Vec<_> = of_network.map(|(key, slot)| (slot.ripe, key)).collect();
        oldest.sort_unstable();
        for (_, key) in oldest.into_iter().take(excess) {
            evicted += usize::from(slots.get_mut(key).is_some_and(Slot::evict));
            address = Some(network);
        }
    }
    (evicted, address)
}

/// How many connections each address has that have not sent a complete request. Those by Unix sockets have none.
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

    fn evict(connections: &Connections, most: usize, now: u64) -> usize {
        connections.evict(most, now, false).0
    }

    #[test]
    fn the_idlest_are_evicted_first_and_busy_ones_never() {
        let connections = Connections::default();
        let keys: Vec<usize> = (0..1_000).map(|_| add(&connections, 0, address(1))).collect();
        for (number, &key) in keys.iter().enumerate() {
            let waiting = if number % 2 == 0 { Waiting::Idle } else { Waiting::Handler };
            connections.wait(key, waiting, 10_000 - number as u64);
        }
        let rank = |deadline: u64| 2 << CLASS | deadline;
        assert_eq!(connections.look(1, false).first_victim, rank(10_000 - 998));
        assert_eq!(connections.evict(1, 1, false), (1, rank(10_000 - 996)));
        assert!(connections.is_evicted(keys[998]) && !connections.is_evicted(keys[996]));
        // One that was found and has become busy since is passed over.
        connections.wait(keys[996], Waiting::Handler, u64::MAX);
        assert_eq!(evict(&connections, 2, 1), 2);
        assert!(connections.is_evicted(keys[994]) && connections.is_evicted(keys[992]));
        assert_eq!(evict(&connections, 1_000, 2), 499 - 3, "all that are idle");
        assert_eq!(connections.evict(1, 2, false), (0, u64::MAX));
    }

    #[test]
    fn a_new_connection_has_a_grace_unless_there_is_a_crowd() {
        let connections = Connections::default();
        let keys = [5_000, 5_001].map(|now| add(&connections, now, address(1)));
        connections.wait(keys[0], Waiting::First, 65_000);
        connections.wait_for_head(keys[1], 5_500, 15_000);
        assert_eq!(connections.evict(1, 5_999, false), (0, u64::MAX));
        assert_eq!(connections.look(5_999, false).first_victim, u64::MAX);
        assert_eq!(connections.look(6_000, false).first_victim, 3 << CLASS | 6_000);
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
    fn an_address_has_so_many_unfinished_requests() {
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
