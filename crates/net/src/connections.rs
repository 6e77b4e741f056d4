//! The table of one worker's connections, with the deadline of each.
//!
//! The worker checks all deadlines together once a tick. Setting one costs a store; no timer is set for a request.

mod eviction_candidates;

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::sync::Notify;

use self::eviction_candidates::{EvictionCandidates, Pressure};
use crate::address::Peer;

/// The event that a connection waits for: the limit that its deadline belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The first request.
    First,
    /// The next request.
    Idle,
    /// The next request of a connection that was just used: it keeps its buffers.
    Resting,
    /// The rest of a request head.
    Head,
    /// The rest of a request body.
    Body,
    /// The client to receive the response.
    Send,
    /// The handler.
    Handler,
    /// The throttle of the response.
    Throttle,
    /// Streams of HTTP/2, each of which has a deadline of its own.
    Streams,
    /// The client to close the connection after the last response.
    Linger,
}

/// The number of states in reports.
pub const STATES: usize = 8;

impl Waiting {
    /// The names of the states in reports.
    pub const NAMES: [&str; STATES] =
        ["idle", "head", "body", "send", "handler", "throttle", "streams", "linger"];

    /// Returns the index in [`Waiting::NAMES`].
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
    /// Milliseconds of the worker's clock; 0 once the connection is evicted.
    deadline: u64,
    /// From this time on, it may be evicted although its request is incomplete.
    evictable_after: u64,
    /// The client's address, or its network with IPv6.
    network: Peer,
}

/// The table of a worker's connections.
#[derive(Debug, Default)]
pub struct Connections {
    slots: RefCell<Slab<Slot>>,
    eviction_candidates: RefCell<EvictionCandidates>,
    emptied: Notify,
}

/// The result of [`Connections::scan`].
#[derive(Debug)]
pub struct Scan {
    /// The wakers of connections whose deadline has passed.
    pub expired: Vec<Waker>,
    /// The rank of the connection that is evicted first; [`u64::MAX`] when none may be evicted.
    pub first_victim: u64,
    /// The number of connections in each state.
    pub counts: [u64; STATES],
}

/// A connection without a complete request is not evicted for this many milliseconds. Otherwise, while all others are
/// busy, each new connection would evict the previous one before its client has sent anything.
const GRACE: u64 = 1_000;

impl Connections {
    /// Adds a connection that was accepted at `now` from a client in `network`. Returns its key.
    pub fn add(&self, now: u64, network: Peer) -> usize {
        let (waiting, evictable_after) = (Waiting::First, now + GRACE);
        let slot = Slot { waker: None, waiting, deadline: u64::MAX, evictable_after, network };
        self.slots.borrow_mut().insert(slot)
    }

    /// Removes a connection.
    pub fn remove(&self, key: usize) {
        let mut slots = self.slots.borrow_mut();
        slots.try_remove(key);
        if slots.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Resolves when the table is empty.
    pub async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Returns the number of connections.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Returns `true` if there is no connection.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    /// Stores the waker of the connection's task with the first call. It never changes.
    #[inline]
    pub fn set_waker(&self, key: usize, context: &Context<'_>) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(key)
            && slot.waker.is_none()
        {
            slot.waker = Some(context.waker().clone());
        }
    }

    /// Sets what the connection waits for, and its deadline.
    #[inline]
    pub fn wait(&self, key: usize, waiting: Waiting, deadline: u64) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(key) {
            slot.waiting = waiting;
            slot.deadline = deadline;
        }
    }

    /// Records that the connection waits for the rest of a request head that began to arrive at `since`. The first head
    /// of a connection counts from the time at which the connection was accepted.
    #[inline]
    pub fn wait_for_head(&self, key: usize, since: u64, deadline: u64) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(key) {
            if !slot.is_unfinished() {
                slot.evictable_after = since + GRACE;
            }
            slot.waiting = Waiting::Head;
            slot.deadline = deadline;
        }
    }

    /// Returns what the connection waits for, and whether its deadline has passed at `now`.
    #[inline]
    pub fn state(&self, key: usize, now: u64) -> (Waiting, bool) {
        let slots = self.slots.borrow();
        slots.get(key).map_or((Waiting::Idle, true), |slot| (slot.waiting, now >= slot.deadline))
    }

    /// Checks all connections. `is_full`: no further connection can be accepted before one is closed.
    pub fn scan(&self, now: u64, is_full: bool) -> Scan {
        let mut scan = Scan { expired: Vec::new(), first_victim: u64::MAX, counts: [0; STATES] };
        let slots = self.slots.borrow();
        for (_, slot) in slots.iter() {
            scan.counts[slot.waiting.state()] += 1;
            if now >= slot.deadline
                && let Some(waker) = &slot.waker
            {
                scan.expired.push(waker.clone());
            }
        }
        scan.first_victim = Pressure::of(&slots, now, is_full).first(&slots);
        scan
    }

    /// Returns the number of connections by state.
    pub fn counts(&self) -> [u64; STATES] {
        let mut counts = [0; STATES];
        self.slots.borrow().iter().for_each(|(_, slot)| counts[slot.waiting.state()] += 1);
        counts
    }

    /// Evicts up to `max` connections. Returns their number and the rank of the next one, [`u64::MAX`] when it is not
    /// known.
    pub fn evict(&self, max: usize, now: u64, is_full: bool) -> (usize, u64) {
        self.eviction_candidates.borrow_mut().evict(&mut self.slots.borrow_mut(), max, now, is_full)
    }

    /// Evicts the oldest connections without a complete request of each address that has more than `max` of them. Returns
    /// the number of evicted connections and one of the addresses.
    pub fn bound_addresses(&self, max: usize, now: u64) -> (usize, Option<Peer>) {
        eviction_candidates::bound_addresses(&mut self.slots.borrow_mut(), max, now)
    }

    /// Returns `true` if the connection is to end because it is evicted.
    #[inline]
    pub fn is_evicted(&self, key: usize) -> bool {
        self.slots.borrow().get(key).is_some_and(|slot| slot.deadline == 0)
    }

    /// Resolves when the connection is evicted. Only the connection's own task may wait for this.
    pub async fn evicted(&self, key: usize) {
        poll_fn(|cx| {
            self.set_waker(key, cx);
            if self.is_evicted(key) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Wakes all connections that wait for a request. HTTP/2 connections also do so while they send responses.
    pub fn wake_idle(&self) {
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
