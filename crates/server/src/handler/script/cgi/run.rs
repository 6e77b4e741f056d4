//! One run of a script: bytes to it and from it, its limits, and its end.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until, timeout};

use super::head::{self, ScriptHead};
use crate::config::Script;
use crate::event_loop::Loop;
use crate::handler::script::Failure;
use crate::handler::script::phases::Phases;
use crate::handler::script::process::{Child, Exit, Process};
use crate::handler::script::stderr::{Stderr, TURN, printable};
use crate::stream::{self, Broken};

/// What a run needs; it goes on by itself when the request is answered.
pub(super) struct Run {
    pub(super) ctx: Rc<Loop>,
    pub(super) rules: Arc<Script>,
    /// For the log.
    pub(super) name: String,
    /// The script writes a whole message, which is sent as it is.
    pub(super) is_whole_message: bool,
    /// The request is HEAD: a stated length is not that of what comes.
    pub(super) is_bodiless: bool,
    pub(super) phases: Rc<Phases>,
    pub(super) process: Process,
    /// The request's body.
    pub(super) body: stream::Receiver,
    /// Takes the answer's body.
    pub(super) sender: stream::Sender,
    pub(super) tell: oneshot::Sender<Result<Answer, Failure>>,
}

/// What a script answers with.
pub(super) enum Answer {
    /// All of it.
    Whole(ScriptHead, Bytes),
    /// A body that follows.
    Streamed(ScriptHead),
    /// A whole message that follows, with the status that it begins with.
    Message(u16),
    /// What this path would be answered with.
    Local(Vec<u8>),
}

/// An answer that ends within so many bytes and so much time is sent as a whole: its length can
/// be stated, it leaves in one write, and a script that fails in the middle of it gives an error
/// instead of a cut answer.
const WHOLE: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_millis(2);
/// How long after the end of its output a script may take to end before it counts as going on in
/// the background.
const EXIT: Duration = Duration::from_millis(100);
/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Between the end of a script that was told to end and SIGKILL for what it has left behind.
const GROUP_GRACE: Duration = Duration::from_millis(200);

impl Run {
    /// Sees the script through to its end, whatever becomes of the request.
    pub(super) async fn supervise(self) {
        let Self { ctx, rules, name, phases, process, body, sender, tell, .. } = self;
        let Process { stdin, stdout, stderr, child } = process;
        let mut stderr = Stderr::new(stderr, &name, child.id());
        let output = Output {
            ctx: &ctx,
            name: &name,
            stdout,
            child: &child,
            sender: &sender,
            tell: RefCell::new(Some(tell)),
            phases: &phases,
            is_bodiless: self.is_bodiless,
            active: Cell::new(Instant::now()),
            reads: Cell::new(0),
            held_up: Cell::new(false),
            is_complete: Cell::new(false),
        };
        let is_whole_message = self.is_whole_message;
        let result = {
            let mut feeding = pin!(output.feed(stdin, body));
            let mut listening = pin!(stderr.listen());
            let mut answering = pin!(output.answer(is_whole_message));
            let mut watching = pin!(output.watch(&rules));
            let (mut fed, mut heard, mut answered) = (false, false, false);
            let mut exited = pin!(child.exited());
            loop {
                tokio::select! {
                    biased;
                    result = &mut answering, if !answered => match result {
                        Ok(()) => {
                            answered = true;
                            output.is_complete.set(true);
                            watching.set(output.watch(&rules));
                        }
                        Err(failure) => break Err(failure),
                    },
                    () = &mut feeding, if !fed => {
                        fed = true;
                        watching.set(output.watch(&rules));
                    }
                    () = &mut listening, if !heard => heard = true,
                    () = sender.abandoned(), if !answered => break Err(Failure::Abandoned),
                    late = &mut watching => break Err(Failure::Late(late)),
                    _ = &mut exited, if answered => break Ok(()),
                }
            }
        };
        if let Err(failure) = result {
            output.fail(failure);
            end(&child).await;
        }
        // What was written before the end is there; what else holds the pipe open is not waited
        // for.
        let _ = timeout(GROUP_GRACE, stderr.listen()).await;
        phases.tell(&name, child.id());
        drop(output);
        child.reap();
    }
}

/// Ends a script and what it has started.
async fn end(child: &Child) {
    child.signal(Signal::TERM);
    if timeout(GRACE, child.exited()).await.is_ok() {
        sleep(GROUP_GRACE).await;
    }
    child.signal(Signal::KILL);
    let _ = timeout(GRACE, child.exited()).await;
}

/// A script's output on its way to the client.
struct Output<'a> {
    ctx: &'a Loop,
    name: &'a str,
    stdout: pipe::Receiver,
    child: &'a Child,
    sender: &'a stream::Sender,
    tell: RefCell<Option<oneshot::Sender<Result<Answer, Failure>>>>,
    phases: &'a Phases,
    is_bodiless: bool,
    /// When the script last read or wrote.
    active: Cell<Instant>,
    reads: Cell<u64>,
    /// The script is kept from writing by the client.
    held_up: Cell<bool>,
    /// The answer has ended: what the script does from now on is its own affair.
    is_complete: Cell<bool>,
}

impl Output<'_> {
    /// Writes the request's body to the script as fast as it reads.
    async fn feed(&self, stdin: Option<pipe::Sender>, mut body: stream::Receiver) {
        if let Some(stdin) = stdin {
            while let Ok(Some(bytes)) = body.next().await {
                // A script need not read its input; the rest of the body then goes nowhere.
                if self.write(&stdin, &bytes).await.is_err() {
                    break;
                }
            }
        }
        self.phases.handed_over.set(Some(Instant::now()));
    }

    async fn write(&self, stdin: &pipe::Sender, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match stdin.try_write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.active.set(Instant::now());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => stdin.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the answer and hands it over.
    async fn answer(&self, is_whole_message: bool) -> Result<(), Failure> {
        if is_whole_message {
            return self.message().await;
        }
        let mut buffer = Vec::new();
        let (head, length) = loop {
            match self.read().await {
                Some(bytes) => buffer.extend_from_slice(&bytes),
                None => return Err(self.early_end(buffer.is_empty()).await),
            }
            if let Some(found) = head::parse(&buffer).map_err(Failure::Malformed)? {
                break found;
            }
        };
        if let Some(target) = head.local_redirect() {
            self.give(Answer::Local(target.to_vec()));
            while self.read().await.is_some() {}
            return Ok(());
        }
        buffer.drain(..length);
        if timeout(PATIENCE, self.read_whole(&mut buffer)).await.unwrap_or(false) {
            return self.whole(head, buffer).await;
        }
        let stated = head.content_length.filter(|_| !self.is_bodiless);
        self.give(Answer::Streamed(head));
        self.stream(buffer.into(), stated).await
    }

    /// Adds what comes; true when that was all.
    async fn read_whole(&self, buffer: &mut Vec<u8>) -> bool {
        while buffer.len() < WHOLE {
            match self.read().await {
                Some(bytes) => buffer.extend_from_slice(&bytes),
                None => return true,
            }
        }
        false
    }

    async fn whole(&self, head: ScriptHead, mut body: Vec<u8>) -> Result<(), Failure> {
        if let Ok(Exit::Signal(signal)) = timeout(EXIT, self.child.exited()).await {
            return Err(Failure::Malformed(format!("it was ended by signal {signal}")));
        }
        let length = body.len() as u64;
        match head.content_length.filter(|_| !self.is_bodiless) {
            Some(stated) if length < stated => {
                let what = format!("it wrote {length} bytes where its Content-Length is {stated}");
                return Err(Failure::Malformed(what));
            }
            Some(stated) if length > stated => {
                self.tell_of_excess(stated);
                body.truncate(stated as usize);
            }
            _ => {}
        }
        self.give(Answer::Whole(head, body.into()));
        Ok(())
    }

    /// Hands over the body as it comes.
    async fn stream(&self, first: Bytes, stated: Option<u64>) -> Result<(), Failure> {
        let mut sent = first.len() as u64;
        self.sender.push(first);
        let mut told = false;
        loop {
            if stated.is_some_and(|stated| sent > stated) && !told {
                told = true;
                self.tell_of_excess(stated.unwrap_or_default());
            }
            self.held_up.set(true);
            let room = self.sender.room().await;
            self.held_up.set(false);
            self.active.set(Instant::now());
            if room.is_err() {
                return Err(Failure::Abandoned);
            }
            let Some(bytes) = self.read().await else { break };
            sent += bytes.len() as u64;
            self.sender.push(bytes);
        }
        if stated.is_some_and(|stated| sent >= stated) {
            self.sender.end();
            return Ok(());
        }
        if let Some(stated) = stated {
            let what = format!("it wrote {sent} bytes where its Content-Length is {stated}");
            return Err(Failure::Malformed(what));
        }
        match timeout(EXIT, self.child.exited()).await {
            Ok(Exit::Signal(signal)) => {
                Err(Failure::Malformed(format!("it was ended by signal {signal} while it wrote")))
            }
            _ => {
                self.sender.end();
                Ok(())
            }
        }
    }

    /// A message with a head of its own is sent as it is, once it is seen to be one.
    async fn message(&self) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        let status = loop {
            match self.read().await {
                Some(bytes) => buffer.extend_from_slice(&bytes),
                None => return Err(self.early_end(buffer.is_empty()).await),
            }
            if let Some(end) = memchr::memchr(b'\n', &buffer) {
                let line = buffer[..end].trim_ascii_end();
                let what = || format!("its first line is no status line: {:?}", printable(line));
                break status_line(line).ok_or_else(|| Failure::Malformed(what()))?;
            }
            if buffer.len() > head::MOST {
                return Err(Failure::Malformed("its first line has no end".into()));
            }
        };
        self.give(Answer::Message(status));
        self.stream(buffer.into(), None).await
    }

    async fn read(&self) -> Option<Bytes> {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get().is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
        loop {
            match self.try_read() {
                Ok(bytes) => return bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
            if self.stdout.readable().await.is_err() {
                return None;
            }
        }
    }

    /// What is there now; `None` at the end.
    fn try_read(&self) -> io::Result<Option<Bytes>> {
        let mut buffers = self.ctx.take_buffers();
        let result = self.stdout.try_read(&mut buffers.input);
        let result = result.map(|count| {
            self.active.set(Instant::now());
            if self.phases.first_byte.get().is_none() {
                self.phases.first_byte.set(Some(self.active.get()));
            }
            (count > 0).then(|| Bytes::copy_from_slice(&buffers.input[..count]))
        });
        self.ctx.give_buffers(buffers);
        result
    }

    /// The output has ended before there was an answer.
    async fn early_end(&self, nothing: bool) -> Failure {
        let what = if nothing { "it wrote nothing" } else { "its header has no end" };
        Failure::Malformed(match timeout(EXIT, self.child.exited()).await {
            Ok(Exit::Signal(signal)) => format!("{what}, and it was ended by signal {signal}"),
            Ok(Exit::Code(0)) | Err(_) => what.to_owned(),
            Ok(Exit::Code(code)) => format!("{what}, and its exit status is {code}"),
        })
    }

    fn give(&self, answer: Answer) {
        if let Some(tell) = self.tell.borrow_mut().take() {
            // When nobody waits any more, the client has left, which is noticed elsewhere.
            let _ = tell.send(Ok(answer));
        }
    }

    /// Ends the answer so that it is seen to be incomplete.
    fn fail(&self, failure: Failure) {
        self.sender.fail();
        match self.tell.borrow_mut().take() {
            // Whoever waits for the answer tells of it.
            Some(tell) => drop(tell.send(Err(failure))),
            None => failure.tell(self.name),
        }
    }

    fn tell_of_excess(&self, stated: u64) {
        tracing::warn!(
            script = self.name,
            "it wrote more than its Content-Length, {stated} bytes; the rest was dropped"
        );
    }

    /// Waits until some limit is passed, and says which.
    async fn watch(&self, rules: &Script) -> &'static str {
        loop {
            let now = Instant::now();
            let end = |from: Instant, limit: Duration, what| (from + limit, what);
            let waiting = self.tell.borrow().is_some();
            let total = rules
                .timeout
                .map(|limit| end(self.phases.started, limit, "it ran longer than `timeout`"));
            let first = rules.first_byte_timeout.filter(|_| waiting);
            let first = first.zip(self.phases.handed_over.get()).map(|(limit, from)| {
                end(from, limit, "no header came within `first_byte_timeout`")
            });
            let idle = rules.idle_timeout.filter(|_| !self.is_complete.get()).map(|limit| {
                let from = if self.held_up.get() { now } else { self.active.get() };
                end(from, limit, "it neither read nor wrote within `idle_timeout`")
            });
            let Some((next, what)) = [total, first, idle].into_iter().flatten().min() else {
                return pending().await;
            };
            if next <= now {
                return what;
            }
            sleep_until(next.into()).await;
        }
    }
}

/// `HTTP/x.y NNN` and whatever follows.
fn status_line(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/")?;
    let space = memchr::memchr(b' ', rest)?;
    let digits = std::str::from_utf8(rest.get(space + 1..space + 4)?).ok()?;
    digits.parse().ok().filter(|status| (200..600).contains(status))
}

impl From<Broken> for Failure {
    fn from(_: Broken) -> Self {
        Self::Abandoned
    }
}
