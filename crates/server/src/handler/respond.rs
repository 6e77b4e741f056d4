//! Fixed responses from the configuration.

use dunlin_config::field_edits::apply_edits;
use dunlin_config::{Respond, Settings};
use dunlin_exchange::Response;

/// Returns the fixed response of a route, for every method. `is_error_page`: it is for an error of another route.
pub(crate) fn respond(settings: &Settings, fixed: &Respond, is_error_page: bool) -> Response {
    let mut response = Response::with_text(fixed.status, &fixed.content_type, fixed.body.clone());
    // What other routes state about caching is for their content, not for an error that may end soon.
    let is_error = is_error_page || fixed.status >= 400;
    if let Some(cache_control) = &settings.cache_control
        && (settings.has_own_caching || !is_error)
    {
        response.fields.push("Cache-Control", cache_control);
    }
    if settings.nosniff {
        response.fields.push("X-Content-Type-Options", "nosniff");
    }
    apply_edits(settings, &mut response.fields);
    response
}
