//! The connections of one worker, with the moment at which each has waited long enough.
//!
//! Deadlines are looked at once a tick for all connections together: setting one costs a store,
//! and no timer has to be moved for a request.

mod victims;

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::sync::Notify;

use self::victims::{Pressure, Victims};
use crate::transport::Peer;

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
    /// Milliseconds of the worker's clock; 0 once the connection is to be closed to make room.
    deadline: u64,
    /// From when on it may be closed to make room although its request is incomplete.
    ripe: u64,
    /// The client's address, of IPv6 its network.
    network: Peer,
}

/// The table of a worker's connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: RefCell<Slab<Slot>>,
    victims: RefCell<Victims>,
    emptied: Notify,
}

/// What a look at all connections found.
pub(crate) struct Look {
    /// What wakes those whose deadline has passed.
    pub(crate) expired: Vec<Waker>,
    /// The rank of the connection that is the first to be closed to make room; [`u64::MAX`] when none is.
    pub(crate) first_victim: u64,
    /// How many there are, by what they wait for.
    pub(crate) counts: [u64; STATES],
}

/// For this many milliseconds a connection that has not sent a complete request is not closed to make room: where all others
/// are busy, it would be the next new connection, before the client of the first could send anything.
const GRACE: u64 = 1_000;

impl Connections {
    /// Adds a connection that was accepted at `now` from a client in that network.
    pub(crate) fn add(&self, now: u64, network: Peer) -> usize {
        let (waiting, ripe) = (Waiting::First, now + GRACE);
        let slot = Slot { waker: None, waiting, deadline: u64::MAX, ripe, network };
        self.slots.borrow_mut().insert(slot)
    }

    pub(crate) fn remove(&self, key: usize) {
        let mut slots = self.slots.borrow_mut();
        slots.try_remove(key);
        if slots.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Resolves when there is none.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
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

    /// The connection waits for the rest of a head that has begun to arrive at `since`. The first head of a connection
    /// counts from when the connection was accepted.
    pub(crate) fn wait_for_head(&self, key: usize, since: u64, deadline: u64) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(key) {
            if !slot.is_unfinished() {
                slot.ripe = since + GRACE;
            }
            slot.waiting = Waiting::Head;
            slot.deadline = deadline;
        }
    }

    /// What the connection waits for, and whether it has waited long enough at `now`.
    pub(crate) fn state(&self, key: usize, now: u64) -> (Waiting, bool) {
        let slots = self.slots.borrow();
        slots.get(key).map_or((Waiting::Idle, true), |slot| (slot.waiting, now >= slot.deadline))
    }

    /// Looks at all of them. `is_full`: no further connection can be accepted before one is closed.
    pub(crate) fn look(&self, now: u64, is_full: bool) -> Look {
        let mut look = Look { expired: Vec::new(), first_victim: u64::MAX, counts: [0; STATES] };
        let slots = self.slots.borrow();
        for (_, slot) in slots.iter() {
            look.counts[slot.waiting.state()] += 1;
            if now >= slot.deadline
                && let Some(waker) = &slot.waker
            {
                look.expired.push(waker.clone());
            }
        }
        look.first_victim = Pressure::of(&slots, now, is_full).first(&slots);
        look
    }

    /// Has up to `most` connections closed to make room. Returns how many, and the rank of the next one, [`u64::MAX`] when it
    /// is not known.
    pub(crate) fn evict(&self, most: usize, now: u64, is_full: bool) -> (usize, u64) {
        self.victims.borrow_mut().evict(&mut self.slots.borrow_mut(), most, now, is_full)
    }

    /// Closes the oldest connections without a complete request of each address that has more than `most` of them. Returns
    /// how many, and one such address.
    pub(crate) fn bound_addresses(&self, most: usize, now: u64) -> (usize, Option<Peer>) {
        victims::bound_addresses(&mut self.slots.borrow_mut(), most, now)
    }

    /// Whether the connection is to be closed to make room.
    pub(crate) fn is_evicted(&self, key: usize) -> bool {
        self.slots.borrow().get(key).is_some_and(|slot| slot.deadline == 0)
    }

    /// Resolves when the connection is to be closed to make room. The task that waits is the connection's own.
    pub(crate) async fn evicted(&self, key: usize) {
        poll_fn(|cx| {
            self.set_waker(key, cx);
            if self.is_evicted(key) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Wakes every connection that waits for a next request, which others than those of HTTP/1 do
    /// also while they answer.
    pub(crate) fn wake_idle(&self) {
        for (_, slot) in self.slots.borrow().iter() {
            let next = matches!(slot.waiting, Waiting::First | Waiting::Idle);
            if (next || matches!(slot.waiting, Waiting::Resting | Waiting::Streams))
                && let Some(waker) = &slot.waker
            {
                waker.wake_by_ref();
            }
        }
    }
}
