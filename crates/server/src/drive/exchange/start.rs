//! The start of an exchange, once its request is routed.

use std::rc::Rc;

use dunlin_exchange::{Client, ConnectionFacts, RequestContext};
use dunlin_http::Request;
use dunlin_telemetry::{ConnectionStart, ReadTimes};

use crate::handler::reply::to_editable;
use crate::route::reply::{Reply, Routed};
use crate::route::sites::Route;
use crate::worker::{DeferredRecord, WorkerContext};

/// A routed request.
pub(in super::super) struct Started {
    pub(in super::super) reply: Reply,
    /// `None` if neither the checks nor telemetry nor the response to a rejected body need a context.
    pub(in super::super) context: Option<Rc<RequestContext>>,
    /// Maximum size of the request body in bytes.
    pub(in super::super) body_limit: u64,
    /// The response is sent after the request body was received.
    pub(in super::super) reads_body: bool,
}

/// When a request was read, and the start of its connection.
pub(in super::super) struct Arrival<'a> {
    pub(in super::super) read_times: Option<ReadTimes>,
    /// Until the first request of the connection.
    pub(in super::super) connection_start: &'a mut Option<ConnectionStart>,
}

/// Starts the exchange of a routed request: completes its context and publishes its start. Without `arrival` it is not
/// recorded, unless the checks need a context.
pub(in super::super) fn start(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    connection: &ConnectionFacts,
    routed: Routed,
    arrival: Option<Arrival<'_>>,
) -> Started {
    let Routed { reply, site, body_limit, reads_body, log, route_telemetry, context, .. } = routed;
    let keeps_request = route_telemetry.server_timing || routed.has_body_pages;
    let context = match arrival {
        Some(arrival) => begin(ctx, request, connection, context, arrival),
        None => context,
    };
    let context = context.or_else(|| {
        let client = || Client::of(connection);
        keeps_request.then(|| Rc::new(RequestContext::new(client())))
    });
    if let Some(context) = &context {
        context.set_route(site, log, route_telemetry);
        ctx.publish_start(request, connection, context);
    }
    let reply = match &context {
        Some(context) if context.changes_response() => to_editable(request, reply),
        _ => reply,
    };
    Started { reply, context, body_limit, reads_body }
}

/// Prepares the context of a request for telemetry, if that is needed.
#[inline]
pub(in super::super) fn begin(
    ctx: &WorkerContext,
    request: &Request<'_>,
    connection: &ConnectionFacts,
    context: Option<Rc<RequestContext>>,
    arrival: Arrival<'_>,
) -> Option<Rc<RequestContext>> {
    let Arrival { read_times, connection_start } = arrival;
    ctx.begin_telemetry(request, connection, context, read_times, connection_start)
}

/// Prepares the context of a request to which the fast path responds, as [`begin`], and publishes its start.
#[inline]
pub(in super::super) fn begin_fast(
    ctx: &WorkerContext,
    request: &Request<'_>,
    connection: &ConnectionFacts,
    (site, settings): (usize, &Route),
    context: Option<Rc<RequestContext>>,
    arrival: Arrival<'_>,
) -> Option<Rc<RequestContext>> {
    let context = begin(ctx, request, connection, context, arrival);
    if let Some(context) = &context {
        context.set_route(site, settings.access_log, settings.telemetry());
        ctx.publish_start(request, connection, context);
    }
    context
}

/// Returns the data for the access record of a request, if it has a context.
pub(in super::super) fn deferred_record(
    request: &Request<'_>,
    context: Option<Rc<RequestContext>>,
) -> Option<Box<DeferredRecord>> {
    context.map(|context| DeferredRecord::new(request, context))
}
