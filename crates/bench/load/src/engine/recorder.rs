//! The recorder of a worker: what becomes of its requests and connections, for every version of HTTP.
//!
//! Only what happens within the measurement is counted. What happens before it, during the warm-up, is counted apart.

use std::num::NonZeroU64;

use super::clock::nanos;
use super::tally::{Backlog, Tally};
use crate::outcome::ErrorKind;
use crate::plan::{End, Model, Plan};

/// Counts the events of a worker. Times are in nanoseconds since the start of the run.
pub(super) struct Recorder {
    pub(super) tally: Tally,
    /// Start of the measurement, after the warm-up.
    counts_from: u64,
    /// End of the run.
    pub(super) ends: u64,
    /// A quarter of the measurement of an open run of some duration.
    quarter: Option<NonZeroU64>,
    /// The run ends after a number of requests, so that those of the warm-up must not count.
    by_count: bool,
    /// Requests in flight on all connections.
    pub(super) in_flight: u64,
    /// Requests in flight at the end of the run, whose result has arrived since then.
    late: Vec<Times>,
}

/// When a request was due and when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Times {
    pub(super) due: u64,
    pub(super) sent: u64,
}

/// The result of a complete response: the kind of its error, if any, and a description.
pub(super) type Checked<'a> = Option<(ErrorKind, &'a dyn Fn() -> String)>;

impl Recorder {
    /// Creates the recorder of a worker with the plan.
    pub(super) fn new(plan: &Plan) -> Self {
        let counts_from = nanos(plan.warmup_seconds);
        let seconds = match plan.end {
            End::Seconds(seconds) => Some(seconds),
            End::Requests(_) => plan.limit_seconds,
        };
        Self {
            tally: Tally::new(plan.connections as usize),
            counts_from,
            ends: seconds.map_or(u64::MAX, |seconds| counts_from.saturating_add(nanos(seconds))),
            quarter: seconds
                .filter(|_| !matches!(plan.model, Model::Closed { .. }))
                .and_then(|seconds| NonZeroU64::new(nanos(seconds) / 4)),
            by_count: matches!(plan.end, End::Requests(_)),
            in_flight: 0,
            late: Vec::new(),
        }
    }

    /// Returns the requests in flight at the end of the run, whose result has arrived since then.
    pub(super) fn take_late(&mut self) -> Vec<Times> {
        std::mem::take(&mut self.late)
    }

    /// Returns `true` if the time is within the measurement.
    #[inline]
    pub(super) fn is_counting(&self, now: u64) -> bool {
        now >= self.counts_from && now < self.ends
    }

    /// Returns `true` if requests that are sent now are those of the measurement.
    #[inline]
    pub(super) fn is_warm(&self, now: u64) -> bool {
        now >= self.counts_from
    }

    /// Returns `true` if the end of a request counts that was sent at `sent`.
    #[inline]
    fn counts(&self, now: u64, sent: u64) -> bool {
        self.is_counting(now) && (!self.by_count || sent >= self.counts_from)
    }

    /// Returns the time since the start of the measurement; 0 before.
    #[inline]
    pub(super) fn at(&self, now: u64) -> u64 {
        now.saturating_sub(self.counts_from)
    }

    /// Calls `count` within the measurement.
    #[inline]
    pub(super) fn record(&mut self, now: u64, count: impl FnOnce(&mut Tally)) {
        if self.is_counting(now) {
            count(&mut self.tally);
        }
    }

    /// Records an arrival that was due at `due`.
    pub(super) fn arrive(&mut self, now: u64, due: u64) {
        self.tally.due += u64::from(self.is_counting(due));
        self.record(now, |tally| tally.lag.saturating_record(now.saturating_sub(due)));
    }

    /// Records that all of a number of arrivals have been due; those of `waiting` wait.
    pub(super) fn all_due(&mut self, now: u64, waiting: impl Iterator<Item = u64>) {
        if !self.by_count || self.tally.backlog.is_some() {
            return;
        }
        let mut backlog = Backlog { at: self.at(now), ..Backlog::default() };
        for due in waiting {
            backlog.waiting += 1;
            backlog.longest_wait = backlog.longest_wait.max(now.saturating_sub(due));
        }
        self.tally.backlog = Some(backlog);
    }

    /// Records that a connection is established or used. `counted` is whether it has been counted.
    #[inline]
    pub(super) fn use_connection(&mut self, now: u64, counted: &mut bool) {
        if !*counted && self.is_counting(now) {
            *counted = true;
            self.tally.opened += 1;
        }
    }

    /// Records that a request is sent.
    #[inline]
    pub(super) fn issue(&mut self, now: u64) {
        if self.in_flight == 0 {
            self.tally.series.resume(self.at(now));
        }
        self.in_flight += 1;
    }

    /// Records that a connection has `depth` requests in flight after a write.
    #[inline]
    pub(super) fn depth(&mut self, now: u64, depth: u32) {
        self.record(now, |tally| {
            tally.depth.0 += 1;
            tally.depth.1 += u64::from(depth);
            tally.depth_max = tally.depth_max.max(depth);
        });
    }

    /// Records that `count` requests in flight are to be sent again.
    pub(super) fn withdraw(&mut self, count: u64) {
        self.in_flight -= count;
    }

    /// Records that requests in flight were lost with a connection that had served others, and are to be sent again.
    pub(super) fn lose(
        &mut self,
        now: u64,
        kind: ErrorKind,
        count: u64,
        reason: impl FnOnce() -> String,
    ) {
        self.withdraw(count);
        self.record(now, |tally| tally.lost.add(kind, count, reason));
    }

    /// Counts received bytes.
    #[inline]
    pub(super) fn receive(&mut self, now: u64, count: u64) {
        if self.is_counting(now) {
            let at = self.at(now);
            self.tally.bytes += count;
            self.tally.series.bytes(at, count);
        }
    }

    /// Records a complete response. Returns whether it is valid and counts.
    #[inline]
    pub(super) fn complete(
        &mut self,
        now: u64,
        times: Times,
        first_byte: u64,
        status: u16,
        checked: Checked<'_>,
    ) -> bool {
        self.in_flight -= 1;
        if now >= self.ends {
            self.late.push(times);
            return false;
        }
        if !self.counts(now, times.sent) {
            self.count_warmup(now, checked.map(|(kind, reason)| (kind, 1, reason)));
            return false;
        }
        self.tally.count_status(status);
        let at = self.at(now);
        if let Some((kind, reason)) = checked {
            self.tally.fault(kind, 1, reason);
            self.tally.series.error(at);
            return false;
        }
        let latency = now.saturating_sub(times.due);
        let service = now.saturating_sub(times.sent);
        let tally = &mut self.tally;
        tally.requests += 1;
        tally.latency.saturating_record(latency);
        tally.service.saturating_record(service);
        tally.first_byte.saturating_record(first_byte.saturating_sub(times.sent));
        tally.slowest = tally.slowest.max(service);
        if let Some(length) = self.quarter {
            let quarter = &mut tally.quarters[(at / length).min(3) as usize];
            quarter.responses += 1;
            quarter.time = quarter.time.saturating_add(latency);
        }
        tally.series.response(at, latency);
        true
    }

    /// Records that requests in flight have failed. Those that timed out count in the distributions of times by their age.
    pub(super) fn fail(
        &mut self,
        now: u64,
        kind: ErrorKind,
        flight: impl Iterator<Item = Times>,
        reason: impl FnOnce() -> String,
    ) {
        let (mut failed, mut early) = (0, 0);
        for times in flight {
            self.in_flight -= 1;
            if now >= self.ends {
                self.late.push(times);
                continue;
            }
            if !self.counts(now, times.sent) {
                early += 1;
                continue;
            }
            failed += 1;
            if kind == ErrorKind::Timeout {
                self.tally.latency.saturating_record(now.saturating_sub(times.due));
                self.tally.service.saturating_record(now.saturating_sub(times.sent));
            }
        }
        let at = self.at(now);
        if failed > 0 {
            self.tally.fault(kind, failed, reason);
            (0..failed).for_each(|_| self.tally.series.error(at));
        } else if early > 0 {
            self.count_warmup(now, Some((kind, early, reason)));
        }
    }

    /// Records a response to no request.
    pub(super) fn fail_unasked(&mut self, now: u64, reason: impl FnOnce() -> String) {
        if !self.is_counting(now) {
            return self.count_warmup(now, Some((ErrorKind::Protocol, 1, reason)));
        }
        self.tally.fault(ErrorKind::Protocol, 1, reason);
        let at = self.at(now);
        self.tally.series.error(at);
    }

    /// Records an attempt to connect that failed.
    pub(super) fn fail_connection(
        &mut self,
        now: u64,
        kind: ErrorKind,
        reason: impl FnOnce() -> String,
    ) {
        if !self.is_counting(now) {
            return self.count_warmup(now, Some((kind, 1, reason)));
        }
        self.tally.fault(kind, 1, reason);
        self.tally.failed_connections += 1;
        let at = self.at(now);
        self.tally.series.error(at);
    }

    /// Counts a response of the warm-up, or failures of it. What comes after the end is not counted.
    fn count_warmup<F: FnOnce() -> String>(
        &mut self,
        now: u64,
        failed: Option<(ErrorKind, u64, F)>,
    ) {
        if now >= self.ends {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::plan;

    const MS: u64 = 1_000_000;

    fn recorder(end: End) -> Recorder {
        Recorder::new(&Plan { warmup_seconds: 0.1, end, ..plan(1.0) })
    }

    fn none() -> String {
        String::new()
    }

    #[test]
    fn the_warmup_is_counted_apart_in_every_figure() {
        let mut recorder = recorder(End::Seconds(0.9));
        let mut counted = false;
        for (sent, now) in [(1, 50), (60, 99), (99, 101), (500, 600), (990, 1001)] {
            recorder.use_connection(now * MS, &mut counted);
            recorder.arrive(sent * MS, sent * MS);
            recorder.issue(sent * MS);
            recorder.receive(now * MS, 100);
            let times = Times { due: sent * MS, sent: sent * MS };
            recorder.complete(now * MS, times, now * MS, 200, None);
        }
        recorder.issue(0);
        let times = Times { due: 0, sent: 0 };
        recorder.fail(90 * MS, ErrorKind::Reset, std::iter::once(times), none);
        recorder.fail_connection(90 * MS, ErrorKind::Refused, none);
        assert_eq!(recorder.take_late(), [Times { due: 990 * MS, sent: 990 * MS }]);
        let mut tally = recorder.tally;
        tally.settle_status();
        assert_eq!((tally.requests, tally.latency.len(), tally.status[&200]), (2, 2, 2));
        assert_eq!((tally.bytes, tally.opened, tally.due), (200, 1, 2));
        assert_eq!((tally.warmup.requests, tally.warmup.errors), (2, 2));
        assert_eq!((tally.errors.len(), tally.failed_connections), (0, 0));
    }

    #[test]
    fn a_number_of_requests_is_that_of_the_measurement() {
        let mut recorder = recorder(End::Requests(1));
        for (sent, now) in [(99, 101), (101, 102)] {
            recorder.issue(sent * MS);
            let times = Times { due: sent * MS, sent: sent * MS };
            recorder.complete(now * MS, times, now * MS, 200, None);
        }
        assert_eq!((recorder.tally.requests, recorder.tally.warmup.requests), (1, 1));
    }

    #[test]
    fn timeouts_count_by_their_age_and_other_failures_do_not() {
        let mut recorder = Recorder::new(&plan(1.0));
        for kind in [ErrorKind::Timeout, ErrorKind::Reset] {
            recorder.issue(0);
            let times = Times { due: 0, sent: 100 * MS };
            recorder.fail(600 * MS, kind, std::iter::once(times), none);
        }
        let tally = recorder.tally;
        assert_eq!((tally.latency.len(), tally.service.len(), tally.requests), (1, 1, 0));
        assert!(tally.latency.max() >= 600 * MS && tally.service.max() >= 500 * MS);
        assert_eq!((tally.slowest, recorder.in_flight), (0, 0), "it is no response");
    }
}
