//! The connections of one loop, with the moment at which each has waited long enough.
//!
//! Deadlines are looked at once a tick for all connections together: setting one costs a store,
//! and no timer has to be moved for a request.

use std::cell::RefCell;
use std::task::{Context, Waker};

use slab::Slab;

/// What a connection waits for; says which limit a deadline belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The first request.
    First,
    /// The next request.
    Idle,
    /// The next request of a connection that has just been used: it keeps what is only for speed.
    Resting,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The client to take what is sent.
    Send,
    /// A handler.
    Handler,
    /// Its turn to be sent something more.
    Throttle,
    /// Something on streams of HTTP/2, each of which has its own limit.
    Streams,
    /// The client to close after the last answer.
    Linger,
}

/// How many things a connection can wait for.
pub(crate) const STATES: usize = 8;

impl Waiting {
    /// The states in words, for those who look at the server.
    pub(crate) const NAMES: [&str; STATES] =
        ["idle", "head", "body", "send", "handler", "throttle", "streams", "linger"];

    /// Its place among [`Waiting::NAMES`].
    fn state(self) -> usize {
        match self {
            Self::First | Self::Idle | Self::Resting => 0,
            Self::Head => 1,
            Self::Body => 2,
            Self::Send => 3,
            Self::Handler => 4,
            Self::Throttle => 5,
            Self::Streams => 6,
            Self::Linger => 7,
        }
    }
}

#[derive(Debug)]
struct Slot {
    waker: Option<Waker>,
    waiting: Waiting,
    /// Milliseconds of the loop's clock.
    deadline: u64,
    /// From when on it may be closed for others before its first request has come.
    ripe: u64,
}

impl Slot {
    /// Whether it may be closed for others.
    fn is_idle(&self, now: u64) -> bool {
        match self.waiting {
            Waiting::Idle => true,
            Waiting::First => now >= self.ripe,
            _ => false,
        }
    }
}

/// The table of a loop's connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: RefCell<Slab<Slot>>,
    idlest: RefCell<Idlest>,
}

/// What a look at all connections found.
pub(crate) struct Look {
    /// What wakes those whose deadline has passed.
    pub(crate) expired: Vec<Waker>,
    /// The earliest deadline of those that are idle; [`u64::MAX`] when none is.
    pub(crate) idlest: u64,
    /// How many there are, by what they wait for.
    pub(crate) counts: [u64; STATES],
}

/// The connections that have been idle for longest, as they were found: the idlest last.
#[derive(Debug, Default)]
struct Idlest {
    found: Vec<(u64, usize)>,
    /// When they were looked for.
    at: u64,
}

/// How many of the idlest are found at a time.
const IDLEST: usize = 256;
/// For so many milliseconds nobody takes a newcomer's place: where everybody else is busy, it would be the next newcomer,
/// before the first has said anything.
const GRACE: u64 = 1_000;

impl Connections {
    /// Takes in a connection that comes at `now`.
    pub(crate) fn add(&self, now: u64) -> usize {
        let (waiting, ripe) = (Waiting::First, now + GRACE);
        let slot = Slot { waker: None, waiting, deadline: u64::MAX, ripe };
        self.slots.borrow_mut().insert(slot)
    }

    pub(crate) fn remove(&self, key: usize) {
        self.slots.borrow_mut().try_remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Remembers how to wake the connection. Its task's waker never changes, so this is done once.
    pub(crate) fn set_waker(&self, key: usize, context: &Context<'_>) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(key)
            && slot.waker.is_none()
        {
            slot.waker = Some(context.waker().clone());
        }
    }

    /// Says what the connection waits for from now on, and until when.
    #[inline]
    pub(crate) fn wait(&self, key: usize, waiting: Waiting, deadline: u64) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(key) {
            slot.waiting = waiting;
            slot.deadline = deadline;
        }
    }

    /// What the connection waits for, and whether it has waited long enough at `now`.
    pub(crate) fn state(&self, key: usize, now: u64) -> (Waiting, bool) {
        let slots = self.slots.borrow();
        slots.get(key).map_or((Waiting::Idle, true), |slot| (slot.waiting, now >= slot.deadline))
    }

    /// Looks at all of them.
    pub(crate) fn look(&self, now: u64) -> Look {
        let mut look = Look { expired: Vec::new(), idlest: u64::MAX, counts: [0; STATES] };
        for (_, slot) in self.slots.borrow().iter() {
            look.counts[slot.waiting.state()] += 1;
            if slot.is_idle(now) {
                look.idlest = look.idlest.min(slot.deadline);
            }
            if now >= slot.deadline
                && let Some(waker) = &slot.waker
            {
                look.expired.push(waker.clone());
            }
        }
        look
    }

    /// Has up to `most` connections closed, those that have been idle for longest. Says how many, and
    /// the deadline of the next one, [`u64::MAX`] when it is not known.
    pub(crate) fn evict(&self, most: usize, now: u64) -> (usize, u64) {
        let mut slots = self.slots.borrow_mut();
        let mut idlest = self.idlest.borrow_mut();
        let mut evicted = 0;
        while evicted < most {
            let Some((deadline, key)) = idlest.found.pop() else {
                // All are looked at once a tick at most.
                if idlest.at == now {
                    break;
                }
                *idlest = Idlest { found: find_idlest(&slots, now), at: now };
                continue;
            };
            if let Some(slot) = slots.get_mut(key)
                && slot.is_idle(now)
                && slot.deadline == deadline
                && let Some(waker) = &slot.waker
            {
                slot.deadline = 0;
                waker.wake_by_ref();
                evicted += 1;
            }
        }
        (evicted, idlest.found.last().map_or(u64::MAX, |&(deadline, _)| deadline))
    }

    /// Whether the connection is to be closed for others.
    pub(crate) fn is_evicted(&self, key: usize) -> bool {
        let slots = self.slots.borrow();
        slots.get(key).is_some_and(|slot| slot.is_idle(u64::MAX) && slot.deadline == 0)
    }

    /// Wakes every connection that waits for a next request, which others than those of HTTP/1 do
    /// also while they answer.
    pub(crate) fn wake_idle(&self) {
        for (_, slot) in self.slots.borrow().iter() {
            let next = slot.is_idle(u64::MAX);
            if (next || matches!(slot.waiting, Waiting::Resting | Waiting::Streams))
                && let Some(waker) = &slot.waker
            {
                waker.wake_by_ref();
            }
        }
    }
}

fn find_idlest(slots: &Slab<Slot>, now: u64) -> Vec<(u64, usize)> {
    let idle = slots.iter().filter(|(_, slot)| slot.is_idle(now) && slot.deadline > 0);
    let mut found: Vec<_> = idle.map(|(key, slot)| (slot.deadline, key)).collect();
    if found.len() > IDLEST {
        found.select_nth_unstable(IDLEST);
        found.truncate(IDLEST);
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idlest_are_evicted_first_and_nobody_who_is_busy() {
        let connections = Connections::default();
        let keys: Vec<usize> = (0..1_000).map(|_| connections.add(0)).collect();
        let context = Context::from_waker(Waker::noop());
        for (number, &key) in keys.iter().enumerate() {
            connections.set_waker(key, &context);
            let waiting = if number % 2 == 0 { Waiting::Idle } else { Waiting::Head };
            connections.wait(key, waiting, 10_000 - number as u64);
        }
        assert_eq!(connections.look(1).idlest, 10_000 - 998);
        assert_eq!(connections.evict(1, 1), (1, 10_000 - 996));
        assert!(connections.is_evicted(keys[998]) && !connections.is_evicted(keys[996]));
        // One that was found and has become busy since is passed over.
        connections.wait(keys[996], Waiting::Handler, u64::MAX);
        assert_eq!(connections.evict(2, 1).0, 2);
        assert!(connections.is_evicted(keys[994]) && connections.is_evicted(keys[992]));
        assert_eq!(connections.evict(1_000, 2).0, 499 - 3, "all that are idle");
        assert_eq!(connections.evict(1, 2), (0, u64::MAX));
    }

    #[test]
    fn a_newcomer_is_spared_until_it_could_have_asked() {
        let connections = Connections::default();
        let key = connections.add(5_000);
        connections.set_waker(key, &Context::from_waker(Waker::noop()));
        connections.wait(key, Waiting::First, 65_000);
        assert_eq!(connections.evict(1, 5_999), (0, u64::MAX));
        assert_eq!(connections.look(5_999).idlest, u64::MAX);
        assert_eq!(connections.look(6_000).idlest, 65_000);
        assert_eq!(connections.evict(1, 6_000).0, 1);
        assert!(connections.is_evicted(key));
    }
}
