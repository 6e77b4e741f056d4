//! One request on a connection: bytes to the worker and from it, its limits, and its end.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::link::{Answers, Framing, Link};
use super::record;
use crate::config::Script;
use crate::handler::script::Failure;
use crate::handler::script::output::{Output, Tell};
use crate::handler::script::remote::Visit;
use crate::handler::script::workers::{Kept, Lease};
use crate::stream;
use crate::telemetry::ScriptContext;
use crate::worker::WorkerContext;

/// What a run needs; it goes on by itself when the answer is sent while it comes.
pub(super) struct Run {
    pub(super) ctx: Rc<WorkerContext>,
    pub(super) rules: Arc<Script>,
    /// For the log.
    pub(super) name: Arc<str>,
    /// The request is HEAD: a stated length is not that of what comes.
    pub(super) is_bodiless: bool,
    pub(super) script_context: Rc<ScriptContext>,
    pub(super) worker: Held,
    pub(super) answers: Answers,
    /// What has come of the answer.
    pub(super) early: Vec<Bytes>,
    /// What of the request's opening there was no room for.
    pub(super) rest: Bytes,
    /// The request's body behind it.
    pub(super) body: Option<stream::Receiver>,
    /// Takes the answer's body.
    pub(super) sender: stream::Sender,
    pub(super) tell: Tell,
}

/// The worker that a request has.
pub(super) enum Held {
    Local(Lease),
    Remote(Visit),
}

impl Held {
    /// The number of its process, where that is known.
    pub(super) fn pid(&self) -> i32 {
        match self {
            Self::Local(lease) => lease.worker.pid,
            Self::Remote(_) => 0,
        }
    }

    pub(super) fn keep_alive(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Remote(visit) => visit.keep_alive(),
        }
    }

    /// The answer is all there. What has not been `fed` to the worker would stand before the next request.
    pub(super) fn finish(self, answers: Answers, fed: bool) {
        if fed && answers.is_clean() {
            self.release(Some(answers.link));
        } else if answers.has_ended() {
            self.release(None);
        }
    }

    fn release(self, link: Option<Link>) {
        match self {
            Self::Local(lease) => lease.release(link.map(Kept::new)),
            Self::Remote(visit) => {
                let link = link.filter(|_| visit.keep_alive());
                visit.release(link);
            }
        }
    }

    /// It is late: what can be ended is ended.
    fn end(self) {
        if let Self::Local(lease) = self {
            lease.end();
        }
    }
}

impl Run {
    /// Sees the request through to its end.
    pub(super) async fn supervise(self) {
        let Self {
            ctx,
            rules,
            name,
            script_context,
            worker,
            answers,
            rest,
            body,
            sender,
            tell,
            ..
        } = self;
        let pid = worker.pid();
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
        let mut fed = body.is_none() && rest.is_empty();
        let result = {
            let feeding = pin!(feed(&output, rest, body));
            output.carry(feeding, &mut fed, false, &rules).await
        };
        script_context.log_timestamps(&name, pid);
        let source = &output.source;
        match result {
            Ok(()) => {
                let Output { source, .. } = output;
                worker.finish(source, fed);
            }
            Err(failure) => {
                let late = matches!(failure, Failure::Late(_));
                source.abort();
                let ended = source.has_ended();
                output.fail(failure);
                match (late, ended) {
                    (true, _) => worker.end(),
                    (_, true) => worker.release(None),
                    _ => drop(worker),
                }
            }
        }
    }
}

/// Writes the rest of the request's body as fast as the worker reads.
async fn feed(output: &Output<'_, Answers>, rest: Bytes, body: Option<stream::Receiver>) {
    let result = write(output, &rest).await;
    let Some(mut body) = body.filter(|_| result.is_ok()) else {
        output.script_context.handed_over.set(Some(Instant::now()));
        // A worker need not read all of it; its answer tells the rest.
        if result.is_err() {
            std::future::pending::<()>().await;
        }
        return;
    };
    let framing = output.source.framing;
    let mut records = Vec::new();
    loop {
        let next = match body.next().await {
            Ok(next) => next,
            // The client has left, which is noticed elsewhere.
            Err(_) => return std::future::pending().await,
        };
        let ended = next.is_none();
        let bytes = next.unwrap_or_default();
        let result = match framing {
            Framing::Plain => write(output, &bytes).await,
            Framing::Records => {
                records.clear();
                record::stdin(&bytes, &mut records);
                if ended {
                    record::end_stdin(&mut records);
                }
                write(output, &records).await
            }
        };
        // A worker need not read all of it; its answer tells the rest.
        if result.is_err() {
            output.script_context.handed_over.set(Some(Instant::now()));
            return std::future::pending().await;
        }
        if ended {
            break;
        }
    }
    output.script_context.handed_over.set(Some(Instant::now()));
}

async fn write(output: &Output<'_, Answers>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = output.source.link.write(bytes).await?;
        bytes = &bytes[count..];
        output.touch();
    }
    Ok(())
}
