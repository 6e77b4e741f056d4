//! Scripts: programs that produce responses. The files of this folder hold what all kinds share; `cgi` and `warm`
//! start a process for each request, and `backend` is the interface of the kinds whose workers outlive a request.

mod app_server;
mod backend;
mod buffered;
mod cgi;
mod cgiplus;
mod chunked;
mod descriptors;
mod environment;
mod failure;
mod file_version;
mod head;
mod launch;
mod location_cache;
mod lookup;
mod output;
mod pipes;
mod pool;
mod process;
mod readiness;
mod redirect;
mod remote;
mod reply;
mod request_id;
mod send_target;
mod socket;
mod spool;
mod start_error;
mod stderr;
mod warm;
mod workers;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, FieldName, OwnedRequest, Request};

pub(crate) use self::app_server::AppConnections;
use self::buffered::ResponseContext;
pub(crate) use self::environment::path as search_path;
use self::failure::Failure;
pub use self::launch::{LAUNCH, launch};
pub(crate) use self::location_cache::LocationCache;
use self::lookup::Found;
pub(crate) use self::pool::Pools;
pub(crate) use self::redirect::rewritten;
pub(crate) use self::spool::{Received, Storage};
pub use self::stderr::SCRIPTS;
pub use self::warm::cold_programs;
pub(crate) use self::workers::Renewal;
use self::workers::Worker;
use crate::config::{Interface, Script};
use crate::exchange::{Client, Incoming, RequestContext, Response};
use crate::field_edits::apply_to_message;
use crate::handler::files;

use crate::handler::redirect::to_slash;
use crate::route::{self, OwnedRouteMatch, Reply, RouteMatch};
use crate::telemetry::ScriptContext;
use crate::worker::WorkerContext;

/// Has a script of the route respond.
pub(crate) fn answer(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    rules: &Arc<Script>,
) -> Reply {
    let call = Call {
        ctx: Rc::clone(ctx),
        request: request.to_owned(),
        matched: matched.to_owned(),
        context: matched.context.cloned(),
        rules: Arc::clone(rules),
        stderr_source: RefCell::default(),
    };
    Reply::Streaming(Box::new(move |incoming| Box::pin(respond(call, incoming))))
}

/// A request for a script.
struct Call {
    ctx: Rc<WorkerContext>,
    request: OwnedRequest,
    matched: OwnedRouteMatch,
    context: Option<Rc<RequestContext>>,
    rules: Arc<Script>,
    /// The worker that was last sent the request, and when, if error pages show its standard error.
    stderr_source: RefCell<Option<(Arc<Worker>, Instant)>>,
}

impl Call {
    /// Notes the worker that is sent the request.
    fn note_worker(&self, worker: &Arc<Worker>) {
        if self.rules.show_errors {
            self.stderr_source.replace(Some((Arc::clone(worker), Instant::now())));
        }
    }

    /// Collects what that worker has written to its standard error since.
    async fn collect_stderr(&self, script_context: &ScriptContext) {
        let stderr_source = self.stderr_source.take();
        if let Some((worker, since)) = stderr_source
            && let Some(errors) = &worker.errors
        {
            errors.collect(since, script_context).await;
        }
    }

    /// What a response that is read at once depends on.
    fn response_context<'a>(
        &'a self,
        script_context: &'a ScriptContext,
        is_bodiless: bool,
    ) -> ResponseContext<'a> {
        ResponseContext {
            deadlines: &self.ctx.deadlines,
            rules: &self.rules,
            script_context,
            is_bodiless,
        }
    }

    /// The client that sent the request.
    fn client(&self, incoming: &Incoming) -> Client {
        let context = self.context.as_ref();
        context.map_or_else(|| incoming.client(), |context| context.client)
    }
}

/// Runs the script that the request is for.
async fn respond(call: Call, incoming: Incoming) -> Response {
    // The name in the log: the script's, as soon as it is known.
    let mut name = Arc::clone(&call.rules.label);
    let script_context = Rc::clone(&incoming.script_context);
    script_context.set_id(|| request_id::request_id(&call.request.as_request(), &call.rules));
    if call.rules.show_errors {
        script_context.keep_errors();
    }
    hint(&call, &incoming);
    if wants_websocket(&call.request.as_request()) {
        call.ctx.shared.pools.report_websocket(&call.rules);
    }
    let has_pages = !call.matched.settings.error_pages.is_empty();
    let again = has_pages.then(|| incoming.without_body());
    if !call.rules.kind.is_cgi() {
        call.ctx.count_other();
    }
    let failure = match by_kind(&call, incoming, &mut name).await {
        Ok(response) => return response,
        Err(failure) => failure,
    };
    failure.log(&name, script_context.id());
    Box::pin(call.collect_stderr(&script_context)).await;
    let request = call.request.as_request();
    let mut response = match failure.status() {
        500.. if call.rules.show_errors => {
            let mut response = failure.shown(&request, &name, &script_context);
            apply_to_message(&call.matched.settings, &mut response.fields);
            response
        }
        _ => {
            let matched = call.matched.borrow();
            let matched = matched.with(call.context.as_ref());
            Box::pin(failure.into_response(&call.ctx, &request, &matched, again)).await
        }
    };
    if call.rules.send_request_id {
        response.fields.set("X-Request-Id", script_context.id());
    }
    response
}

/// Whether the request asks for a WebSocket (RFC 6455 §4.1).
fn wants_websocket(request: &Request<'_>) -> bool {
    request.values(FieldName::Upgrade).any(|value| value.eq_ignore_ascii_case(b"websocket"))
}

/// Sends the Early Hints that the route configures.
fn hint(call: &Call, incoming: &Incoming) {
    let links = &call.matched.settings.early_hints;
    if !links.is_empty() && matches!(call.request.as_request().method(), Method::Get | Method::Head)
    {
        let mut fields = FieldLines::new();
        links.iter().for_each(|link| fields.push("Link", link));
        incoming.early_hints.send(fields);
    }
}

/// Has the script respond if the path names one, and the file handler if it names another file.
async fn by_kind(
    call: &Call,
    incoming: Incoming,
    name: &mut Arc<str>,
) -> Result<Response, Failure> {
    let request = call.request.as_request();
    let located = match find(call).await? {
        Found::Script(located) => located,
        Found::Directory => return Ok(to_slash(&request, &call.matched.borrow())),
        Found::File if matches!(request.method(), Method::Get | Method::Head) => {
            let matched = call.matched.borrow();
            let reply = files::respond(&call.ctx, &request, &matched.with(call.context.as_ref()));
            return Ok(Box::pin(route::complete(&request, reply, incoming)).await);
        }
        Found::Elsewhere(target) => {
            let matched = call.matched.borrow();
            let matched = matched.with(call.context.as_ref());
            let reply = route::reroute(&call.ctx, &request, &matched, &target);
            return Ok(Box::pin(route::complete(&request, reply, incoming)).await);
        }
        Found::File => {
            let matched = call.matched.borrow();
            let reply = route::not_for_files(&call.ctx, &request, &matched);
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
            Box::pin(backend::respond(app_server::Application, call, incoming, &located, name))
                .await
        }
    }
}

/// Finds the script that the path names.
async fn find(call: &Call) -> Result<Found, Failure> {
    descriptors::retry_failed(&call.ctx, async || lookup::find(call).await).await
}

/// Receives the body of a request before the request waits in the queue of a limit.
///
/// # Errors
/// The response when the body could not be received.
pub(crate) async fn receive_body(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    incoming: &mut Incoming,
) -> Result<(), Response> {
    let Some(rules) = matched.settings.handler.script() else { return Ok(()) };
    let received = spool::receive(ctx, matched.settings, rules.kind, incoming).await;
    let Err(failure) = received else { return Ok(()) };
    incoming.script_context.set_id(|| request_id::request_id(request, rules));
    failure.log(&rules.label, incoming.script_context.id());
    let again = Some(incoming.without_body());
    Err(Box::pin(failure.into_response(ctx, request, matched, again)).await)
}
