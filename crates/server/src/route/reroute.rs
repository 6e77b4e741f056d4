//! Internal redirects: another path of the site responds to a request, by the route of that path.

use std::rc::Rc;

use dunlin_http::Request;

use super::admit::Waiting;
use super::handle::handle;
use super::reply::Reply;
use super::route_match::{RouteMatch, Via};
use crate::checks::{CheckInput, Decision, Selection};
use crate::config::Candidate;
use crate::exchange::RequestContext;
use crate::handler::rejection::{refusal, refuse};
use crate::handler::reply::complete;
use crate::handler::subrequest::services;
use crate::worker::WorkerContext;

/// The most internal redirects of one request: more are a loop in the configuration.
pub(crate) const MOST_REDIRECTS: u8 = 10;

/// Redirects a request internally: runs the checks and the handler of the route of `target`.
pub(crate) fn reroute(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    target: &Candidate,
) -> Reply {
    if matched.via.redirects >= MOST_REDIRECTS {
        tracing::error!(
            "{}: more than {MOST_REDIRECTS} internal redirects; check `try` and `index` of route {:?} of site {}",
            String::from_utf8_lossy(&target.path),
            matched.settings.pattern,
            matched.site.name,
        );
        return refusal(ctx, request, matched, 500);
    }
    if matched.site.route(&target.path).internal && !target.is_fixed {
        return refusal(ctx, request, matched, 404);
    }
    let selected = Selection::after_redirect(matched.settings.checks.as_deref());
    let matched = &RouteMatch {
        settings: matched.site.route(&target.path),
        path: &target.path,
        query: target.query.as_deref(),
        via: Via { redirects: matched.via.redirects + 1, ..matched.via },
        ..*matched
    };
    let Some(checks) = &matched.settings.checks else { return handle(ctx, request, matched).reply };
    let context =
        matched.context.map_or_else(|| Rc::new(RequestContext::new(matched.client)), Rc::clone);
    let services = &services(ctx);
    let input =
        CheckInput { services, request, context: &context, now: context.routed_at, at_once: None };
    let decision = checks.check(&input, selected, 0);
    let matched = &matched.with(Some(&context));
    let (number, pending) = match decision {
        (_, Decision::Allow) => return handle(ctx, request, matched).reply,
        (_, Decision::Reject(rejection)) => return refuse(ctx, request, matched, rejection),
        (number, Decision::Wait(pending)) => (number, Some(pending)),
        (number, Decision::ReceiveBody) => (number, None),
    };
    let (ctx, request, matched) = (Rc::clone(ctx), request.to_owned(), matched.to_owned());
    Reply::Streaming(Box::new(move |mut incoming| {
        Box::pin(async move {
            let (request, matched) = (request.as_request(), matched.borrow());
            let matched = &matched.with(Some(&context));
            let waiting = Waiting { ctx: &ctx, request: &request, matched, selected };
            let reply = match waiting.finish(number, pending, &mut incoming).await {
                Ok(()) => handle(&ctx, &request, matched).reply,
                Err(reply) => reply,
            };
            complete(&request, reply, incoming).await
        })
    }))
}
