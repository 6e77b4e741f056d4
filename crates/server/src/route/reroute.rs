//! Internal redirects: another path of the site responds to a request, by the route of that path.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::Request;

use super::{Incoming, Reply, Subject, Via, handle, refusal, refuse};
use crate::checks::{CheckInput, Checks, Decision, PendingDecision, Rejection, RequestContext};
use crate::clock;
use crate::config::Candidate;
use crate::handler::{file, script};
use crate::response::Response;
use crate::worker::WorkerContext;

/// The most internal redirects of one request: more are a loop in the configuration.
pub(crate) const MOST_REDIRECTS: u8 = 10;

/// Has the route of `target` respond, once its gates let the request pass.
pub(crate) fn reroute(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    target: &Candidate,
) -> Reply {
    if subject.via.redirects >= MOST_REDIRECTS {
        tracing::error!(
            "{}: more than {MOST_REDIRECTS} internal redirects; check `try` and `index` of route {:?} of site {}",
            String::from_utf8_lossy(&target.path),
            subject.settings.pattern,
            subject.site.name,
        );
        return refusal(ctx, request, subject, 500);
    }
    if subject.site.route(&target.path).internal && !target.is_fixed {
        return refusal(ctx, request, subject, 404);
    }
    let before = subject.settings.checks.as_ref();
    let subject = &Subject {
        settings: subject.site.route(&target.path),
        path: &target.path,
        query: target.query.as_deref(),
        via: Via { redirects: subject.via.redirects + 1, ..subject.via },
        ..*subject
    };
    let Some(checks) = &subject.settings.checks else { return handle(ctx, request, subject).reply };
    let context =
        subject.context.map_or_else(|| Rc::new(RequestContext::new(subject.client)), Rc::clone);
    let input =
        CheckInput { ctx, request, context: &context, now: context.routed_at, at_once: None };
    let decision = checks.check_redirected(&input, before.map(|checks| &**checks), 0);
    let subject = &subject.with(Some(&context));
    match decision {
        (_, Decision::Allow) => handle(ctx, request, subject).reply,
        (_, Decision::Reject(refused)) => refuse(ctx, request, subject, refused),
        (number, Decision::Wait(first)) => {
            wait(ctx, request, subject, before, (number, Some(first)))
        }
        (number, Decision::ReceiveBody) => wait(ctx, request, subject, before, (number, None)),
    }
}

/// Has the request wait at the gate of that number: for its body when there is nothing else to wait for.
fn wait(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    before: Option<&Arc<Checks>>,
    (number, first): (usize, Option<PendingDecision>),
) -> Reply {
    let (ctx, before, context) = (Rc::clone(ctx), before.cloned(), subject.context.cloned());
    let (request, subject) = (request.to_owned(), subject.to_owned());
    Reply::Exchange(Box::new(move |mut incoming| {
        Box::pin(async move {
            let (request, subject) = (request.as_request(), subject.borrow());
            let subject = subject.with(context.as_ref());
            let turn = Turn { ctx: &ctx, request: &request, subject: &subject };
            let reply = match turn.all(before.as_deref(), number, first, &mut incoming).await {
                Ok(()) => handle(&ctx, &request, &subject).reply,
                Err(reply) => reply,
            };
            complete(&request, reply, incoming).await
        })
    }))
}

/// A request that waits at a gate of the route that it is redirected to.
struct Turn<'a, 'r> {
    ctx: &'a Rc<WorkerContext>,
    request: &'a Request<'r>,
    subject: &'a Subject<'a>,
}

impl Turn<'_, '_> {
    /// Waits at the gate of that number, and passes those behind it.
    async fn all(
        &self,
        before: Option<&Checks>,
        mut number: usize,
        mut waiting: Option<PendingDecision>,
        incoming: &mut Incoming,
    ) -> Result<(), Reply> {
        let Self { ctx, request, subject } = *self;
        let (Some(checks), Some(context)) = (&subject.settings.checks, subject.context) else {
            return Ok(());
        };
        context.set_ends(incoming.ends);
        let refuse = |refused: Rejection| refuse(ctx, request, subject, refused);
        loop {
            match waiting.take() {
                Some(waiting) => waiting.await.map_err(refuse)?,
                None => script::receive_body(ctx, request, subject, incoming).await?,
            }
            let input = CheckInput { ctx, request, context, now: clock::now(), at_once: None };
            (number, waiting) = match checks.check_redirected(&input, before, number + 1) {
                (_, Decision::Allow) => return Ok(()),
                (_, Decision::Reject(refused)) => return Err(refuse(refused)),
                (next, Decision::Wait(longer)) => (next, Some(longer)),
                (next, Decision::ReceiveBody) => (next, None),
            };
        }
    }
}

/// Waits for a reply, whose handler may read the request's body.
pub(crate) async fn complete(request: &Request<'_>, reply: Reply, incoming: Incoming) -> Response {
    match reply {
        Reply::Exchange(begin) => begin(incoming).await,
        reply => Box::pin(file::into_response(request, reply)).await,
    }
}
