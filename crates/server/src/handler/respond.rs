//! Fixed responses from the configuration.

use dunlin_config::field_edits::apply_edits;
use dunlin_config::{Respond, Settings};
use dunlin_exchange::Response;
use dunlin_http::Request;

use crate::route::route_match::RouteMatch;
use crate::route::select::facts;

/// Returns the fixed response of a route, for every method.
pub(crate) fn respond(
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    fixed: &Respond,
) -> Response {
    let settings: &Settings = matched.settings;
    let is_error_page = matched.via.error.is_some();
    let facts = facts(matched.site, matched.client, request, (matched.path, matched.query));
    let body = fixed.body(&facts);
    let mut response = Response::with_text(fixed.status, &fixed.content_type, body);
    response.is_kept = true;
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
    apply_edits(settings, response.status, &mut response.fields);
    response
}
