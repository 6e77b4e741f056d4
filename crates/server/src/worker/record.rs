//! Telemetry of a worker: from a request to its metrics, access record, live events and span.

use std::rc::Rc;
use std::time::{Duration, Instant};

use dunlin_exchange::{Client, ConnectionFacts, RequestContext};
use dunlin_http::semantics::Method;
use dunlin_http::{FieldName, Request, Version};
use dunlin_net::clock;
use dunlin_telemetry::live::{LiveEvent, RequestHead};
use dunlin_telemetry::metrics::{Finished, Key, Label, named};
use dunlin_telemetry::{AccessRecord, ConnectionStart, LogChoice, ReadTimes, Timings};

use super::{CountedResponse, SharedState, WorkerContext};

/// Outcome of a response, for its access record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseOutcome {
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// Bytes that the client has sent through a tunnel; `None` if there is no tunnel.
    pub(crate) received: Option<u64>,
    pub(crate) cache: &'static str,
    pub(crate) coding: &'static str,
    pub(crate) completion: Completion,
    /// The response lasts until the client closes the connection.
    pub(crate) is_endless: bool,
}

/// The end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    Complete,
    /// The client, the handler or a timeout ended the response early.
    Aborted,
}

impl ResponseOutcome {
    /// Outcome of a request without a response.
    pub(crate) const NONE: Self = Self {
        status: 0,
        bytes: 0,
        received: None,
        cache: "-",
        coding: "-",
        completion: Completion::Complete,
        is_endless: false,
    };

    /// Sets the number of sent body bytes and the completion. An endless response is always complete.
    pub(crate) fn finish(self, bytes: u64, completion: Completion) -> Self {
        let completion = if self.is_endless { Completion::Complete } else { completion };
        Self { bytes, completion, ..self }
    }

    /// Sets the status 499 if the client closed the connection before there was a response.
    pub(crate) fn or_client_closed(self) -> Self {
        const CLIENT_LEFT: u16 = 499;
        Self { status: if self.status == 0 { CLIENT_LEFT } else { self.status }, ..self }
    }
}

/// The moment of a request that is reported, and the consumers that get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The start, for subscribers.
    Begin,
    End {
        is_logged: bool,
        has_subscribers: bool,
    },
}

impl WorkerContext {
    /// Returns `true` if requests need telemetry.
    #[inline]
    pub(crate) fn has_telemetry(&self) -> bool {
        self.shared.is_counting || self.needs_records()
    }

    /// Returns `true` if requests need access records, and not only metrics.
    #[inline]
    pub(crate) fn needs_records(&self) -> bool {
        self.is_logging || self.is_observed()
    }

    /// Returns `true` if access records need timings.
    #[inline]
    pub(crate) fn needs_timings(&self) -> bool {
        self.logs_timings || self.is_observed()
    }

    /// Returns `true` if there is a tracer or a subscriber.
    #[inline]
    fn is_observed(&self) -> bool {
        self.shared.tracer.is_some() || self.shared.live.has_subscribers()
    }

    /// Prepares the context of a request for context, if that is needed. Creates the context if the router has not.
    #[inline]
    pub(crate) fn begin_telemetry(
        &self,
        request: &Request<'_>,
        connection: &ConnectionFacts,
        context: Option<Rc<RequestContext>>,
        read_times: Option<ReadTimes>,
        connection_start: &mut Option<ConnectionStart>,
    ) -> Option<Rc<RequestContext>> {
        if !self.has_telemetry() {
            return context;
        }
        let read_times = read_times.unwrap_or_else(|| ReadTimes::at(clock::now()));
        let context = context.unwrap_or_else(|| {
            let client = Client::of(connection);
            Rc::new(RequestContext::unmeasured(client, read_times.last_read()))
        });
        context.set_times(read_times, connection_start.take());
        if let Some(tracer) = &self.shared.tracer
            && let Some(span) = tracer.begin(request)
        {
            context.set_span(span);
        }
        Some(context)
    }

    /// Publishes the start of a request after routing, if a subscriber wants it.
    #[inline]
    pub(crate) fn publish_start(
        &self,
        request: &Request<'_>,
        connection: &ConnectionFacts,
        context: &RequestContext,
    ) {
        if self.shared.live.wants_starts() {
            let now = clock::now();
            let timings = context.timings(now).begun();
            self.emit(
                request,
                connection,
                context,
                &ResponseOutcome::NONE,
                (now, timings),
                Moment::Begin,
            );
        }
    }

    /// Counts a response that has no access record. It ended at `end`.
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

    /// Records a finished exchange: counts it, logs it, publishes it to subscribers and ends its span.
    #[inline]
    pub(crate) fn record(
        &self,
        request: &Request<'_>,
        connection: &ConnectionFacts,
        context: &RequestContext,
        outcome: &ResponseOutcome,
    ) {
        self.record_at(request, connection, context, outcome, clock::now());
    }

    /// Like [`Self::record`], for an exchange that ended at `end`.
    pub(crate) fn record_at(
        &self,
        request: &Request<'_>,
        connection: &ConnectionFacts,
        context: &RequestContext,
        outcome: &ResponseOutcome,
        end: Instant,
    ) {
        if !self.has_telemetry() {
            return;
        }
        let timings = context.timings(end);
        if self.shared.is_counting {
            let duration = end.saturating_duration_since(context.first_byte());
            let client = context.client;
            let kind = (context.route().label, outcome.status);
            let what = (request.method(), request.version());
            let finished = finished(what, client, kind, (duration, timings), outcome.bytes);
            if outcome.is_endless {
                self.metrics.count_endless(&finished);
            } else {
                self.metrics.count(&finished);
            }
        }
        let is_logged = context.route().log != LogChoice::Off && self.is_logging;
        let has_subscribers = self.shared.live.has_subscribers();
        if is_logged || has_subscribers || context.span().is_some() {
            let moment = Moment::End { is_logged, has_subscribers };
            self.emit(request, connection, context, outcome, (end, timings), moment);
        }
    }

    /// Builds the access record and passes it to the log, subscribers and tracer.
    fn emit(
        &self,
        request: &Request<'_>,
        connection: &ConnectionFacts,
        context: &RequestContext,
        outcome: &ResponseOutcome,
        (end, timings): (Instant, Timings),
        moment: Moment,
    ) {
        let SharedState { reverse_dns, redactor, config, .. } = &*self.shared;
        let Client { address: peer, encrypted, .. } = context.client;
        let name = reverse_dns.as_ref().and_then(|dns| dns.name(peer.ip()?));
        let duration = end.saturating_duration_since(context.first_byte());
        let began = self.clock.since_1970(context.first_byte());
        let referer = request.field(FieldName::Referer).map(|referer| redactor.target(referer));
        let record = AccessRecord {
            peer,
            peer_name: name.as_deref(),
            user: context.user().map(str::as_bytes),
            started_secs: began.as_secs(),
            started_nanos: began.subsec_nanos(),
            duration_ns: duration.as_nanos() as u64,
            method: request.method_text(),
            target: &redactor.target(request.target()),
            version: request.version().as_str(),
            status: outcome.status,
            body_bytes: outcome.bytes,
            plain_bytes: context.plain_bytes(),
            tunnel_received: outcome.received,
            referer: referer.as_deref(),
            user_agent: request.field(FieldName::UserAgent),
            host: request.field(FieldName::Host),
            request: Some(request),
            response_lines: &context.response_lines(),
            site: config.sites.name(context.site()),
            cache: outcome.cache,
            coding: outcome.coding,
            connection: connection.serial,
            encrypted,
            timings,
            tls: connection.tls.as_deref().cloned(),
            script_context: context.script(),
        };
        let is_start = moment == Moment::Begin;
        let is_logged = matches!(moment, Moment::End { is_logged: true, .. });
        let has_subscribers =
            is_start || matches!(moment, Moment::End { has_subscribers: true, .. });
        if is_logged {
            self.logs.borrow_mut().record(context.route().log, &record);
        }
        if !has_subscribers && context.span().is_none() {
            return;
        }
        if has_subscribers {
            let (_, route) = named(context.route().label);
            let head = Some(RequestHead { request, redactor });
            let broken_off = outcome.completion == Completion::Aborted;
            let event = LiveEvent { is_start, broken_off, record: &record, route: &route, head };
            self.shared.live.publish(&event, &mut self.time.borrow_mut());
        }
        if is_start {
            return;
        }
        if let (Some(tracer), Some(span)) = (&self.shared.tracer, context.span()) {
            tracer.end(span, &record, &record.timings, context.route().label);
        }
    }
}

/// Builds the input of the metrics.
#[inline]
fn finished(
    (method, version): (Method, Version),
    client: Client,
    (label, status): (Label, u16),
    (duration, timings): (Duration, Timings),
    sent: u64,
) -> Finished {
    // Both are CONNECT.
    let method = if method == Method::ExtendedConnect { Method::Connect } else { method };
    let key = Key { label, method, version, encrypted: client.encrypted, status };
    Finished { key, peer: client.address, duration, timings, sent }
}
