//! The engine of HTTP/1: an event loop with its connections.

mod connection;
mod pace;
mod shared;
mod timers;
mod transport;

use std::io;

use rustix::event::{Timespec, epoll};

use super::Engine;
use super::clock::Clock;
use super::job::Job;
use super::recorder::TICK;
use super::tally::Tally;
use crate::plan::Model;
use crate::progress::Slot;
use crate::segment::Segment;
use connection::Connection;
use shared::Shared;
pub(crate) use transport::MIN_RECEIVE_BUFFER;

/// A worker of HTTP/1: an event loop on a thread of its own.
pub(super) struct Http1<'a> {
    shared: Shared<'a>,
    connections: Vec<Connection>,
    next_scan: u64,
    slot: &'a Slot,
}

/// Interval between checks for timeouts, in nanoseconds.
const SCAN: u64 = TICK.as_nanos() as u64;
/// The worker spins instead of sleeping if an arrival is due within this time, in nanoseconds, since a sleep may take that
/// much longer than requested.
const SPIN: u64 = 60_000;
/// Connections that are opened per iteration, so that the server's backlog does not overflow.
const OPEN_AT_ONCE: usize = 256;
/// With a modem pace: connections that may wait for their first byte. The measurement is of concurrent users, not of a burst
/// of new ones.
const MAX_SILENT: u32 = 1024;
const EVENTS: usize = 1024;

impl<'a> Engine<'a> for Http1<'a> {
    fn new(job: &'a Job, part: Segment, slot: &'a Slot) -> io::Result<Self> {
        let mut shared = Shared::new(job, part)?;
        let count = part.share(u64::from(job.plan.connections)) as u32;
        let connections = (0..count)
            .map(|slot| Connection::new(&shared, slot, part.number(u64::from(slot))))
            .collect();
        shared.to_open = (0..count).rev().collect();
        Ok(Self { shared, connections, next_scan: SCAN, slot })
    }

    fn run(&mut self, clock: Clock) -> io::Result<()> {
        self.shared.recorder.start(clock);
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            self.shared.recorder.tick();
            if self.is_over() {
                return Ok(());
            }
            self.open_connections();
            self.run_timers();
            self.shared.recorder.arrive(self.shared.job);
            self.assign();
            self.shared.recorder.record_backlog();
            if self.shared.recorder.now >= self.next_scan {
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
            self.shared.recorder.tick();
            for event in events.drain(..) {
                self.handle(event);
            }
        }
    }

    fn finish(&mut self) -> (Tally, u64) {
        // At a modem's pace a response may take longer than the run.
        let judged = self.connections.iter().filter(|connection| connection.pace.is_none());
        let flight = judged.flat_map(|connection| connection.flight.iter());
        let (mut tally, end) = self.shared.recorder.finish(flight.map(|request| request.times));
        for pace in self.connections.iter_mut().filter_map(|connection| connection.pace.as_mut()) {
            let (conforms, late) = pace.judge(end);
            tally.conformance.users += 1;
            tally.conformance.conforming += u32::from(conforms);
            tally.conformance.late += u32::from(late);
        }
        (tally, end)
    }
}

impl Http1<'_> {
    fn is_over(&self) -> bool {
        let recorder = &self.shared.recorder;
        recorder.has_ended() || recorder.is_spent() || self.slot.is_stopped()
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
        self.assign();
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
        self.shared.recorder.needs_connection(self.shared.connecting)
            && self.shared.silent < MAX_SILENT
    }

    fn run_timers(&mut self) {
        while let Some((index, generation)) = self.shared.timers.pop(self.shared.recorder.now) {
            if let Some(connection) = self.connections.get_mut(index as usize)
                && connection.generation == generation
            {
                connection.timer(&mut self.shared);
            }
        }
    }

    /// Assigns due arrivals to connections that can take them.
    #[inline]
    fn assign(&mut self) {
        let opens = matches!(self.shared.job.plan.model, Model::OpenConnections(_));
        while self.shared.recorder.has_waiting() {
            let slot =
                if opens { self.shared.to_open.pop() } else { self.shared.offered.pop_front() };
            let Some(index) = slot else { return };
            let Some(connection) = self.connections.get_mut(index as usize) else { continue };
            connection.queued = false;
            if opens {
                let due = self.shared.recorder.next_connection();
                connection.open(&mut self.shared, due);
            } else if connection.has_room(&self.shared)
                && let Some(request) = self.shared.recorder.next_request(&mut None)
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
        let recorder = &self.shared.recorder;
        let (now, timeout) = (recorder.now, recorder.timeout);
        for connection in &mut self.connections {
            if connection.is_overdue(now, timeout) {
                connection.time_out(&mut self.shared);
            }
        }
        self.next_scan = self.shared.recorder.now + SCAN;
        self.shared.recorder.publish(self.slot);
    }

    /// Returns the time until the next timer, arrival or check.
    fn timeout(&self) -> Option<Timespec> {
        let shared = &self.shared;
        let (now, ends) = (shared.recorder.now, shared.recorder.ends);
        let mut next = self.next_scan.min(ends).min(shared.timers.next().unwrap_or(u64::MAX));
        let opens = !matches!(shared.job.plan.model, Model::OpenConnections(_));
        if opens && !shared.to_open.is_empty() && self.may_open() {
            next = now;
        }
        let rest = match shared.recorder.next_due() {
            Some(due) if due < next => due.saturating_sub(now).saturating_sub(SPIN),
            _ => next.saturating_sub(now),
        };
        Some(Timespec {
            tv_sec: (rest / 1_000_000_000) as i64,
            tv_nsec: (rest % 1_000_000_000) as i64,
        })
    }
}
