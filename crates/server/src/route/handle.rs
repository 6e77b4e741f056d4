//! Calls the handler of a route.

use std::rc::Rc;

use dunlin_config::{Handler, ScriptKind};
use dunlin_http::Request;
use dunlin_http::semantics::Method;

use super::reply::{Reply, Routed};
use super::reroute::follow;
use super::route_match::RouteMatch;
use crate::handler::rejection::{error_reply, not_for_files};
use crate::handler::{files, memory, readiness, redirect, respond, response_cache, status};
use crate::worker::WorkerContext;

/// Calls the handler of the route.
pub(crate) fn handle(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Routed {
    let settings = matched.settings;
    if dunlin_memory::is_exhausted() && needs_memory(&settings.handler) {
        let reply = memory::reject(settings);
        return Routed::new(matched.site, settings, reply, false, matched.context.cloned());
    }
    #[cfg(test)]
    if let Some(reply) = crate::testing::handler::reply(matched.path, request) {
        return Routed::new(matched.site, settings, reply, true, matched.context.cloned());
    }
    let mut reads_body = false;
    if request.method() == Method::ExtendedConnect && !has_tunnels(&settings.handler) {
        let reply = error_reply(ctx, request, matched, 501);
        return Routed::new(matched.site, settings, reply, false, matched.context.cloned());
    }
    let reply = match &settings.handler {
        Handler::Files => files(ctx, request, matched),
        Handler::Script(_) | Handler::Proxy(_)
            if matches!(request.method(), Method::Trace | Method::Connect) =>
        {
            not_for_files(ctx, request, matched)
        }
        Handler::Proxy(_)
            if settings.tries_files() && matches!(request.method(), Method::Get | Method::Head) =>
        {
            files::respond(ctx, request, matched)
        }
        Handler::Proxy(_) | Handler::Script(_) => response_cache::respond(ctx, request, matched),
        Handler::Redirect(rule) => {
            reads_body = true;
            redirect::respond(request, matched, rule).into()
        }
        Handler::Respond(fixed) => {
            reads_body = true;
            respond::respond(settings, fixed, matched.via.error.is_some()).into()
        }
        Handler::Rewrite(to) => match to.expand(matched.path, matched.query) {
            Some(target) => return follow(ctx, request, matched, &target),
            None => error_reply(ctx, request, matched, 404),
        },
        Handler::Status(status) => status::respond(ctx, request, matched, status),
        Handler::Readiness => readiness::respond(&ctx.shared, settings, request).into(),
        Handler::AddSlash => {
            reads_body = true;
            redirect::to_slash(request, matched).into()
        }
    };
    Routed::new(matched.site, settings, reply, reads_body, matched.context.cloned())
}

/// Returns `true` if requests and responses of the handler may need more than a short message does.
fn needs_memory(handler: &Handler) -> bool {
    match handler {
        Handler::Files | Handler::Script(_) | Handler::Proxy(_) => true,
        Handler::Redirect(_)
        | Handler::Respond(_)
        | Handler::Rewrite(_)
        | Handler::Status(_)
        | Handler::Readiness
        | Handler::AddSlash => false,
    }
}

/// Returns `true` if the handler can switch to another protocol.
fn has_tunnels(handler: &Handler) -> bool {
    match handler {
        // Those of the other path decide.
        Handler::Proxy(_) | Handler::Rewrite(_) => true,
        Handler::Script(script) => script.kind == ScriptKind::Asgi,
        Handler::Files
        | Handler::Redirect(_)
        | Handler::Respond(_)
        | Handler::Status(_)
        | Handler::Readiness
        | Handler::AddSlash => false,
    }
}

/// Returns the response for the route's files.
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
