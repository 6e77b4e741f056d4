//! What is known of a request besides its bytes, from its arrival to its log line.

use std::rc::Rc;
use std::time::Instant;

use dunlin_http::FieldLines;

use super::ScriptContext;
use super::metrics::Label;
use super::traces::Span;
use crate::checks::{Client, ConnectionPace, Pacer, RequestContext};
use crate::config::Settings;
use crate::transport::{Peer, Transport};

/// One request's way through the server. It is made when the head has arrived, and ends with
/// [`WorkerContext::record`](crate::worker::WorkerContext::record); whatever the gates lent to the request is given
/// back with it.
#[derive(Debug)]
pub(crate) struct RequestTelemetry {
    /// The site's number.
    pub(crate) site: usize,
    /// What the gates know of who asks; `None` when the route has none.
    pub(crate) context: Option<Rc<RequestContext>>,
    /// What a script tells of it; `None` when it is for none.
    pub(crate) script_context: Option<Rc<ScriptContext>>,
    /// Whether the access log has a line for it.
    pub(crate) is_logged: bool,
    /// What it is counted by, and how its client is told of its time.
    pub(crate) route_telemetry: RouteTelemetry,
    pub(crate) timestamps: Timestamps,
    /// Present when it is traced.
    pub(crate) span: Option<Box<Span>>,
}

/// How a route's requests are followed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RouteTelemetry {
    /// What they are counted by.
    pub(crate) label: Label,
    /// Whether answers tell in `Server-Timing` where the time went.
    pub(crate) server_timing: bool,
}

impl RouteTelemetry {
    /// As those settings have it.
    #[inline]
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { label: settings.label, server_timing: settings.server_timing }
    }
}

/// Moments on the way of one request. What happened at once, within the same turn of the worker, has
/// no moment of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timestamps {
    /// How its connection began, when it is the first one of it.
    pub(crate) connection_start: Option<ConnectionStart>,
    /// Its first byte was read.
    pub(crate) first_byte: Instant,
    /// Its head was complete.
    pub(crate) head: Instant,
    /// The first byte of the answer was written.
    pub(crate) first_out: Option<Instant>,
}

/// When the bytes of a request were read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTimes {
    first_byte: Instant,
    last_read: Instant,
}

/// How a connection began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionStart {
    /// It was accepted.
    pub(crate) accepted: Instant,
    /// Its TLS handshake was done.
    pub(crate) secured: Option<Instant>,
}

/// How long each phase took, in nanoseconds; `None` for a phase that the request did not have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timings {
    /// From the connection's beginning to the end of the TLS handshake.
    pub(crate) tls: Option<u64>,
    /// From there to the request's first byte.
    pub(crate) idle: Option<u64>,
    /// From the first byte to the end of the head.
    pub(crate) head: u64,
    /// From there until its route was found, behind the requests that came before it; `None` where nobody
    /// wants to know it apart from what follows.
    pub(crate) route: Option<u64>,
    /// Waiting at gates.
    pub(crate) gate: Option<u64>,
    /// From there to the answer's first byte.
    pub(crate) handler: Option<u64>,
    /// From there to the answer's last byte.
    pub(crate) send: Option<u64>,
}

/// The names of the phases, in the order of time.
pub const PHASES: [&str; 7] = ["tls", "idle", "head", "route", "gate", "handler", "send"];

impl ConnectionStart {
    /// Of a connection that was accepted now.
    pub(crate) fn now() -> Self {
        Self { accepted: Instant::now(), secured: None }
    }
}

impl ReadTimes {
    /// Bytes were read now: more of what `known` tells of, unless something new begins with them.
    pub(crate) fn after_read(known: Option<Self>, begins: bool) -> Self {
        let now = Instant::now();
        let first_byte = known.filter(|_| !begins).map_or(now, |known| known.first_byte);
        Self { first_byte, last_read: now }
    }

    /// All of them at that moment.
    fn at(moment: Instant) -> Self {
        Self { first_byte: moment, last_read: moment }
    }

    /// How long the phases took of a request that was answered at once and is only counted, from its first byte
    /// to `end`.
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

    /// When the first of the bytes was read.
    #[inline]
    pub(crate) fn first_byte(self) -> Instant {
        self.first_byte
    }
}

impl RequestTelemetry {
    /// Of a request whose head was complete with the bytes that were read last; now, where that is not
    /// known.
    #[inline]
    pub(crate) fn new(
        read_times: Option<ReadTimes>,
        connection_start: Option<ConnectionStart>,
    ) -> Self {
        let ReadTimes { first_byte, last_read: head } =
            read_times.unwrap_or_else(|| ReadTimes::at(Instant::now()));
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

    /// With what the router found out. Even when nobody wants to know of requests, one that gates
    /// have let pass is followed to its end, for what they lent to it.
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

    /// The client, which may be another than the one of its connection.
    pub(crate) fn client(&self, peer: Peer, stream: &Transport) -> Client {
        self.context.as_ref().map_or_else(|| Client::of(peer, stream), |context| context.client)
    }

    /// The `traceparent` of what handlers do, when the request is traced.
    pub(crate) fn traceparent(&self) -> Option<Box<str>> {
        self.span.as_ref().map(|span| span.traceparent().into())
    }

    /// Whether the answer has fields that are of this request alone.
    #[inline]
    pub(crate) fn has_fields(&self) -> bool {
        self.route_telemetry.server_timing
            || self.context.as_ref().is_some_and(|context| context.has_fields())
    }

    /// The first byte of the answer is about to be written.
    pub(crate) fn begin_response(&mut self) {
        self.timestamps.first_out = Some(Instant::now());
    }

    /// The answer's head is made: adds to its fields what the gates say of it, and where the time
    /// went.
    pub(crate) fn append_fields(&mut self, fields: &mut FieldLines) {
        self.begin_response();
        if let Some(context) = &self.context {
            context.append_fields(fields);
        }
        if self.route_telemetry.server_timing {
            fields.push("Server-Timing", self.server_timing());
        }
    }

    /// The phases so far as a `Server-Timing` value, in milliseconds.
    fn server_timing(&self) -> String {
        // How long it takes to send is not known when the head is sent.
        let timings = Timings { send: None, ..self.timings(Instant::now()) };
        let told = timings
            .iter()
            .map(|(name, micros)| format!("{name};dur={:.3}", micros as f64 / 1000.0));
        told.collect::<Vec<_>>().join(", ")
    }

    /// How long each phase took; the last ends at `end`. What is answered at once is sent at once.
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

    /// Whether the answer's body has to be sent piece by piece, as a throttle lets it.
    #[inline]
    pub(crate) fn pacer(
        &self,
        connection: &mut Option<ConnectionPace>,
        short: Option<usize>,
    ) -> Option<Pacer> {
        self.context.as_ref()?.pacer(connection, short, Instant::now)
    }
}

impl Timings {
    /// All phases, as [`PHASES`] names them.
    #[inline]
    pub(crate) fn all(&self) -> [Option<u64>; PHASES.len()] {
        let Self { tls, idle, head, route, gate, handler, send } = *self;
        [tls, idle, Some(head), route, gate, handler, send]
    }

    /// Of a request whose answer is still to come.
    pub(crate) fn begun(self) -> Self {
        Self { handler: None, send: None, ..self }
    }

    /// The phases that the request had, by name, in microseconds.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = PHASES.into_iter().zip(self.all());
        named.filter_map(|(name, nanos)| Some((name, nanos? / 1_000)))
    }
}

fn nanos(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
