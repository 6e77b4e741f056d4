//! One request that a worker has: bytes to it and from it, its limits, and its end.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::net::unix::pipe;

use super::request::{answer_to, asks_for_structs};
use super::scan::{Part, Scanner};
use super::streams::Streams;
use crate::config::Script;
use crate::handler::script::Failure;
use crate::handler::script::output::{End, Output, Source, Tell};
use crate::handler::script::stamp;
use crate::handler::script::workers::{Kept, Lease, Worker};
use crate::stream;
use crate::telemetry::ScriptContext;
use crate::worker::WorkerContext;

/// What a run needs; it goes on by itself when the answer is sent while it comes.
pub(super) struct Run {
    pub(super) ctx: Rc<WorkerContext>,
    pub(super) rules: Arc<Script>,
    /// For the log.
    pub(super) name: Arc<str>,
    /// The script writes a whole message, which is sent as it is.
    pub(super) is_whole_message: bool,
    /// The request is HEAD: a stated length is not that of what comes.
    pub(super) is_bodiless: bool,
    pub(super) script_context: Rc<ScriptContext>,
    pub(super) lease: Lease,
    pub(super) answers: Answers,
    /// What has come of the answer.
    pub(super) early: Vec<Bytes>,
    /// The request's variables, and how much of them is written.
    pub(super) head: Vec<u8>,
    pub(super) written: usize,
    /// The request's body, and the bytes that it holds.
    pub(super) length: u64,
    pub(super) body: Option<stream::Receiver>,
    /// Takes the answer's body.
    pub(super) sender: stream::Sender,
    pub(super) tell: Tell,
}

impl Run {
    /// Sees the request through to its end.
    pub(super) async fn supervise(self) {
        let Self { ctx, rules, name, script_context, lease, answers, head, written, .. } = self;
        let (body, sender) = (self.body, self.sender);
        let pid = lease.worker.pid;
        let had_body = body.is_some();
        let whole = (head.len() - written) as u64 + self.length;
        let output = Output::new(
            &ctx.deadlines,
            &name,
            answers,
            &sender,
            &script_context,
            self.is_bodiless,
            self.tell,
        );
        output.begin_with(self.early);
        let mut fed = body.is_none() && written == head.len();
        let result = {
            let feeding = pin!(feed(&output, &head[written..], body));
            output.carry(feeding, &mut fed, self.is_whole_message, &rules).await
        };
        script_context.log_timestamps(&name, pid);
        let closed = output.source.closed.get();
        // The end of the body may not have been heard of, but it has been reached.
        let fed = output.source.handed_over.get() == whole;
        let clean = fed && output.source.is_clean(had_body);
        match result {
            // The worker is given back first: who hears of the answer may ask again at once.
            Ok(()) if clean => {
                let Output { source, .. } = output;
                lease.release(Some(Kept::from(source.streams)));
            }
            Ok(()) => lease.end(),
            Err(failure) => {
                // What failed may lie in the answer alone, and its end has come.
                let spared = clean && !matches!(failure, Failure::Late(_));
                output.fail(failure);
                match (spared, closed) {
                    (true, _) => {
                        let Output { source, .. } = output;
                        lease.release(Some(Kept::from(source.streams)));
                    }
                    (_, true) => lease.lose(),
                    _ => lease.end(),
                }
            }
        }
    }
}

/// Writes what is left of the variables, and the body, as fast as the worker reads.
async fn feed(output: &Output<'_, Answers>, head: &[u8], body: Option<stream::Receiver>) {
    let streams = &output.source.streams;
    let mut result = write(output, &streams.variables, head).await;
    if let Some(mut body) = body {
        while result.is_ok() {
            match body.next().await {
                Ok(Some(bytes)) => result = write(output, &streams.stdin, &bytes).await,
                Ok(None) => break,
                // The client has left, which is noticed elsewhere.
                Err(_) => return std::future::pending().await,
            }
        }
    }
    output.script_context.handed_over.set(Some(Instant::now()));
    // A worker need not read all of it; its answer tells the rest.
    if result.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn write(
    output: &Output<'_, Answers>,
    pipe: &pipe::Sender,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        match pipe.try_write(bytes) {
            Ok(count) => {
                let handed_over = &output.source.handed_over;
                handed_over.set(handed_over.get() + count as u64);
                bytes = &bytes[count..];
                output.touch();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => pipe.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a worker answers.
pub(super) struct Answers {
    ctx: Rc<WorkerContext>,
    worker: Arc<Worker>,
    pub(super) streams: Streams,
    scanner: RefCell<Scanner>,
    broken: RefCell<Option<String>>,
    /// Bytes of the request that were written while this was there.
    handed_over: Cell<u64>,
    /// The worker has closed its standard output.
    closed: Cell<bool>,
}

impl Answers {
    pub(super) fn new(ctx: Rc<WorkerContext>, worker: &Arc<Worker>, streams: Streams) -> Self {
        let scanner = Scanner::new(Arc::clone(&streams.marks)).into();
        Self {
            ctx,
            worker: Arc::clone(worker),
            streams,
            scanner,
            broken: RefCell::default(),
            handed_over: Cell::default(),
            closed: Cell::default(),
        }
    }

    /// Whether the next request can follow.
    pub(super) fn is_clean(&self, had_body: bool) -> bool {
        self.scanner.borrow().is_clean() && (!had_body || self.streams.is_read())
    }

    fn break_off(&self, why: impl Into<String>) -> Option<Bytes> {
        self.broken.borrow_mut().get_or_insert_with(|| why.into());
        None
    }

    /// Does what a callout asks for.
    fn obey(&self, callout: &[u8]) -> io::Result<()> {
        let callout = callout.trim_ascii();
        if let Some(files) = callout.strip_prefix(b"!LOADED: ") {
            self.worker.note_loaded(stamp::paths(files));
        }
        if asks_for_structs(callout) {
            self.streams.in_structs.set(true);
        }
        let Some(answer) = answer_to(callout) else { return Ok(()) };
        // So short a record is written as a whole or not at all, by the system's rules of pipes.
        self.streams.variables.try_write(answer).map(|_| ())
    }

    /// The next text that is there.
    fn next_text(&self) -> Result<Option<Bytes>, String> {
        loop {
            match self.scanner.borrow_mut().next()? {
                Part::Text(text) => return Ok(Some(text)),
                Part::Callout(text) => self
                    .obey(&text)
                    .map_err(|error| format!("the answer to its callout is not read: {error}"))?,
                Part::End | Part::More => return Ok(None),
            }
        }
    }

    fn try_read(&self) -> io::Result<usize> {
        let mut buffers = self.ctx.take_buffers();
        let result = self.streams.stdout.try_read(&mut buffers.input);
        if let Ok(count) = result {
            self.scanner.borrow_mut().push(&buffers.input[..count]);
        }
        self.ctx.give_buffers(buffers);
        result
    }
}

impl Source for Answers {
    async fn read(&self) -> Option<Bytes> {
        loop {
            match self.next_text() {
                Ok(Some(text)) => return Some(text),
                Ok(None) if self.scanner.borrow().has_ended() => return None,
                Ok(None) => {}
                Err(why) => return self.break_off(why),
            }
            match self.try_read() {
                Ok(0) => {
                    self.closed.set(true);
                    return self.break_off("its worker ended without the mark of the answer's end");
                }
                Ok(_) => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return self.break_off(error.to_string()),
            }
            if let Err(error) = self.streams.stdout.readable().await {
                return self.break_off(error.to_string());
            }
        }
    }

    async fn end(&self) -> End {
        match &*self.broken.borrow() {
            Some(why) if self.scanner.borrow().has_begun() => End::Cut(why.clone()),
            Some(why) => End::Lost(why.clone()),
            None => End::Well,
        }
    }
}
