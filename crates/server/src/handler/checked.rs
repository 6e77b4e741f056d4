//! Runs checks before a handler responds. If a check makes the request wait, its reply runs the rest of them.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_exchange::{Incoming, RequestContext};
use dunlin_http::Request;
use dunlin_net::clock;

use super::rejection::rejected;
use super::script;
use super::subrequest::services;
use crate::checks::{CheckInput, Checks, Decision, PendingDecision, Rejection, Selection};
use crate::route::reply::Reply;
use crate::route::route_match::RouteMatch;
use crate::worker::WorkerContext;

/// The checks to run for a request.
#[derive(Clone, Copy)]
pub(crate) struct CheckRun<'a> {
    pub(crate) checks: &'a Arc<Checks>,
    pub(crate) selected: Selection,
    pub(crate) context: &'a Rc<RequestContext>,
    /// Length of the response body, if it is in memory and sent before the next request is read.
    pub(crate) at_once: Option<u64>,
}

/// Runs the checks. Returns `None` if they allow the request now. Otherwise returns the reply: the response to the
/// rejected request, or a reply that waits until the request is allowed and then calls `respond`.
pub(crate) fn check(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    run: CheckRun<'_>,
    respond: impl FnOnce(&Rc<WorkerContext>, &Request<'_>, &RouteMatch<'_>) -> Reply + 'static,
) -> Option<Reply> {
    let CheckRun { checks, selected, context, at_once } = run;
    let matched = &matched.with(Some(context));
    let services = &services(ctx);
    let hidden = &matched.site.config().user_fields;
    let now = context.routed_at;
    let input = CheckInput { services, request, context, hidden, now, at_once };
    let wait = match next_wait(checks, &input, selected, 0) {
        Ok(None) => return None,
        Ok(Some(wait)) => wait,
        Err(rejection) => return Some(rejected(ctx, request, matched, rejection)),
    };
    let (ctx, context, checks) = (Rc::clone(ctx), Rc::clone(context), Arc::clone(checks));
    let (request, matched) = (request.to_owned(), matched.to_owned());
    Some(Reply::reading(async move |mut incoming| {
        let (request, matched) = (request.as_request(), matched.borrow());
        let matched = &matched.with(Some(&context));
        let run = CheckRun { checks: &checks, selected, context: &context, at_once: None };
        let reply = match finish(&ctx, &request, matched, run, wait, &mut incoming).await {
            Ok(()) => respond(&ctx, &request, matched),
            Err(reply) => reply,
        };
        reply.response(&request, incoming).await
    }))
}

/// The check that makes a request wait.
struct Wait {
    number: usize,
    /// The decision of the check; `None` if the request body has to be received.
    pending: Option<PendingDecision>,
}

/// Runs the checks from number `first` on. Returns the one that makes the request wait; `None` if all allow it.
fn next_wait(
    checks: &Checks,
    input: &CheckInput<'_, '_>,
    selected: Selection,
    first: usize,
) -> Result<Option<Wait>, Rejection> {
    let (number, decision) = checks.check(input, selected, first);
    let pending = match decision {
        Decision::Allow => return Ok(None),
        Decision::Reject(rejection) => return Err(rejection),
        Decision::Wait(pending) => Some(pending),
        Decision::ReceiveBody => None,
    };
    Ok(Some(Wait { number, pending }))
}

/// Waits for the check and runs those behind it.
///
/// # Errors
/// The reply, if a check rejects the request.
async fn finish(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    run: CheckRun<'_>,
    mut wait: Wait,
    incoming: &mut Incoming,
) -> Result<(), Reply> {
    let CheckRun { checks, selected, context, at_once } = run;
    context.set_ends(incoming.ends);
    let reject = |rejection| rejected(ctx, request, matched, rejection);
    let services = &services(ctx);
    loop {
        match wait.pending {
            Some(pending) => pending.await.map_err(reject)?,
            None => script::receive_body(ctx, request, matched, incoming).await?,
        }
        let (hidden, now) = (&matched.site.config().user_fields, clock::now());
        let input = CheckInput { services, request, context, hidden, now, at_once };
        match next_wait(checks, &input, selected, wait.number + 1).map_err(reject)? {
            None => return Ok(()),
            Some(next) => wait = next,
        }
    }
}
