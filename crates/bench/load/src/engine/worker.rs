//! A worker: an event loop with its connections and its share of the plan.

use std::collections::VecDeque;
use std::io;

use rustix::event::{Timespec, epoll};

use super::clock::{Clock, nanos};
use super::connection::Connection;
use super::job::Job;
use super::shared::{Pending, Shared};
use super::tally::Tally;
use crate::arrivals::Schedule;
use crate::plan::{End, Model};
use crate::progress::Slot;

/// An event loop on a thread of its own.
pub(super) struct Worker<'a> {
    shared: Shared<'a>,
    connections: Vec<Connection>,
    /// The arrivals that are still to come; open models only.
    schedule: Option<Schedule>,
    next_due: Option<u64>,
    /// Index of the next arrival in the schedule of all workers.
    arrival: usize,
    /// Distance from one arrival of this worker to the next in that schedule.
    arrival_step: usize,
    /// All arrivals of a number of requests have been due.
    all_due: bool,
    /// Arrivals that wait for a connection.
    waiting: VecDeque<u64>,
    next_scan: u64,
    /// The run ends after a number of requests.
    ends_by_count: bool,
    slot: &'a Slot,
}

/// Interval between checks for timeouts, in nanoseconds.
const SCAN: u64 = 100_000_000;
/// The worker spins instead of sleeping if an arrival is due within this time, in nanoseconds, since a sleep may take that
/// much longer than requested.
const SPIN: u64 = 60_000;
/// Connections that are opened per iteration, so that the server's backlog does not overflow.
const OPEN_AT_ONCE: usize = 256;
/// With a modem pace: connections that may wait for their first byte. The measurement is of concurrent users, not of a burst
/// of new ones.
const MAX_SILENT: u32 = 1024;
const EVENTS: usize = 1024;

impl<'a> Worker<'a> {
    /// Returns the worker with that index, which runs from the start of a clock that [`Worker::run`] takes.
    pub(super) fn new(job: &'a Job, index: u32, slot: &'a Slot) -> io::Result<Self> {
        let plan = &job.plan;
        let part = plan.part_of_thread(index);
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
        schedule = schedule.map(|schedule| schedule.segment(part));
        let requests = match plan.end {
            End::Seconds(_) => 0,
            End::Requests(count) => part.share(count),
        };
        let mut shared = Shared::new(job, requests)?;
        let count = part.share(u64::from(plan.connections)) as u32;
        let connections: Vec<_> = (0..count)
            .map(|slot| Connection::new(&shared, slot, part.number(u64::from(slot))))
            .collect();
        shared.to_open = (0..count).rev().collect();
        // A worker without a request has no arrival either.
        let has_any = requests > 0 || matches!(plan.end, End::Seconds(_));
        let next_due = schedule.as_mut().filter(|_| has_any).and_then(Iterator::next);
        Ok(Self {
            shared,
            connections,
            schedule,
            next_due,
            arrival: part.index as usize,
            arrival_step: part.of as usize,
            all_due: false,
            waiting: VecDeque::new(),
            next_scan: SCAN,
            ends_by_count: match plan.model {
                Model::Closed { .. } => true,
                _ => matches!(plan.end, End::Requests(_)),
            },
            slot,
        })
    }

    pub(super) fn slot(&self) -> &'a Slot {
        self.slot
    }

    /// Runs until the end of the plan, or until it is stopped.
    pub(super) fn run(&mut self, clock: Clock) -> io::Result<()> {
        self.shared.set_clock(clock);
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.shared.tick();
            if self.is_over() {
                return Ok(());
            }
            self.open_connections();
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

    /// Returns the tally, and the end of the measurement in nanoseconds since the start.
    pub(super) fn finish(mut self) -> (Tally, u64) {
        let now = self.shared.now;
        let recorder = &mut self.shared.recorder;
        let end = now.min(recorder.ends);
        // Arrivals that were due before the end and have not been looked at.
        let rest = self.next_due.into_iter().chain(self.schedule.into_iter().flatten());
        let most = match self.all_due {
            true => 0,
            false => self.shared.left.saturating_sub(self.waiting.len() as u64),
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        for due in rest.take_while(|due| *due < end).take(most) {
            recorder.arrive(end, due);
            self.waiting.push_back(due);
        }
        let at = recorder.at(end);
        let late = recorder.take_late();
        if recorder.in_flight > 0 || !late.is_empty() {
            recorder.tally.series.end(at);
        }
        let tally = &mut recorder.tally;
        // At a modem's pace a response may take longer than the run.
        let judged = self.connections.iter().filter(|connection| connection.pace.is_none());
        let flights = judged.flat_map(|connection| connection.flight.iter());
        if self.shared.left == 0 {
            self.waiting.clear();
        }
        let again = self.shared.again.iter().map(|request| request.due);
        let waiting = self.waiting.iter().copied().chain(again);
        tally.finish(end, flights.map(|request| request.times).chain(late), waiting);
        for connection in &mut self.connections {
            tally.each.push(connection.responses);
            if let Some(pace) = &mut connection.pace {
                let (conforms, late) = pace.judge(end);
                tally.conformance.users += 1;
                tally.conformance.conforming += u32::from(conforms);
                tally.conformance.late += u32::from(late);
            }
        }
        (self.shared.recorder.tally, end)
    }

    fn is_over(&self) -> bool {
        let shared = &self.shared;
        shared.now >= shared.recorder.ends || self.is_spent() || self.slot.is_stopped()
    }

    /// Returns `true` if a run of a number of requests has sent them all, and has a result of each. One of arrivals lasts until
    /// another one would be due, and an open run of some duration until its end.
    fn is_spent(&self) -> bool {
        let shared = &self.shared;
        let sent = match self.schedule {
            Some(_) => self.next_due.is_none(),
            None => shared.left == 0,
        };
        if !sent || shared.recorder.in_flight > 0 || !self.ends_by_count {
            return false;
        }
        let timeout = nanos(shared.job.plan.timeout_seconds);
        let nothing_waits =
            (self.waiting.is_empty() || shared.left == 0) && shared.again.is_empty();
        nothing_waits || shared.now.saturating_sub(shared.alive) > timeout
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
        if !self.waiting.is_empty() || !self.shared.again.is_empty() {
            self.assign();
        }
    }

    /// Opens the connections of free slots.
    fn open_connections(&mut self) {
        if let Model::OpenConnections(_) = self.shared.job.plan.model {
            // Slots stay closed until a connection is due.
            return self.assign();
        }
        for _ in 0..OPEN_AT_ONCE {
            if !self.may_open() {
                return;
            }
            let Some(index) = self.shared.to_open.pop() else { return };
            if let Some(connection) = self.connections.get_mut(index as usize) {
                connection.open(&mut self.shared, None);
            }
        }
    }

    fn may_open(&self) -> bool {
        self.shared.needs_connection() && self.shared.silent < MAX_SILENT
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
            if self.is_last_due(due) {
                self.next_due = None;
                break;
            }
            let (next, following) =
                self.schedule.as_mut().map_or((None, None), Schedule::next_and_following);
            self.shared.recorder.arrive(self.shared.now, due);
            if let Some(replay) = &self.shared.job.replay
                && let Some((_, url)) = replay.get(self.arrival)
            {
                self.shared.replayed.push_back(*url);
            }
            self.arrival += self.arrival_step;
            self.waiting.push_back(due);
            self.next_due = match self.is_last_due(due) {
                // The rate of a replay is that of its log.
                true => following.filter(|_| self.shared.job.replay.is_none()),
                false => next,
            };
        }
        if !self.waiting.is_empty() || !self.shared.again.is_empty() {
            self.assign();
        }
        if self.schedule.is_some() && self.next_due.is_none() && !self.all_due {
            self.all_due = true;
            self.shared.recorder.all_due(self.shared.now, self.waiting.iter().copied());
        }
    }

    /// Returns `true` if the arrivals until `due` are all of a number of requests.
    fn is_last_due(&self, due: u64) -> bool {
        self.shared.recorder.is_warm(due) && self.shared.left <= self.waiting.len() as u64
    }

    /// Assigns due arrivals to connections that can take them.
    fn assign(&mut self) {
        let opens = matches!(self.shared.job.plan.model, Model::OpenConnections(_));
        while !self.waiting.is_empty() || !opens && !self.shared.again.is_empty() {
            let slot =
                if opens { self.shared.to_open.pop() } else { self.shared.offered.pop_front() };
            let Some(index) = slot else { return };
            let Some(connection) = self.connections.get_mut(index as usize) else { continue };
            connection.queued = false;
            if opens {
                let due = self.waiting.pop_front();
                connection.open(&mut self.shared, due);
            } else if connection.has_room(&self.shared)
                && let Some(request) = next_arrival(&mut self.shared, &mut self.waiting)
            {
                connection.add_request(&mut self.shared, request);
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
        let recorder = &self.shared.recorder;
        let at = recorder.at(self.shared.now);
        self.slot.publish(recorder.tally.snapshot(at, recorder.in_flight));
    }

    /// Returns the time until the next timer, arrival or check.
    fn timeout(&self) -> Option<Timespec> {
        let shared = &self.shared;
        let mut next =
            self.next_scan.min(shared.recorder.ends).min(shared.timers.next().unwrap_or(u64::MAX));
        let opens = !matches!(shared.job.plan.model, Model::OpenConnections(_));
        if opens && !shared.to_open.is_empty() && self.may_open() {
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

/// Returns the next request of the open model: one that is sent again, or the arrival that has waited longest.
fn next_arrival(shared: &mut Shared<'_>, waiting: &mut VecDeque<u64>) -> Option<Pending> {
    if let Some(again) = shared.again.pop_front() {
        return Some(again);
    }
    let due = waiting.front().copied().filter(|_| shared.may_send())?;
    waiting.pop_front();
    Some(Pending::new(due))
}
