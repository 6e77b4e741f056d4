//! CGI (RFC 3875): a process for each request.

mod here;
mod run;

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_http::http1::BodyLength;
use dunlin_http::semantics::Method;

use self::run::Run;
use super::locate::{Found, Located, find};
use super::pipes::Pipes;
use super::pool::Place;
use super::process::{self, Input, Process, Start};
use super::reply::{self, DOWNLOAD};
use super::{Call, Failure, environment, output, spool, warm};
use crate::config::ScriptKind;
use crate::response::Response;
use crate::route::Incoming;
use crate::stream;

/// `name` becomes the script's, for the log.
pub(super) async fn attempt(
    call: &Call,
    mut incoming: Incoming,
    name: &mut Arc<str>,
) -> Result<Response, Failure> {
    let Found::Script(located) = find(call).await? else { return Err(Failure::Missing) };
    *name = Arc::clone(&located.label);
    let mut length = environment::stated_length(&call.request.as_request(), incoming.length);
    let input = match incoming.length {
        BodyLength::None => Input::Nothing,
        BodyLength::Known(_) => Input::Pipe,
        BodyLength::Chunked => {
            let spooled = spool::spool(&mut incoming.body).await?;
            length = Some(spooled.length);
            incoming.body = spooled.memory;
            spooled.input
        }
    };
    let place = call.ctx.shared.pools.of(&call.rules).place(&call.rules).await?;
    let chosen = Instant::now();
    let process = launch(call, &incoming, &located, length, input, place).await?;
    incoming.course.start(chosen, process.started);
    let (sender, receiver) = stream::channel(DOWNLOAD);
    let (tell, told) = output::tell(&incoming);
    let run = Run {
        ctx: Rc::clone(&call.ctx),
        rules: Arc::clone(&call.rules),
        name: Arc::clone(name),
        is_whole_message: is_nph(&located.program),
        is_bodiless: call.request.as_request().method() == Method::Head,
        course: Rc::clone(&incoming.course),
        process,
        body: std::mem::replace(&mut incoming.body, stream::empty()),
        sender,
        tell,
    };
    tokio::task::spawn_local(run.supervise());
    // From here on, a receiver that is dropped says that the client has left.
    let answer = told.await.unwrap_or(Err(Failure::Abandoned))?;
    reply::response(call, incoming, answer, receiver).await
}

async fn launch(
    call: &Call,
    incoming: &Incoming,
    located: &Located,
    length: Option<u64>,
    input: Input,
    place: Place,
) -> Result<Process, Failure> {
    let mut variables = environment::variables(call, incoming, located, length);
    variables.add_path();
    let start = Start {
        program: located.program.clone(),
        directory: located.program.parent().unwrap_or(Path::new("/")).to_owned(),
        arguments: environment::arguments(
            &call.request.as_request(),
            call.subject.query.as_deref(),
        ),
        environment: variables,
        input,
        rules: Arc::clone(&call.rules),
        place,
    };
    let shared = Arc::clone(&call.ctx.shared);
    let start = match call.rules.kind {
        ScriptKind::Warm => match warm::start(&shared, start).await {
            warm::Outcome::Started(started) => return started.map_err(not_started),
            warm::Outcome::NotWarm(start) => start,
        },
        _ => start,
    };
    start_cold(call, start).await.map_err(not_started)
}

/// Starts a process: on the loop where that is best, and on a thread of the pool where it is not.
async fn start_cold(call: &Call, start: Start) -> io::Result<Process> {
    let Pipes { stdin, stdout, stderr, ends } = Pipes::new(&start.input)?;
    let shared = Arc::clone(&call.ctx.shared);
    let program = start.program.clone();
    let starting = move || {
        let began = Instant::now();
        let child = process::start(&shared, start, ends);
        (child, began, Instant::now())
    };
    let (child, began, started) = match here::is_here(&call.ctx, &program) {
        true => starting(),
        false => tokio::task::spawn_blocking(starting).await.map_err(io::Error::other)?,
    };
    here::note(&program, started - began);
    Ok(Process { stdin, stdout, stderr, child: child?, started })
}

fn not_started(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::Forbidden(error.to_string()),
        io::ErrorKind::NotFound => {
            Failure::Broken("it, or the interpreter that its first line names, is missing".into())
        }
        _ => Failure::Broken(error.to_string()),
    }
}

/// A script that writes the whole message itself (RFC 3875 §5).
pub(super) fn is_nph(program: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nph-"))
}
