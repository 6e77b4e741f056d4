//! Error responses to requests that a check or a handler rejects.

use std::rc::Rc;

use dunlin_config::field_edits::apply_to_message;
use dunlin_exchange::Response;
use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, Request};

use super::{dav, errors, redirect};
use crate::checks::Rejection;
use crate::route::reply::Reply;
use crate::route::route_match::RouteMatch;
use crate::route::sites::Route;
use crate::worker::WorkerContext;

/// Returns the reply to a request that a check rejects.
pub(crate) fn rejected(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    rejection: Rejection,
) -> Reply {
    if let Some(mut response) = rejection.response {
        apply_to_message(matched.settings, response.status, &mut response.fields);
        return Reply::Response(response);
    }
    if let (300..400, Some(location)) = (rejection.status, rejection.fields.get("Location")) {
        return redirect::redirect(matched.settings, rejection.status, location).into();
    }
    errors::reply_with_fields(ctx, request, matched, rejection.status, rejection.fields)
}

/// Returns the response to a method that files do not support.
pub(crate) fn not_for_files(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    match request.method() {
        _ if ctx.shared.config.server.nginx_statuses && matched.settings.dav.is_none() => {
            error_reply(ctx, request, matched, 405)
        }
        Method::Options => {
            let mut response = options(allowed(matched.settings));
            dav::announce(matched.settings, &mut response.fields);
            apply_to_message(matched.settings, response.status, &mut response.fields);
            response.into()
        }
        Method::Other if matched.settings.dav.is_none() => error_reply(ctx, request, matched, 501),
        _ => error_reply(ctx, request, matched, 405),
    }
}

pub(crate) const ALLOW: &str = "GET, HEAD, OPTIONS";

pub(crate) fn options(allow: &str) -> Response {
    let mut response = Response::new(204);
    response.fields.push("Allow", allow);
    response
}

/// Returns the methods that the route's files support.
pub(crate) fn allowed(settings: &Route) -> &str {
    let methods = settings.checks.as_ref().and_then(|checks| checks.methods.as_ref());
    let of_handler = || settings.dav.as_ref().map_or(ALLOW, |dav| dav.allow());
    methods.map_or_else(of_handler, |methods| methods.allow())
}

/// Returns the error response with this status as the route configures it.
pub(crate) fn error_reply(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    status: u16,
) -> Reply {
    let mut fields = FieldLines::default();
    if status == 405 {
        fields.push("Allow", allowed(matched.settings));
    }
    errors::reply_with_fields(ctx, request, matched, status, fields)
}

/// Returns the default error response with this status.
pub(crate) fn error_response(status: u16, html: bool) -> Response {
    errors::plain_page(status, None, html)
}
