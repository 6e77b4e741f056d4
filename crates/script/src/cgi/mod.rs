//! CGI (RFC 3875): a process for each request.

mod inline_start;
mod run;

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_exchange::{Incoming, stream};
use dunlin_http::semantics::Method;

use self::run::CgiRun;
use super::call::Call;
use super::failure::Failure;
use super::outcome::Outcome;
use super::pipes::Pipes;
use super::process::{self, Input, Process, Start};
use super::process_limit::ProcessPermit;
use super::reply::{self, DOWNLOAD};
use super::resolved_script::ResolvedScript;
use super::start_error::Rejected;
use super::{arguments, environment, retry_on_emfile, script_response, spool, start_error, warm};
use dunlin_config::ScriptKind;
use dunlin_net::temp_files::lacks_descriptors;

/// Starts a process for the request and responds with its output.
pub(super) async fn attempt(
    call: &Call<'_>,
    mut incoming: Box<Incoming>,
    located: &ResolvedScript,
    name: &Arc<str>,
) -> Result<Outcome, Failure> {
    let length = spool::with_known_length(call, &mut incoming).await?;
    let (input, body, stored) = spool::take_input(&mut incoming);
    let permit = call.scripts.pools.of(call.rules).acquire(call.rules).await?;
    let chosen = Instant::now();
    let process = launch(call, &incoming, located, length, input, permit).await?;
    incoming.script_context.start(chosen, process.started);
    let (sender, receiver) = stream::channel_of_connection(DOWNLOAD);
    let (report, receive_response) = script_response::response_channel(&incoming);
    let run = CgiRun {
        ctx: Rc::clone(&call.scripts.ctx),
        rules: Arc::clone(call.rules),
        name: Arc::clone(name),
        is_whole_message: is_nph(&located.program),
        is_bodiless: call.request.method() == Method::Head,
        script_context: Rc::clone(&incoming.script_context),
        process,
        body,
        stored,
        sender,
        report,
    };
    tokio::task::spawn_local(run.supervise());
    // From here on, dropping the receiver means that the client has left.
    let written = receive_response.await.unwrap_or(Err(Failure::Abandoned))?;
    Ok(reply::outcome(call, incoming, written, receiver))
}

async fn launch(
    call: &Call<'_>,
    incoming: &Incoming,
    located: &ResolvedScript,
    length: Option<u64>,
    input: Input,
    permit: ProcessPermit,
) -> Result<Process, Failure> {
    let mut variables = environment::variables(call, incoming, located, length);
    variables.add_path();
    let start = Start {
        program: located.program.clone(),
        directory: located.program.parent().unwrap_or(Path::new("/")).to_owned(),
        arguments: arguments::arguments(&call.request, environment::query(call, located)),
        environment: variables,
        input,
        rules: Arc::clone(call.rules),
        permit,
    };
    let start = match call.rules.kind {
        ScriptKind::Warm => {
            match warm::start(&call.scripts.ctx, &call.scripts.pools.warm, start).await {
                warm::WarmOutcome::Started(started) => {
                    return started.map_err(|error| not_started(&located.program, &error));
                }
                warm::WarmOutcome::NotWarm(start) => start,
            }
        }
        _ => start,
    };
    start_cold(call, start).await.map_err(|error| not_started(&located.program, &error))
}

/// Starts a process, on the worker thread or on a thread that may block, as [`inline_start`] decides.
async fn start_cold(call: &Call<'_>, start: Start) -> io::Result<Process> {
    let pipes =
        retry_on_emfile::retry(&call.scripts.ctx, async || Pipes::with_input(&start.input)).await?;
    let Pipes { stdin, stdout, stderr, ends } = pipes;
    let groups = Arc::clone(&call.scripts.pools.groups);
    let program = start.program.clone();
    let starting = move || {
        let began = Instant::now();
        let child = process::start(&groups, start, ends);
        (child, began, Instant::now())
    };
    let (child, began, started) = match inline_start::is_inline(&call.scripts.ctx, &program) {
        true => starting(),
        false => call.scripts.ctx.shared.blocking.starts.run(starting).await?,
    };
    inline_start::note(&program, started - began);
    Ok(Process { stdin, stdout, stderr, child: child?, started })
}

fn not_started(program: &Path, error: &io::Error) -> Failure {
    let reason = start_error::not_started(program, error);
    match error.kind() {
        _ if lacks_descriptors(error) => Failure::NoDescriptor,
        io::ErrorKind::PermissionDenied => Failure::Forbidden(Rejected::new(program, reason)),
        _ => Failure::Broken(reason),
    }
}

/// Returns `true` if a script writes the whole HTTP message (RFC 3875 §5).
pub(super) fn is_nph(program: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nph-"))
}
