//! Runs the checks of a route before its handler.

use std::rc::Rc;

use dunlin_http::Request;
use dunlin_http::semantics::path;

use super::handle::handle;
use super::reply::{Reply, Routed};
use super::route_match::RouteMatch;
use crate::checks::{CheckInput, Decision, PendingDecision, Rejection, Selection, resolve_client};
use crate::clock;
use crate::exchange::{Client, Incoming, RequestContext};
use crate::handler::rejection::{error_response, refuse};
use crate::handler::reply::complete;
use crate::handler::script;
use crate::handler::subrequest::services;
use crate::worker::WorkerContext;

/// Runs the checks of the route. Returns `None` if it has none, the client is not behind a trusted proxy, and the time of
/// routing is not needed. `at_once` is the length of the response body, if it is in memory and sent before the next request
/// is read.
#[inline]
pub(super) fn enter(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    at_once: Option<u64>,
) -> Result<Option<Rc<RequestContext>>, Box<Routed>> {
    let server = &ctx.shared.config.server;
    let is_direct = server.trusted_proxies.is_empty() && !client.is_subrequest;
    if matched.settings.checks.is_none() && is_direct {
        let is_timed = matched.settings.server_timing || ctx.needs_timings();
        return Ok(is_timed.then(|| Rc::new(RequestContext::new(client))));
    }
    ask(ctx, resolve_client(client, request, server), request, matched, at_once).map(Some)
}

fn ask(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    at_once: Option<u64>,
) -> Result<Rc<RequestContext>, Box<Routed>> {
    let context = Rc::new(RequestContext::new(client));
    let matched = &matched.with(Some(&context));
    let Some(checks) = &matched.settings.checks else { return Ok(context) };
    let services = &services(ctx);
    let input =
        CheckInput { services, request, context: &context, now: context.routed_at, at_once };
    let reply = match checks.check(&input, Selection::ALL, 0) {
        (_, Decision::Allow) => return Ok(context),
        (_, Decision::Reject(rejection)) => refuse(ctx, request, matched, rejection),
        (number, Decision::Wait(pending)) => wait(ctx, request, matched, (number, Some(pending))),
        (number, Decision::ReceiveBody) => wait(ctx, request, matched, (number, None)),
    };
    let (site, settings) = (matched.site, matched.settings);
    Err(Box::new(Routed::new(site, settings, reply, false, Some(Rc::clone(&context)))))
}

/// Makes the request wait at check `number`: for its body without a `pending` decision.
fn wait(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    (number, pending): (usize, Option<PendingDecision>),
) -> Reply {
    let Some(context) = matched.context.cloned() else {
        // Only checks make a request wait, and they have a context.
        return error_response(500, true).into();
    };
    let (ctx, request, mut owned) = (Rc::clone(ctx), request.to_owned(), matched.to_owned());
    Reply::Streaming(Box::new(move |mut incoming| {
        Box::pin(async move {
            let request = request.as_request();
            let waiting = Waiting {
                ctx: &ctx,
                request: &request,
                matched: &owned.borrow().with(Some(&context)),
                selected: Selection::ALL,
            };
            if let Err(reply) = waiting.finish(number, pending, &mut incoming).await {
                return complete(&request, reply, incoming).await;
            }
            context.set_admitted_at(clock::now());
            if owned.path.is_empty() {
                let mut path = Vec::new();
                // The path was decoded when the cache stored the response.
                let _ = path::decode(&owned.raw_path, &mut path);
                owned.path = path.into();
            }
            let matched = owned.borrow().with(Some(&context));
            complete(&request, handle(&ctx, &request, &matched).reply, incoming).await
        })
    }))
}

/// A request that waits at a check.
pub(super) struct Waiting<'a, 'r> {
    pub(super) ctx: &'a Rc<WorkerContext>,
    pub(super) request: &'a Request<'r>,
    pub(super) matched: &'a RouteMatch<'a>,
    pub(super) selected: Selection,
}

impl Waiting<'_, '_> {
    /// Waits for the decision of check `number` and runs the checks behind it.
    ///
    /// # Errors
    /// The reply, if a check rejects the request.
    pub(super) async fn finish(
        &self,
        mut number: usize,
        mut pending: Option<PendingDecision>,
        incoming: &mut Incoming,
    ) -> Result<(), Reply> {
        let Self { ctx, request, matched, selected } = *self;
        let (Some(checks), Some(context)) = (&matched.settings.checks, matched.context) else {
            return Ok(());
        };
        context.set_ends(incoming.ends);
        let reject = |rejection: Rejection| refuse(ctx, request, matched, rejection);
        let services = &services(ctx);
        loop {
            match pending.take() {
                Some(pending) => pending.await.map_err(reject)?,
                None => script::receive_body(ctx, request, matched, incoming).await?,
            }
            let input = CheckInput { services, request, context, now: clock::now(), at_once: None };
            (number, pending) = match checks.check(&input, selected, number + 1) {
                (_, Decision::Allow) => return Ok(()),
                (_, Decision::Reject(rejection)) => return Err(reject(rejection)),
                (next, Decision::Wait(pending)) => (next, Some(pending)),
                (next, Decision::ReceiveBody) => (next, None),
            };
        }
    }
}
