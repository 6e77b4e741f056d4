//! Records of responses that are in an output buffer. They are made once the socket has taken the bytes, so that nothing
//! is counted or logged as sent that was not.

use std::time::Instant;

use dunlin_http::semantics::Method;
use dunlin_http::{OwnedRequest, Request, Version};

use super::{Completion, ConnectionInfo, ResponseOutcome, WorkerContext};
use crate::checks::Client;
use crate::telemetry::metrics::Label;
use crate::telemetry::{ReadTimes, RequestTelemetry};

/// Bytes that are collected for one write, and the records of the responses that end among them.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pending: Pending,
}

/// Records to be made when the socket has taken the responses.
#[derive(Default)]
pub(crate) struct Pending {
    counted: Vec<(OutputRange, CountedResponse)>,
    tracked: Vec<(OutputRange, Tracked)>,
    /// Copies of requests, which are used again and again, and how many are in use.
    copies: Vec<OwnedRequest>,
    copied: usize,
}

/// Where a response is among the bytes of an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputRange {
    /// Its first byte; negative when it was sent before.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Bytes of its body, which are taken to be the last before `end`.
    pub(crate) body: u64,
}

/// A response that is only counted.
pub(crate) struct CountedResponse {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) client: Client,
    pub(crate) label: Label,
    pub(crate) status: u16,
    pub(crate) read_times: Option<ReadTimes>,
    /// When its route was found, if that is known.
    pub(crate) routed: Option<Instant>,
    /// Bytes of its body.
    pub(crate) bytes: u64,
}

/// What the record of a request needs when it cannot be made at once.
pub(crate) struct DeferredRecord {
    pub(crate) request: OwnedRequest,
    pub(crate) telemetry: RequestTelemetry,
    pub(crate) outcome: ResponseOutcome,
}

enum Tracked {
    /// The request is the copy of that number.
    Copied {
        number: usize,
        telemetry: RequestTelemetry,
        outcome: ResponseOutcome,
    },
    Owned(Box<DeferredRecord>),
}

impl OutputRange {
    /// A response of which the first byte is at `start` and the last before `end`.
    pub(crate) fn new(start: usize, end: usize, body: u64) -> Self {
        Self { start: start as i64, end: end as i64, body }
    }

    /// What became of a response of which the socket has taken what stands before `at`.
    fn outcome(&self, outcome: ResponseOutcome, at: i64) -> ResponseOutcome {
        if self.end <= at {
            return outcome;
        }
        let unsent = self.body.min((self.end - at) as u64);
        let status = if self.start >= at { 0 } else { outcome.status };
        let bytes = outcome.bytes.saturating_sub(unsent);
        ResponseOutcome { status, ..outcome.finish(bytes, Completion::Aborted) }.or_client_closed()
    }
}

impl Pending {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.tracked.is_empty()
    }

    /// Counts a response when it has been sent.
    #[inline]
    pub(crate) fn count(&mut self, range: OutputRange, counted: CountedResponse) {
        self.counted.push((range, counted));
    }

    /// Records a response when it has been sent.
    pub(crate) fn record(
        &mut self,
        range: OutputRange,
        request: &Request<'_>,
        telemetry: RequestTelemetry,
        outcome: ResponseOutcome,
    ) {
        let number = self.copied;
        match self.copies.get_mut(number) {
            Some(copy) => copy.assign(request),
            None => self.copies.push(request.to_owned()),
        }
        self.copied += 1;
        self.tracked.push((range, Tracked::Copied { number, telemetry, outcome }));
    }

    /// Records a response when it has been sent.
    pub(crate) fn record_later(&mut self, range: OutputRange, log: Box<DeferredRecord>) {
        self.tracked.push((range, Tracked::Owned(log)));
    }

    /// Everything has been sent.
    #[inline]
    pub(crate) fn settle(&mut self, ctx: &WorkerContext, connection: &ConnectionInfo<'_>) {
        if !self.is_empty() {
            self.finish(ctx, connection, i64::MAX);
        }
    }

    /// What stands before `at` has been sent; the rest is still to be.
    pub(crate) fn settle_before(
        &mut self,
        ctx: &WorkerContext,
        connection: &ConnectionInfo<'_>,
        at: i64,
    ) {
        if !self.is_empty() {
            let rest = self.take_rest(at);
            self.finish(ctx, connection, at);
            (self.counted, self.tracked) = (rest.counted, rest.tracked);
        }
    }

    /// Makes all records. What stands before `at` has been sent, and the rest never will be.
    pub(crate) fn finish(&mut self, ctx: &WorkerContext, connection: &ConnectionInfo<'_>, at: i64) {
        let end = Instant::now();
        for (range, counted) in self.counted.drain(..) {
            let outcome = ResponseOutcome {
                status: counted.status,
                bytes: counted.bytes,
                ..ResponseOutcome::NONE
            };
            ctx.count(&counted, &range.outcome(outcome, at), end);
        }
        for (range, tracked) in self.tracked.drain(..) {
            match tracked {
                Tracked::Copied { number, telemetry, outcome } => {
                    if let Some(copy) = self.copies.get(number) {
                        let outcome = range.outcome(outcome, at);
                        ctx.record_at(&copy.as_request(), connection, &telemetry, &outcome, end);
                    }
                }
                Tracked::Owned(log) => {
                    let outcome = range.outcome(log.outcome, at);
                    ctx.record_at(
                        &log.request.as_request(),
                        connection,
                        &log.telemetry,
                        &outcome,
                        end,
                    );
                }
            }
        }
        self.copied = 0;
    }

    /// Takes those away that end behind `at`.
    fn take_rest(&mut self, at: i64) -> Self {
        let mut rest = Self::default();
        rest.counted.extend(self.counted.extract_if(.., |(range, _)| range.end > at));
        let copies = &self.copies;
        let tracked = self.tracked.extract_if(.., |(range, _)| range.end > at);
        rest.tracked.extend(tracked.filter_map(|(range, tracked)| {
            let owned = match tracked {
                Tracked::Owned(log) => log,
                Tracked::Copied { number, telemetry, outcome } => {
                    let request = copies.get(number)?.clone();
                    Box::new(DeferredRecord { request, telemetry, outcome })
                }
            };
            Some((range, Tracked::Owned(owned)))
        }));
        rest
    }

    /// What stands before `at` has been sent: records it, and hands over what ends behind it, with places that count from
    /// there.
    pub(crate) fn split_off(
        &mut self,
        ctx: &WorkerContext,
        connection: &ConnectionInfo<'_>,
        at: usize,
    ) -> Self {
        if self.is_empty() {
            return Self::default();
        }
        let at = at as i64;
        let mut rest = self.take_rest(at);
        self.finish(ctx, connection, at);
        let ranges = rest.counted.iter_mut().map(|(range, _)| range);
        for range in ranges.chain(rest.tracked.iter_mut().map(|(range, _)| range)) {
            (range.start, range.end) = (range.start - at, range.end - at);
        }
        rest
    }

    /// Takes those of `rest` over, whose responses are the first in the output.
    pub(crate) fn take_over(&mut self, rest: Self) {
        self.counted.extend(rest.counted);
        self.tracked.extend(rest.tracked);
    }

    /// Forgets all of them, as nothing is known of their responses.
    pub(crate) fn clear(&mut self) {
        self.counted.clear();
        self.tracked.clear();
        self.copied = 0;
    }
}

impl DeferredRecord {
    pub(crate) fn new(request: &Request<'_>, telemetry: RequestTelemetry) -> Box<Self> {
        Box::new(Self { request: request.to_owned(), telemetry, outcome: ResponseOutcome::NONE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_sent_is_not_recorded_as_sent() {
        let range = OutputRange::new(100, 400, 200);
        let whole = ResponseOutcome { status: 200, bytes: 200, ..ResponseOutcome::NONE };
        let at = |at| {
            let outcome = range.outcome(whole, at);
            (outcome.status, outcome.bytes, outcome.completion)
        };
        assert_eq!(at(i64::MAX), (200, 200, Completion::Complete));
        assert_eq!(at(400), (200, 200, Completion::Complete));
        assert_eq!(at(399), (200, 199, Completion::Aborted));
        assert_eq!(at(200), (200, 0, Completion::Aborted));
        assert_eq!(at(101), (200, 0, Completion::Aborted));
        // The client left before anything was sent.
        assert_eq!(at(100), (499, 0, Completion::Aborted));
        assert_eq!(at(0), (499, 0, Completion::Aborted));
        // Earlier bytes of a large body have been sent.
        let rest = OutputRange { start: -5_000, end: 50, body: 50 };
        let whole = ResponseOutcome { bytes: 4_000, ..whole };
        assert_eq!((rest.outcome(whole, 0).status, rest.outcome(whole, 0).bytes), (200, 3_950));
    }
}
