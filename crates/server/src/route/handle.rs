//! Calls the handler of a route.

use std::rc::Rc;

use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, Request};

use super::reply::{Reply, Routed};
use super::route_match::RouteMatch;
use super::sites::Route;
use crate::config::Handler;
use crate::exchange::Response;
use crate::field_edits::apply_to_message;
use crate::handler::{errors, files, redirect, respond, script, status};
use crate::worker::WorkerContext;

/// Calls the handler of the route.
pub(crate) fn handle(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Routed {
    let settings = matched.settings;
    #[cfg(test)]
    if let Some(reply) = crate::testing::handler::reply(matched.path, request) {
        return Routed::new(matched.site, settings, reply, true, matched.context.cloned());
    }
    let mut reads_body = false;
    let reply = match &settings.handler {
        Handler::Files => files(ctx, request, matched),
        Handler::Script(_) if matches!(request.method(), Method::Trace | Method::Connect) => {
            not_for_files(ctx, request, matched)
        }
        Handler::Script(script) => script::respond(ctx, request, matched, script),
        Handler::Redirect(rule) => {
            reads_body = true;
            redirect::respond(request, matched, rule).into()
        }
        Handler::Respond(fixed) => {
            reads_body = true;
            respond::respond(settings, fixed).into()
        }
        Handler::Status(status) => status::answer(ctx, request, matched, status),
        Handler::AddSlash => {
            reads_body = true;
            redirect::to_slash(request, matched).into()
        }
    };
    Routed::new(matched.site, settings, reply, reads_body, matched.context.cloned())
}

/// The response for the route's files.
pub(super) fn files(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    match request.method() {
        Method::Get | Method::Head => files::respond(ctx, request, matched),
        Method::Trace | Method::Connect => not_for_files(ctx, request, matched),
        // A script may respond in the end, to any method.
        _ if matched.settings.reroutes => files::respond(ctx, request, matched),
        _ => not_for_files(ctx, request, matched),
    }
}

/// The response to a method that files do not have.
pub(crate) fn not_for_files(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    match request.method() {
        Method::Options => {
            let mut response = options(allowed(matched.settings));
            apply_to_message(matched.settings, &mut response.fields);
            response.into()
        }
        Method::Other => refusal(ctx, request, matched, 501),
        _ => refusal(ctx, request, matched, 405),
    }
}

pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";

pub(super) fn options(allow: &str) -> Response {
    let mut response = Response::new(204);
    response.fields.push("Allow", allow);
    response
}

/// The methods by which a route's files can be had.
pub(super) fn allowed(settings: &Route) -> &str {
    let methods = settings.checks.as_ref().and_then(|checks| checks.methods.as_ref());
    methods.map_or(ALLOW, |methods| methods.allow())
}

/// Returns the error response with this status as the route configures it.
pub(crate) fn refusal(
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
