//! Scripts: programs that make the answer. `pool` and `process` hold what every kind of running
//! them shares; each kind has a folder.

mod at_once;
mod backend;
mod cgi;
mod cgiplus;
mod chunks;
mod descriptors;
mod environment;
mod head;
mod host;
mod instead;
mod known;
mod launch;
mod locate;
mod output;
mod pipes;
mod pool;
mod process;
mod readiness;
mod reason;
mod redirect;
mod remote;
mod reply;
mod socket;
mod spool;
mod stamp;
mod stderr;
mod trace;
mod warm;
mod workers;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, FieldName, OwnedRequest, Request};

use self::at_once::Awaited;
pub(crate) use self::environment::path as search_path;
pub(crate) use self::host::Links;
pub(crate) use self::known::Known;
pub use self::launch::{LAUNCH, launch};
use self::locate::Found;
pub(crate) use self::pool::Pools;
use self::reason::Rejected;
pub(crate) use self::redirect::rewritten;
pub(crate) use self::spool::{Received, Storage};
pub use self::stderr::SCRIPTS;
pub use self::warm::cold_programs;
pub(crate) use self::workers::Renewal;
use self::workers::Worker;
use crate::checks::{Client, RequestContext};
use crate::config::{Interface, Script};
use crate::handler::error_page;
use crate::handler::errors::{self, Details};
use crate::handler::file;
use crate::handler::file::OwnedSubject;
use crate::handler::redirect::to_slash;
use crate::response::Response;
use crate::route::{self, Incoming, Reply, Subject};
use crate::telemetry::ScriptContext;
use crate::worker::WorkerContext;

/// Answers with what a script of the route says.
pub(crate) fn answer(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    rules: &Arc<Script>,
) -> Reply {
    let call = Call {
        ctx: Rc::clone(ctx),
        request: request.to_owned(),
        subject: subject.to_owned(),
        context: subject.context.cloned(),
        rules: Arc::clone(rules),
        witness: RefCell::default(),
    };
    Reply::Exchange(Box::new(move |incoming| Box::pin(respond(call, incoming))))
}

/// A request for a script.
struct Call {
    ctx: Rc<WorkerContext>,
    request: OwnedRequest,
    subject: OwnedSubject,
    context: Option<Rc<RequestContext>>,
    rules: Arc<Script>,
    /// The worker that was last asked, and when, where what it writes to its standard error is to be shown.
    witness: RefCell<Option<(Arc<Worker>, Instant)>>,
}

impl Call {
    /// The worker is asked.
    fn asks(&self, worker: &Arc<Worker>) {
        if self.rules.show_errors {
            self.witness.replace(Some((Arc::clone(worker), Instant::now())));
        }
    }

    /// Has the request know what the worker that was last asked has written since.
    async fn hear_witness(&self, script_context: &ScriptContext) {
        let witness = self.witness.take();
        if let Some((worker, since)) = witness
            && let Some(errors) = &worker.errors
        {
            errors.tell(since, script_context).await;
        }
    }

    /// What is known of the request once a script has all of it.
    fn awaited<'a>(&'a self, script_context: &'a ScriptContext, is_bodiless: bool) -> Awaited<'a> {
        Awaited { deadlines: &self.ctx.deadlines, rules: &self.rules, script_context, is_bodiless }
    }

    /// Who asks.
    fn client(&self, incoming: &Incoming) -> Client {
        let context = self.context.as_ref();
        context.map_or_else(|| incoming.client(), |context| context.client)
    }
}

/// Runs the script that the request is for.
async fn respond(call: Call, incoming: Incoming) -> Response {
    // For the log: the script's, once it is known.
    let mut name = Arc::clone(&call.rules.label);
    let script_context = Rc::clone(&incoming.script_context);
    script_context.set_id(|| trace::request_id(&call.request.as_request(), &call.rules));
    if call.rules.show_errors {
        script_context.keep_errors();
    }
    hint(&call, &incoming);
    if wants_websocket(&call.request.as_request()) {
        call.ctx.shared.pools.report_websocket(&call.rules);
    }
    let has_pages = !call.subject.settings.error_pages.is_empty();
    let again = has_pages.then(|| incoming.without_body());
    if !call.rules.kind.is_cgi() {
        call.ctx.count_other();
    }
    let failure = match by_kind(&call, incoming, &mut name).await {
        Ok(response) => return response,
        Err(failure) => failure,
    };
    failure.tell(&name, script_context.id());
    Box::pin(call.hear_witness(&script_context)).await;
    let request = call.request.as_request();
    let mut response = match failure.status() {
        500.. if call.rules.show_errors => {
            let mut response = failure.shown(&request, &name, &script_context);
            file::apply_to_message(&call.subject.settings, &mut response.fields);
            response
        }
        _ => {
            let subject = call.subject.borrow();
            let subject = subject.with(call.context.as_ref());
            Box::pin(failure.into_response(&call.ctx, &request, &subject, again)).await
        }
    };
    if call.rules.tell_request_id {
        response.fields.set("X-Request-Id", script_context.id());
    }
    response
}

/// Whether the request asks for a WebSocket (RFC 6455 §4.1).
fn wants_websocket(request: &Request<'_>) -> bool {
    request.values(FieldName::Upgrade).any(|value| value.eq_ignore_ascii_case(b"websocket"))
}

/// Sends the Early Hints that the route has.
fn hint(call: &Call, incoming: &Incoming) {
    let links = &call.subject.settings.early_hints;
    if !links.is_empty() && matches!(call.request.as_request().method(), Method::Get | Method::Head)
    {
        let mut fields = FieldLines::new();
        links.iter().for_each(|link| fields.push("Link", link));
        incoming.early_hints.send(fields);
    }
}

/// Has the script respond, where the path names one, and the file handler where it names another file.
async fn by_kind(
    call: &Call,
    incoming: Incoming,
    name: &mut Arc<str>,
) -> Result<Response, Failure> {
    let request = call.request.as_request();
    let located = match find(call).await? {
        Found::Script(located) => located,
        Found::Directory => return Ok(to_slash(&request, &call.subject.borrow())),
        Found::File if matches!(request.method(), Method::Get | Method::Head) => {
            let subject = call.subject.borrow();
            let reply = file::answer(&call.ctx, &request, &subject.with(call.context.as_ref()));
            return Ok(Box::pin(route::complete(&request, reply, incoming)).await);
        }
        Found::Elsewhere(target) => {
            let subject = call.subject.borrow();
            let subject = subject.with(call.context.as_ref());
            let reply = route::reroute(&call.ctx, &request, &subject, &target);
            return Ok(Box::pin(route::complete(&request, reply, incoming)).await);
        }
        Found::File => {
            let subject = call.subject.borrow();
            let reply = route::not_for_files(&call.ctx, &request, &subject);
            return Ok(Box::pin(route::complete(&request, reply, incoming)).await);
        }
    };
    if !located.program.as_os_str().is_empty() {
        *name = Arc::clone(&located.label);
    }
    // Boxed each, so that the future of one kind has no room for the others.
    match call.rules.kind.interface() {
        Interface::Process => Box::pin(cgi::attempt(call, incoming, &located, name)).await,
        Interface::Socket => {
            let backend = socket::Socket::default();
            Box::pin(backend::respond(backend, call, incoming, &located, name)).await
        }
        Interface::Streams => {
            Box::pin(backend::respond(cgiplus::Cgiplus, call, incoming, &located, name)).await
        }
        Interface::Application => {
            Box::pin(backend::respond(host::Application, call, incoming, &located, name)).await
        }
    }
}

/// Finds the script that the path names.
async fn find(call: &Call) -> Result<Found, Failure> {
    descriptors::retry_failed(&call.ctx, async || locate::find(call).await).await
}

/// Receives the body of a request that then waits at a gate for its turn.
///
/// # Errors
/// The response when the body could not be received.
pub(crate) async fn receive_body(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    subject: &Subject<'_>,
    incoming: &mut Incoming,
) -> Result<(), Response> {
    let Some(rules) = subject.settings.handler.script() else { return Ok(()) };
    let received = spool::receive(ctx, subject.settings, rules.kind, incoming).await;
    let Err(failure) = received else { return Ok(()) };
    incoming.script_context.set_id(|| trace::request_id(request, rules));
    failure.tell(&rules.label, incoming.script_context.id());
    let again = Some(incoming.without_body());
    Err(Box::pin(failure.into_response(ctx, request, subject, again)).await)
}

/// Why there is no answer of a script.
#[derive(Debug)]
enum Failure {
    /// There is no such script.
    Missing,
    /// It is there, and may not be run.
    Forbidden(Rejected),
    /// All processes are taken, and too many requests wait or this one has waited too long; the
    /// pool has told of it.
    Busy,
    /// Something of the server's or the system's is in the way.
    Broken(String),
    /// What the script said is no answer.
    Malformed(String),
    /// Its host says that it has failed.
    Failed,
    /// What the configuration answers with.
    Status(u16),
    /// The variables are more than the protocol can carry.
    TooLarge,
    /// Its worker has not taken the request.
    Refused(String),
    /// No worker can be reached, or none can be started; the log has the reason already.
    Unreachable(String),
    /// Nothing of the request could be written to a worker.
    NotSent(String),
    /// The script's worker is gone, and nothing says that it had begun with the request.
    Lost(String),
    /// The process has no descriptor left, also after the cache has closed those that it kept.
    NoDescriptor,
    /// The script took too long.
    Late(&'static str),
    /// The client has left.
    Abandoned,
}

impl Failure {
    fn status(&self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::Forbidden(_) => 403,
            Self::Busy | Self::Refused(_) | Self::NoDescriptor => 503,
            Self::Status(status) => *status,
            Self::TooLarge => 431,
            Self::Broken(_) | Self::Failed => 500,
            Self::Malformed(_)
            | Self::NotSent(_)
            | Self::Lost(_)
            | Self::Unreachable(_)
            | Self::Abandoned => 502,
            Self::Late(_) => 504,
        }
    }

    /// One line in the error log, where somebody has to do something about it.
    fn tell(&self, name: &str, request_id: &str) {
        let script = name;
        match self {
            Self::Missing | Self::Abandoned | Self::Busy | Self::Status(_) => {}
            Self::TooLarge => {
                tracing::warn!(
                    script,
                    request_id,
                    "the script was not run: its variables are too long"
                );
            }
            Self::NoDescriptor => {
                tracing::error!(
                    script,
                    request_id,
                    "the script was not run: no file descriptor is free; raise the limit (`limits.open_files`, ulimit -n)"
                );
            }
            Self::Forbidden(Rejected { program, reason }) => {
                let script = program.as_ref().map(|program| program.display().to_string());
                let script = script.as_deref().unwrap_or(name);
                tracing::warn!(script, request_id, "the script was not run: {reason}");
            }
            Self::Broken(reason) => {
                tracing::error!(script, request_id, "the script was not run: {reason}");
            }
            Self::Malformed(reason)
            | Self::NotSent(reason)
            | Self::Lost(reason)
            | Self::Refused(reason) => {
                tracing::error!(script, request_id, "no valid answer: {reason}");
            }
            Self::Unreachable(reason) => {
                tracing::debug!(script, request_id, "there is no worker: {reason}");
            }
            Self::Failed => tracing::error!(script, request_id, "the script has failed"),
            Self::Late(reason) => {
                tracing::error!(script, request_id, "the script was ended: {reason}");
            }
        }
    }

    /// A page for those who write the script: why there is no answer, and what the script wrote to its
    /// standard error.
    fn shown(
        &self,
        request: &Request<'_>,
        script: &str,
        script_context: &ScriptContext,
    ) -> Response {
        let reason = match self {
            Self::Malformed(reason)
            | Self::Broken(reason)
            | Self::NotSent(reason)
            | Self::Lost(reason)
            | Self::Refused(reason)
            | Self::Unreachable(reason) => reason,
            Self::Late(reason) => *reason,
            Self::Failed => "the script has failed",
            Self::NoDescriptor => "no file descriptor is free",
            _ => "too many requests wait",
        };
        let facts = [("script", script), ("request", script_context.id()), ("reason", reason)];
        let page = error_page::explained(self.status(), &facts, &script_context.errors());
        let mut response = Response::with_text(self.status(), "text/html; charset=utf-8", page);
        response.fields.push("Cache-Control", "no-store");
        response.fields.push("X-Content-Type-Options", "nosniff");
        if request.method() == Method::Head { response.without_body() } else { response }
    }

    /// What the page says. Which program it was is in the log.
    fn text(&self, path: &[u8]) -> Option<String> {
        let what = match self {
            Self::Busy => "has too many requests to respond to; try again later",
            Self::Refused(_) => "did not take the request",
            Self::Broken(_) | Self::NoDescriptor => "could not be run",
            Self::Failed => "has failed",
            Self::Malformed(_) => "gave no valid response",
            Self::NotSent(_) | Self::Lost(_) => "ended before it responded",
            Self::Unreachable(_) => "cannot be reached",
            Self::Late(_) => "took too long to respond",
            Self::Forbidden(_) => "may not be run",
            Self::Missing | Self::Status(_) | Self::TooLarge | Self::Abandoned => return None,
        };
        Some(format!("The program for {} {what}.", error_page::quoted(path)))
    }

    async fn into_response(
        self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        subject: &Subject<'_>,
        incoming: Option<Incoming>,
    ) -> Response {
        let details = Details { text: self.text(subject.path), ..Details::default() };
        let reply = errors::reply(ctx, request, subject, self.status(), details);
        match incoming {
            Some(incoming) => route::complete(request, reply, incoming).await,
            None => file::into_response(request, reply).await,
        }
    }
}
