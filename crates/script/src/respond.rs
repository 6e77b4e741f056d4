//! The way of a request through this module.

use std::sync::Arc;

use dunlin_exchange::Incoming;
use dunlin_http::Request;
use dunlin_telemetry::{RequestLabel, ScriptContext};

use super::call::Call;
use super::failure::Failure;
use super::lookup::{self, Found};
use super::outcome::{Outcome, Target};
use super::state::WorkerScripts;
use super::{app_server, backend, cgi, cgiplus, request_id, retry_on_emfile, socket, spool};
use dunlin_config::{Interface, Script, ScriptKind, Settings};

/// Runs the script that the request is for. `name` becomes the script's name in the log as soon as it is known.
///
/// # Errors
/// Why the script gives no response. The caller logs it by [`report`].
pub async fn respond(
    call: &Call<'_>,
    incoming: Box<Incoming>,
    name: &mut Arc<str>,
) -> Result<Outcome, Failure> {
    call.begin(&incoming);
    let located = match find(call).await? {
        Found::Script(located) => located,
        Found::Directory => return Ok(Outcome::Directory),
        Found::Elsewhere(target) => {
            return Ok(Outcome::internal(Target::Path(target), incoming));
        }
        Found::File => return Ok(Outcome::internal(Target::File, incoming)),
    };
    if !located.program.as_os_str().is_empty() {
        *name = Arc::clone(&located.label);
    }
    // Each is boxed to keep the future small.
    match call.rules.kind.interface() {
        Interface::Process => Box::pin(cgi::attempt(call, incoming, &located, name)).await,
        Interface::Socket => {
            let backend = socket::Socket::default();
            Box::pin(backend::respond(backend, call, incoming, &located, name)).await
        }
        Interface::Streams => {
            Box::pin(backend::respond(cgiplus::Cgiplus, call, incoming, &located, name)).await
        }
        Interface::Application
            if call.rules.kind == ScriptKind::Asgi
                && app_server::websocket::is_requested(call, &incoming) =>
        {
            Box::pin(app_server::websocket::respond(call, incoming, &located, name)).await
        }
        Interface::Application => {
            let backend = app_server::Application::default();
            Box::pin(backend::respond(backend, call, incoming, &located, name)).await
        }
        // The server has them run by another crate.
        Interface::Component => Err(Failure::Broken("it is a component".into())),
    }
}

/// Finds the script that the path names.
async fn find(call: &Call<'_>) -> Result<Found, Failure> {
    if let Some(located) = lookup::cached(call) {
        return Ok(Found::Script(located));
    }
    Box::pin(retry_on_emfile::retry_failed(&call.scripts.ctx, async || lookup::find(call).await))
        .await
}

/// Logs a failure of [`respond`], or of the server in following its outcome. With `show_errors`, collects what the
/// script has written to its standard error in the request's [`ScriptContext`].
pub async fn report(
    call: &Call<'_>,
    failure: &Failure,
    name: &str,
    label: RequestLabel,
    script_context: &ScriptContext,
) {
    failure.log(name, label, script_context.id());
    Box::pin(call.collect_stderr(script_context)).await;
}

/// Receives the body of a request before the request waits in the queue of a limit.
///
/// # Errors
/// Why the body could not be received, which is logged.
pub async fn receive_body(
    scripts: &WorkerScripts,
    request: &Request<'_>,
    (settings, rules): (&Settings, &Script),
    incoming: &mut Incoming,
    label: impl FnOnce() -> RequestLabel,
) -> Result<(), Failure> {
    let received = spool::receive(&scripts.ctx, settings, rules.kind, incoming).await;
    received.inspect_err(|failure| {
        incoming.script_context.set_id(|| request_id::request_id(request, rules));
        failure.log(&rules.label, label(), incoming.script_context.id());
    })
}
