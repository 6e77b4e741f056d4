//! Calls the handler of a route.

use std::rc::Rc;

use dunlin_config::{Handler, ScriptKind};
use dunlin_exchange::Response;
use dunlin_http::Request;
use dunlin_http::semantics::Method;

use super::reply::{Reply, Routed};
use super::reroute::follow;
use super::route_match::{RouteMatch, Via};
use super::select::facts;
use crate::checks::Rejection;
use crate::handler::rejection::{error_reply, not_for_files, rejected};
use crate::handler::{
    dav, files, memory, readiness, redirect, respond, response_cache, status, transform,
};
use crate::worker::WorkerContext;

/// Status in the record of a request whose connection was closed without a response.
const CLOSED: u16 = 444;

/// Calls the handler of the route.
pub(crate) fn handle(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Routed {
    match &matched.settings.transforms {
        Some(_) => transform::handle(ctx, request, matched, respond_as_it_is),
        None => respond_as_it_is(ctx, request, matched),
    }
}

/// Calls the handler of the route, whose response is not changed.
fn respond_as_it_is(
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
            if settings.tries_files()
                && (matches!(request.method(), Method::Get | Method::Head)
                    || ctx.shared.config.server.nginx_statuses) =>
        {
            files::respond(ctx, request, matched)
        }
        Handler::Proxy(_) | Handler::Script(_) => response_cache::respond(ctx, request, matched),
        Handler::Redirect(rule) => {
            reads_body = true;
            match redirect::respond(request, matched, rule) {
                Some(response) => response.into(),
                None => error_reply(ctx, request, matched, 404),
            }
        }
        Handler::Respond(fixed) => {
            reads_body = true;
            match &fixed.methods {
                Some(rules) if !rules.allows(request.equivalent_method()) => {
                    let rejection = Rejection::new(405).with("Allow", rules.allow());
                    rejected(ctx, request, matched, rejection)
                }
                _ => respond::respond(request, matched, fixed).into(),
            }
        }
        Handler::Rewrite(to) => {
            let target = (matched.path, matched.query);
            let facts = facts(matched.site, matched.client, request, target);
            match to.expand(matched.path, matched.query, Some(&facts)) {
                Some(target) => {
                    let is_conditional = matched.via.is_conditional || to.has_values();
                    let via = Via { is_conditional, ..matched.via };
                    return follow(ctx, request, &RouteMatch { via, ..*matched }, &target);
                }
                None => error_reply(ctx, request, matched, 404),
            }
        }
        Handler::Status(status) => status::respond(ctx, request, matched, status),
        Handler::Readiness => readiness::respond(&ctx.shared, settings, request).into(),
        Handler::Close => Response::withheld(CLOSED).into(),
        Handler::AddSlash => {
            reads_body = true;
            redirect::to_slash(ctx, request, matched).into()
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
        | Handler::Close
        | Handler::AddSlash => false,
    }
}

/// Returns `true` if the handler can switch to another protocol.
fn has_tunnels(handler: &Handler) -> bool {
    match handler {
        // Those of the other path decide.
        Handler::Proxy(_) | Handler::Rewrite(_) => true,
        // It ends a request for a tunnel as any other.
        Handler::Close => true,
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
        // Without a file it gets 404.
        Method::Post if matched.settings.dav.is_none() => files::respond(ctx, request, matched),
        Method::Trace | Method::Connect => not_for_files(ctx, request, matched),
        _ if dav::handles(matched.settings, request) => dav::respond(ctx, request, matched),
        // A script may respond in the end, to any method.
        _ if matched.settings.reroutes => files::respond(ctx, request, matched),
        _ => not_for_files(ctx, request, matched),
    }
}
