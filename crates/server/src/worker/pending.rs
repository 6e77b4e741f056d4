//! Records of responses that are in an output buffer. They are made once the socket has taken the bytes, so that nothing
//! is counted or logged as sent that was not.

use std::time::Instant;

use dunlin_http::semantics::Method;
use dunlin_http::{OwnedRequest, Request, Version};

use super::{Ending, From, Served, WorkerContext};
use crate::checks::Client;
use crate::telemetry::metrics::Label;
use crate::telemetry::{Arrival, Track};

/// Bytes that are collected for one write, and the records of the responses that end among them.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pending: Pending,
}

/// Records to be made when the socket has taken the responses.
#[derive(Default)]
pub(crate) struct Pending {
    counted: Vec<(Place, Counted)>,
    tracked: Vec<(Place, Tracked)>,
    /// Copies of requests, which are used again and again, and how many are in use.
    copies: Vec<OwnedRequest>,
    copied: usize,
}

/// Where a response is among the bytes of an output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its first byte; negative when it was sent before.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Bytes of its body, which are taken to be the last before `end`.
    pub(crate) body: u64,
}

/// A response that is only counted.
pub(crate) struct Counted {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) client: Client,
    pub(crate) label: Label,
    pub(crate) status: u16,
    pub(crate) arrival: Option<Arrival>,
    /// When its route was found, if that is known.
    pub(crate) routed: Option<Instant>,
    /// Bytes of its body.
    pub(crate) bytes: u64,
}

/// What the record of a request needs when it cannot be made at once.
pub(crate) struct LogLater {
    pub(crate) request: OwnedRequest,
    pub(crate) track: Track,
    pub(crate) served: Served,
}

enum Tracked {
    /// The request is the copy of that number.
    Copied {
        number: usize,
        track: Track,
        served: Served,
    },
    Owned(Box<LogLater>),
}

impl Place {
    /// A response of which the first byte is at `start` and the last before `end`.
    pub(crate) fn new(start: usize, end: usize, body: u64) -> Self {
        Self { start: start as i64, end: end as i64, body }
    }

    /// What became of a response of which the socket has taken what stands before `at`.
    fn served(&self, served: Served, at: i64) -> Served {
        if self.end <= at {
            return served;
        }
        let unsent = self.body.min((self.end - at) as u64);
        let status = if self.start >= at { 0 } else { served.status };
        let bytes = served.bytes.saturating_sub(unsent);
        Served { status, ..served.until(bytes, Ending::BrokenOff) }.or_client_left()
    }
}

impl Pending {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.counted.is_empty() && self.tracked.is_empty()
    }

    /// Counts a response when it has been sent.
    #[inline]
    pub(crate) fn count(&mut self, place: Place, counted: Counted) {
        self.counted.push((place, counted));
    }

    /// Records a response when it has been sent.
    pub(crate) fn record(
        &mut self,
        place: Place,
        request: &Request<'_>,
        track: Track,
        served: Served,
    ) {
        let number = self.copied;
        match self.copies.get_mut(number) {
            Some(copy) => copy.assign(request),
            None => self.copies.push(request.to_owned()),
        }
        self.copied += 1;
        self.tracked.push((place, Tracked::Copied { number, track, served }));
    }

    /// Records a response when it has been sent.
    pub(crate) fn record_later(&mut self, place: Place, log: Box<LogLater>) {
        self.tracked.push((place, Tracked::Owned(log)));
    }

    /// Everything has been sent.
    #[inline]
    pub(crate) fn settle(&mut self, ctx: &WorkerContext, from: &From<'_>) {
        if !self.is_empty() {
            self.finish(ctx, from, i64::MAX);
        }
    }

    /// What stands before `at` has been sent; the rest is still to be.
    pub(crate) fn settle_before(&mut self, ctx: &WorkerContext, from: &From<'_>, at: i64) {
        if !self.is_empty() {
            let rest = self.take_rest(at);
            self.finish(ctx, from, at);
            (self.counted, self.tracked) = (rest.counted, rest.tracked);
        }
    }

    /// Makes all records. What stands before `at` has been sent, and the rest never will be.
    pub(crate) fn finish(&mut self, ctx: &WorkerContext, from: &From<'_>, at: i64) {
        let end = Instant::now();
        for (place, counted) in self.counted.drain(..) {
            let served = Served { status: counted.status, bytes: counted.bytes, ..Served::NOTHING };
            ctx.count(&counted, &place.served(served, at), end);
        }
        for (place, tracked) in self.tracked.drain(..) {
            match tracked {
                Tracked::Copied { number, track, served } => {
                    if let Some(copy) = self.copies.get(number) {
                        let served = place.served(served, at);
                        ctx.record_at(&copy.as_request(), from, &track, &served, end);
                    }
                }
                Tracked::Owned(log) => {
                    let served = place.served(log.served, at);
                    ctx.record_at(&log.request.as_request(), from, &log.track, &served, end);
                }
            }
        }
        self.copied = 0;
    }

    /// Takes those away that end behind `at`.
    fn take_rest(&mut self, at: i64) -> Self {
        let mut rest = Self::default();
        rest.counted.extend(self.counted.extract_if(.., |(place, _)| place.end > at));
        let copies = &self.copies;
        let tracked = self.tracked.extract_if(.., |(place, _)| place.end > at);
        rest.tracked.extend(tracked.filter_map(|(place, tracked)| {
            let owned = match tracked {
                Tracked::Owned(log) => log,
                Tracked::Copied { number, track, served } => {
                    let request = copies.get(number)?.clone();
                    Box::new(LogLater { request, track, served })
                }
            };
            Some((place, Tracked::Owned(owned)))
        }));
        rest
    }

    /// What stands before `at` has been sent: records it, and hands over what ends behind it, with places that count from
    /// there.
    pub(crate) fn split_off(&mut self, ctx: &WorkerContext, from: &From<'_>, at: usize) -> Self {
        if self.is_empty() {
            return Self::default();
        }
        let at = at as i64;
        let mut rest = self.take_rest(at);
        self.finish(ctx, from, at);
        let places = rest.counted.iter_mut().map(|(place, _)| place);
        for place in places.chain(rest.tracked.iter_mut().map(|(place, _)| place)) {
            (place.start, place.end) = (place.start - at, place.end - at);
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

impl LogLater {
    pub(crate) fn new(request: &Request<'_>, track: Track) -> Box<Self> {
        Box::new(Self { request: request.to_owned(), track, served: Served::NOTHING })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_sent_is_not_recorded_as_sent() {
        let place = Place::new(100, 400, 200);
        let whole = Served { status: 200, bytes: 200, ..Served::NOTHING };
        let at = |at| {
            let served = place.served(whole, at);
            (served.status, served.bytes, served.ending)
        };
        assert_eq!(at(i64::MAX), (200, 200, Ending::Whole));
        assert_eq!(at(400), (200, 200, Ending::Whole));
        assert_eq!(at(399), (200, 199, Ending::BrokenOff));
        assert_eq!(at(200), (200, 0, Ending::BrokenOff));
        assert_eq!(at(101), (200, 0, Ending::BrokenOff));
        // The client left before anything was sent.
        assert_eq!(at(100), (499, 0, Ending::BrokenOff));
        assert_eq!(at(0), (499, 0, Ending::BrokenOff));
        // Earlier bytes of a large body have been sent.
        let rest = Place { start: -5_000, end: 50, body: 50 };
        let whole = Served { bytes: 4_000, ..whole };
        assert_eq!((rest.served(whole, 0).status, rest.served(whole, 0).bytes), (200, 3_950));
    }
}
