//! State that a worker shares with its connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use dunlin_http::http1::client::HeadCache;
use rustix::event::epoll;

use super::clock::{Clock, nanos};
use super::job::Job;
use super::tally::Tally;
use super::timers::Timers;
use crate::outcome::ErrorKind;
use crate::plan::{End, Model, Reuse, Verify};
use crate::verify::Expected;

/// State that a worker shares with its connections.
pub(super) struct Shared<'a> {
    pub(super) job: &'a Job,
    pub(super) epoll: OwnedFd,
    pub(super) now: u64,
    pub(super) tally: Tally,
    pub(super) timers: Timers,
    pub(super) buffer: Vec<u8>,
    pub(super) head_cache: HeadCache,
    /// Requests that can be in flight on a connection.
    pub(super) depth: usize,
    /// Requests on a connection before the client closes it.
    pub(super) max_requests: u32,
    pub(super) verifies: bool,
    /// Think time: nanoseconds between a response and the next request.
    pub(super) think: u64,
    /// Requests in flight on all connections.
    pub(super) in_flight: u64,
    /// Connections on which no byte has arrived yet. Counted only with a modem pace.
    pub(super) silent: u32,
    /// Requests of a replay that are due, by index of the URL.
    pub(super) replayed: VecDeque<u32>,
    clock: Clock,
    /// Requests still to be sent.
    pub(super) left: u64,
    /// Start of the measurement, after the warm-up, in nanoseconds since the start.
    pub(super) counts_from: u64,
    /// End of the run, in nanoseconds since the start.
    pub(super) ends: u64,
    /// Slots whose connection can take a request; open model over requests.
    pub(super) offered: VecDeque<u32>,
    /// Slots whose connection is to be opened.
    pub(super) to_open: Vec<u32>,
    /// The first response of each URL, with which later ones are compared.
    learned: Vec<Option<Expected>>,
}

/// A request whose response is incomplete.
pub(super) struct InFlight {
    /// Time when it was due.
    pub(super) due: u64,
    /// Time when it was sent.
    pub(super) sent: u64,
    /// Index of the URL.
    pub(super) url: u32,
    /// A HEAD request.
    pub(super) head_only: bool,
}

/// Size of the read buffer in bytes.
const BUFFER: usize = 1 << 20;

impl<'a> Shared<'a> {
    /// The initial state. `requests` is the worker's share if the plan ends after a number of requests.
    pub(super) fn new(job: &'a Job, clock: Clock, requests: u64) -> io::Result<Self> {
        let plan = &job.plan;
        let counts_from = nanos(plan.warmup_seconds);
        let (left, ends) = match plan.end {
            End::Seconds(seconds) => (u64::MAX, counts_from + nanos(seconds)),
            End::Requests(_) => (requests, u64::MAX),
        };
        let think = match plan.model {
            Model::Closed { think_seconds } => nanos(think_seconds),
            _ => 0,
        };
        let learned = match plan.verify {
            Verify::FirstResponse => vec![None; plan.urls.len()],
            _ => Vec::new(),
        };
        Ok(Self {
            job,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            now: clock.now(),
            tally: Tally::new(plan.connections as usize),
            timers: Timers::default(),
            buffer: vec![0; BUFFER],
            head_cache: HeadCache::default(),
            depth: plan.pipeline as usize,
            max_requests: max_requests(plan.reuse),
            verifies: plan.verify != Verify::Status,
            think,
            in_flight: 0,
            silent: 0,
            replayed: VecDeque::new(),
            clock,
            left,
            counts_from,
            ends,
            offered: VecDeque::new(),
            to_open: Vec::new(),
            learned,
        })
    }

    /// Reads the clock.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.now = self.clock.now();
    }

    /// Whether the time is within the measurement.
    #[inline]
    pub(super) fn is_counting(&self) -> bool {
        self.now >= self.counts_from && self.now < self.ends
    }

    /// Calls `count` within the measurement.
    #[inline]
    pub(super) fn record(&mut self, count: impl FnOnce(&mut Tally, u64)) {
        if self.is_counting() {
            count(&mut self.tally, self.now);
        }
    }

    /// Counts a valid response in the current interval.
    #[inline]
    pub(super) fn record_in_series(&mut self, latency: u64) {
        if self.is_counting() {
            self.tally.series.response(self.now - self.counts_from, latency);
        }
    }

    /// Counts received bytes.
    #[inline]
    pub(super) fn received(&mut self, count: u64) {
        if self.is_counting() {
            self.tally.bytes += count;
            self.tally.series.bytes(self.now - self.counts_from, count);
        }
    }

    /// Counts failures, also during the warm-up. `reason` describes the first one of a kind.
    pub(super) fn fault(&mut self, kind: ErrorKind, count: u64, reason: impl FnOnce() -> String) {
        self.tally.fault(kind, count, reason);
        self.tally.series.error(self.now.saturating_sub(self.counts_from));
    }

    /// Takes a request from those that are left. Returns false if there is none.
    #[inline]
    pub(super) fn may_send(&mut self) -> bool {
        if self.left == 0 || self.now >= self.ends {
            return false;
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
        true
    }

    /// Counts a connection that failed before its first request as a request.
    pub(super) fn count_failed_connection(&mut self) {
        self.may_send();
    }

    /// Records that requests are written to a connection with `in_flight` requests.
    #[inline]
    pub(super) fn record_depth(&mut self, in_flight: u32) {
        self.tally.depth.0 += 1;
        self.tally.depth.1 += u64::from(in_flight);
        self.tally.depth_max = self.tally.depth_max.max(in_flight);
    }

    /// Returns requests that the server did not process, since it closed the connection as announced.
    pub(super) fn send_again(&mut self, flight: &mut VecDeque<InFlight>) {
        let count = flight.len() as u64;
        self.in_flight -= count;
        if self.left != u64::MAX {
            self.left += count;
        }
        flight.clear();
    }

    /// Adds a slot to those whose connection can take a request.
    #[inline]
    pub(super) fn offer(&mut self, index: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.offered.push_back(index);
        }
    }

    /// Adds a slot to those whose connection is to be opened.
    pub(super) fn reopen(&mut self, index: u32) {
        self.to_open.push(index);
    }

    /// The expected response; `None` if it is the first one of the URL, which then becomes the expected one.
    #[inline]
    pub(super) fn expected(&mut self, url: u32, found: Expected) -> Option<Expected> {
        match self.learned.get_mut(url as usize) {
            None => self.job.reference.expected(url as usize),
            Some(Some(known)) => Some(*known),
            Some(empty) => {
                *empty = Some(found);
                None
            }
        }
    }
}

/// Requests on each connection before the client closes it.
fn max_requests(reuse: Reuse) -> u32 {
    match reuse {
        Reuse::Never => 1,
        Reuse::Requests(count) => count,
        Reuse::Kept => u32::MAX,
    }
}
