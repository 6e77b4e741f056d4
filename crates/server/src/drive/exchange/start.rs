//! The start of an exchange, once its request is routed.

use std::rc::Rc;

use dunlin_http::Request;

use crate::handler::file;
use crate::route::{Reply, Routed};
use crate::telemetry::RequestTelemetry;
use crate::worker::{ConnectionInfo, WorkerContext};

/// A routed request.
pub(in super::super) struct Started {
    pub(in super::super) reply: Reply,
    pub(in super::super) telemetry: Option<RequestTelemetry>,
    /// Maximum size of the request body in bytes.
    pub(in super::super) body_limit: u64,
    /// The response is sent after the request body was received.
    pub(in super::super) reads_body: bool,
}

/// Starts the exchange of a routed request: completes its telemetry and publishes its start.
pub(in super::super) fn start(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    connection: &ConnectionInfo<'_>,
    routed: Routed,
    telemetry: Option<RequestTelemetry>,
) -> Started {
    let Routed { reply, site, body_limit, reads_body, log, route_telemetry, context, .. } = routed;
    let telemetry = RequestTelemetry::routed(telemetry, site, context, log, route_telemetry);
    if let Some(telemetry) = &telemetry {
        ctx.publish_start(request, connection, telemetry);
    }
    let reply = match &telemetry {
        Some(telemetry) if telemetry.has_fields() => file::unprepared(request, reply),
        _ => reply,
    };
    Started { reply, telemetry, body_limit, reads_body }
}
