//! Fixed responses from the configuration.

use dunlin_config::field_edits::apply_edits;
use dunlin_config::{Respond, Settings};
use dunlin_exchange::Response;

/// The fixed response of a route, for every method.
pub(crate) fn respond(settings: &Settings, fixed: &Respond) -> Response {
    let mut response = Response::with_text(fixed.status, &fixed.content_type, fixed.body.clone());
    if let Some(cache_control) = &settings.cache_control {
        response.fields.push("Cache-Control", cache_control);
    }
    if settings.nosniff {
        response.fields.push("X-Content-Type-Options", "nosniff");
    }
    apply_edits(settings, &mut response.fields);
    response
}
