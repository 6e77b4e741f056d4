//! Access records of responses that are in an output buffer. They are made once the socket has accepted the bytes, so
//! that only bytes that were sent are counted and logged.

use std::rc::Rc;
use std::time::Instant;

use dunlin_exchange::{Client, ConnectionFacts, RequestContext};
use dunlin_http::semantics::Method;
use dunlin_http::{OwnedRequest, Request, Version};
use dunlin_net::clock;
use dunlin_telemetry::ReadTimes;
use dunlin_telemetry::metrics::Label;

use super::{Completion, ResponseOutcome, WorkerContext};

/// Bytes of one write, and the pending records of the responses that end in them.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pending: Pending,
}

/// Records to make when the socket has accepted the responses.
#[derive(Default)]
pub(crate) struct Pending {
    counted: Vec<(OutputRange, CountedResponse)>,
    tracked: Vec<(OutputRange, Tracked)>,
    /// Reusable copies of requests, of which the first `copied` are in use.
    copies: Vec<OwnedRequest>,
    copied: usize,
}

/// The range of a response in the bytes of an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputRange {
    /// Offset of its first byte; negative if that was sent with an earlier output.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Length of its body, which is assumed to be the last bytes before `end`.
    pub(crate) body: u64,
}

/// A response that is counted and has no access record.
pub(crate) struct CountedResponse {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) client: Client,
    pub(crate) label: Label,
    pub(crate) status: u16,
    pub(crate) read_times: Option<ReadTimes>,
    /// When routing was done, if measured.
    pub(crate) routed: Option<Instant>,
    /// Length of its body.
    pub(crate) bytes: u64,
}

/// Data for an access record that is made later.
pub(crate) struct DeferredRecord {
    pub(crate) request: OwnedRequest,
    pub(crate) context: Rc<RequestContext>,
    pub(crate) outcome: ResponseOutcome,
}

enum Tracked {
    /// The request is `copies[number]`.
    Copied {
        number: usize,
        context: Rc<RequestContext>,
        outcome: ResponseOutcome,
    },
    Owned(Box<DeferredRecord>),
}

impl OutputRange {
    /// Creates the range of a response from `start` up to `end`.
    pub(crate) fn new(start: usize, end: usize, body: u64) -> Self {
        Self { start: start as i64, end: end as i64, body }
    }

    /// Returns the outcome of a response if the socket has accepted the bytes before `at`.
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

    /// Counts a response when it is sent.
    #[inline]
    pub(crate) fn count(&mut self, range: OutputRange, counted: CountedResponse) {
        self.counted.push((range, counted));
    }

    /// Records a response when it is sent.
    pub(crate) fn record(
        &mut self,
        range: OutputRange,
        request: &Request<'_>,
        context: Rc<RequestContext>,
        outcome: ResponseOutcome,
    ) {
        let number = self.copied;
        match self.copies.get_mut(number) {
            Some(copy) => copy.assign(request),
            None => self.copies.push(request.to_owned()),
        }
        self.copied += 1;
        self.tracked.push((range, Tracked::Copied { number, context, outcome }));
    }

    /// Records a response when it is sent.
    pub(crate) fn record_later(&mut self, range: OutputRange, log: Box<DeferredRecord>) {
        self.tracked.push((range, Tracked::Owned(log)));
    }

    /// Makes all records: everything was sent.
    #[inline]
    pub(crate) fn settle(&mut self, ctx: &WorkerContext, connection: &ConnectionFacts) {
        if !self.is_empty() {
            self.finish(ctx, connection, i64::MAX);
        }
    }

    /// Makes the records of responses that end before `at`: those bytes were sent. Keeps the others.
    pub(crate) fn settle_before(
        &mut self,
        ctx: &WorkerContext,
        connection: &ConnectionFacts,
        at: i64,
    ) {
        if !self.is_empty() {
            let rest = self.take_rest(at);
            self.finish(ctx, connection, at);
            (self.counted, self.tracked) = (rest.counted, rest.tracked);
        }
    }

    /// Makes all records. The bytes before `at` were sent, and the others never will be.
    pub(crate) fn finish(&mut self, ctx: &WorkerContext, connection: &ConnectionFacts, at: i64) {
        let end = clock::now();
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
                Tracked::Copied { number, context, outcome } => {
                    if let Some(copy) = self.copies.get(number) {
                        let outcome = range.outcome(outcome, at);
                        ctx.record_at(&copy.as_request(), connection, &context, &outcome, end);
                    }
                }
                Tracked::Owned(log) => {
                    let outcome = range.outcome(log.outcome, at);
                    ctx.record_at(
                        &log.request.as_request(),
                        connection,
                        &log.context,
                        &outcome,
                        end,
                    );
                }
            }
        }
        self.copied = 0;
    }

    /// Removes and returns the records of responses that end after `at`.
    fn take_rest(&mut self, at: i64) -> Self {
        let mut rest = Self::default();
        rest.counted.extend(self.counted.extract_if(.., |(range, _)| range.end > at));
        let copies = &self.copies;
        let tracked = self.tracked.extract_if(.., |(range, _)| range.end > at);
        rest.tracked.extend(tracked.filter_map(|(range, tracked)| {
            let owned = match tracked {
                Tracked::Owned(log) => log,
                Tracked::Copied { number, context, outcome } => {
                    let request = copies.get(number)?.clone();
                    Box::new(DeferredRecord { request, context, outcome })
                }
            };
            Some((range, Tracked::Owned(owned)))
        }));
        rest
    }

    /// Makes the records of responses that end before `at`: those bytes were sent. Returns the others, with ranges
    /// relative to `at`.
    pub(crate) fn split_off(
        &mut self,
        ctx: &WorkerContext,
        connection: &ConnectionFacts,
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

    /// Adds the records of `rest`, whose responses are the first in the output.
    pub(crate) fn take_over(&mut self, rest: Self) {
        self.counted.extend(rest.counted);
        self.tracked.extend(rest.tracked);
    }

    /// Drops all records.
    pub(crate) fn clear(&mut self) {
        self.counted.clear();
        self.tracked.clear();
        self.copied = 0;
    }
}

impl CountedResponse {
    /// Creates the record of a response with status 200 that has `bytes` of body. `client` is called if there is no
    /// context.
    #[inline]
    pub(crate) fn new(
        request: &Request<'_>,
        (label, bytes): (Label, u64),
        read_times: Option<ReadTimes>,
        context: Option<&RequestContext>,
        client: impl FnOnce() -> Client,
    ) -> Self {
        Self {
            method: request.method(),
            version: request.version(),
            client: context.map_or_else(client, |context| context.client),
            label,
            status: 200,
            read_times,
            routed: context.map(|context| context.routed_at),
            bytes,
        }
    }
}

impl DeferredRecord {
    pub(crate) fn new(request: &Request<'_>, context: Rc<RequestContext>) -> Box<Self> {
        Box::new(Self { request: request.to_owned(), context, outcome: ResponseOutcome::NONE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_were_sent_are_recorded() {
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
        // The client closed the connection before anything was sent.
        assert_eq!(at(100), (499, 0, Completion::Aborted));
        assert_eq!(at(0), (499, 0, Completion::Aborted));
        // Earlier bytes of a large body were sent with other outputs.
        let rest = OutputRange { start: -5_000, end: 50, body: 50 };
        let whole = ResponseOutcome { bytes: 4_000, ..whole };
        assert_eq!((rest.outcome(whole, 0).status, rest.outcome(whole, 0).bytes), (200, 3_950));
    }
}
