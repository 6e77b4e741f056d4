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
    /// The next request, or the first one.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The client to take what is sent.
    Send,
    /// A handler.
    Handler,
    /// Something on streams of HTTP/2, each of which has its own limit.
    Streams,
    /// The client to close after the last answer.
    Linger,
}

/// How many things a connection can wait for.
pub(crate) const STATES: usize = 7;

impl Waiting {
    /// The states in words, for those who look at the server.
    pub(crate) const NAMES: [&str; STATES] =
        ["idle", "head", "body", "send", "handler", "streams", "linger"];
}

#[derive(Debug)]
struct Slot {
    waker: Option<Waker>,
    waiting: Waiting,
    /// Milliseconds of the loop's clock.
    deadline: u64,
}

/// The table of a loop's connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: RefCell<Slab<Slot>>,
}

impl Connections {
    pub(crate) fn add(&self) -> usize {
        let slot = Slot { waker: None, waiting: Waiting::Idle, deadline: u64::MAX };
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

    /// Wakes every connection whose deadline has passed, and counts all by what they wait for.
    pub(crate) fn wake_expired(&self, now: u64) -> [u64; STATES] {
        let mut counts = [0; STATES];
        for (_, slot) in self.slots.borrow().iter() {
            counts[slot.waiting as usize] += 1;
            if now >= slot.deadline
                && let Some(waker) = &slot.waker
            {
                waker.wake_by_ref();
            }
        }
        counts
    }

    /// Wakes every connection that waits for a next request, which others than those of HTTP/1 do
    /// also while they answer.
    pub(crate) fn wake_idle(&self) {
        for (_, slot) in self.slots.borrow().iter() {
            if matches!(slot.waiting, Waiting::Idle | Waiting::Streams)
                && let Some(waker) = &slot.waker
            {
                waker.wake_by_ref();
            }
        }
    }
}
