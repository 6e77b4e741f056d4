//! CGI (RFC 3875): a process for each request.

mod environment;
mod head;
mod redirect;
mod run;
mod spool;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use dunlin_http::OwnedRequest;
use dunlin_http::http1::BodyLength;
use dunlin_http::semantics::Method;
use tokio::sync::oneshot;

use self::head::ScriptHead;
use self::run::{Answer, Run};
use super::Failure;
use super::locate::{Located, locate};
use super::phases::Phases;
use super::pool::Place;
use super::process::{self, Input, Start};
use super::warm;
use crate::config::{Script, ScriptKind};
use crate::event_loop::Loop;
use crate::handler::file::{Mode, OwnedSubject, apply_edits};
use crate::response::{Body, Piece, Response, Stream};
use crate::route::Incoming;
use crate::stream;

/// A request for a script.
pub(super) struct Call {
    pub(super) ctx: Rc<Loop>,
    pub(super) request: OwnedRequest,
    pub(super) subject: OwnedSubject,
    pub(super) rules: Arc<Script>,
}

/// Bytes of the answer that wait for the client, besides those on their way to the socket.
const DOWNLOAD: usize = 64 * 1024;

/// Runs the script that the request is for.
pub(super) async fn respond(call: Call, incoming: Incoming) -> Response {
    let mut name = call.rules.directory.display().to_string();
    let failure = match attempt(&call, incoming, &mut name).await {
        Ok(response) => return response,
        Err(failure) => failure,
    };
    failure.tell(&name);
    let request = call.request.as_request();
    failure.into_response(&call.ctx, &request, &call.subject.borrow()).await
}

/// `name` becomes the script's, for the log.
async fn attempt(
    call: &Call,
    mut incoming: Incoming,
    name: &mut String,
) -> Result<Response, Failure> {
    let located = find(call).await?;
    *name = located.program.display().to_string();
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
    let phases = Rc::new(Phases::new(incoming.received, chosen));
    let (sender, receiver) = stream::channel(DOWNLOAD);
    let (tell, told) = oneshot::channel();
    let run = Run {
        ctx: Rc::clone(&call.ctx),
        rules: Arc::clone(&call.rules),
        name: name.clone(),
        is_whole_message: is_nph(&located.program),
        is_bodiless: call.request.as_request().method() == Method::Head,
        phases: Rc::clone(&phases),
        process,
        body: std::mem::replace(&mut incoming.body, stream::empty()),
        sender,
        tell,
    };
    tokio::task::spawn_local(run.supervise());
    // From here on, a receiver that is dropped says that the client has left.
    let answer = told.await.unwrap_or(Err(Failure::Abandoned))?;
    let response = match answer {
        Answer::Local(target) => {
            receiver.discard();
            return redirect::follow(call, incoming, &target).await;
        }
        Answer::Message(status) => {
            let mut response = Response::new(status);
            let stream = Stream { source: receiver, length: None, is_message: true };
            response.body = Body::streamed(stream);
            return Ok(response);
        }
        Answer::Whole(head, body) => {
            receiver.discard();
            whole(call, head, body)
        }
        Answer::Streamed(head) => {
            let stream =
                Stream { source: receiver, length: head.content_length, is_message: false };
            begin(head, Body::streamed(stream))
        }
    };
    Ok(finish(call, response, &phases))
}

/// Looks on the loop when the way there is in memory, and elsewhere when it is not.
async fn find(call: &Call) -> Result<Located, Failure> {
    let Call { ctx, subject, rules, .. } = call;
    let found = locate(&ctx.shared, &subject.settings, rules, &subject.path, Mode::Inline);
    match found {
        Ok(located) => return Ok(located),
        Err(Some(failure)) => return Err(failure),
        Err(None) => {}
    }
    let (shared, rules) = (Arc::clone(&ctx.shared), Arc::clone(rules));
    let (settings, path) = (Arc::clone(&subject.settings), subject.path.clone());
    let found = tokio::task::spawn_blocking(move || {
        locate(&shared, &settings, &rules, &path, Mode::Blocking)
    });
    let missing = || Failure::Broken("it could not be looked for".into());
    found.await.map_err(|_| missing())?.map_err(|failure| failure.unwrap_or_else(missing))
}

async fn launch(
    call: &Call,
    incoming: &Incoming,
    located: &Located,
    length: Option<u64>,
    input: Input,
    place: Place,
) -> Result<process::Process, Failure> {
    let start = Start {
        program: located.program.clone(),
        directory: located.program.parent().unwrap_or(Path::new("/")).to_owned(),
        arguments: environment::arguments(
            &call.request.as_request(),
            call.subject.query.as_deref(),
        ),
        environment: environment::variables(call, incoming, located, length),
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
        ScriptKind::Cgi => start,
    };
    let started = tokio::task::spawn_blocking(move || process::start(&shared, start));
    let started = started.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    started.map_err(not_started)
}

fn not_started(error: std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::Forbidden(error.to_string()),
        std::io::ErrorKind::NotFound => {
            Failure::Broken("it, or the interpreter that its first line names, is missing".into())
        }
        _ => Failure::Broken(error.to_string()),
    }
}

/// A script that writes the whole message itself (RFC 3875 §5).
fn is_nph(program: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    program.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nph-"))
}

fn begin(head: ScriptHead, body: Body) -> Response {
    let mut response = Response::new(head.status());
    response.fields = head.fields;
    response.body = body;
    response
}

/// An answer that was there as a whole before its head was sent.
fn whole(call: &Call, head: ScriptHead, bytes: Bytes) -> Response {
    let stated = head.content_length;
    let length = bytes.len() as u64;
    let mut body = Body::default();
    if call.request.as_request().method() == Method::Head {
        // What an answer to GET would have held is not known from one without content.
        let length = stated.or((length > 0).then_some(length));
        body = Body::streamed(Stream { source: stream::empty(), length, is_message: false });
    } else {
        body.push(Piece::Memory(bytes));
    }
    begin(head, body)
}

fn finish(call: &Call, mut response: Response, phases: &Phases) -> Response {
    let settings = &call.subject.settings;
    apply_edits(settings, &mut response.fields);
    if settings.server_timing {
        response.fields.push("Server-Timing", phases.server_timing());
    }
    response
}
