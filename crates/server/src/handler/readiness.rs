//! The readiness of the server, for balancers.

use std::sync::atomic::Ordering;

use dunlin_config::Settings;
use dunlin_config::field_edits::apply_edits;
use dunlin_exchange::Response;
use dunlin_http::Request;
use dunlin_http::semantics::Method;

use crate::handler::rejection::error_response;
use crate::worker::SharedState;

/// 200 while the server serves, and 503 from the signal to stop on.
pub(crate) fn respond(
    shared: &SharedState,
    settings: &Settings,
    request: &Request<'_>,
) -> Response {
    if !matches!(request.method(), Method::Get | Method::Head) {
        let mut response = error_response(405, true);
        response.fields.push("Allow", "GET, HEAD");
        return response;
    }
    let (status, text) = match shared.draining.load(Ordering::Relaxed) {
        false => (200, "ready\n"),
        true => (503, "draining\n"),
    };
    let mut response = Response::with_text(status, "text/plain", text);
    response.fields.push("Cache-Control", "no-store");
    apply_edits(settings, response.status, &mut response.fields);
    response
}
