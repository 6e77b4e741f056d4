//! The label in the error log of a request that a script or an upstream did not respond to.

use dunlin_http::Request;
use dunlin_telemetry::RequestLabel;

use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// Returns the label of a request in the error log. Secrets in its query are removed.
pub(super) fn request_label(
    ctx: &WorkerContext,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> RequestLabel {
    let client = (matched.client.address, matched.client.encrypted);
    RequestLabel::new(&ctx.shared.redactor, request, &matched.settings.pattern, client)
}
