//! Internal redirects: another path of the site responds to a request, by the route of that path.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::Request;

use super::{Incoming, Reply, Subject, Via, handle, refusal, refuse};
use crate::checks::{Asker, Gates, Pass, Refused, Verdict, Waiting};
use crate::config::Candidate;
use crate::handler::{file, script};
use crate::response::Response;
use crate::worker::WorkerContext;

/// Internal redirects of one request; more are a loop in the configuration.
const MOST: u8 = 10;

/// Has the route of `target` respond, once its gates let the request pass.
pub(crate) fn reroute(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    target: &Candidate,
) -> Reply {
    if subject.via.redirects >= MOST {
        tracing::error!(
            "{}: more than {MOST} internal redirects; check `try` and `index` of route {:?} of site {}",
            String::from_utf8_lossy(&target.path),
            subject.settings.pattern,
            subject.site.name,
        );
        return refusal(ctx, request, subject, 500);
    }
    if subject.site.route(&target.path).internal && !target.is_fixed {
        return refusal(ctx, request, subject, 404);
    }
    let before = subject.settings.gates.as_ref();
    let subject = &Subject {
        settings: subject.site.route(&target.path),
        path: &target.path,
        query: target.query.as_deref(),
        via: Via { redirects: subject.via.redirects + 1, ..subject.via },
        ..*subject
    };
    let Some(gates) = &subject.settings.gates else { return handle(ctx, request, subject).reply };
    let pass = subject.pass.map_or_else(|| Rc::new(Pass::new(subject.client)), Rc::clone);
    let asker = Asker { ctx, request, pass: &pass, now: pass.asked, at_once: None };
    let verdict = gates.ask_again(&asker, before.map(|gates| &**gates), 0);
    let subject = &subject.with(Some(&pass));
    match verdict {
        (_, Verdict::Pass) => handle(ctx, request, subject).reply,
        (_, Verdict::Refuse(refused)) => refuse(ctx, request, subject, refused),
        (number, Verdict::Wait(first)) => {
            wait(ctx, request, subject, before, (number, Some(first)))
        }
        (number, Verdict::Receive) => wait(ctx, request, subject, before, (number, None)),
    }
}

/// Has the request wait at the gate of that number: for its body when there is nothing else to wait for.
fn wait(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    before: Option<&Arc<Gates>>,
    (number, first): (usize, Option<Waiting>),
) -> Reply {
    let (ctx, before, pass) = (Rc::clone(ctx), before.cloned(), subject.pass.cloned());
    let (request, subject) = (request.to_owned(), subject.to_owned());
    Reply::Exchange(Box::new(move |mut incoming| {
        Box::pin(async move {
            let (request, subject) = (request.as_request(), subject.borrow());
            let subject = subject.with(pass.as_ref());
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
        before: Option<&Gates>,
        mut number: usize,
        mut waiting: Option<Waiting>,
        incoming: &mut Incoming,
    ) -> Result<(), Reply> {
        let Self { ctx, request, subject } = *self;
        let (Some(gates), Some(pass)) = (&subject.settings.gates, subject.pass) else {
            return Ok(());
        };
        pass.set_ends(incoming.ends);
        let refuse = |refused: Refused| refuse(ctx, request, subject, refused);
        loop {
            match waiting.take() {
                Some(waiting) => waiting.await.map_err(refuse)?,
                None => script::receive_body(ctx, request, subject, incoming).await?,
            }
            let asker = Asker { ctx, request, pass, now: Instant::now(), at_once: None };
            (number, waiting) = match gates.ask_again(&asker, before, number + 1) {
                (_, Verdict::Pass) => return Ok(()),
                (_, Verdict::Refuse(refused)) => return Err(refuse(refused)),
                (next, Verdict::Wait(longer)) => (next, Some(longer)),
                (next, Verdict::Receive) => (next, None),
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
