//! Telemetry of one request, from its first byte to its access record.

use std::rc::Rc;
use std::time::Instant;

use dunlin_http::FieldLines;

use super::ScriptContext;
use super::metrics::Label;
use super::traces::Span;
use crate::checks::{Client, ConnectionPace, Pacer, RequestContext};
use crate::clock;
use crate::route::Route;
use crate::transport::{Peer, Transport};

/// Telemetry of one request. It is created when the head is complete, and ends with
/// [`WorkerContext::record`](crate::worker::WorkerContext::record). It also owns the request context, and with it the
/// permits of the request.
#[derive(Debug)]
pub(crate) struct RequestTelemetry {
    /// Index of the site.
    pub(crate) site: usize,
    /// Context of the checks; `None` if the route has no checks.
    pub(crate) context: Option<Rc<RequestContext>>,
    /// Context of the script; `None` if no script runs.
    pub(crate) script_context: Option<Rc<ScriptContext>>,
    /// Whether the request is logged.
    pub(crate) is_logged: bool,
    /// Telemetry settings of the route.
    pub(crate) route_telemetry: RouteTelemetry,
    pub(crate) timestamps: Timestamps,
    /// Span of a traced request.
    pub(crate) span: Option<Box<Span>>,
}

/// Telemetry settings of a route.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RouteTelemetry {
    /// Label of the route's metrics.
    pub(crate) label: Label,
    /// Send `Server-Timing` with responses.
    pub(crate) server_timing: bool,
}

impl RouteTelemetry {
    /// Returns the telemetry settings of a route.
    #[inline]
    pub(crate) fn of(route: &Route) -> Self {
        Self { label: route.label, server_timing: route.server_timing }
    }
}

/// Timestamps of one request. Phases within one iteration of the worker share a timestamp.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timestamps {
    /// Start of the connection, for its first request.
    pub(crate) connection_start: Option<ConnectionStart>,
    /// The first byte was read.
    pub(crate) first_byte: Instant,
    /// The head was complete.
    pub(crate) head: Instant,
    /// The first byte of the response was written.
    pub(crate) first_out: Option<Instant>,
}

/// When the bytes of a request were read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTimes {
    first_byte: Instant,
    last_read: Instant,
}

/// Timestamps of the start of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionStart {
    /// The connection was accepted.
    pub(crate) accepted: Instant,
    /// The TLS handshake was done.
    pub(crate) secured: Option<Instant>,
}

/// Durations of the phases of a request in nanoseconds. `None` for a phase that the request did not have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timings {
    /// From accepting the connection to the end of the TLS handshake.
    pub(crate) tls: Option<u64>,
    /// From there to the first byte of the request.
    pub(crate) idle: Option<u64>,
    /// From the first byte to the end of the head.
    pub(crate) head: u64,
    /// From there to the end of routing, including the wait for earlier requests of the connection; `None` if it is
    /// not measured apart from `handler`.
    pub(crate) route: Option<u64>,
    /// Waiting for checks.
    pub(crate) gate: Option<u64>,
    /// From there to the first byte of the response.
    pub(crate) handler: Option<u64>,
    /// From there to the last byte of the response.
    pub(crate) send: Option<u64>,
}

/// Names of the phases in chronological order.
pub const PHASES: [&str; 7] = ["tls", "idle", "head", "route", "gate", "handler", "send"];

impl ConnectionStart {
    /// Creates the timestamps of a connection that is accepted now.
    pub(crate) fn now() -> Self {
        Self { accepted: clock::now(), secured: None }
    }
}

impl ReadTimes {
    /// Updates `known` after a read. A request `begins` with the bytes if none was incomplete.
    pub(crate) fn after_read(known: Option<Self>, begins: bool) -> Self {
        let now = clock::now();
        let first_byte = known.filter(|_| !begins).map_or(now, |known| known.first_byte);
        Self { first_byte, last_read: now }
    }

    /// Creates the times of a request that was read at once.
    fn at(moment: Instant) -> Self {
        Self { first_byte: moment, last_read: moment }
    }

    /// Returns the timings of a request with a cached response that is only counted. It ended at `end`.
    #[inline]
    pub(crate) fn timings(self, routed: Option<Instant>, end: Instant) -> Timings {
        let handler = nanos(routed.unwrap_or(self.last_read), end);
        Timings {
            head: nanos(self.first_byte, self.last_read),
            route: routed.map(|routed| nanos(self.last_read, routed)),
            handler: Some(handler),
            send: Some(0),
            ..Timings::default()
        }
    }

    /// Returns when the first byte was read.
    #[inline]
    pub(crate) fn first_byte(self) -> Instant {
        self.first_byte
    }
}

impl RequestTelemetry {
    /// Creates the telemetry of a request whose head was complete with the last read. Uses the current time without
    /// `read_times`.
    #[inline]
    pub(crate) fn new(
        read_times: Option<ReadTimes>,
        connection_start: Option<ConnectionStart>,
    ) -> Self {
        let ReadTimes { first_byte, last_read: head } =
            read_times.unwrap_or_else(|| ReadTimes::at(clock::now()));
        let timestamps = Timestamps { connection_start, first_byte, head, first_out: None };
        let route_telemetry = RouteTelemetry::default();
        Self {
            site: 0,
            context: None,
            script_context: None,
            is_logged: true,
            route_telemetry,
            timestamps,
            span: None,
        }
    }

    /// Adds the result of routing. A request with a context has telemetry even if nothing uses it, as the telemetry
    /// owns the permits in the context.
    #[inline]
    pub(crate) fn routed(
        telemetry: Option<Self>,
        site: usize,
        context: Option<Rc<RequestContext>>,
        is_logged: bool,
        route_telemetry: RouteTelemetry,
    ) -> Option<Self> {
        let telemetry = match (telemetry, &context) {
            (None, None) if !route_telemetry.server_timing => return None,
            (telemetry, context) => telemetry.unwrap_or_else(|| {
                Self::new(context.as_ref().map(|context| ReadTimes::at(context.routed_at)), None)
            }),
        };
        Some(Self { site, context, is_logged, route_telemetry, ..telemetry })
    }

    /// Returns the client, resolved through trusted proxies.
    pub(crate) fn client(&self, peer: Peer, stream: &Transport) -> Client {
        self.context.as_ref().map_or_else(|| Client::of(peer, stream), |context| context.client)
    }

    /// Returns the value of `traceparent` for handlers, if the request is traced.
    pub(crate) fn traceparent(&self) -> Option<Box<str>> {
        self.span.as_ref().map(|span| span.traceparent().into())
    }

    /// Returns `true` if the response has fields that depend on this request.
    #[inline]
    pub(crate) fn has_fields(&self) -> bool {
        self.route_telemetry.server_timing
            || self.context.as_ref().is_some_and(|context| context.has_fields())
    }

    /// Sets the time of the first byte of the response.
    pub(crate) fn begin_response(&mut self) {
        self.timestamps.first_out = Some(clock::now());
    }

    /// Starts the response: appends the fields of the checks and `Server-Timing`.
    pub(crate) fn append_fields(&mut self, fields: &mut FieldLines) {
        self.begin_response();
        if let Some(context) = &self.context {
            context.append_fields(fields);
        }
        if self.route_telemetry.server_timing {
            fields.push("Server-Timing", self.server_timing());
        }
    }

    /// Returns the phases so far as a value of `Server-Timing`, in milliseconds.
    fn server_timing(&self) -> String {
        // The duration of sending is unknown when the head is written.
        let timings = Timings { send: None, ..self.timings(clock::now()) };
        let told = timings
            .iter()
            .map(|(name, micros)| format!("{name};dur={:.3}", micros as f64 / 1000.0));
        told.collect::<Vec<_>>().join(", ")
    }

    /// Returns the durations of all phases. The last one ends at `end`.
    pub(crate) fn timings(&self, end: Instant) -> Timings {
        let Timestamps { connection_start, first_byte, head, first_out } = self.timestamps;
        let context = self.context.as_deref();
        let routed = context.map(|context| context.routed_at);
        let passed = context.and_then(RequestContext::admitted_at);
        let first_out = first_out.unwrap_or(end);
        Timings {
            tls: connection_start.and_then(|connection_start| {
                Some(nanos(connection_start.accepted, connection_start.secured?))
            }),
            idle: connection_start.map(|connection_start| {
                nanos(connection_start.secured.unwrap_or(connection_start.accepted), first_byte)
            }),
            head: nanos(first_byte, head),
            route: routed.map(|routed| nanos(head, routed)),
            gate: passed.map(|passed| nanos(routed.unwrap_or(head), passed)),
            handler: Some(nanos(passed.or(routed).unwrap_or(head), first_out)),
            send: Some(nanos(first_out, end)),
        }
    }

    /// Returns the pacer of the response body, if a bandwidth limit applies.
    #[inline]
    pub(crate) fn pacer(
        &self,
        connection: &mut Option<ConnectionPace>,
        short: Option<usize>,
    ) -> Option<Pacer> {
        self.context.as_ref()?.pacer(connection, short, clock::now)
    }
}

impl Timings {
    /// Returns the durations in the order of [`PHASES`].
    #[inline]
    pub(crate) fn all(&self) -> [Option<u64>; PHASES.len()] {
        let Self { tls, idle, head, route, gate, handler, send } = *self;
        [tls, idle, Some(head), route, gate, handler, send]
    }

    /// Removes the phases of the response, for a request that is in progress.
    pub(crate) fn begun(self) -> Self {
        Self { handler: None, send: None, ..self }
    }

    /// Returns name and microseconds of the phases that the request had.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = PHASES.into_iter().zip(self.all());
        named.filter_map(|(name, nanos)| Some((name, nanos? / 1_000)))
    }
}

fn nanos(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
