//! The recorder of a worker, for every protocol: what is due, what is in flight, and what becomes of requests and connections.
//!
//! An engine carries the requests that it takes from its recorder, and reports what becomes of them. Only what happens within the
//! measurement is counted. What happens before it, during the warm-up, is counted apart.

mod demand;
#[cfg(test)]
mod tests;

use std::cell::{Ref, RefCell, RefMut};
use std::io;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::{Duration, Instant};

use dunlin_client::describe_tls_error;

use demand::Demand;
pub(super) use demand::Pending;

use super::clock::{Clock, nanos};
use super::dictionary::Decoder;
use super::job::Job;
use super::request::Prepared;
use super::response::{PartialResponse, describe_error};
use super::tally::Tally;
use crate::outcome::{ErrorKind, Quic};
use crate::plan::{End, Model, Verify};
use crate::progress::Slot;
use crate::segment::Segment;
use crate::verify::Expected;

/// Delay before a connection that failed is opened again.
pub(super) const RETRY: Duration = Duration::from_millis(10);
/// Interval in which progress is published.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Counts the events of a worker. Times are in nanoseconds since the start of the run.
pub(super) struct Recorder {
    clock: Clock,
    /// Time of the last look at the clock.
    pub(super) now: u64,
    pub(super) tally: Tally,
    /// Start of the measurement, after the warm-up.
    counts_from: u64,
    /// End of the run.
    pub(super) ends: u64,
    /// A quarter of the measurement of an open run of some duration.
    quarter: Option<NonZeroU64>,
    demand: Demand,
    /// Requests in flight on all connections.
    in_flight: u64,
    /// Requests in flight at the end of the run, whose result has arrived since then.
    late: Vec<Times>,
    /// Time of the last sign of a server: a connection or a response.
    alive: u64,
    /// Time that connecting or a response may take.
    pub(super) timeout: u64,
    /// Think time between a response and the next request.
    pub(super) think: u64,
    /// Bodies are compared with expected ones.
    pub(super) verifies: bool,
    /// Decodes bodies before they are compared, if the run has a dictionary.
    decoder: Option<Box<Decoder>>,
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
    /// The number of times that it may be lost and sent again (RFC 9110 §9.2.1).
    pub(super) repeats: u8,
}

/// The times when a request was due and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Times {
    pub(super) due: u64,
    pub(super) sent: u64,
}

/// The record of a connection.
#[derive(Clone, Copy)]
pub(super) struct ConnectionRecord {
    /// Index of its slot among those of the worker.
    slot: u32,
    /// Time when connecting began.
    opened: u64,
    /// Time when the current phase began: connecting, or the handshake.
    pub(super) began: u64,
    /// The connection has been counted among those of the measurement.
    counted: bool,
}

impl Recorder {
    /// Creates the recorder of a worker that sends a part of the run.
    pub(super) fn new(job: &Job, part: Segment) -> Self {
        let plan = &job.plan;
        let counts_from = nanos(plan.warmup_seconds);
        let seconds = match plan.end {
            End::Seconds(seconds) => Some(seconds),
            End::Requests(_) => plan.limit_seconds,
        };
        let (think, is_closed) = match plan.model {
            Model::Closed { think_seconds } => (nanos(think_seconds), true),
            _ => (0, false),
        };
        let learns = plan.verify == Verify::FirstResponse;
        Self {
            clock: Clock::new(Instant::now()),
            now: 0,
            tally: Tally::new(part.share(u64::from(plan.connections)) as usize),
            counts_from,
            ends: seconds.map_or(u64::MAX, |seconds| counts_from.saturating_add(nanos(seconds))),
            quarter: seconds
                .filter(|_| !is_closed)
                .and_then(|seconds| NonZeroU64::new(nanos(seconds) / 4)),
            demand: Demand::new(job, part),
            in_flight: 0,
            late: Vec::new(),
            alive: 0,
            timeout: nanos(plan.timeout_seconds),
            think,
            verifies: plan.verify != Verify::Status,
            decoder: (plan.verify != Verify::Status && !job.dictionary.is_empty())
                .then(|| Box::new(Decoder::new(job.dictionary.clone()))),
            learned: vec![None; if learns { plan.urls.len() } else { 0 }],
        }
    }

    /// Sets the clock of the run.
    pub(super) fn start(&mut self, clock: Clock) {
        self.clock = clock;
        self.tick();
    }

    /// Reads the clock.
    #[inline]
    pub(super) fn tick(&mut self) {
        self.now = self.clock.now();
    }

    /// Returns `true` if the time is within the measurement.
    #[inline]
    fn is_counting(&self, time: u64) -> bool {
        time >= self.counts_from && time < self.ends
    }

    /// Returns `true` if requests that are sent at that time are those of the measurement.
    #[inline]
    fn is_warm(&self, time: u64) -> bool {
        time >= self.counts_from
    }

    /// Returns `true` if the run is over.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.now >= self.ends
    }

    /// Returns `true` if the end of a request counts that was sent at `sent`.
    #[inline]
    fn counts(&self, sent: u64) -> bool {
        self.is_counting(self.now) && (!self.demand.by_count() || sent >= self.counts_from)
    }

    /// Returns the time since the start of the measurement; 0 before.
    #[inline]
    fn at(&self) -> u64 {
        self.now.saturating_sub(self.counts_from)
    }

    /// Calls `count` within the measurement.
    #[inline]
    pub(super) fn record(&mut self, count: impl FnOnce(&mut Tally)) {
        if self.is_counting(self.now) {
            count(&mut self.tally);
        }
    }

    /// Records that a connection is being opened in a slot.
    pub(super) fn open(&self, slot: u32) -> ConnectionRecord {
        ConnectionRecord { slot, opened: self.now, began: self.now, counted: false }
    }

    /// Records that a connection is established, apart from TLS.
    pub(super) fn connect(&mut self, connection: &mut ConnectionRecord) {
        self.alive = self.now;
        self.use_connection(connection);
        let time = self.now - connection.began;
        self.record(|tally| tally.connect.saturating_record(time));
        connection.began = self.now;
    }

    /// Records that a handshake of TLS is complete.
    pub(super) fn handshake(&mut self, connection: &ConnectionRecord, resumed: bool) {
        let time = self.now - connection.began;
        self.record(|tally| {
            tally.tls_resumed += u64::from(resumed);
            tally.tls.saturating_record(time);
        });
    }

    /// Records what QUIC says of a connection that has ended.
    pub(super) fn quic(&mut self, quic: &Quic) {
        self.tally.quic.add(quic);
    }

    /// Records that a connection is established or used.
    #[inline]
    fn use_connection(&mut self, connection: &mut ConnectionRecord) {
        if !connection.counted && self.is_counting(self.now) {
            connection.counted = true;
            self.tally.opened += 1;
        }
    }

    /// Records the regular end of a connection.
    pub(super) fn close(&mut self, connection: &ConnectionRecord) {
        let time = self.now - connection.opened;
        self.record(|tally| tally.lifetime.saturating_record(time));
    }

    /// Records that a request is sent.
    #[inline]
    pub(super) fn issue(&mut self, next: Pending, url: u32, request: &Prepared) -> InFlight {
        if self.in_flight == 0 {
            self.tally.series.resume(self.at());
        }
        self.in_flight += 1;
        InFlight {
            times: Times { due: next.due, sent: self.now },
            url,
            head_only: request.head_only,
            repeats: if request.is_safe { next.repeats } else { 0 },
        }
    }

    /// Records that a connection has `depth` requests in flight after a write.
    #[inline]
    pub(super) fn depth(&mut self, depth: u32) {
        self.record(|tally| {
            tally.depth.0 += 1;
            tally.depth.1 += u64::from(depth);
            tally.depth_max = tally.depth_max.max(depth);
        });
    }

    /// Queues requests in flight that the server has not processed, to be sent again before others.
    pub(super) fn send_again(&mut self, flight: impl DoubleEndedIterator<Item = InFlight>) {
        self.requeue(flight, false);
    }

    /// Records that requests in flight were lost with a connection that had served others, and queues them to be sent again.
    pub(super) fn lose(
        &mut self,
        kind: ErrorKind,
        flight: impl DoubleEndedIterator<Item = InFlight>,
        reason: impl FnOnce() -> String,
    ) {
        let count = self.requeue(flight, true);
        self.record(|tally| tally.lost.add(kind, count, reason));
    }

    /// Counts received bytes.
    #[inline]
    pub(super) fn receive(&mut self, count: u64) {
        if self.is_counting(self.now) {
            let at = self.at();
            self.tally.bytes += count;
            self.tally.series.bytes(at, count);
        }
    }

    /// Returns a response whose first byte has arrived.
    #[inline]
    pub(super) fn first_byte(&self, status: u16, is_expected: bool) -> PartialResponse {
        let is_reported = !is_expected && !self.tally.first_errors.contains_key(&ErrorKind::Status);
        PartialResponse::new(status, self.now, is_reported, self.decoder.is_some())
    }

    /// Records the complete response to a request.
    #[inline]
    pub(super) fn complete(
        &mut self,
        job: &Job,
        connection: &mut ConnectionRecord,
        request: &InFlight,
        response: &PartialResponse,
    ) {
        self.in_flight -= 1;
        self.alive = self.now;
        self.use_connection(connection);
        let failed = self.check(job, request, response);
        let (now, times) = (self.now, request.times);
        if self.has_ended() {
            return self.late.push(times);
        }
        let reason = move |kind| move || describe_error(job, request.url, kind, response);
        if !self.counts(times.sent) {
            return self.count_warmup(failed.map(|kind| (kind, 1, reason(kind))));
        }
        self.tally.count_status(response.status);
        let at = self.at();
        if let Some(kind) = failed {
            self.tally.fault(kind, 1, reason(kind));
            return self.tally.series.error(at);
        }
        let latency = now.saturating_sub(times.due);
        let service = now.saturating_sub(times.sent);
        let tally = &mut self.tally;
        tally.requests += 1;
        tally.latency.saturating_record(latency);
        tally.service.saturating_record(service);
        tally.first_byte.saturating_record(response.first_byte.saturating_sub(times.sent));
        tally.slowest = tally.slowest.max(service);
        if let Some(length) = self.quarter {
            let quarter = &mut tally.quarters[(at / length).min(3) as usize];
            quarter.responses += 1;
            quarter.time = quarter.time.saturating_add(latency);
        }
        tally.series.response(at, latency);
        if let Some(count) = tally.each.get_mut(connection.slot as usize) {
            *count += 1;
        }
    }

    /// Returns the error in a complete response, if any.
    #[inline]
    fn check(
        &mut self,
        job: &Job,
        request: &InFlight,
        response: &PartialResponse,
    ) -> Option<ErrorKind> {
        if !job.expected.has(response.status) {
            return Some(ErrorKind::Status);
        }
        if !self.verifies || request.head_only {
            return None;
        }
        let mut found = Expected { length: response.body, hash: response.hash() };
        if let Some(decoder) = &mut self.decoder {
            match decoder.content(response.coded(), found) {
                Some(content) => found = content,
                None => return Some(ErrorKind::Hash),
            }
        }
        let expected = match self.learned.get_mut(request.url as usize) {
            None => job.reference.expected(request.url as usize)?,
            // The first response of the URL becomes the expected one.
            Some(first) => *first.get_or_insert(found),
        };
        if expected.length != found.length {
            return Some(ErrorKind::Length);
        }
        (expected.hash != found.hash).then_some(ErrorKind::Hash)
    }

    /// Records that requests in flight have failed. Those that timed out count in the distributions of times by their age.
    pub(super) fn fail(
        &mut self,
        kind: ErrorKind,
        flight: impl Iterator<Item = InFlight>,
        reason: impl FnOnce() -> String,
    ) {
        let (mut failed, mut early) = (0, 0);
        for InFlight { times, .. } in flight {
            self.in_flight -= 1;
            if self.has_ended() {
                self.late.push(times);
                continue;
            }
            if !self.counts(times.sent) {
                early += 1;
                continue;
            }
            failed += 1;
            if kind == ErrorKind::Timeout {
                self.tally.latency.saturating_record(self.now.saturating_sub(times.due));
                self.tally.service.saturating_record(self.now.saturating_sub(times.sent));
            }
        }
        if failed > 0 {
            self.count_failures(kind, failed, reason);
        } else if early > 0 {
            self.count_warmup(Some((kind, early, reason)));
        }
    }

    /// Records a response to no request.
    pub(super) fn fail_unasked(&mut self, reason: impl FnOnce() -> String) {
        if !self.is_counting(self.now) {
            return self.count_warmup(Some((ErrorKind::Protocol, 1, reason)));
        }
        self.count_failures(ErrorKind::Protocol, 1, reason);
    }

    /// Records an attempt to connect that failed. It takes the place of a request, unless requests wait for any connection.
    pub(super) fn fail_connection(&mut self, kind: ErrorKind, reason: impl FnOnce() -> String) {
        if self.is_counting(self.now) {
            self.tally.failed_connections += 1;
            self.count_failures(kind, 1, reason);
        } else {
            self.count_warmup(Some((kind, 1, reason)));
        }
        self.give_up_one();
    }

    /// Records an error of connecting; `otherwise` is its kind if it has none of its own.
    pub(super) fn fail_to_connect(&mut self, job: &Job, otherwise: ErrorKind, error: &io::Error) {
        let reason = || format!("{} (connecting to {})", describe_tls_error(error), job.address);
        self.fail_connection(ErrorKind::of(error, otherwise), reason);
    }

    /// Counts failures of the measurement.
    fn count_failures(&mut self, kind: ErrorKind, count: u64, reason: impl FnOnce() -> String) {
        self.tally.fault(kind, count, reason);
        let at = self.at();
        (0..count).for_each(|_| self.tally.series.error(at));
    }

    /// Counts a response of the warm-up, or failures of it. What comes after the end is not counted.
    fn count_warmup<F: FnOnce() -> String>(&mut self, failed: Option<(ErrorKind, u64, F)>) {
        if self.has_ended() {
            return;
        }
        match failed {
            None => self.tally.warmup.requests += 1,
            Some((kind, count, reason)) => {
                self.tally.warmup.errors += count;
                self.tally.first_errors.entry(kind).or_insert_with(reason);
            }
        }
    }

    /// Publishes the progress.
    pub(super) fn publish(&self, slot: &Slot) {
        slot.publish(self.tally.snapshot(self.at(), self.in_flight));
    }

    /// Ends the measurement with those requests in flight. Returns the tally, and the end.
    pub(super) fn finish(&mut self, flight: impl Iterator<Item = Times>) -> (Tally, u64) {
        let end = self.now.min(self.ends);
        self.now = end;
        let waiting = self.end_arrivals(end);
        let late = std::mem::take(&mut self.late);
        if self.in_flight > 0 || !late.is_empty() {
            let at = self.at();
            self.tally.series.end(at);
        }
        self.tally.finish(end, flight.chain(late), waiting.into_iter());
        (std::mem::replace(&mut self.tally, Tally::new(0)), end)
    }
}

/// The recorder that the tasks of a worker share.
#[derive(Clone)]
pub(super) struct SharedRecorder(Rc<RefCell<Recorder>>);

impl SharedRecorder {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self(Rc::new(RefCell::new(recorder)))
    }

    /// Returns the recorder with the time of the last look at the clock.
    pub(super) fn last(&self) -> Ref<'_, Recorder> {
        self.0.borrow()
    }

    /// Returns the recorder, which has looked at the clock.
    pub(super) fn now(&self) -> RefMut<'_, Recorder> {
        let mut recorder = self.0.borrow_mut();
        recorder.tick();
        recorder
    }
}
