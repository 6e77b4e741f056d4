//! What the tasks of an HTTP/2 worker count and take from.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::recorder::{Recorder, Times};
use crate::engine::shared::Pending;
use crate::verify::Expected;

/// The state that the tasks of a worker share.
pub(super) struct State {
    pub(super) recorder: Recorder,
    /// Requests still to be sent.
    pub(super) left: u64,
    /// The requests in flight, by a serial number.
    pub(super) in_flight: BTreeMap<u64, Times>,
    pub(super) serial: u64,
    /// Arrivals that wait for a stream.
    pub(super) waiting: VecDeque<u64>,
    /// Requests to be sent again, and the indexes of their URLs.
    pub(super) again: VecDeque<Pending>,
    /// All arrivals have been due.
    pub(super) all_due: bool,
    /// Time of the last sign of a server: a connection or a response.
    pub(super) alive: u64,
    pub(super) learned: Vec<Option<Expected>>,
    /// Valid responses of each connection slot.
    pub(super) each: Vec<u64>,
}

impl State {
    /// Returns `true` if the arrivals until `due` are all of a number of requests.
    pub(super) fn is_last_due(&self, due: u64) -> bool {
        self.recorder.is_warm(due) && self.left <= self.waiting.len() as u64
    }

    /// Takes a request from those that are left. Returns false if there is none.
    pub(super) fn may_send(&mut self, now: u64) -> bool {
        if self.left == 0 {
            return false;
        }
        // Those of the warm-up are not of the number that was requested.
        if self.left != u64::MAX && self.recorder.is_warm(now) {
            self.left -= 1;
        }
        true
    }

    /// Returns the next request: one that is sent again, an arrival that waits, or in a closed run a new one.
    pub(super) fn next(&mut self, now: u64, closed: bool) -> Option<Pending> {
        if let Some(again) = self.again.pop_front() {
            return Some(again);
        }
        if !closed && self.waiting.is_empty() || !self.may_send(now) {
            return None;
        }
        let due = if closed { Some(now) } else { self.waiting.pop_front() };
        due.map(Pending::new)
    }
}
