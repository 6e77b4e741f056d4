//! One loop of the generator: its connections, what is due, and what it has counted.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use dunlin_http::http1::client::HeadCache;
use rustix::event::{Timespec, epoll};

use super::clock::{Clock, nanos};
use super::connection::{Connection, InFlight, most_requests};
use super::job::Job;
use super::tally::Tally;
use super::timers::Timers;
use crate::arrivals::Schedule;
use crate::outcome::ErrorKind;
use crate::plan::{End, Model, Verify};
use crate::progress::Slot;
use crate::verify::Expected;

/// A loop.
pub(super) struct Worker<'a> {
    shared: Shared<'a>,
    connections: Vec<Connection>,
    /// What is due next, and when; open models only.
    schedule: Option<Schedule>,
    next_due: Option<u64>,
    /// Which arrival of the whole schedule that is.
    arrival: usize,
    /// Arrivals that wait for a connection.
    waiting: VecDeque<u64>,
    next_scan: u64,
    slot: &'a Slot,
}

/// What the connections of a loop have in common.
pub(super) struct Shared<'a> {
    pub(super) job: &'a Job,
    pub(super) epoll: OwnedFd,
    pub(super) now: u64,
    pub(super) tally: Tally,
    pub(super) timers: Timers,
    pub(super) buffer: Vec<u8>,
    pub(super) head_cache: HeadCache,
    /// Requests that may be in flight on a connection.
    pub(super) depth: usize,
    /// Requests before the client closes a connection.
    pub(super) most_requests: u32,
    pub(super) verifies: bool,
    /// Nanoseconds between an answer and the next request.
    pub(super) think: u64,
    /// Requests in flight on all connections.
    pub(super) in_flight: u64,
    /// With a pace: connections that have been begun and by which nothing has come.
    pub(super) silent: u32,
    /// With a replay: which requests are due.
    pub(super) replayed: VecDeque<u32>,
    clock: Clock,
    /// Requests that are still to be sent.
    left: u64,
    counts_from: u64,
    ends: u64,
    /// Connections that can take a request; open model over requests.
    offered: VecDeque<u32>,
    /// Places whose connection is to be made anew.
    to_open: Vec<u32>,
    /// What the first answer for each URL was.
    learned: Vec<Option<Expected>>,
}

/// One read takes up to this much.
const BUFFER: usize = 1 << 20;
/// Overdue answers are looked for this often, in nanoseconds.
const SCAN: u64 = 100_000_000;
/// What is due within this time is waited for without sleeping, in nanoseconds: a sleep may take
/// that much too long.
const SPIN: u64 = 60_000;
/// Connections that are begun at a time, so that the server's backlog does not overflow.
const OPEN_AT_ONCE: usize = 256;
/// With a pace, a crowd comes no faster than so many at a time have their first bytes: it is how many
/// are served at once that is asked for, not how many may come in one moment.
const MOST_SILENT: u32 = 1024;
const EVENTS: usize = 1024;

impl<'a> Worker<'a> {
    pub(super) fn new(job: &'a Job, clock: Clock, index: u32, slot: &'a Slot) -> io::Result<Self> {
        let plan = &job.plan;
        let share = |whole: u64| {
            let threads = u64::from(plan.threads);
            whole / threads + u64::from(u64::from(index) < whole % threads)
        };
        let counts_from = nanos(plan.warmup_seconds);
        let (left, ends) = match plan.end {
            End::Seconds(seconds) => (u64::MAX, counts_from + nanos(seconds)),
            End::Requests(count) => (share(count), u64::MAX),
        };
        let seconds = match plan.end {
            End::Seconds(seconds) => plan.warmup_seconds + seconds,
            End::Requests(_) => f64::INFINITY,
        };
        let mut schedule = match (&job.replay, &plan.model) {
            (Some(replay), _) => {
                Some(Schedule::of_list(replay.iter().map(|(due, _)| *due).collect()))
            }
            (None, Model::Closed { .. }) => None,
            (None, Model::OpenRequests(arrivals) | Model::OpenConnections(arrivals)) => {
                Some(Schedule::new(arrivals, plan.seed, seconds))
            }
        };
        schedule = schedule.map(|schedule| schedule.segment(index, plan.threads));
        let think = match plan.model {
            Model::Closed { think_seconds } => nanos(think_seconds),
            _ => 0,
        };
        let mut shared = Shared {
            job,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            now: clock.now(),
            tally: Tally::new(plan.connections as usize),
            timers: Timers::default(),
            buffer: vec![0; BUFFER],
            head_cache: HeadCache::default(),
            depth: plan.pipeline as usize,
            most_requests: most_requests(plan.reuse),
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
            learned: if plan.verify == Verify::FirstAnswer {
                vec![None; plan.urls.len()]
            } else {
                Vec::new()
            },
        };
        let count = share(u64::from(plan.connections)) as u32;
        let connections: Vec<_> = (0..count)
            .map(|place| {
                let number = u64::from(place) * u64::from(plan.threads) + u64::from(index);
                Connection::new(&shared, place, number)
            })
            .collect();
        shared.to_open = (0..count).rev().collect();
        let next_due = schedule.as_mut().and_then(Iterator::next);
        Ok(Self {
            shared,
            connections,
            schedule,
            next_due,
            arrival: index as usize,
            waiting: VecDeque::new(),
            next_scan: SCAN,
            slot,
        })
    }

    /// Runs until the plan's end, or until told to stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.shared.tick();
            if self.is_over() {
                return Ok(());
            }
            self.open_places();
            self.run_timers();
            self.run_arrivals();
            if self.shared.now >= self.next_scan {
                self.scan();
            }
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(
                &self.shared.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.shared.tick();
            for event in events.drain(..) {
                let event: epoll::Event = event;
                self.handle(event);
            }
        }
    }

    /// The figures, and when counting ended.
    pub(super) fn finish(mut self) -> (Tally, u64) {
        let Shared { now, ends, in_flight, counts_from, .. } = self.shared;
        let end = now.min(ends);
        let tally = &mut self.shared.tally;
        if in_flight > 0 {
            tally.series.end(end.saturating_sub(counts_from));
        }
        // At a modem's pace a response may take longer than the run.
        let judged = self.connections.iter().filter(|connection| connection.pace.is_none());
        let flights = judged.flat_map(|connection| connection.flight.iter());
        let flights = flights.map(|request| (request.due, request.sent));
        tally.finish(end, flights, self.waiting.iter().copied());
        for connection in &mut self.connections {
            tally.each.push(connection.answers);
            if let Some(pace) = &mut connection.pace {
                let (conforms, late) = pace.judge(end);
                tally.conformance.users += 1;
                tally.conformance.conforming += u32::from(conforms);
                tally.conformance.late += u32::from(late);
            }
        }
        (self.shared.tally, end)
    }

    fn is_over(&self) -> bool {
        let shared = &self.shared;
        let spent = shared.left == 0 || self.schedule.is_some() && self.next_due.is_none();
        shared.now >= shared.ends
            || spent && shared.in_flight == 0 && self.waiting.is_empty()
            || self.slot.is_stopped()
    }

    fn handle(&mut self, event: epoll::Event) {
        let data = event.data.u64();
        let (index, generation) = (data as u32 as usize, (data >> 32) as u32);
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.generation != generation {
            return;
        }
        let flags = event.flags;
        connection.event(&mut self.shared, flags);
        if !self.waiting.is_empty() {
            self.assign();
        }
    }

    /// Makes the connections that are wanted.
    fn open_places(&mut self) {
        if let Model::OpenConnections(_) = self.shared.job.plan.model {
            // Places stay closed until a connection is due.
            return self.assign();
        }
        for _ in 0..OPEN_AT_ONCE {
            if self.shared.left == 0 || self.shared.silent >= MOST_SILENT {
                return;
            }
            let Some(index) = self.shared.to_open.pop() else { return };
            if let Some(connection) = self.connections.get_mut(index as usize) {
                connection.open(&mut self.shared, None);
            }
        }
    }

    fn run_timers(&mut self) {
        while let Some((index, generation)) = self.shared.timers.pop(self.shared.now) {
            if let Some(connection) = self.connections.get_mut(index as usize)
                && connection.generation == generation
            {
                connection.timer(&mut self.shared);
            }
        }
    }

    fn run_arrivals(&mut self) {
        while let Some(due) = self.next_due.filter(|due| *due <= self.shared.now) {
            self.next_due = self.schedule.as_mut().and_then(Iterator::next);
            if self.shared.left == 0 {
                self.next_due = None;
                break;
            }
            self.shared.record(|tally, now| tally.lag.saturating_record(now - due));
            if let Some(replay) = &self.shared.job.replay
                && let Some((_, url)) = replay.get(self.arrival)
            {
                self.shared.replayed.push_back(*url);
            }
            self.arrival += self.shared.job.plan.threads as usize;
            self.waiting.push_back(due);
        }
        if !self.waiting.is_empty() {
            self.assign();
        }
    }

    /// Gives what is due to connections that can take it.
    fn assign(&mut self) {
        let opens = matches!(self.shared.job.plan.model, Model::OpenConnections(_));
        while let Some(&due) = self.waiting.front() {
            let place =
                if opens { self.shared.to_open.pop() } else { self.shared.offered.pop_front() };
            let Some(index) = place else { return };
            let Some(connection) = self.connections.get_mut(index as usize) else { continue };
            connection.queued = false;
            if opens {
                self.waiting.pop_front();
                connection.open(&mut self.shared, Some(due));
            } else if connection.has_room(&self.shared) && self.shared.may_send() {
                self.waiting.pop_front();
                connection.add_request(&mut self.shared, due);
                connection.flush(&mut self.shared);
                if connection.has_room(&self.shared) {
                    self.shared.offer(index, &mut connection.queued);
                }
            }
        }
    }

    fn scan(&mut self) {
        let timeout = nanos(self.shared.job.plan.timeout_seconds);
        for connection in &mut self.connections {
            if connection.is_overdue(self.shared.now, timeout) {
                connection.time_out(&mut self.shared);
            }
        }
        self.next_scan = self.shared.now + SCAN;
        self.slot.publish(&self.shared.tally, self.shared.in_flight);
    }

    /// How long the loop may sleep.
    fn timeout(&self) -> Option<Timespec> {
        let shared = &self.shared;
        let mut next =
            self.next_scan.min(shared.ends).min(shared.timers.next().unwrap_or(u64::MAX));
        let opens = !matches!(shared.job.plan.model, Model::OpenConnections(_));
        if opens && !shared.to_open.is_empty() && shared.silent < MOST_SILENT {
            next = shared.now;
        }
        let rest = match self.next_due {
            Some(due) if due < next => {
                let rest = due.saturating_sub(shared.now);
                rest.saturating_sub(SPIN)
            }
            _ => next.saturating_sub(shared.now),
        };
        Some(Timespec {
            tv_sec: (rest / 1_000_000_000) as i64,
            tv_nsec: (rest % 1_000_000_000) as i64,
        })
    }
}

impl Shared<'_> {
    /// Reads the clock.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.now = self.clock.now();
    }

    #[inline]
    pub(super) fn is_counting(&self) -> bool {
        self.now >= self.counts_from && self.now < self.ends
    }

    /// When counting begins, in nanoseconds since the start.
    pub(super) fn counts_from(&self) -> u64 {
        self.counts_from
    }

    /// Counts something, unless it is too early or too late for that.
    #[inline]
    pub(super) fn record(&mut self, count: impl FnOnce(&mut Tally, u64)) {
        if self.is_counting() {
            count(&mut self.tally, self.now);
        }
    }

    #[inline]
    pub(super) fn record_in_series(&mut self, latency: u64) {
        if self.is_counting() {
            self.tally.series.answer(self.now - self.counts_from, latency);
        }
    }

    #[inline]
    pub(super) fn received(&mut self, count: u64) {
        if self.is_counting() {
            self.tally.bytes += count;
            self.tally.series.bytes(self.now - self.counts_from, count);
        }
    }

    /// Counts failures; those of the warm-up count as well. `reason` describes the first of a kind.
    pub(super) fn fault(&mut self, kind: ErrorKind, count: u64, reason: impl FnOnce() -> String) {
        self.tally.fault(kind, count, reason);
        self.tally.series.error(self.now.saturating_sub(self.counts_from));
    }

    /// Takes one request from what is left to be sent; false when nothing is.
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

    /// A connection failed before it had a request: that counts as one.
    pub(super) fn spend(&mut self) {
        self.may_send();
    }

    /// Requests are about to be written to a connection that then has so many in flight.
    #[inline]
    pub(super) fn sends(&mut self, in_flight: u32) {
        self.tally.depth.0 += 1;
        self.tally.depth.1 += u64::from(in_flight);
        self.tally.depth_max = self.tally.depth_max.max(in_flight);
    }

    /// Requests that the server has closed upon, after saying so, are sent again.
    pub(super) fn again(&mut self, flight: &mut VecDeque<InFlight>) {
        let count = flight.len() as u64;
        self.in_flight -= count;
        if self.left != u64::MAX {
            self.left += count;
        }
        flight.clear();
    }

    /// The connection can take a request.
    #[inline]
    pub(super) fn offer(&mut self, index: u32, queued: &mut bool) {
        if !*queued {
            *queued = true;
            self.offered.push_back(index);
        }
    }

    /// The connection is to be made anew.
    pub(super) fn reopen(&mut self, index: u32) {
        self.to_open.push(index);
    }

    /// What an answer has to be; `None` when nothing is known of it yet, and then this one is it.
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
