//! The counts of a worker. Tallies can be added.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::recorder::Times;
use super::series::Series;
use crate::outcome::{ErrorKind, Quic, Warmup};
use crate::progress::Snapshot;

/// Everything that a worker counts. Times are in nanoseconds.
pub struct Tally {
    /// From the time when a request was due to the last byte of its response.
    pub latency: Histogram<u64>,
    /// From sending a request to the last byte of its response.
    pub service: Histogram<u64>,
    /// From sending a request to the first byte of its response.
    pub first_byte: Histogram<u64>,
    /// From `connect` to the established connection.
    pub connect: Histogram<u64>,
    /// From `connect` to the regular end of the connection.
    pub lifetime: Histogram<u64>,
    /// TLS handshakes.
    pub tls: Histogram<u64>,
    /// Delay between the time when an arrival was due and its processing.
    pub lag: Histogram<u64>,
    /// Valid responses.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Failures of requests and of attempts to connect.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// Of them, attempts to connect.
    pub failed_connections: u64,
    /// Description of the first failure of each kind.
    pub first_errors: BTreeMap<ErrorKind, String>,
    /// Responses by status.
    pub status: BTreeMap<u16, u64>,
    /// The last status, and its occurrences that are not in `status` yet.
    recent_status: (u16, u64),
    /// Connections that were established or used within the measurement.
    pub opened: u64,
    /// Connections that the server closed.
    pub closed_by_server: u64,
    /// Connections that the generator closed before the end.
    pub closed_by_generator: u64,
    /// Requests that were lost with a connection that had served others, and sent again.
    pub lost: Lost,
    /// Streams that the server refused, whose requests were sent again.
    pub refused_streams: u64,
    /// The counts of the warm-up.
    pub warmup: Warmup,
    /// Arrivals that were due within the measurement; open models only.
    pub due: u64,
    /// TLS sessions that were resumed.
    pub tls_resumed: u64,
    /// What QUIC says of the connections.
    pub quic: Quic,
    /// Number of writes of requests, and the sum of the requests in flight after each.
    pub depth: (u64, u64),
    /// Largest number of requests in flight on a connection.
    pub depth_max: u32,
    /// Valid responses of each connection slot.
    pub each: Vec<u64>,
    /// Requests in flight at the end.
    pub unfinished: u64,
    /// Age of the oldest of them, since it was sent.
    pub oldest: u64,
    /// The longest service time of a complete response.
    pub slowest: u64,
    /// Arrivals that wait for a connection at the end.
    pub waiting: u64,
    /// The longest time that one of them has waited.
    pub longest_wait: u64,
    /// The arrivals that waited when the last one of a number of requests was due; absent in runs of some duration.
    pub backlog: Option<Backlog>,
    /// The responses of each quarter of an open run of some duration.
    pub quarters: [Quarter; 4],
    /// The run in intervals.
    pub series: Series,
    /// With a modem pace: connections that were served at that pace.
    pub conformance: Conformance,
    /// With a modem pace: receive windows, which bound what the server can send ahead.
    pub windows: Windows,
}

/// Arrivals that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Their number.
    pub waiting: u64,
    /// The longest time that one of them has waited.
    pub longest_wait: u64,
    /// The time since the start of the measurement.
    pub at: u64,
}

/// The valid responses of a quarter of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quarter {
    /// Their number.
    pub responses: u64,
    /// The sum of their response times.
    pub time: u64,
}

/// Requests that were lost with their connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Their number by the kind of the loss.
    pub by_kind: BTreeMap<ErrorKind, u64>,
    /// Description of the first.
    pub first: Option<String>,
}

impl Lost {
    /// Counts losses. `reason` describes the first one.
    pub(super) fn add(&mut self, kind: ErrorKind, count: u64, reason: impl FnOnce() -> String) {
        *self.by_kind.entry(kind).or_default() += count;
        self.first.get_or_insert_with(reason);
    }

    /// Returns the number of losses.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_kind.values().sum()
    }
}

/// Receive windows of the first connections, as the system reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Connections whose window was sampled.
    pub sampled: u32,
    /// The largest window in bytes; `None` if the system reports none.
    pub largest: Option<u32>,
}

/// Number of connections that were served at their pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conformance {
    /// Connections that were judged.
    pub users: u32,
    /// Connections that received their share in every window.
    pub conforming: u32,
    /// Of the others, those whose first byte was late or did not arrive.
    pub late: u32,
}

impl Conformance {
    /// Adds the connections of another worker or generator.
    pub fn add(&mut self, other: Self) {
        self.users += other.users;
        self.conforming += other.conforming;
        self.late += other.late;
    }
}

fn histogram() -> Histogram<u64> {
    // Three significant digits up to an hour.
    let made = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
    made.unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

impl Tally {
    /// Creates an empty tally of a worker with `connections` connection slots.
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
            failed_connections: 0,
            first_errors: BTreeMap::new(),
            status: BTreeMap::new(),
            recent_status: (0, 0),
            opened: 0,
            closed_by_server: 0,
            closed_by_generator: 0,
            lost: Lost::default(),
            refused_streams: 0,
            warmup: Warmup::default(),
            due: 0,
            tls_resumed: 0,
            quic: Quic::default(),
            depth: (0, 0),
            depth_max: 0,
            each: vec![0; connections],
            unfinished: 0,
            oldest: 0,
            slowest: 0,
            waiting: 0,
            longest_wait: 0,
            backlog: None,
            quarters: [Quarter::default(); 4],
            series: Series::default(),
            conformance: Conformance::default(),
            windows: Windows::default(),
        }
    }

    /// Counts failures. `reason` describes the first one of a kind.
    pub(super) fn fault(&mut self, kind: ErrorKind, count: u64, reason: impl FnOnce() -> String) {
        *self.errors.entry(kind).or_default() += count;
        self.first_errors.entry(kind).or_insert_with(reason);
    }

    /// Ends the measurement `end` nanoseconds after the start. Requests in flight and waiting
    /// arrivals (times when due) are recorded with their age, unless that is below the median: it then gives no information
    /// on how long they would have taken.
    pub(super) fn finish(
        &mut self,
        end: u64,
        in_flight: impl Iterator<Item = Times>,
        waiting: impl Iterator<Item = u64>,
    ) {
        self.settle_status();
        let median = |times: &Histogram<u64>| times.value_at_quantile(0.5);
        let (latency, service) = (median(&self.latency), median(&self.service));
        let record = |times: &mut Histogram<u64>, age: u64, median: u64| {
            if median > 0 && age > median {
                times.saturating_record(age);
            }
        };
        for Times { due, sent } in in_flight {
            let age = end.saturating_sub(sent);
            self.unfinished += 1;
            self.oldest = self.oldest.max(age);
            record(&mut self.latency, end.saturating_sub(due), latency);
            record(&mut self.service, age, service);
        }
        for due in waiting {
            self.waiting += 1;
            self.longest_wait = self.longest_wait.max(end.saturating_sub(due));
            record(&mut self.latency, end.saturating_sub(due), latency);
        }
    }

    /// Returns the counts that are shown during the run, `at` nanoseconds after the start of the measurement.
    pub(super) fn snapshot(&self, at: u64, in_flight: u64) -> Snapshot {
        Snapshot {
            at,
            warmup: self.warmup.requests,
            requests: self.requests,
            bytes: self.bytes,
            errors: self.errors.values().sum(),
            in_flight,
            p50: self.latency.value_at_quantile(0.5),
            p99: self.latency.value_at_quantile(0.99),
            max: self.latency.max(),
        }
    }

    /// Counts a status.
    #[inline]
    pub(super) fn count_status(&mut self, status: u16) {
        if self.recent_status.0 == status {
            self.recent_status.1 += 1;
        } else {
            self.settle_status();
            self.recent_status = (status, 1);
        }
    }

    /// Adds the occurrences of the last status to `status`.
    pub(super) fn settle_status(&mut self) {
        let (status, count) = std::mem::take(&mut self.recent_status);
        if count > 0 {
            *self.status.entry(status).or_default() += count;
        }
    }

    /// Adds the tally of another worker.
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
            // Cannot fail: all histograms have the same bounds.
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
        self.failed_connections += other.failed_connections;
        self.opened += other.opened;
        self.closed_by_server += other.closed_by_server;
        self.closed_by_generator += other.closed_by_generator;
        for (kind, count) in other.lost.by_kind {
            *self.lost.by_kind.entry(kind).or_default() += count;
        }
        self.lost.first = self.lost.first.take().or(other.lost.first);
        self.refused_streams += other.refused_streams;
        self.warmup.requests += other.warmup.requests;
        self.warmup.errors += other.warmup.errors;
        self.due += other.due;
        self.tls_resumed += other.tls_resumed;
        self.quic.add(&other.quic);
        self.depth = (self.depth.0 + other.depth.0, self.depth.1 + other.depth.1);
        self.depth_max = self.depth_max.max(other.depth_max);
        self.each.append(&mut other.each);
        self.unfinished += other.unfinished;
        self.oldest = self.oldest.max(other.oldest);
        self.slowest = self.slowest.max(other.slowest);
        self.waiting += other.waiting;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        if let Some(others) = other.backlog {
            let own = self.backlog.get_or_insert_default();
            own.waiting += others.waiting;
            own.longest_wait = own.longest_wait.max(others.longest_wait);
            own.at = own.at.max(others.at);
        }
        for (own, others) in self.quarters.iter_mut().zip(other.quarters) {
            own.responses += others.responses;
            own.time = own.time.saturating_add(others.time);
        }
        self.series.add(other.series);
        self.conformance.add(other.conformance);
        self.windows.sampled += other.windows.sampled;
        self.windows.largest = self.windows.largest.max(other.windows.largest);
    }
}
