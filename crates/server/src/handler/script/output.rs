//! What a script writes, on its way to the client: its header, its body, and whether it came to a
//! proper end. The same for every kind, whatever carries the bytes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::pending;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Failure;
use super::chunks::Chunks;
use super::head::{self, Instead, ScriptHead};
use super::stderr::{TURN, printable};
use crate::config::Script;
use crate::early_hints::EarlyHints;
use crate::route::Incoming;
use crate::stream;
use crate::telemetry::ScriptContext;
use crate::worker::Deadlines;

/// What a script answers with.
pub(super) enum Answer {
    /// All of it.
    Whole(ScriptHead, Gathered),
    /// A body that follows.
    Streamed(ScriptHead),
    /// A whole message that follows, with the status that it begins with.
    Message(u16),
    /// What this path would be answered with.
    Local(Vec<u8>),
    /// What the header names, under the header's fields.
    Instead(ScriptHead, Instead),
}

/// Takes what comes before the answer, and the answer or why there is none.
pub(super) struct Tell {
    answer: oneshot::Sender<Result<Answer, Failure>>,
    early_hints: EarlyHints,
}

/// Hears of the answer.
pub(super) type Told = oneshot::Receiver<Result<Answer, Failure>>;

/// The two ends by which a run tells of its answer.
pub(super) fn tell(incoming: &Incoming) -> (Tell, Told) {
    let (answer, told) = oneshot::channel();
    (Tell { answer, early_hints: incoming.early_hints.clone() }, told)
}

/// An answer that ends within so many bytes and so much time is sent as a whole: its length can
/// be stated, it leaves in one write, and a script that fails in the middle of it gives an error
/// instead of a cut answer.
pub(super) const WHOLE: usize = 128 * 1024;
const PATIENCE: Duration = Duration::from_millis(2);
/// Early Hints that one answer may have.
const HINTS: usize = 8;

/// Parts of an answer up to so many bytes are put together.
const JOINED: usize = 8 * 1024;

/// What has come of a body, in the pieces that it came in, which need not be copied.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) pieces: Vec<Bytes>,
    pub(super) length: usize,
}

impl Gathered {
    pub(super) fn add(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        match self.pieces.last_mut() {
            _ if bytes.is_empty() => {}
            Some(last) if last.len() + bytes.len() <= JOINED => join(last, &bytes),
            _ => self.pieces.push(bytes),
        }
    }

    fn truncate(&mut self, length: usize) {
        let mut left = length.min(self.length);
        self.length = left;
        for piece in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
        self.pieces.retain(|piece| !piece.is_empty());
    }
}

fn join(first: &mut Bytes, more: &[u8]) {
    let mut joined = Vec::from(std::mem::take(first));
    joined.extend_from_slice(more);
    *first = joined.into();
}

/// Where a script's output comes from. Both futures may be dropped before they are ready, and
/// nothing is lost.
pub(super) trait Source {
    /// The next bytes, which may be none; `None` at the end.
    async fn read(&self) -> Option<Bytes>;

    /// How the script ended, once its output has.
    async fn end(&self) -> End;
}

/// How a script ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// As it should, or it goes on without output.
    Well,
    /// With this exit status, which is not 0.
    Status(i32),
    /// Before its time, in a few words: the output is not all of it.
    Cut(String),
    /// The script's worker is gone, and nothing says that it had begun with the request.
    Lost(String),
    /// Its worker has not taken the request.
    Refused(String),
    /// Its worker has ended before it was ready for requests; the log has the reason.
    Unreachable(String),
}

/// A script's output on its way to the client.
pub(super) struct Output<'a, S> {
    deadlines: &'a Deadlines,
    pub(super) name: &'a str,
    pub(super) source: S,
    pub(super) sender: &'a stream::Sender,
    pub(super) script_context: &'a ScriptContext,
    /// The request is HEAD: a stated length is not that of what comes.
    pub(super) is_bodiless: bool,
    tell: RefCell<Option<Tell>>,
    /// What was read before this was there.
    early: RefCell<VecDeque<Bytes>>,
    /// Decodes a body that the script sends chunked.
    chunks: RefCell<Option<Chunks>>,
    /// The script's interface leaves the transfer coding to the server: a field that names one is dropped.
    has_no_codings: Cell<bool>,
    /// When the script last read or wrote.
    active: Cell<Instant>,
    reads: Cell<u64>,
    /// The script is kept from writing by the client.
    held_up: Cell<bool>,
    /// The answer has ended: what the script does from now on is its own affair.
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
        tell: Tell,
    ) -> Self {
        Self {
            deadlines,
            name,
            source,
            sender,
            script_context,
            is_bodiless,
            tell: RefCell::new(Some(tell)),
            early: RefCell::default(),
            chunks: RefCell::default(),
            has_no_codings: Cell::new(false),
            active: Cell::new(script_context.started()),
            reads: Cell::new(0),
            held_up: Cell::new(false),
            is_complete: Cell::new(false),
        }
    }

    /// The answer begins with what was read before.
    pub(super) fn begin_with(&self, early: Vec<Bytes>) {
        self.early.replace(early.into());
    }

    /// The body is not sent in a transfer coding, whatever its header says (PEP 3333, ASGI).
    pub(super) fn ignore_codings(&self) {
        self.has_no_codings.set(true);
    }

    /// Sees one request of a worker through: `feeding` hands it over, unless it is `fed` already, while the
    /// answer comes, within the limits of `rules`.
    pub(super) async fn carry(
        &self,
        mut feeding: Pin<&mut impl Future<Output = ()>>,
        fed: &mut bool,
        is_whole_message: bool,
        rules: &Script,
    ) -> Result<(), Failure> {
        if *fed {
            self.script_context.handed_over.set(Some(self.script_context.started()));
        }
        let mut answering = pin!(self.answer(is_whole_message));
        let mut watching = pin!(self.watch(rules));
        loop {
            tokio::select! {
                biased;
                result = &mut answering => return result,
                () = &mut feeding, if !*fed => {
                    *fed = true;
                    watching.set(self.watch(rules));
                }
                () = self.sender.abandoned() => return Err(Failure::Abandoned),
                late = &mut watching => return Err(Failure::Late(late)),
            }
        }
    }

    /// The script has just read or written.
    pub(super) fn touch(&self) {
        self.active.set(Instant::now());
    }

    /// The answer has ended.
    pub(super) fn complete(&self) {
        self.is_complete.set(true);
    }

    /// Reads the answer and hands it over.
    pub(super) async fn answer(&self, is_whole_message: bool) -> Result<(), Failure> {
        if is_whole_message {
            return Box::pin(self.message()).await;
        }
        let mut first = Bytes::new();
        let mut head = self.head(&mut first).await?;
        if head.failed {
            while self.read().await.is_some() {}
            return Err(Failure::Failed);
        }
        if let Some(target) = head.local_redirect() {
            self.give(Answer::Local(target.to_vec()));
            while self.read().await.is_some() {}
            return Ok(());
        }
        if let Some(instead) = head.instead.take() {
            self.give(Answer::Instead(head, instead));
            while self.read().await.is_some() {}
            return Ok(());
        }
        let mut body = Gathered::default();
        if head.is_chunked && !self.has_no_codings.get() {
            self.decode(&head, first)?;
        } else {
            body.add(first);
        }
        if timeout(PATIENCE, self.read_whole(&mut body)).await.unwrap_or(Ok(false))? {
            return self.whole(head, body).await;
        }
        let stated = head.content_length.filter(|_| !self.is_bodiless);
        self.give(Answer::Streamed(head));
        // Apart, so that what is kept of an answer that needs none of it is small.
        Box::pin(self.stream(body.pieces, stated)).await
    }

    /// Reads the header of the answer, and hands over what comes before it; `buffer` is left with what
    /// follows it.
    async fn head(&self, buffer: &mut Bytes) -> Result<ScriptHead, Failure> {
        let mut hints = 0;
        loop {
            match head::parse(buffer).map_err(Failure::Malformed)? {
                Some((head, length)) if head.is_early_hints() => {
                    hints += 1;
                    if hints > HINTS {
                        let what = format!("it sends more than {HINTS} Early Hints");
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
        if let Some(tell) = &*self.tell.borrow() {
            let mut fields = head.fields;
            // It would be that of a body, and some interpreters send it with every header.
            fields.remove("Content-Type");
            tell.early_hints.send(fields);
        }
    }

    /// Has the body, of which `first` was read with the header, decoded from now on.
    fn decode(&self, head: &ScriptHead, first: Bytes) -> Result<(), Failure> {
        if head.content_length.is_some() {
            let what = "its header has both a Transfer-Encoding and a Content-Length";
            return Err(Failure::Malformed(what.into()));
        }
        self.early.borrow_mut().push_front(first);
        self.chunks.replace(Some(Chunks::default()));
        Ok(())
    }

    /// Adds what comes; true when that was all.
    async fn read_whole(&self, body: &mut Gathered) -> Result<bool, Failure> {
        while body.length < WHOLE {
            match self.read_body().await? {
                Some(bytes) => body.add(bytes),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    async fn whole(&self, head: ScriptHead, mut body: Gathered) -> Result<(), Failure> {
        match self.source.end().await {
            End::Cut(why) | End::Lost(why) | End::Refused(why) | End::Unreachable(why) => {
                return Err(Failure::Malformed(why));
            }
            End::Well | End::Status(_) => {}
        }
        let length = body.length as u64;
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
        self.script_context.ended.set(Some(Instant::now()));
        self.give(Answer::Whole(head, body));
        Ok(())
    }

    /// Hands over the body as it comes.
    async fn stream(&self, first: Vec<Bytes>, stated: Option<u64>) -> Result<(), Failure> {
        let mut sent = 0;
        for piece in first {
            sent += piece.len() as u64;
            self.sender.push(piece);
        }
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
            End::Cut(why) | End::Lost(why) | End::Refused(why) | End::Unreachable(why) => {
                Err(Failure::Malformed(format!("{why} while it wrote")))
            }
            End::Well | End::Status(_) => {
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
                let status = head::status_line(line).filter(|status| (200..600).contains(status));
                break status.ok_or_else(|| Failure::Malformed(what()))?;
            }
            if buffer.len() > head::MOST {
                return Err(Failure::Malformed("its first line has no end".into()));
            }
        };
        self.give(Answer::Message(status));
        self.stream(vec![buffer.into()], None).await
    }

    /// The next bytes of the body without their transfer coding; `None` at the end.
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
                // A response to HEAD may lack the body with its end.
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

    /// The output has ended before there was an answer.
    async fn early_end(&self, nothing: bool) -> Failure {
        let what = if nothing { "it wrote nothing" } else { "its header has no end" };
        Failure::Malformed(match self.source.end().await {
            End::Lost(why) if nothing => return Failure::Lost(why),
            End::Refused(why) if nothing => return Failure::Refused(why),
            End::Unreachable(why) if nothing => return Failure::Unreachable(why),
            End::Lost(why) | End::Cut(why) | End::Refused(why) | End::Unreachable(why) => {
                format!("{what}, and {why}")
            }
            End::Well => what.to_owned(),
            End::Status(status) => format!("{what}, and its exit status is {status}"),
        })
    }

    fn give(&self, answer: Answer) {
        if let Some(tell) = self.tell.borrow_mut().take() {
            // When nobody waits any more, the client has left, which is noticed elsewhere.
            let _ = tell.answer.send(Ok(answer));
        }
    }

    /// Ends the answer so that it is seen to be incomplete.
    pub(super) fn fail(&self, failure: Failure) {
        self.sender.fail();
        match self.tell.borrow_mut().take() {
            // Whoever waits for the answer tells of it.
            Some(tell) => drop(tell.answer.send(Err(failure))),
            None => failure.tell(self.name, self.script_context.id()),
        }
    }

    fn tell_of_excess(&self, stated: u64) {
        tracing::warn!(
            script = self.name,
            "it wrote more than its Content-Length, {stated} bytes; the rest was dropped"
        );
    }

    /// Waits until some limit is passed, and says which.
    pub(super) async fn watch(&self, rules: &Script) -> &'static str {
        loop {
            let now = Instant::now();
            let is_first = self.tell.borrow().is_some();
            let active = if self.held_up.get() { now } else { self.active.get() };
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

/// The limit that a script reaches next, and which it is: one whose answer `is_first` to come, or has begun; the one
/// that has last read or written when it was `active`, unless it may be idle.
pub(super) fn next_limit(
    rules: &Script,
    script_context: &ScriptContext,
    is_first: bool,
    active: Option<Instant>,
) -> Option<(Instant, &'static str)> {
    let after = |from: Option<Instant>, limit: Option<Duration>, what| {
        from.zip(limit).map(|(from, limit)| (from + limit, what))
    };
    let handed_over = script_context.handed_over.get().filter(|_| is_first);
    let limits = [
        after(Some(script_context.started()), rules.timeout, "it ran longer than `timeout`"),
        after(handed_over, rules.first_byte_timeout, "no header came within `first_byte_timeout`"),
        after(active, rules.idle_timeout, "it neither read nor wrote within `idle_timeout`"),
    ];
    limits.into_iter().flatten().min()
}
