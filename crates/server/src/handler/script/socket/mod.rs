//! Kinds whose workers are reached by a socket that carries one request at a time: FastCGI, SCGI
//! and uWSGI's protocol.

mod link;
mod packet;
mod record;
mod run;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use dunlin_http::semantics::Method;
use tokio::net::UnixStream;

pub(super) use self::link::Link;
use self::link::{Answers, Framing};
use self::run::{Held, Run};
use super::locate::Located;
use super::reply::{self, DOWNLOAD};
use super::stderr::Lines;
use super::workers::Capacity;
use super::{Call, Failure, at_once, descriptors, environment, output, spool};
use crate::config::{ScriptKind, Workers};
use crate::response::Response;
use crate::route::Incoming;
use crate::stream::{self, Broken};
use crate::temp_files::lacks_descriptors;

/// One more than a request is tried when its worker is lost before it has answered.
const ATTEMPTS: usize = 2;
/// As much of the body as is there leaves with the head, up to this.
const TOGETHER: usize = 64 * 1024;

/// A request as a worker reads it.
struct Opening {
    bytes: Bytes,
    /// All of the request is in it, so that it can be sent to another worker.
    is_whole: bool,
}

/// Has a worker answer the request.
pub(super) async fn attempt(
    call: &Call,
    mut incoming: Incoming,
    located: &Located,
    name: &Arc<str>,
) -> Result<Response, Failure> {
    let request = call.request.as_request();
    let length = spool::measured(call, &mut incoming).await?;
    let mut body = spool::take_stream(&call.ctx, &mut incoming);
    let mut opening = None;
    let mut avoided = None;
    for attempt in 1.. {
        let (mut worker, link) = connect(call, name, avoided, attempt > 1).await?;
        let chosen = Instant::now();
        if opening.is_none() {
            let keep_alive = worker.keep_alive();
            opening = Some(open(call, &incoming, located, length, keep_alive, &mut body).await?);
        }
        let Some(Opening { bytes, is_whole }) = &opening else { break };
        if let Held::Local(lease) = &mut worker {
            lease.is_used = true;
        }
        avoided = match &worker {
            Held::Remote(visit) => Some(visit.target()),
            Held::Local(_) => None,
        };
        let last = attempt == ATTEMPTS;
        let written = match link.try_write(bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            // It cannot have begun: it has been told of nothing.
            Err(_) if !last => continue,
            Err(error) => return Err(Failure::Lost(format!("its worker is gone: {error}"))),
        };
        incoming.script_context.start(chosen, Instant::now());
        let stderr =
            Lines::new(Arc::clone(name), worker.pid(), Rc::clone(&incoming.script_context));
        let answers = Answers::new(Rc::clone(&call.ctx), link, framing(call.rules.kind), stderr);
        let is_bodiless = request.method() == Method::Head;
        let mut early = Vec::new();
        if *is_whole && written == bytes.len() {
            let script_context = &incoming.script_context;
            let asked = Asked(Some(&answers));
            let answer = at_once::answer(&answers, call.awaited(script_context, is_bodiless)).await;
            asked.let_go();
            match answer {
                Ok((head, content)) => {
                    script_context.log_timestamps(name, worker.pid());
                    worker.finish(answers, true);
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
            is_bodiless,
            script_context: Rc::clone(&incoming.script_context),
            worker,
            answers,
            early,
            rest: bytes.slice(written..),
            body: (!is_whole).then(|| std::mem::replace(&mut body, stream::empty())),
            sender,
            tell,
        };
        // Apart, so that what is kept of an answer that needs none of it is small.
        match Box::pin(reply::told(run.supervise(), told)).await {
            Ok(answer) => {
                return Box::pin(reply::response(call, incoming, answer, receiver)).await;
            }
            // A worker that has refused has not begun, one that was lost may have.
            Err(Failure::Refused(_)) if !last && *is_whole => {}
            Err(Failure::Lost(_)) if !last && *is_whole && request.method().is_idempotent() => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Broken("it was not tried".into()))
}

/// A worker that was given a request, which hears of it when nobody waits for the answer any more.
struct Asked<'a>(Option<&'a Answers>);

impl Asked<'_> {
    /// Whoever goes on sees to the rest.
    fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(answers) = self.0 {
            answers.abort();
        }
    }
}

fn framing(kind: ScriptKind) -> Framing {
    match kind {
        ScriptKind::FastCgi => Framing::Records,
        _ => Framing::Plain,
    }
}

/// A worker and a connection to it.
async fn connect(
    call: &Call,
    name: &Arc<str>,
    avoided: Option<usize>,
    fresh: bool,
) -> Result<(Held, Link), Failure> {
    let shared = &call.ctx.shared;
    match &call.rules.workers {
        Workers::Local(local) => {
            let pool = shared.pools.workers.of(shared, &call.rules, local, Capacity::ONE)?;
            let mut unreached = 0;
            loop {
                let mut lease = pool.lease(&call.ctx, name).await?;
                if let Some(kept) = lease.take_kept()
                    && let Ok(link) = kept.into_link()
                    && link.is_reusable()
                {
                    call.asks(&lease.worker);
                    return Ok((Held::Local(lease), link));
                }
                let socket = &lease.worker.socket;
                let connect = async || UnixStream::connect(socket).await;
                match descriptors::retry(&call.ctx, connect).await {
                    Ok(stream) => {
                        call.asks(&lease.worker);
                        return Ok((Held::Local(lease), Link::Unix(stream)));
                    }
                    Err(error) if lacks_descriptors(&error) => return Err(Failure::NoDescriptor),
                    // It has just ended, and could be told of nothing.
                    Err(error) => {
                        lease.lose();
                        unreached += 1;
                        if unreached == ATTEMPTS {
                            let what = format!("its worker cannot be reached: {error}");
                            return Err(Failure::Lost(what));
                        }
                    }
                }
            }
        }
        Workers::Remote(remote) => {
            let place = shared.pools.of(&call.rules).place(&call.rules).await?;
            let group = shared.pools.remotes.of(&call.rules, remote);
            let (visit, link) = group.connect(&call.ctx, place, avoided, fresh).await?;
            Ok((Held::Remote(visit), link))
        }
        Workers::Each => Err(Failure::Broken("it has no workers".into())),
    }
}

/// The request's head, and what of its body is there.
async fn open(
    call: &Call,
    incoming: &Incoming,
    located: &Located,
    length: Option<u64>,
    keep_alive: bool,
    body: &mut stream::Receiver,
) -> Result<Opening, Failure> {
    let variables = environment::variables(call, incoming, located, length);
    let mut bytes = Vec::with_capacity(2048);
    let kind = call.rules.kind;
    match kind {
        ScriptKind::Scgi => packet::scgi(&variables, length, &mut bytes),
        ScriptKind::Uwsgi => packet::uwsgi(&variables, &mut bytes)?,
        _ => {
            record::begin(keep_alive, &mut bytes);
            record::params(variables.iter(), &mut bytes);
        }
    }
    let records = framing(kind) == Framing::Records;
    let mut is_whole = false;
    while bytes.len() < TOGETHER && !is_whole {
        let next = poll_fn(|cx| {
            Poll::Ready(match body.poll_next(cx) {
                Poll::Ready(next) => Some(next),
                Poll::Pending => None,
            })
        });
        match next.await {
            None => break,
            Some(Err(Broken)) => return Err(Failure::Abandoned),
            Some(Ok(Some(part))) if records => record::stdin(&part, &mut bytes),
            Some(Ok(Some(part))) => bytes.extend_from_slice(&part),
            Some(Ok(None)) => {
                is_whole = true;
                if records {
                    record::end_stdin(&mut bytes);
                }
            }
        }
    }
    Ok(Opening { bytes: bytes.into(), is_whole })
}
