//! From a request that is followed to what is told of it: counted, logged, watched, traced.

use std::time::{Duration, Instant};

use dunlin_http::semantics::Method;
use dunlin_http::{FieldName, Request, Version};

use super::{CountedResponse, SharedState, WorkerContext};
use crate::checks::Client;
use crate::telemetry::live::{LiveEvent, RequestHead};
use crate::telemetry::metrics::{Finished, Key, Label, named};
use crate::telemetry::{AccessRecord, ConnectionStart, ReadTimes, RequestTelemetry, Timings};
use crate::transport::{Peer, Transport};

/// Where a request came from, for the log.
pub(crate) struct ConnectionInfo<'a> {
    pub(crate) peer: Peer,
    /// The serial number of the connection.
    pub(crate) serial: u64,
    pub(crate) stream: &'a Transport,
}

/// How an exchange ended, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseOutcome {
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    pub(crate) cache: &'static str,
    pub(crate) coding: &'static str,
    pub(crate) completion: Completion,
    /// The answer has no end but the client's leaving.
    pub(crate) is_endless: bool,
}

/// Whether an answer came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    Complete,
    /// The client, the handler or a limit of time put an end to it before.
    Aborted,
}

impl ResponseOutcome {
    /// Of a request that has not been answered.
    pub(crate) const NONE: Self = Self {
        status: 0,
        bytes: 0,
        cache: "-",
        coding: "-",
        completion: Completion::Complete,
        is_endless: false,
    };

    /// So many bytes of the body were sent, and that was all, or was not.
    pub(crate) fn finish(self, bytes: u64, completion: Completion) -> Self {
        let completion = if self.is_endless { Completion::Complete } else { completion };
        Self { bytes, completion, ..self }
    }

    /// What is recorded of a request whose client left: that of the answer, if there was one.
    pub(crate) fn or_client_closed(self) -> Self {
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
        has_subscribers: bool,
    },
}

impl WorkerContext {
    /// Whether anybody wants to know of requests.
    #[inline]
    pub(crate) fn has_telemetry(&self) -> bool {
        self.shared.is_counting || self.needs_records()
    }

    /// Whether somebody wants to be told of each request, and not only how many there were.
    #[inline]
    pub(crate) fn needs_records(&self) -> bool {
        self.is_logging || self.is_observed()
    }

    /// Whether somebody wants to be told where the time of each request went.
    #[inline]
    pub(crate) fn needs_timings(&self) -> bool {
        self.logs_timings || self.is_observed()
    }

    /// Whether somebody follows requests by traces, or as they happen.
    #[inline]
    fn is_observed(&self) -> bool {
        self.shared.tracer.is_some() || self.shared.live.has_subscribers()
    }

    /// Follows a request whose head has arrived, when anybody wants to know.
    #[inline]
    pub(crate) fn begin_telemetry(
        &self,
        request: &Request<'_>,
        read_times: Option<ReadTimes>,
        connection_start: &mut Option<ConnectionStart>,
    ) -> Option<RequestTelemetry> {
        if !self.has_telemetry() {
            return None;
        }
        let mut telemetry = RequestTelemetry::new(read_times, connection_start.take());
        if let Some(tracer) = &self.shared.tracer {
            telemetry.span = tracer.begin(request);
        }
        Some(telemetry)
    }

    /// A request was routed and is going to be answered: tells whoever wants to hear of that.
    #[inline]
    pub(crate) fn publish_start(
        &self,
        request: &Request<'_>,
        connection: &ConnectionInfo<'_>,
        telemetry: &RequestTelemetry,
    ) {
        if self.shared.live.wants_starts() {
            let now = Instant::now();
            let timings = telemetry.timings(now).begun();
            self.emit(
                request,
                connection,
                telemetry,
                &ResponseOutcome::NONE,
                (now, timings),
                Moment::Begin,
            );
        }
    }

    /// Counts a response that was sent at once and is not recorded otherwise. It ended at `end`, as `served` says.
    #[inline]
    pub(crate) fn count(&self, counted: &CountedResponse, outcome: &ResponseOutcome, end: Instant) {
        let CountedResponse { method, version, client, label, read_times, routed, .. } = *counted;
        let first_byte = read_times.map_or(end, ReadTimes::first_byte);
        let timings =
            read_times.map(|read_times| read_times.timings(routed, end)).unwrap_or_default();
        let duration = end.saturating_duration_since(first_byte);
        let kind = (label, outcome.status);
        let what = (method, version);
        self.metrics.count(&finished(what, client, kind, (duration, timings), outcome.bytes));
    }

    /// Takes the finished exchange: counts it, writes its log line, and tells whoever watches.
    #[inline]
    pub(crate) fn record(
        &self,
        request: &Request<'_>,
        connection: &ConnectionInfo<'_>,
        telemetry: &RequestTelemetry,
        outcome: &ResponseOutcome,
    ) {
        self.record_at(request, connection, telemetry, outcome, Instant::now());
    }

    /// As [`Self::record`], of an exchange that ended at `end`.
    pub(crate) fn record_at(
        &self,
        request: &Request<'_>,
        connection: &ConnectionInfo<'_>,
        telemetry: &RequestTelemetry,
        outcome: &ResponseOutcome,
        end: Instant,
    ) {
        if !self.has_telemetry() {
            return;
        }
        let timings = telemetry.timings(end);
        if self.shared.is_counting {
            let duration = end.saturating_duration_since(telemetry.timestamps.first_byte);
            let client = telemetry.client(connection.peer, connection.stream);
            let kind = (telemetry.route_telemetry.label, outcome.status);
            let what = (request.method(), request.version());
            let finished = finished(what, client, kind, (duration, timings), outcome.bytes);
            if outcome.is_endless {
                self.metrics.count_endless(&finished);
            } else {
                self.metrics.count(&finished);
            }
        }
        let is_logged = telemetry.is_logged && self.is_logging;
        let has_subscribers = self.shared.live.has_subscribers();
        if is_logged || has_subscribers || telemetry.span.is_some() {
            let moment = Moment::End { is_logged, has_subscribers };
            self.emit(request, connection, telemetry, outcome, (end, timings), moment);
        }
    }

    /// Writes its log line, and tells those who watch and who collect traces.
    fn emit(
        &self,
        request: &Request<'_>,
        connection: &ConnectionInfo<'_>,
        telemetry: &RequestTelemetry,
        outcome: &ResponseOutcome,
        (end, timings): (Instant, Timings),
        moment: Moment,
    ) {
        let SharedState { reverse_dns, redactor, config, .. } = &*self.shared;
        let Client { address: peer, encrypted, .. } =
            telemetry.client(connection.peer, connection.stream);
        let name = reverse_dns.as_ref().and_then(|dns| dns.name(peer.ip()?));
        let duration = end.saturating_duration_since(telemetry.timestamps.first_byte);
        let began = self.clock.since_1970(telemetry.timestamps.first_byte);
        let referer = request.field(FieldName::Referer).map(|referer| redactor.target(referer));
        let record = AccessRecord {
            peer,
            peer_name: name.as_deref(),
            user: telemetry
                .context
                .as_deref()
                .and_then(|context| context.user())
                .map(str::as_bytes),
            started_secs: began.as_secs(),
            started_nanos: began.subsec_nanos(),
            duration_ns: duration.as_nanos() as u64,
            method: request.method_text(),
            target: &redactor.target(request.target()),
            version: request.version().as_str(),
            status: outcome.status,
            body_bytes: outcome.bytes,
            referer: referer.as_deref(),
            user_agent: request.field(FieldName::UserAgent),
            host: request.field(FieldName::Host),
            site: config.sites.name(telemetry.site),
            cache: outcome.cache,
            coding: outcome.coding,
            connection: connection.serial,
            encrypted,
            timings,
            tls: connection.stream.tls(),
            script_context: telemetry.script_context.as_deref(),
        };
        let is_start = moment == Moment::Begin;
        let is_logged = matches!(moment, Moment::End { is_logged: true, .. });
        let has_subscribers =
            is_start || matches!(moment, Moment::End { has_subscribers: true, .. });
        if is_logged && let Some(log) = &mut *self.log.borrow_mut() {
            log.record(&record);
        }
        if !has_subscribers && telemetry.span.is_none() {
            return;
        }
        if has_subscribers {
            let (_, route) = named(telemetry.route_telemetry.label);
            let head = Some(RequestHead { request, redactor });
            let broken_off = outcome.completion == Completion::Aborted;
            let event = LiveEvent { is_start, broken_off, record: &record, route: &route, head };
            self.shared.live.publish(&event, &mut self.time.borrow_mut());
        }
        if is_start {
            return;
        }
        if let (Some(tracer), Some(span)) = (&self.shared.tracer, &telemetry.span) {
            tracer.end(span, &record, &record.timings, telemetry.route_telemetry.label);
        }
    }
}

/// A request by its route and status, as it is counted.
#[inline]
fn finished(
    (method, version): (Method, Version),
    client: Client,
    (label, status): (Label, u16),
    (duration, timings): (Duration, Timings),
    sent: u64,
) -> Finished {
    let key = Key { label, method, version, encrypted: client.encrypted, status };
    Finished { key, peer: client.address, duration, timings, sent }
}
