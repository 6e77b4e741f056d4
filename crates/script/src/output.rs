//! The output of a script between its protocol and the client, for all kinds of scripts: header, body and completeness.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::pending;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use dunlin_exchange::stream;
use dunlin_telemetry::ScriptContext;
use tokio::time::timeout;

use super::body_buffer::{BodyBuffer, MAX_BUFFERED, join};
use super::chunked::ChunkedBody;
use super::failure::Failure;
use super::head::{self, ScriptHead};
use super::script_response::{ResponseSender, ScriptResponse};
use super::source::{Source, SourceEnd};
use super::stderr::{TURN, printable};
use super::time_limit::next_limit;
use dunlin_config::Script;
use dunlin_net::deadlines::Deadlines;

/// A response that ends within this time and [`MAX_BUFFERED`] bytes is buffered: its length can be stated, it leaves in one
/// write, and a script that fails in the middle gives an error instead of a truncated response.
const BUFFER_TIME: Duration = Duration::from_millis(2);
/// Early Hints per response.
const MAX_HINTS: usize = 8;

/// The output of a script between its protocol and the client.
pub(super) struct Output<'a, S> {
    deadlines: &'a Deadlines,
    pub(super) name: &'a str,
    pub(super) source: S,
    pub(super) sender: &'a stream::Sender,
    pub(super) script_context: &'a ScriptContext,
    /// The method is HEAD: a Content-Length does not describe the output.
    pub(super) is_bodiless: bool,
    report: RefCell<Option<ResponseSender>>,
    /// Bytes that were read before.
    early: RefCell<VecDeque<Bytes>>,
    /// Decodes a body with a chunked transfer coding.
    chunks: RefCell<Option<ChunkedBody>>,
    /// The script's interface leaves the transfer coding to the server: Transfer-Encoding is ignored.
    ignores_codings: Cell<bool>,
    /// The response may switch to another protocol.
    may_switch: Cell<bool>,
    /// It has: it may last, and be idle.
    has_switched: Cell<bool>,
    /// When the script last read or wrote.
    active: Cell<Instant>,
    reads: Cell<u64>,
    /// The client reads too slowly: the script is not read.
    is_blocked: Cell<bool>,
    /// The response has ended: the script may go on in the background.
    is_complete: Cell<bool>,
}

impl<'a, S: Source> Output<'a, S> {
    pub(super) fn new(
        deadlines: &'a Deadlines,
        name: &'a str,
        source: S,
        sender: &'a stream::Sender,
        script_context: &'a ScriptContext,
        is_bodiless: bool,
        report: ResponseSender,
    ) -> Self {
        Self {
            deadlines,
            name,
            source,
            sender,
            script_context,
            is_bodiless,
            report: RefCell::new(Some(report)),
            early: RefCell::default(),
            chunks: RefCell::default(),
            ignores_codings: Cell::new(false),
            may_switch: Cell::new(false),
            has_switched: Cell::new(false),
            active: Cell::new(script_context.started()),
            reads: Cell::new(0),
            is_blocked: Cell::new(false),
            is_complete: Cell::new(false),
        }
    }

    /// Sets bytes that were read before as the start of the output.
    pub(super) fn begin_with(&self, early: Vec<Bytes>) {
        self.early.replace(early.into());
    }

    /// Permits a response that switches to another protocol.
    pub(super) fn allow_switch(&self) {
        self.may_switch.set(true);
    }

    /// Ignores Transfer-Encoding in the header (PEP 3333, ASGI).
    pub(super) fn ignore_codings(&self) {
        self.ignores_codings.set(true);
    }

    /// Runs one request of a worker: polls `feeding`, which sends the request, unless it is `fed`, and forwards the
    /// response, within the time limits of `rules`.
    pub(super) async fn transfer(
        &self,
        mut feeding: Pin<&mut impl Future<Output = ()>>,
        fed: &mut bool,
        is_whole_message: bool,
        rules: &Script,
    ) -> Result<(), Failure> {
        if *fed {
            self.script_context.request_sent.set(Some(self.script_context.started()));
        }
        let mut responding = pin!(self.respond(is_whole_message));
        let mut watching = pin!(self.watch(rules));
        loop {
            tokio::select! {
                biased;
                result = &mut responding => return result,
                () = &mut feeding, if !*fed => {
                    *fed = true;
                    watching.set(self.watch(rules));
                }
                () = self.sender.abandoned() => return Err(Failure::Abandoned),
                late = &mut watching => return Err(Failure::Late(late)),
            }
        }
    }

    /// Notes that the script has just read or written.
    pub(super) fn touch(&self) {
        self.active.set(Instant::now());
    }

    /// Notes that the response has ended.
    pub(super) fn complete(&self) {
        self.is_complete.set(true);
    }

    /// Reads the response and forwards it.
    pub(super) async fn respond(&self, is_whole_message: bool) -> Result<(), Failure> {
        if is_whole_message {
            return Box::pin(self.message()).await;
        }
        let mut first = Bytes::new();
        let mut head = self.head(&mut first).await?;
        if let Some(reason) = head.failed.take() {
            while self.read().await.is_some() {}
            return Err(Failure::Failed(reason));
        }
        if let Some(target) = head.local_redirect() {
            self.deliver(ScriptResponse::LocalRedirect(target.to_vec()));
            while self.read().await.is_some() {}
            return Ok(());
        }
        if let Some(named) = head.named.take() {
            self.deliver(ScriptResponse::Named(head, named));
            while self.read().await.is_some() {}
            return Ok(());
        }
        if head.switches && self.may_switch.get() {
            self.has_switched.set(true);
            self.deliver(ScriptResponse::Switched(head));
            return Box::pin(self.stream(vec![first], None)).await;
        }
        let mut body = BodyBuffer::default();
        if head.is_chunked && !self.ignores_codings.get() {
            self.decode(&head, first)?;
        } else {
            body.add(first);
        }
        if timeout(BUFFER_TIME, self.read_whole(&mut body)).await.unwrap_or(Ok(false))? {
            return self.whole(head, body).await;
        }
        let stated = head.content_length.filter(|_| !self.is_bodiless);
        self.deliver(ScriptResponse::Streamed(head));
        // Boxed, so that the future of a buffered response stays small.
        Box::pin(self.stream(body.pieces, stated)).await
    }

    /// Reads the header of the response and forwards the Early Hints before it. Leaves in `buffer` what follows the
    /// header.
    async fn head(&self, buffer: &mut Bytes) -> Result<ScriptHead, Failure> {
        let mut hints = 0;
        loop {
            match head::parse(buffer).map_err(Failure::Malformed)? {
                Some((head, length)) if head.is_early_hints() => {
                    hints += 1;
                    if hints > MAX_HINTS {
                        let what = format!("it sends more than {MAX_HINTS} Early Hints");
                        return Err(Failure::Malformed(what));
                    }
                    buffer.advance(length);
                    self.hint(head);
                }
                Some((head, length)) => {
                    buffer.advance(length);
                    return Ok(head);
                }
                None => match self.read().await {
                    Some(bytes) if buffer.is_empty() => *buffer = bytes,
                    Some(bytes) => join(buffer, &bytes),
                    None => return Err(self.early_end(buffer.is_empty()).await),
                },
            }
        }
    }

    fn hint(&self, head: ScriptHead) {
        if let Some(report) = &*self.report.borrow() {
            let mut fields = head.fields;
            // It describes a body. Some interpreters send it with every header.
            fields.remove("Content-Type");
            report.early_hints.send(fields);
        }
    }

    /// Starts to decode a chunked body, of which `first` was read with the header.
    fn decode(&self, head: &ScriptHead, first: Bytes) -> Result<(), Failure> {
        if head.content_length.is_some() {
            let what = "its header has both a Transfer-Encoding and a Content-Length";
            return Err(Failure::Malformed(what.into()));
        }
        self.early.borrow_mut().push_front(first);
        self.chunks.replace(Some(ChunkedBody::default()));
        Ok(())
    }

    /// Reads more of the output into `body`. Returns `true` at its end.
    async fn read_whole(&self, body: &mut BodyBuffer) -> Result<bool, Failure> {
        let mut memory = self.sender.reservation();
        while body.length < MAX_BUFFERED.min(memory.share()) {
            match self.read_body().await? {
                Some(bytes) => body.add(bytes),
                None => return Ok(true),
            }
            memory.set(body.length);
        }
        Ok(false)
    }

    async fn whole(&self, head: ScriptHead, mut body: BodyBuffer) -> Result<(), Failure> {
        match self.source.end().await {
            SourceEnd::Stopped(why) => return Err(Failure::Stopped(why)),
            SourceEnd::TimedOut(why) => return Err(Failure::Late(why)),
            SourceEnd::Truncated(why)
            | SourceEnd::ConnectionLost(why)
            | SourceEnd::Rejected(why)
            | SourceEnd::Unreachable(why) => {
                return Err(Failure::Malformed(why));
            }
            SourceEnd::Complete | SourceEnd::Status(_) => {}
        }
        let length = body.length as u64;
        match head.content_length.filter(|_| !self.is_bodiless) {
            Some(stated) if length < stated => {
                let what = format!("it wrote {length} bytes where its Content-Length is {stated}");
                return Err(Failure::Malformed(what));
            }
            Some(stated) if length > stated => {
                self.log_excess(stated);
                body.truncate(stated as usize);
            }
            _ => {}
        }
        self.script_context.ended.set(Some(Instant::now()));
        self.deliver(ScriptResponse::Buffered(head, body));
        Ok(())
    }

    /// Streams the body.
    async fn stream(&self, first: Vec<Bytes>, stated: Option<u64>) -> Result<(), Failure> {
        let mut sent = 0;
        for piece in first {
            sent += piece.len() as u64;
            self.sender.push(piece);
        }
        let mut is_logged = false;
        loop {
            if stated.is_some_and(|stated| sent > stated) && !is_logged {
                is_logged = true;
                self.log_excess(stated.unwrap_or_default());
            }
            self.is_blocked.set(true);
            let room = self.sender.room().await;
            self.is_blocked.set(false);
            self.active.set(Instant::now());
            if room.is_err() {
                return Err(Failure::Abandoned);
            }
            let Some(bytes) = self.read_body().await? else {
                self.script_context.ended.set(Some(Instant::now()));
                break;
            };
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
        match self.source.end().await {
            SourceEnd::Stopped(why) => Err(Failure::Stopped(why)),
            SourceEnd::TimedOut(why) => Err(Failure::Late(why)),
            SourceEnd::Truncated(why)
            | SourceEnd::ConnectionLost(why)
            | SourceEnd::Rejected(why)
            | SourceEnd::Unreachable(why) => {
                Err(Failure::Malformed(format!("{why} while it wrote")))
            }
            SourceEnd::Complete | SourceEnd::Status(_) => {
                self.sender.end();
                Ok(())
            }
        }
    }

    /// Streams a whole HTTP message (RFC 3875 §5), after a check of its status line.
    async fn message(&self) -> Result<(), Failure> {
        let mut buffer = Vec::new();
        let status = loop {
            match self.read().await {
                Some(bytes) => buffer.extend_from_slice(&bytes),
                None => return Err(self.early_end(buffer.is_empty()).await),
            }
            if let Some(end) = memchr::memchr(b'\n', &buffer) {
                let line = buffer[..end].trim_ascii_end();
                let what = || format!("its first line is not a status line: {:?}", printable(line));
                let status = head::status_line(line).filter(|status| (200..600).contains(status));
                break status.ok_or_else(|| Failure::Malformed(what()))?;
            }
            if buffer.len() > head::MAX {
                return Err(Failure::Malformed("its first line has no end".into()));
            }
        };
        self.deliver(ScriptResponse::Message(status));
        self.stream(vec![buffer.into()], None).await
    }

    /// Returns the next decoded bytes of the body; `None` at the end.
    async fn read_body(&self) -> Result<Option<Bytes>, Failure> {
        loop {
            if let Some(chunks) = &mut *self.chunks.borrow_mut()
                && let Some(bytes) = chunks.next().map_err(Failure::Malformed)?
            {
                return Ok(Some(bytes));
            }
            let bytes = self.read().await;
            let mut chunks = self.chunks.borrow_mut();
            let Some(chunks) = &mut *chunks else { return Ok(bytes) };
            match bytes {
                Some(bytes) => chunks.add(bytes),
                // A response to HEAD may lack the last chunk.
                None if chunks.is_complete() || self.is_bodiless => return Ok(None),
                None => return Err(Failure::Malformed("its chunked body has no end".into())),
            }
        }
    }

    async fn read(&self) -> Option<Bytes> {
        self.reads.set(self.reads.get() + 1);
        if self.reads.get().is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
        let early = self.early.borrow_mut().pop_front();
        let bytes = match early {
            Some(bytes) => bytes,
            None => self.source.read().await?,
        };
        self.touch();
        if self.script_context.first_byte.get().is_none() {
            self.script_context.first_byte.set(Some(self.active.get()));
        }
        Some(bytes)
    }

    /// Returns the failure of output that ends before the end of its header.
    async fn early_end(&self, nothing: bool) -> Failure {
        let what = if nothing { "it wrote nothing" } else { "its header has no end" };
        Failure::Malformed(match self.source.end().await {
            SourceEnd::Stopped(why) => return Failure::Stopped(why),
            SourceEnd::TimedOut(why) => return Failure::Late(why),
            SourceEnd::ConnectionLost(why) if nothing => return Failure::Lost(why),
            SourceEnd::Rejected(why) if nothing => return Failure::Rejected(why),
            SourceEnd::Unreachable(why) if nothing => return Failure::Unreachable(why),
            SourceEnd::ConnectionLost(why)
            | SourceEnd::Truncated(why)
            | SourceEnd::Rejected(why)
            | SourceEnd::Unreachable(why) => {
                format!("{what}, and {why}")
            }
            SourceEnd::Complete => what.to_owned(),
            SourceEnd::Status(status) => format!("{what}, and its exit status is {status}"),
        })
    }

    fn deliver(&self, response: ScriptResponse) {
        if let Some(report) = self.report.borrow_mut().take() {
            // If the receiver is gone, the client has left, which the stream reports.
            let _ = report.response.send(Ok(response));
        }
    }

    /// Ends the response so that the client sees that it is incomplete.
    pub(super) fn fail(&self, failure: Failure) {
        self.sender.fail();
        match self.report.borrow_mut().take() {
            // The receiver logs it.
            Some(report) => drop(report.response.send(Err(failure))),
            None => failure.log_later(self.name, self.script_context.id()),
        }
    }

    fn log_excess(&self, stated: u64) {
        tracing::warn!(
            script = self.name,
            "the script wrote more than its Content-Length of {stated} bytes; the rest was dropped"
        );
    }

    /// Waits until a time limit has passed and returns its description.
    pub(super) async fn watch(&self, rules: &Script) -> &'static str {
        loop {
            if self.has_switched.get() {
                return pending().await;
            }
            let now = Instant::now();
            let is_first = self.report.borrow().is_some();
            let active = if self.is_blocked.get() { now } else { self.active.get() };
            let active = (!self.is_complete.get()).then_some(active);
            let Some((next, what)) = next_limit(rules, self.script_context, is_first, active)
            else {
                return pending().await;
            };
            if next <= now {
                return what;
            }
            self.deadlines.until(next, now).await;
        }
    }
}
