//! Applications that a host of ours loads once and serves (WSGI, PEP 3333; ASGI; PSGI). A host is a worker that
//! takes many requests at once, so that they cross to it and back in batches.

mod frame;
mod link;

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use dunlin_http::http1::BodyLength;
use dunlin_http::semantics::Method;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use self::frame::Said;
pub(crate) use self::link::Links;
use self::link::{Answers, Entry};
use super::locate::Located;
use super::output::{Output, Tell};
use super::reply::{self, DOWNLOAD};
use super::workers::Capacity;
use super::{Call, Failure, at_once, descriptors, environment, output, spool, stamp};
use crate::config::{Script, ScriptKind, Workers};
use crate::response::Response;
use crate::route::Incoming;
use crate::stream;
use crate::telemetry::ScriptContext;
use crate::temp_files::lacks_descriptors;
use crate::worker::WorkerContext;

/// The program that loads a WSGI application and serves it.
pub(super) const WSGI: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/wsgi/host.py"));

/// What it does without Python, made from `scripting/wsgi/fast.c`, under the name that it looks for.
pub(super) const WSGI_FAST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wsgi-fast.so"));
pub(super) const WSGI_FAST_NAME: &str = "dunlin_wsgi.abi3.so";

/// What the hosts of Python applications share, under the name that they look for.
pub(super) const LOADING: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/python/dunlin_loading.py"));
pub(super) const LOADING_NAME: &str = "dunlin_loading.py";

/// The host for ASGI.
pub(super) const ASGI: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/asgi/host.py"));

/// The host for PSGI.
pub(super) const PSGI: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/psgi/host.pl"));

/// Requests that a host of an asynchronous application works on at once.
const TASKS: usize = 1024;
/// Requests that a host is given ahead while it answers them at once.
const AHEAD: usize = 64;
/// Hosts that are tried when they cannot be reached.
const ATTEMPTS: usize = 2;
/// Bytes of a number within a request's variables.
const LENGTH: usize = 4;
/// Bytes of a body in one frame.
const FRAME: usize = 64 * 1024;

/// Has a host answer the request.
pub(super) async fn attempt(
    call: &Call,
    mut incoming: Incoming,
    located: &Located,
    name: &Arc<str>,
) -> Result<Response, Failure> {
    let Workers::Local(local) = &call.rules.workers else {
        return Err(Failure::Broken("it has no workers".into()));
    };
    let request = call.request.as_request();
    let shared = &call.ctx.shared;
    let length = spool::measured(call, &mut incoming).await?;
    let mut body = (incoming.length != BodyLength::None && length != Some(0))
        .then(|| spool::take_stream(&call.ctx, &mut incoming));
    let capacity = match call.rules.kind {
        ScriptKind::Asgi => Capacity { least: TASKS, most: TASKS },
        _ => Capacity { least: local.threads, most: local.threads.max(AHEAD) },
    };
    let pool = shared.pools.workers.of(shared, &call.rules, local, capacity)?;
    let mut may_repeat = body.is_none() && request.method().is_idempotent();
    let mut unreached = 0;
    loop {
        let mut lease = pool.lease(&call.ctx, name).await?;
        let worker = Arc::clone(&lease.worker);
        let pid = worker.pid;
        call.asks(&lease.worker);
        let connect = async || call.ctx.links.to(&lease.worker).await;
        let link = match descriptors::retry(&call.ctx, connect).await {
            Ok(link) => link,
            Err(error) if lacks_descriptors(&error) => return Err(Failure::NoDescriptor),
            // It has just ended, and could be told of nothing: another one may have the request.
            Err(error) => {
                lease.lose();
                if !worker.is_ready() {
                    return Err(Failure::Unreachable(format!(
                        "its host cannot be reached: {error}"
                    )));
                }
                unreached += 1;
                if unreached < ATTEMPTS {
                    continue;
                }
                return Err(Failure::Lost(format!("its host cannot be reached: {error}")));
            }
        };
        lease.is_used = true;
        let chosen = Instant::now();
        let entry = link.enter(lease);
        let kind = if body.is_some() { frame::REQUEST_WITH_BODY } else { frame::REQUEST };
        let variables = environment::variables(call, &incoming, located, length);
        link.send_with(entry.id(), kind, |output| write(&variables, output));
        drop(variables);
        incoming.script_context.start(chosen, Instant::now());
        let answers = Answers { link, entry };
        let is_bodiless = request.method() == Method::Head;
        let mut early = Vec::new();
        if body.is_none() {
            let script_context = &incoming.script_context;
            let awaited = call.awaited(script_context, is_bodiless);
            match at_once::answer(&answers, awaited).await {
                Ok((head, content)) => {
                    script_context.log_timestamps(name, pid);
                    return Ok(reply::at_once(call, head, content, script_context));
                }
                Err(pieces) => early = pieces,
            }
        }
        let (sender, receiver) = stream::channel(DOWNLOAD);
        let (tell, told) = output::tell(&incoming);
        let run = Run {
            ctx: Rc::clone(&call.ctx),
            rules: Arc::clone(&call.rules),
            name: Arc::clone(name),
            pid,
            is_bodiless,
            script_context: Rc::clone(&incoming.script_context),
            answers,
            body: body.take(),
            sender,
            tell,
            early,
        };
        // Apart, so that what is kept of an answer that needs none of it is small.
        match Box::pin(reply::told(run.supervise(), told)).await {
            Ok(answer) => {
                return Box::pin(reply::response(call, incoming, answer, receiver)).await;
            }
            // It could not be loaded, which the log reports.
            Err(Failure::Lost(why)) if !worker.is_ready() => return Err(Failure::Unreachable(why)),
            Err(Failure::Lost(_)) if may_repeat => may_repeat = false,
            Err(failure) => return Err(failure),
        }
    }
}

/// Reads the report of a host that its application is loaded: the files that it was loaded from.
///
/// # Errors
/// When the host ends before.
pub(super) async fn read_report(stream: &mut UnixStream) -> io::Result<Vec<PathBuf>> {
    let mut bytes = BytesMut::new();
    loop {
        match frame::read(&mut bytes).map_err(io::Error::other)? {
            Some((_, Said::Loaded(files))) => return Ok(stamp::paths(&files)),
            Some(_) => {}
            None if stream.read_buf(&mut bytes).await? == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            None => {}
        }
    }
}

/// Writes the variables, with those apart that are likely to be the same in the next request, so that a host
/// need not read them again: the length of the first part (four bytes, the lowest first); the names of
/// the others, an empty one, and the names and values of the same ones; then the values of the others.
/// All are parted by a NUL.
fn write(variables: &environment::Variables, output: &mut Vec<u8>) {
    let start = output.len();
    output.extend_from_slice(&[0; LENGTH]);
    for (name, _) in variables.which(true) {
        output.extend_from_slice(name);
        output.push(0);
    }
    for (name, value) in variables.which(false) {
        for part in [name, value] {
            output.push(0);
            output.extend_from_slice(part);
        }
    }
    // A head is bounded.
    let length = u32::try_from(output.len() - start - LENGTH).unwrap_or(u32::MAX);
    output[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    for (at, (_, value)) in variables.which(true).enumerate() {
        if at > 0 {
            output.push(0);
        }
        output.extend_from_slice(value);
    }
}

/// One request that a host has.
struct Run {
    ctx: Rc<WorkerContext>,
    rules: Arc<Script>,
    name: Arc<str>,
    pid: i32,
    is_bodiless: bool,
    script_context: Rc<ScriptContext>,
    answers: Answers,
    body: Option<stream::Receiver>,
    sender: stream::Sender,
    tell: Tell,
    /// What has come of the answer.
    early: Vec<Bytes>,
}

impl Run {
    /// Sees the request through to its end.
    async fn supervise(self) {
        let Self { ctx, rules, name, script_context, answers, body, sender, tell, .. } = self;
        let entry = Rc::clone(&answers.entry);
        let output = Output::new(
            &ctx.deadlines,
            &name,
            answers,
            &sender,
            &script_context,
            self.is_bodiless,
            tell,
        );
        output.begin_with(self.early);
        if matches!(rules.kind, ScriptKind::Wsgi | ScriptKind::Asgi) {
            output.ignore_codings();
        }
        let mut fed = body.is_none();
        let result = output.carry(pin!(feed(&output, &entry, body)), &mut fed, false, &rules).await;
        script_context.log_timestamps(&name, self.pid);
        if let Err(failure) = result {
            if matches!(failure, Failure::Late(_)) {
                entry.end_host();
            }
            output.fail(failure);
        }
    }
}

/// Sends the request's body as fast as the host takes it.
async fn feed(output: &Output<'_, Answers>, entry: &Entry, body: Option<stream::Receiver>) {
    let link = &output.source.link;
    let Some(mut body) = body else { return };
    loop {
        let mut bytes: Bytes = match body.next().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break,
            // The client has left, which is noticed elsewhere.
            Err(_) => return std::future::pending().await,
        };
        while !bytes.is_empty() {
            let count = entry.room().await.min(bytes.len()).min(FRAME);
            link.send(entry.id(), frame::BODY, &bytes.split_to(count));
            entry.use_room(count);
            output.touch();
        }
    }
    link.send(entry.id(), frame::BODY_END, b"");
    output.script_context.handed_over.set(Some(Instant::now()));
}
