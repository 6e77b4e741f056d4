//! State that a worker shares with its connections.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use dunlin_http::http1::client::HeadCache;
use rustix::event::epoll;

use super::clock::{Clock, nanos};
use super::job::Job;
use super::recorder::{Recorder, Times};
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
    pub(super) recorder: Recorder,
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
    /// Connections that are being established.
    pub(super) connecting: u64,
    /// Time of the last sign of a server: a connection or a response.
    pub(super) alive: u64,
    /// Connections on which no byte has arrived yet. Counted only with a modem pace.
    pub(super) silent: u32,
    /// Requests of a replay that are due, by index of the URL.
    pub(super) replayed: VecDeque<u32>,
    /// Requests that are to be sent again.
    pub(super) again: VecDeque<Pending>,
    clock: Clock,
    /// Requests still to be sent.
    pub(super) left: u64,
    /// Slots whose connection can take a request; open model over requests.
    pub(super) offered: VecDeque<u32>,
    /// Slots whose connection is to be opened.
    pub(super) to_open: Vec<u32>,
    /// The first response of each URL, with which later ones are compared.
    learned: Vec<Option<Expected>>,
}

/// A request whose response is incomplete.
pub(super) struct InFlight {
    pub(super) times: Times,
    /// Index of the URL.
    pub(super) url: u32,
    /// A HEAD request.
    pub(super) head_only: bool,
    /// How often it may be lost and sent again (RFC 9110 §9.2.1).
    pub(super) repeats: u8,
}

/// A request that is to be sent.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    /// Time when it was due.
    pub(super) due: u64,
    /// Index of the URL, if it has been chosen: the request is sent again.
    pub(super) url: Option<u32>,
    /// How often it may still be lost and sent again.
    pub(super) repeats: u8,
}

/// How often a request may be lost with a kept connection. A server that reloads closes all of them at about the same time.
const MAX_REPEATS: u8 = 10;

impl Pending {
    /// Creates a request that was due at `due`.
    pub(super) fn new(due: u64) -> Self {
        Self { due, url: None, repeats: MAX_REPEATS }
    }
}

/// Size of the read buffer in bytes.
const BUFFER: usize = 1 << 20;

impl<'a> Shared<'a> {
    /// Returns the initial state. `requests` is the worker's share if the plan ends after a number of requests.
    pub(super) fn new(job: &'a Job, requests: u64) -> io::Result<Self> {
        let plan = &job.plan;
        let left = match plan.end {
            End::Seconds(_) => u64::MAX,
            End::Requests(_) => requests,
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
            now: 0,
            recorder: Recorder::new(plan),
            timers: Timers::default(),
            buffer: vec![0; BUFFER],
            head_cache: HeadCache::default(),
            depth: plan.pipeline as usize,
            max_requests: max_requests(plan.reuse),
            verifies: plan.verify != Verify::Status,
            think,
            connecting: 0,
            alive: 0,
            silent: 0,
            replayed: VecDeque::new(),
            again: VecDeque::new(),
            clock: Clock::new(Instant::now()),
            left,
            offered: VecDeque::new(),
            to_open: Vec::new(),
            learned,
        })
    }

    /// Sets the clock of the run.
    pub(super) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
        self.tick();
    }

    /// Reads the clock.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.now = self.clock.now();
    }

    /// Calls `count` within the measurement.
    #[inline]
    pub(super) fn record(&mut self, count: impl FnOnce(&mut Tally, u64)) {
        let now = self.now;
        self.recorder.record(now, |tally| count(tally, now));
    }

    /// Takes a request from those that are left. Returns false if there is none.
    #[inline]
    pub(super) fn may_send(&mut self) -> bool {
        if self.left == 0 || self.now >= self.recorder.ends {
            return false;
        }
        // Those of the warm-up are not of the number that was requested.
        if self.left != u64::MAX && self.recorder.is_warm(self.now) {
            self.left -= 1;
        }
        true
    }

    /// Returns the next request of the closed model: one that is sent again, or a new one that is due at `due`, or else now.
    #[inline]
    pub(super) fn next_request(&mut self, due: &mut Option<u64>) -> Option<Pending> {
        if self.now < self.recorder.ends
            && let Some(again) = self.again.pop_front()
        {
            return Some(again);
        }
        self.may_send().then(|| Pending::new(due.take().unwrap_or(self.now)))
    }

    /// Returns `true` if requests are left for a connection that is not established yet.
    pub(super) fn needs_connection(&self) -> bool {
        self.left.saturating_add(self.again.len() as u64) > self.connecting
    }

    /// Records an attempt to connect that failed. It takes the place of a request, unless requests wait for any connection.
    pub(super) fn fail_connection(&mut self, kind: ErrorKind, reason: impl FnOnce() -> String) {
        self.recorder.fail_connection(self.now, kind, reason);
        if !matches!(self.job.plan.model, Model::OpenRequests(_)) && !self.may_send() {
            self.again.pop_front();
        }
    }

    /// Queues requests to be sent again before others: that the server did not process, or that were lost.
    pub(super) fn send_again(&mut self, flight: &mut VecDeque<InFlight>, is_loss: bool) {
        for request in flight.drain(..).rev() {
            let (due, url) = (request.times.due, Some(request.url));
            let repeats = request.repeats.saturating_sub(u8::from(is_loss));
            self.again.push_front(Pending { due, url, repeats });
        }
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

    /// Returns the expected response; `None` if it is the first one of the URL, which then becomes the expected one.
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
