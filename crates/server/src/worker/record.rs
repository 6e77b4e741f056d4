//! From a request that is followed to what is told of it: counted, logged, watched, traced.

use std::time::{Duration, Instant};

use dunlin_http::semantics::Method;
use dunlin_http::{FieldName, Request, Version};

use super::{Counted, SharedState, WorkerContext};
use crate::checks::Client;
use crate::telemetry::live::{Head, Seen};
use crate::telemetry::metrics::{Finished, Key, Label, named};
use crate::telemetry::{Arrival, Exchange, Opening, Times, Track};
use crate::transport::{Peer, Transport};

/// Where a request came from, for the log.
pub(crate) struct From<'a> {
    pub(crate) peer: Peer,
    /// The serial number of the connection.
    pub(crate) connection: u64,
    pub(crate) stream: &'a Transport,
}

/// How an exchange ended, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    pub(crate) cache: &'static str,
    pub(crate) coding: &'static str,
    pub(crate) ending: Ending,
    /// The answer has no end but the client's leaving.
    pub(crate) is_endless: bool,
}

/// Whether an answer came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Whole,
    /// The client, the handler or a limit of time put an end to it before.
    BrokenOff,
}

impl Served {
    /// Of a request that has not been answered.
    pub(crate) const NOTHING: Self = Self {
        status: 0,
        bytes: 0,
        cache: "-",
        coding: "-",
        ending: Ending::Whole,
        is_endless: false,
    };

    /// So many bytes of the body were sent, and that was all, or was not.
    pub(crate) fn until(self, bytes: u64, ending: Ending) -> Self {
        let ending = if self.is_endless { Ending::Whole } else { ending };
        Self { bytes, ending, ..self }
    }

    /// What is recorded of a request whose client left: that of the answer, if there was one.
    pub(crate) fn or_client_left(self) -> Self {
        const CLIENT_LEFT: u16 = 499;
        Self { status: if self.status == 0 { CLIENT_LEFT } else { self.status }, ..self }
    }
}

/// When a request is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// To those who watch, when it begins.
    Begin,
    End {
        is_logged: bool,
        is_watched: bool,
    },
}

impl WorkerContext {
    /// Whether anybody wants to know of requests.
    #[inline]
    pub(crate) fn is_tracking(&self) -> bool {
        self.shared.is_counting || self.is_telling()
    }

    /// Whether somebody wants to be told of each request, and not only how many there were.
    #[inline]
    pub(crate) fn is_telling(&self) -> bool {
        self.is_logging || self.is_followed()
    }

    /// Whether somebody wants to be told where the time of each request went.
    #[inline]
    pub(crate) fn is_telling_times(&self) -> bool {
        self.logs_times || self.is_followed()
    }

    /// Whether somebody follows requests by traces, or as they happen.
    #[inline]
    fn is_followed(&self) -> bool {
        self.shared.tracer.is_some() || self.shared.hub.is_watched()
    }

    /// Follows a request whose head has arrived, when anybody wants to know.
    #[inline]
    pub(crate) fn track(
        &self,
        request: &Request<'_>,
        arrival: Option<Arrival>,
        opening: &mut Option<Opening>,
    ) -> Option<Track> {
        if !self.is_tracking() {
            return None;
        }
        let mut track = Track::new(arrival, opening.take());
        if let Some(tracer) = &self.shared.tracer {
            track.span = tracer.begin(request);
        }
        Some(track)
    }

    /// A request was routed and is going to be answered: tells whoever wants to hear of that.
    #[inline]
    pub(crate) fn begin(&self, request: &Request<'_>, from: &From<'_>, track: &Track) {
        if self.shared.hub.is_told_of_beginnings() {
            let now = Instant::now();
            let times = track.times(now).begun();
            self.tell(request, from, track, &Served::NOTHING, (now, times), Moment::Begin);
        }
    }

    /// Counts a response that was sent at once and is not recorded otherwise. It ended at `end`, as `served` says.
    #[inline]
    pub(crate) fn count(&self, counted: &Counted, served: &Served, end: Instant) {
        let Counted { method, version, client, label, arrival, routed, .. } = *counted;
        let first_byte = arrival.map_or(end, Arrival::first_byte);
        let times = arrival.map(|arrival| arrival.times(routed, end)).unwrap_or_default();
        let duration = end.saturating_duration_since(first_byte);
        let kind = (label, served.status);
        let what = (method, version);
        self.metrics.count(&finished(what, client, kind, (duration, times), served.bytes));
    }

    /// Takes the finished exchange: counts it, writes its log line, and tells whoever watches.
    #[inline]
    pub(crate) fn record(
        &self,
        request: &Request<'_>,
        from: &From<'_>,
        track: &Track,
        served: &Served,
    ) {
        self.record_at(request, from, track, served, Instant::now());
    }

    /// As [`Self::record`], of an exchange that ended at `end`.
    pub(crate) fn record_at(
        &self,
        request: &Request<'_>,
        from: &From<'_>,
        track: &Track,
        served: &Served,
        end: Instant,
    ) {
        if !self.is_tracking() {
            return;
        }
        let times = track.times(end);
        if self.shared.is_counting {
            let duration = end.saturating_duration_since(track.phases.first_byte);
            let client = track.client(from.peer, from.stream);
            let kind = (track.follow.label, served.status);
            let what = (request.method(), request.version());
            let finished = finished(what, client, kind, (duration, times), served.bytes);
            if served.is_endless {
                self.metrics.count_endless(&finished);
            } else {
                self.metrics.count(&finished);
            }
        }
        let is_logged = track.is_logged && self.is_logging;
        let is_watched = self.shared.hub.is_watched();
        if is_logged || is_watched || track.span.is_some() {
            let moment = Moment::End { is_logged, is_watched };
            self.tell(request, from, track, served, (end, times), moment);
        }
    }

    /// Writes its log line, and tells those who watch and who collect traces.
    fn tell(
        &self,
        request: &Request<'_>,
        from: &From<'_>,
        track: &Track,
        served: &Served,
        (end, times): (Instant, Times),
        moment: Moment,
    ) {
        let SharedState { reverse_dns, redactor, config, .. } = &*self.shared;
        let Client { address: peer, encrypted, .. } = track.client(from.peer, from.stream);
        let name = reverse_dns.as_ref().and_then(|dns| dns.name(peer.ip()?));
        let duration = end.saturating_duration_since(track.phases.first_byte);
        let began = self.clock.since_1970(track.phases.first_byte);
        let referer = request.field(FieldName::Referer).map(|referer| redactor.target(referer));
        let exchange = Exchange {
            peer,
            peer_name: name.as_deref(),
            user: track.context.as_deref().and_then(|context| context.user()).map(str::as_bytes),
            started_secs: began.as_secs(),
            started_nanos: began.subsec_nanos(),
            duration_ns: duration.as_nanos() as u64,
            method: request.method_text(),
            target: &redactor.target(request.target()),
            version: request.version().as_str(),
            status: served.status,
            body_bytes: served.bytes,
            referer: referer.as_deref(),
            user_agent: request.field(FieldName::UserAgent),
            host: request.field(FieldName::Host),
            site: config.sites.name(track.site),
            cache: served.cache,
            coding: served.coding,
            connection: from.connection,
            encrypted,
            times,
            tls: from.stream.tls(),
            course: track.course.as_deref(),
        };
        let begins = moment == Moment::Begin;
        let is_logged = matches!(moment, Moment::End { is_logged: true, .. });
        let is_watched = begins || matches!(moment, Moment::End { is_watched: true, .. });
        if is_logged && let Some(log) = &mut *self.log.borrow_mut() {
            log.record(&exchange);
        }
        if !is_watched && track.span.is_none() {
            return;
        }
        if is_watched {
            let (_, route) = named(track.follow.label);
            let head = Some(Head { request, redactor });
            let broken_off = served.ending == Ending::BrokenOff;
            let seen = Seen { begins, broken_off, exchange: &exchange, route: &route, head };
            self.shared.hub.tell(&seen, &mut self.time.borrow_mut());
        }
        if begins {
            return;
        }
        if let (Some(tracer), Some(span)) = (&self.shared.tracer, &track.span) {
            tracer.end(span, &exchange, &exchange.times, track.follow.label);
        }
    }
}

/// A request by its route and status, as it is counted.
#[inline]
fn finished(
    (method, version): (Method, Version),
    client: Client,
    (label, status): (Label, u16),
    (duration, times): (Duration, Times),
    sent: u64,
) -> Finished {
    let key = Key { label, method, version, encrypted: client.encrypted, status };
    Finished { key, peer: client.address, duration, times, sent }
}
