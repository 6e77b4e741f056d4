//! Redirects: of the configuration, and from a directory's name to the name with a slash.

use dunlin_config::field_edits::apply_to_message;
use dunlin_config::{Redirect, Settings, push_query};
use dunlin_exchange::Response;
use dunlin_http::semantics::Method;
use dunlin_http::semantics::path::encode;
use dunlin_http::semantics::status::reason;
use dunlin_http::{FieldName, Request};

use crate::handler::error_page;
use crate::route::route_match::RouteMatch;
use crate::route::select::facts;
use crate::worker::WorkerContext;

/// Redirects the client to the target of the route; `None` if there is none for the request.
pub(crate) fn respond(
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    rule: &Redirect,
) -> Option<Response> {
    let host = request.field(FieldName::Host).unwrap_or_default();
    let target = (matched.path, matched.query);
    let facts = facts(matched.site, matched.client, request, target);
    let location = rule.location(target, host, Some(&facts));
    (!location.is_empty()).then(|| redirect(matched.settings, rule.status, &location))
}

/// Redirects the client from `/a` to `/a/`, so that relative links in the index file work. The method stays the same,
/// unless `nginx_statuses` is on.
pub(crate) fn to_slash(
    ctx: &WorkerContext,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Response {
    let location = slash_location(matched.path, matched.query);
    let is_read = matches!(request.method(), Method::Get | Method::Head);
    let is_301 = is_read || ctx.shared.config.server.nginx_statuses;
    let settings = matched.settings;
    let mut response = redirect(settings, if is_301 { 301 } else { 308 }, &location);
    if ctx.shared.config.server.nginx_statuses && response.fields.get("Cache-Control").is_none() {
        let control = settings.stated_lifetime();
        control.into_iter().for_each(|control| response.fields.push("Cache-Control", &*control));
    }
    response
}

/// Returns the Location of the same path with a slash at its end.
pub(crate) fn slash_location(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut location = encode(path).into_bytes();
    location.push(b'/');
    push_query(query, &mut location);
    location
}

/// Returns a redirect to `location`, with a link for clients that do not follow it.
pub(crate) fn redirect(settings: &Settings, status: u16, location: &[u8]) -> Response {
    let page = error_page::linking(status, reason(status), &String::from_utf8_lossy(location));
    let mut response = Response::with_text(status, error_page::HTML, page);
    response.fields.push("X-Content-Type-Options", "nosniff");
    response.fields.push("Location", location);
    apply_to_message(settings, response.status, &mut response.fields);
    response
}
