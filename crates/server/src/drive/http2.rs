//! The adapter of HTTP/2.
//!
//! Each poll parses what one read brings, responds and writes, with buffers of the worker. A request whose response is not
//! complete becomes a [`Stream`]; bodies are sent as the client's windows and priorities allow.

mod deadline;
mod message;
mod progress;
mod pump;
mod request;
mod stream;
mod streams;

use std::task::{Context, Poll};

use dunlin_http::Head;
use dunlin_http::http2::{self, Event, Settings};
use tokio::io::ReadBuf;

use self::stream::Stream;
use self::streams::Streams;
use super::link::{End, Link};
use super::send_progress::SendProgress;
use crate::worker::{Buffers, Completion, Pending};

/// An HTTP/2 connection.
pub(super) struct Connection {
    link: Link,
    engine: http2::Connection,
    /// Bytes that were received and not processed.
    unread: Vec<u8>,
    /// `unread` may hold a whole frame: process it before reading.
    resume: bool,
    /// Bytes that the socket has not accepted.
    unsent: Vec<u8>,
    /// Records of responses whose last bytes were not sent; positions count from the start of the connection.
    pending: Pending,
    /// Bytes that were sent, and how often all bytes were sent.
    flushed: i64,
    flushes: u64,
    /// How many of the next reads may overtake older change notifications; see
    /// [`WorkerContext::look_for_changes`].
    early_reads: u8,
    streams: Streams,
    /// Time of the last read or write, in milliseconds of the worker's clock.
    active: u64,
    /// Progress of the client while the socket accepts nothing.
    send_progress: Option<SendProgress>,
    /// When bytes of a body were last sent on any stream.
    served: u64,
    /// When the incomplete frame began to arrive.
    incomplete_since: Option<u64>,
    /// Time of the next timeout.
    deadline: u64,
    is_draining: bool,
    /// When the connection began to close gracefully.
    drain_since: u64,
    /// Memory that is kept for speed was freed.
    is_at_rest: bool,
    /// The connection ends when the written bytes are sent.
    is_over: bool,
    /// The connection is closed to make room for others: nothing more is read.
    is_evicted: bool,
}

/// The worker's buffers for requests and responses.
struct Parts<'a> {
    out: &'a mut Vec<u8>,
    head: &'a mut Head,
    text: &'a mut Vec<u8>,
    path: &'a mut Vec<u8>,
}

/// The result of one turn.
enum Turn {
    Moved(bool),
    Over(End),
}

/// Bytes that one write collects, beyond the frame that exceeds them: seven full frames. The kernel takes more bytes at a time with
/// less work for each; larger writes gain nothing.
const BATCH: usize = 112 * 1024;
/// After this number of turns other connections get theirs.
const TURNS: usize = 16;

/// Returns `true` if the socket has not taken all that was made for it, of which `unsent` is what the transport has not taken either.
fn has_unsent(unsent: &[u8], link: &Link) -> bool {
    !unsent.is_empty() || !link.stream.is_flushed()
}

impl Connection {
    /// Creates a connection whose first bytes are `unread`.
    pub(super) fn new(link: Link, unread: Vec<u8>) -> Self {
        let ctx = &link.ctx;
        let settings = Settings { limits: ctx.http1.limits, ..Settings::default() };
        let mut unsent = Vec::new();
        let engine = http2::Connection::new(settings, &mut unsent);
        let now = ctx.clock.now();
        Self {
            link,
            engine,
            resume: !unread.is_empty(),
            unread,
            unsent,
            pending: Pending::default(),
            flushed: 0,
            flushes: 0,
            early_reads: 2,
            streams: Streams::default(),
            active: now,
            send_progress: None,
            served: now,
            incomplete_since: None,
            deadline: now,
            is_draining: false,
            drain_since: 0,
            is_at_rest: true,
            is_over: false,
            is_evicted: false,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn into_link(self) -> Link {
        self.link
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.link.take_newer_configuration();
        for _ in 0..TURNS {
            // Handlers may take the worker's buffers themselves.
            let (engine, is_blocked) = (&mut self.engine, has_unsent(&self.unsent, &self.link));
            let can_send = |id| !is_blocked && engine.allowance(id) > 0;
            let mut moved = self.streams.poll(self.link.ctx.clock.now(), cx, can_send);
            let mut buffers = self.link.ctx.take_buffers();
            // The lists of the worker, so that a connection needs lists of its own only for what the socket has not taken.
            let is_borrowed = self.pending.is_empty();
            if is_borrowed {
                std::mem::swap(&mut self.pending, &mut buffers.output.pending);
            }
            let turn = self.turn(cx, &mut buffers);
            if is_borrowed && self.pending.is_empty() {
                std::mem::swap(&mut self.pending, &mut buffers.output.pending);
            }
            self.link.ctx.give_buffers(buffers);
            match turn {
                Turn::Over(outcome) => {
                    self.record_rest();
                    return Poll::Ready(outcome);
                }
                Turn::Moved(more) => moved |= more,
            }
            let (engine, is_blocked) = (&mut self.engine, has_unsent(&self.unsent, &self.link));
            let can_send = |id| !is_blocked && engine.allowance(id) > 0;
            moved |= self.streams.release(can_send);
            if !moved && !self.streams.has_due() {
                self.set_deadline();
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Receives, responds and sends once.
    fn turn(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Turn {
        let Buffers { input, output, head, path, text } = buffers;
        let parts = &mut Parts { out: &mut output.bytes, head, text, path };
        if has_unsent(&self.unsent, &self.link) {
            parts.out.extend_from_slice(&std::mem::take(&mut self.unsent));
            self.early_reads = 2;
            if let Some(turn) = self.write(cx, parts.out) {
                return turn;
            }
        }
        let now = self.link.ctx.clock.now();
        self.engine.set_time(now / 1000);
        if now >= self.deadline || self.link.ctx.connections.is_evicted(self.link.slot) {
            self.expire(parts);
        }
        if self.link.ctx.is_draining() {
            self.drain(now, parts.out);
        }
        let mut moved = false;
        if !self.is_over {
            moved |= self.settle_streams(parts);
            match self.receive(cx, input, parts) {
                Ok(received) => moved |= received,
                Err(outcome) => return Turn::Over(outcome),
            }
            moved |= self.pump(parts.out);
        }
        if !parts.out.is_empty() {
            self.active = now;
            if let Some(turn) = self.write(cx, parts.out) {
                return turn;
            }
        }
        if self.is_evicted {
            return Turn::Over(End::Closed);
        }
        if self.is_over || self.engine.is_done() && self.streams.is_empty() {
            return Turn::Over(End::Linger);
        }
        Turn::Moved(moved)
    }

    /// Reads once and processes the bytes. Returns `true` if there were any.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut [u8],
        parts: &mut Parts<'_>,
    ) -> Result<bool, End> {
        if std::mem::take(&mut self.resume) {
            let unread = std::mem::take(&mut self.unread);
            self.process_input(cx, &unread, parts);
            return Ok(true);
        }
        let mut read = ReadBuf::new(input);
        match self.link.poll_read(cx, &mut read) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
            Poll::Ready(_) => return Err(End::Closed),
        }
        // A handler may have woken this task instead of the socket.
        if self.early_reads > 0 || !self.streams.is_empty() || self.link.ctx.is_reading_changes() {
            self.early_reads = self.early_reads.saturating_sub(1);
            self.link.ctx.look_for_changes();
        }
        self.link.set_read_times(self.unread.is_empty());
        let fresh = read.filled();
        self.active = self.link.ctx.clock.now();
        if self.unread.is_empty() {
            self.process_input(cx, fresh, parts);
        } else {
            let mut unread = std::mem::take(&mut self.unread);
            unread.extend_from_slice(fresh);
            self.process_input(cx, &unread, parts);
        }
        Ok(true)
    }

    /// Processes `data` and keeps what is incomplete.
    fn process_input(&mut self, cx: &mut Context<'_>, data: &[u8], parts: &mut Parts<'_>) {
        let (mut at, mut served) = (0, 0);
        loop {
            let event = self.engine.next(data, &mut at, parts.head, parts.text, parts.out);
            match event {
                Ok(Event::Request { stream, length, ended }) => {
                    self.link.requests += 1;
                    self.is_at_rest = false;
                    // The kernel has reported the first request of a read; the others may have been sent after a later change.
                    if served == 1 {
                        self.link.ctx.look_for_changes();
                    }
                    served += 1;
                    self.request(stream, length, ended, parts);
                }
                Ok(Event::More) => break,
                Ok(Event::Data { stream, data: place, ended }) => {
                    self.receive_body(stream, &data[place], ended, parts);
                }
                Ok(Event::Rejected { stream, error }) => {
                    self.reject_unread(stream, error, parts);
                }
                Ok(Event::Malformed { reason, .. }) => {
                    tracing::debug!(peer = %self.link.facts.peer, reason, "HTTP/2 request malformed: stream reset");
                    self.link.requests += 1;
                    self.record_malformed(parts);
                }
                Ok(Event::Reset { stream }) => {
                    self.forget(stream, Completion::Aborted, parts.out);
                }
                Err(failure) => {
                    let (code, reason) = (failure.code, failure.reason);
                    if failure.is_abuse() {
                        tracing::warn!(peer = %self.link.facts.peer, reason, "HTTP/2 connection ended: abuse");
                    } else {
                        tracing::debug!(peer = %self.link.facts.peer, %code, reason, "HTTP/2 connection ended");
                    }
                    self.is_over = true;
                    self.abandon_streams();
                    return;
                }
            }
            if parts.out.len() >= BATCH && !self.write_some(cx, parts.out) {
                // Nothing is read from a client that receives nothing.
                self.resume = at < data.len();
                break;
            }
        }
        let max = self.link.ctx.http1.requests;
        if max != 0 && self.link.requests >= max && !self.is_draining {
            self.drain(self.link.ctx.clock.now(), parts.out);
        }
        self.unread.extend_from_slice(&data[at..]);
        if self.engine.is_within(self.unread.len()) {
            self.incomplete_since.get_or_insert(self.link.ctx.clock.now());
        } else {
            self.incomplete_since = None;
            self.unread = Vec::new();
        }
        if self.incomplete_since.is_some() || self.streams.iter().any(Stream::has_upload) {
            // The client may send the next part only after an acknowledgement, which the kernel delays by up to 40 ms.
            self.link.stream.acknowledge();
        }
    }

    fn drain(&mut self, now: u64, out: &mut Vec<u8>) {
        if !self.is_draining {
            self.is_draining = true;
            self.drain_since = now;
            self.engine.begin_drain(out);
        }
    }

    /// Writes, and keeps what the socket does not accept. Returns the result of the turn if it ends here.
    fn write(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Option<Turn> {
        let (mut at, before) = (0, self.link.stream.written());
        let result = self.link.stream.poll_send(cx, out, &mut at);
        let (now, limit) = (self.link.ctx.clock.now(), self.link.ctx.http1.send_timeout);
        if at > 0 || self.link.stream.written() != before {
            self.active = now;
            self.send_progress = None;
        }
        self.flushed += at as i64;
        match result {
            Poll::Ready(Ok(())) => {
                self.send_progress = None;
                out.clear();
                self.flushes += 1;
                self.pending.settle(&self.link.ctx, &self.link.facts);
                None
            }
            Poll::Ready(Err(_)) => Some(Turn::Over(End::Closed)),
            Poll::Pending => {
                let sent = self.sent();
                self.pending.settle_before(&self.link.ctx, &self.link.facts, sent);
                self.unsent.extend_from_slice(&out[at..]);
                out.clear();
                let send_progress =
                    self.send_progress.get_or_insert_with(|| SendProgress::begin(now, limit));
                if send_progress.has_timed_out(&self.link.stream, now, limit) {
                    return Some(Turn::Over(End::Abort));
                }
                Some(Turn::Moved(false))
            }
        }
    }

    /// Writes what the socket accepts. Returns `true` if that was all.
    fn write_some(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let mut at = 0;
        let done = matches!(self.link.stream.poll_send(cx, out, &mut at), Poll::Ready(Ok(())));
        out.drain(..at);
        self.flushed += at as i64;
        if done {
            self.flushes += 1;
            self.pending.settle(&self.link.ctx, &self.link.facts);
        }
        done
    }

    /// Returns the bytes of the buffers. Those of bodies are counted where they are.
    pub(super) fn held(&self) -> usize {
        self.unread.capacity() + self.unsent.capacity()
    }

    /// Returns the position of the next byte of `out` among all bytes that the connection sends.
    fn position(&self, out: &[u8]) -> i64 {
        self.flushed + out.len() as i64
    }

    /// Returns the number of bytes that the socket has certainly accepted.
    fn sent(&self) -> i64 {
        self.flushed - self.link.stream.unsent() as i64
    }
}
