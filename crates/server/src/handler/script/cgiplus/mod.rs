//! Programs that stay and take one request after the other on streams of their own (CGIplus), and
//! interpreters that do so for many scripts (the run-time environment).

mod library;
mod request;
mod run;
mod scan;
mod streams;

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dunlin_http::http1::BodyLength;
use dunlin_http::semantics::Method;

pub(super) use self::library::{FOLDER, LIBRARIES, add_to};
use self::run::{Answers, Run};
pub(super) use self::streams::Streams;
use super::locate::Located;
use super::reply::{self, DOWNLOAD};
use super::workers::{Capacity, Lease, Pool};
use super::{Call, Failure, at_once, environment, output, spool};
use crate::config::{ScriptKind, Workers};
use crate::response::Response;
use crate::route::Incoming;
use crate::stream;

/// What makes an interpreter a run-time environment.
pub(super) const PYTHON: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/rte/host.py"));
/// The same for Perl.
pub(super) const PERL: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/rte/host.pl"));

/// Has a worker answer the request.
pub(super) async fn attempt(
    call: &Call,
    mut incoming: Incoming,
    located: &Located,
    name: &Arc<str>,
) -> Result<Response, Failure> {
    let request = call.request.as_request();
    let length = spool::measured(call, &mut incoming).await?;
    let mut body = (incoming.length != BodyLength::None && length != Some(0))
        .then(|| spool::take_stream(&call.ctx, &mut incoming));
    let variables = environment::variables(call, &incoming, located, length);
    let pool = pool(call, located)?;
    let mut may_repeat = body.is_none() && request.method().is_idempotent();
    loop {
        let (mut lease, streams) = worker(call, &pool, name).await?;
        call.asks(&lease.worker);
        let head = match streams.in_structs.get() {
            true => request::structs(&variables),
            false => Ok(request::records(&variables)),
        };
        let chosen = Instant::now();
        incoming.script_context.start(chosen, Instant::now());
        let head = match head {
            Ok(head) => head,
            Err(failure) => {
                lease.put_back(streams.into());
                return Err(failure);
            }
        };
        let written = streams.variables.try_write(&head).unwrap_or(0);
        lease.is_used = true;
        let answers = Answers::new(Rc::clone(&call.ctx), &lease.worker, streams);
        let is_whole_message = super::cgi::is_nph(&located.program);
        let is_bodiless = request.method() == Method::Head;
        let mut early = Vec::new();
        if body.is_none() && written == head.len() && !is_whole_message {
            let script_context = &incoming.script_context;
            let asked = Asked(Some(lease));
            let awaited = call.awaited(script_context, is_bodiless);
            let answer = at_once::answer(&answers, awaited).await;
            lease = asked.take_back()?;
            match answer {
                Ok((head, content)) => {
                    script_context.log_timestamps(name, lease.worker.pid);
                    match answers.is_clean(false) {
                        true => lease.release(Some(answers.streams.into())),
                        false => lease.end(),
                    }
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
            is_whole_message,
            is_bodiless,
            script_context: Rc::clone(&incoming.script_context),
            lease,
            answers,
            early,
            head,
            written,
            length: if body.is_some() { length.unwrap_or(0) } else { 0 },
            body: body.take(),
            sender,
            tell,
        };
        // Apart, so that what is kept of an answer that needs none of it is small.
        match Box::pin(reply::told(run.supervise(), told)).await {
            Ok(answer) => {
                return Box::pin(reply::response(call, incoming, answer, receiver)).await;
            }
            Err(Failure::Lost(_)) if may_repeat => may_repeat = false,
            Err(failure) => return Err(failure),
        }
    }
}

/// A worker that was given a request. Nobody can tell where in an answer it is that is waited for no longer.
struct Asked(Option<Lease>);

impl Asked {
    fn take_back(mut self) -> Result<Lease, Failure> {
        self.0.take().ok_or(Failure::Abandoned)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(lease) = self.0.take() {
            lease.end();
        }
    }
}

/// The pool of the script's program, or of the interpreter for all scripts.
fn pool(call: &Call, located: &Located) -> Result<Arc<Pool>, Failure> {
    let Workers::Local(local) = &call.rules.workers else {
        return Err(Failure::Broken("it has no workers".into()));
    };
    let shared = &call.ctx.shared;
    let program = match call.rules.kind {
        ScriptKind::Cgiplus => &*located.program,
        _ => Path::new(""),
    };
    let pool =
        shared.pools.workers.of_program(shared, &call.rules, local, Capacity::ONE, program)?;
    // A change of the file since would have it found anew.
    if !located.is_seen_to.load(Ordering::Relaxed) {
        pool.refresh();
        located.is_seen_to.store(true, Ordering::Relaxed);
    }
    Ok(pool)
}

/// A worker that waits for a request.
async fn worker(
    call: &Call,
    pool: &Arc<Pool>,
    name: &Arc<str>,
) -> Result<(Lease, Streams), Failure> {
    loop {
        let mut lease = pool.lease(&call.ctx, name).await?;
        let streams = lease.take_kept().map(super::workers::Kept::into_streams);
        match streams {
            Some(Ok(streams)) if streams.is_silent() => return Ok((lease, streams)),
            Some(Ok(_)) => {
                tracing::warn!(
                    script = &**name,
                    pid = lease.worker.pid,
                    "it wrote behind the end of an answer, or has ended; it is replaced"
                );
                lease.lose();
            }
            _ => lease.end(),
        }
    }
}
