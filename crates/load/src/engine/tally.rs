//! What one loop counts; tallies add up.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::Series;
use crate::outcome::ErrorKind;

/// Everything that a loop counts. Times are in nanoseconds.
pub struct Tally {
    /// From the time at which a request was due to its answer's last byte.
    pub latency: Histogram<u64>,
    /// From the request's sending to its answer's last byte.
    pub service: Histogram<u64>,
    /// From the request's sending to its answer's first byte.
    pub first_byte: Histogram<u64>,
    /// From `connect` to the established connection.
    pub connect: Histogram<u64>,
    /// From `connect` to the end of a connection that ended as it should.
    pub lifetime: Histogram<u64>,
    /// TLS handshakes.
    pub tls: Histogram<u64>,
    /// How late what was due was noticed.
    pub lag: Histogram<u64>,
    /// Right answers.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Failures.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// What the first failure of each kind was.
    pub first_errors: BTreeMap<ErrorKind, String>,
    /// Answers by status.
    pub status: BTreeMap<u16, u64>,
    /// The status that was counted last, and how often since.
    recent_status: (u16, u64),
    /// Connections that were established.
    pub opened: u64,
    /// Connections that the server closed.
    pub closed_by_server: u64,
    /// TLS sessions that were resumed.
    pub tls_resumed: u64,
    /// Writes of requests, and the sum of those in flight after each.
    pub depth: (u64, u64),
    /// Most requests in flight on one connection.
    pub depth_max: u32,
    /// Answers on each connection of those that are there from beginning to end.
    pub each: Vec<u64>,
    /// Requests in flight at the end.
    pub unfinished: u64,
    /// Age of the oldest of them since it was sent.
    pub oldest: u64,
    /// The longest time from a request's sending to the end of its response, of complete ones.
    pub slowest: u64,
    /// Arrivals that were still waiting for a connection at the end.
    pub waiting: u64,
    /// The run in intervals.
    pub series: Series,
    /// With a modem's pace: who kept it.
    pub conformance: Conformance,
    /// With a modem's pace: what the server can send ahead.
    pub windows: Windows,
}

/// Receive windows of the first connections, as the system tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Connections that were asked about.
    pub asked: u32,
    /// The largest window in bytes; `None` when the system tells none.
    pub largest: Option<u32>,
}

/// How many connections were served at their pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conformance {
    /// Connections that were judged.
    pub users: u32,
    /// Those that got their share in every window.
    pub conforming: u32,
    /// Of the others, those whose first byte was late or never came.
    pub late: u32,
}

fn histogram() -> Histogram<u64> {
    // Three digits up to an hour.
    let made = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
    made.unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

impl Tally {
    /// An empty one for that many connections.
    #[must_use]
    pub fn new(connections: usize) -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            first_byte: histogram(),
            connect: histogram(),
            lifetime: histogram(),
            tls: histogram(),
            lag: histogram(),
            requests: 0,
            bytes: 0,
            errors: BTreeMap::new(),
            first_errors: BTreeMap::new(),
            status: BTreeMap::new(),
            recent_status: (0, 0),
            opened: 0,
            closed_by_server: 0,
            tls_resumed: 0,
            depth: (0, 0),
            depth_max: 0,
            each: Vec::with_capacity(connections),
            unfinished: 0,
            oldest: 0,
            slowest: 0,
            waiting: 0,
            series: Series::default(),
            conformance: Conformance::default(),
            windows: Windows::default(),
        }
    }

    /// Counts failures; `reason` describes the first of a kind.
    pub(super) fn fault(&mut self, kind: ErrorKind, count: u64, reason: impl FnOnce() -> String) {
        *self.errors.entry(kind).or_default() += count;
        self.first_errors.entry(kind).or_insert_with(reason);
    }

    /// Ends the count `end` nanoseconds after the start: requests in flight, by when they were due and sent, and
    /// arrivals that wait, by when they were due, count in the times by their age. One that is younger than the
    /// median says nothing of how long it would have taken.
    pub(super) fn finish(
        &mut self,
        end: u64,
        in_flight: impl Iterator<Item = (u64, u64)>,
        waiting: impl Iterator<Item = u64>,
    ) {
        self.settle_status();
        self.slowest = self.service.max();
        let median = |times: &Histogram<u64>| times.value_at_quantile(0.5);
        let (latency, service) = (median(&self.latency), median(&self.service));
        let record = |times: &mut Histogram<u64>, age: u64, median: u64| {
            if median > 0 && age > median {
                times.saturating_record(age);
            }
        };
        for (due, sent) in in_flight {
            let age = end.saturating_sub(sent);
            self.unfinished += 1;
            self.oldest = self.oldest.max(age);
            record(&mut self.latency, end.saturating_sub(due), latency);
            record(&mut self.service, age, service);
        }
        for due in waiting {
            self.waiting += 1;
            record(&mut self.latency, end.saturating_sub(due), latency);
        }
    }

    /// Counts a status.
    #[inline]
    pub(super) fn answered_with(&mut self, status: u16) {
        if self.recent_status.0 == status {
            self.recent_status.1 += 1;
        } else {
            self.settle_status();
            self.recent_status = (status, 1);
        }
    }

    pub(super) fn settle_status(&mut self) {
        let (status, count) = std::mem::take(&mut self.recent_status);
        if count > 0 {
            *self.status.entry(status).or_default() += count;
        }
    }

    /// Adds what another loop counted.
    pub(super) fn add(&mut self, mut other: Self) {
        other.settle_status();
        for (own, others) in [
            (&mut self.latency, &other.latency),
            (&mut self.service, &other.service),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.connect, &other.connect),
            (&mut self.lifetime, &other.lifetime),
            (&mut self.tls, &other.tls),
            (&mut self.lag, &other.lag),
        ] {
            // All have the same bounds, so that nothing can be out of range.
            let _ = own.add(others);
        }
        self.requests += other.requests;
        self.bytes += other.bytes;
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        for (kind, reason) in other.first_errors {
            self.first_errors.entry(kind).or_insert(reason);
        }
        for (status, count) in other.status {
            *self.status.entry(status).or_default() += count;
        }
        self.opened += other.opened;
        self.closed_by_server += other.closed_by_server;
        self.tls_resumed += other.tls_resumed;
        self.depth = (self.depth.0 + other.depth.0, self.depth.1 + other.depth.1);
        self.depth_max = self.depth_max.max(other.depth_max);
        self.each.append(&mut other.each);
        self.unfinished += other.unfinished;
        self.oldest = self.oldest.max(other.oldest);
        self.slowest = self.slowest.max(other.slowest);
        self.waiting += other.waiting;
        self.series.add(other.series);
        self.conformance.users += other.conformance.users;
        self.conformance.conforming += other.conformance.conforming;
        self.conformance.late += other.conformance.late;
        self.windows.asked += other.windows.asked;
        self.windows.largest = self.windows.largest.max(other.windows.largest);
    }
}
