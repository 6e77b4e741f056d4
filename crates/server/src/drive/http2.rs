//! The adapter of HTTP/2.
//!
//! Each poll parses what one read brings, responds and writes, with buffers of the worker. The exchanges are those of a
//! [`Multiplexer`].

mod deadline;
mod frames;
mod slices;

use std::task::{Context, Poll};

use dunlin_exchange::SendProgress;
use dunlin_http::http2::{self, Http2Event, Http2Settings};
use dunlin_http::{Head, Request};
use dunlin_tls::Transport;
use tokio::io::ReadBuf;

use self::frames::{BATCH, Frames};
use super::ConnectionEnd;
use crate::exchange::link::Link;
use crate::exchange::multiplex::{Multiplexer, Protocol, RequestStart};
use crate::worker::{Buffers, Completion};

/// An HTTP/2 connection.
pub(super) struct Http2Driver {
    exchanges: Multiplexer<Frames>,
    /// Bytes that were received and not processed.
    unread: Vec<u8>,
    /// `unread` may hold a whole frame: process it before reading.
    resume: bool,
    /// Bytes that the socket has not accepted.
    unsent: Vec<u8>,
    /// How many of the next reads may overtake older change notifications; see
    /// [`WorkerContext::look_for_changes`](crate::worker::WorkerContext::look_for_changes).
    early_reads: u8,
    /// Progress of the client while the socket accepts nothing.
    send_progress: Option<SendProgress>,
    /// When the incomplete frame began to arrive.
    incomplete_since: Option<u64>,
    /// Time of the next timeout.
    deadline: u64,
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
    Over(ConnectionEnd),
}

/// After this number of turns other connections get theirs.
const TURNS: usize = 16;

impl Http2Driver {
    /// Creates a connection whose first bytes are `unread`.
    pub(super) fn new(link: Link, stream: Transport, unread: Vec<u8>) -> Self {
        let ctx = &link.ctx;
        let settings = Http2Settings { limits: ctx.http1.limits, ..Http2Settings::default() };
        let mut unsent = Vec::new();
        let engine = http2::Http2Connection::new(settings, &mut unsent);
        let now = ctx.clock.now();
        Self {
            exchanges: Multiplexer::new(link, Frames::new(engine, stream)),
            resume: !unread.is_empty(),
            unread,
            unsent,
            early_reads: 2,
            send_progress: None,
            incomplete_since: None,
            deadline: now,
            is_over: false,
            is_evicted: false,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.exchanges.link
    }

    pub(super) fn into_parts(self) -> (Link, Transport) {
        (self.exchanges.link, self.exchanges.protocol.stream)
    }

    fn stream(&self) -> &Transport {
        &self.exchanges.protocol.stream
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        self.exchanges.link.take_newer_configuration();
        for _ in 0..TURNS {
            // Handlers may take the worker's buffers themselves.
            let mut moved = self.exchanges.poll(self.has_unsent(), cx);
            let mut taken = self.exchanges.take_buffers();
            let turn = self.turn(cx, &mut taken.buffers);
            self.exchanges.give_buffers(taken);
            match turn {
                Turn::Over(end) => {
                    self.exchanges.record_rest(self.sent());
                    return Poll::Ready(end);
                }
                Turn::Moved(more) => moved |= more,
            }
            moved |= self.exchanges.release(self.has_unsent());
            if !moved && !self.exchanges.has_due() {
                self.set_deadline();
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns `true` if the socket has not taken all that was made for it.
    fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || !self.stream().is_flushed()
    }

    /// Receives, responds and sends once.
    fn turn(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Turn {
        let Buffers { input, output, head, path, text } = buffers;
        let parts = &mut Parts { out: &mut output.bytes, head, text, path };
        if self.has_unsent() {
            parts.out.extend_from_slice(&std::mem::take(&mut self.unsent));
            self.early_reads = 2;
            if let Some(turn) = self.write(cx, parts.out) {
                return turn;
            }
        }
        let now = self.exchanges.link.now();
        self.exchanges.protocol.engine.set_time(now / 1000);
        if now >= self.deadline
            || self.exchanges.link.ctx.connections.is_evicted(self.exchanges.link.slot)
        {
            self.expire(parts.out);
        }
        if self.exchanges.link.ctx.is_draining() {
            self.exchanges.protocol.drain(now, parts.out);
        }
        let mut moved = false;
        if !self.is_over {
            moved |= self.exchanges.settle_streams(parts.out);
            match self.receive(cx, input, parts) {
                Ok(received) => moved |= received,
                Err(outcome) => return Turn::Over(outcome),
            }
            moved |= self.exchanges.pump(parts.out);
        }
        if !parts.out.is_empty() {
            self.exchanges.active = now;
            if let Some(turn) = self.write(cx, parts.out) {
                return turn;
            }
        }
        if self.is_evicted {
            return Turn::Over(ConnectionEnd::Closed);
        }
        if self.exchanges.is_lost
            || self.is_over
            || self.exchanges.protocol.engine.is_done() && self.exchanges.is_empty()
        {
            return Turn::Over(ConnectionEnd::Linger);
        }
        Turn::Moved(moved)
    }

    /// Reads once and processes the bytes. Returns `true` if there were any.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        input: &mut [u8],
        parts: &mut Parts<'_>,
    ) -> Result<bool, ConnectionEnd> {
        if std::mem::take(&mut self.resume) {
            let unread = std::mem::take(&mut self.unread);
            self.process_input(cx, &unread, parts);
            return Ok(true);
        }
        let mut read = ReadBuf::new(input);
        let Multiplexer { link, protocol, .. } = &mut self.exchanges;
        match link.poll_read(&mut protocol.stream, cx, &mut read) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
            Poll::Ready(_) => return Err(ConnectionEnd::Closed),
        }
        // A handler may have woken this task instead of the socket.
        if self.early_reads > 0
            || !self.exchanges.is_empty()
            || self.exchanges.link.ctx.is_reading_changes()
        {
            self.early_reads = self.early_reads.saturating_sub(1);
            self.exchanges.link.ctx.look_for_changes();
        }
        self.exchanges.link.set_read_times(self.unread.is_empty());
        let fresh = read.filled();
        self.exchanges.active = self.exchanges.link.now();
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
            let event = self
                .exchanges
                .protocol
                .engine
                .next(data, &mut at, parts.head, parts.text, parts.out);
            match event {
                Ok(Http2Event::Request { stream, length, ended }) => {
                    // The kernel has reported the first request of a read; the others may have been sent after a later change.
                    if served == 1 {
                        self.exchanges.link.ctx.look_for_changes();
                    }
                    served += 1;
                    let request = Request::new(parts.text, parts.head);
                    let start = RequestStart { request, length, has_ended: ended };
                    self.exchanges.begin(stream.into(), &start, parts.path, parts.out);
                }
                Ok(Http2Event::More) => break,
                Ok(Http2Event::Data { stream, data: place, ended }) => {
                    self.exchanges.receive_body(stream.into(), &data[place], parts.out);
                    if ended {
                        let trailers = self.exchanges.protocol.engine.take_trailers(stream);
                        self.exchanges.end_body(stream.into(), trailers, parts.out);
                    }
                }
                Ok(Http2Event::Rejected { stream, error }) => {
                    let request = Request::new(parts.text, parts.head);
                    self.exchanges.reject(stream.into(), error, &request, parts.out);
                }
                Ok(Http2Event::Malformed { reason, .. }) => {
                    tracing::debug!(peer = %self.exchanges.link.facts.peer, reason, "HTTP/2 request malformed: stream reset");
                    self.exchanges.record_malformed(&Request::new(parts.text, parts.head));
                }
                Ok(Http2Event::Reset { stream }) => {
                    self.exchanges.forget(stream.into(), Completion::Aborted, parts.out);
                }
                Err(failure) => {
                    let (code, reason) = (failure.code, failure.reason);
                    if failure.is_abuse() {
                        tracing::warn!(peer = %self.exchanges.link.facts.peer, reason, "HTTP/2 connection ended: abuse");
                    } else {
                        tracing::debug!(peer = %self.exchanges.link.facts.peer, %code, reason, "HTTP/2 connection ended");
                    }
                    self.is_over = true;
                    self.exchanges.abandon_streams();
                    return;
                }
            }
            if self.exchanges.protocol.waiting(parts.out) >= BATCH
                && !self.write_some(cx, parts.out)
            {
                // Nothing is read from a client that receives nothing.
                self.resume = at < data.len();
                break;
            }
        }
        let max = self.exchanges.link.ctx.http1.requests;
        if max != 0 && self.exchanges.link.requests >= max {
            self.exchanges.protocol.drain(self.exchanges.link.now(), parts.out);
        }
        self.unread.extend_from_slice(&data[at..]);
        if self.exchanges.protocol.engine.is_within(self.unread.len()) {
            self.incomplete_since.get_or_insert(self.exchanges.link.now());
        } else {
            self.incomplete_since = None;
            self.unread = Vec::new();
        }
        if self.incomplete_since.is_some() || self.exchanges.has_upload() {
            // The client may send the next part only after an acknowledgement, which the kernel delays by up to 40 ms.
            self.exchanges.protocol.stream.acknowledge();
        }
    }

    /// Writes, and keeps what the socket does not accept. Returns the result of the turn if it ends here.
    fn write(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Option<Turn> {
        let before = self.exchanges.protocol.stream.written();
        let (count, result) = self.exchanges.protocol.send(cx, out);
        let (now, limit) = (self.exchanges.link.now(), self.exchanges.link.ctx.http1.send_timeout);
        if count > 0 || self.exchanges.protocol.stream.written() != before {
            self.exchanges.active = now;
            self.send_progress = None;
        }
        match result {
            Poll::Ready(Ok(())) => {
                self.send_progress = None;
                self.exchanges.record_sent();
                None
            }
            Poll::Ready(Err(_)) => Some(Turn::Over(ConnectionEnd::Closed)),
            Poll::Pending => {
                let sent = self.sent();
                self.exchanges.record_sent_before(sent);
                self.unsent.append(out);
                let send_progress =
                    self.send_progress.get_or_insert_with(|| SendProgress::begin(now, limit));
                if send_progress.has_timed_out(&self.exchanges.protocol.stream, now, limit) {
                    return Some(Turn::Over(ConnectionEnd::Abort));
                }
                Some(Turn::Moved(false))
            }
        }
    }

    /// Writes what the socket accepts. Returns `true` if that was all.
    fn write_some(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> bool {
        let (_, result) = self.exchanges.protocol.send(cx, out);
        let done = matches!(result, Poll::Ready(Ok(())));
        if done {
            self.exchanges.record_sent();
        }
        done
    }

    /// Returns the bytes of the buffers. Those of bodies are counted where they are.
    pub(super) fn held(&self) -> usize {
        self.unread.capacity() + self.unsent.capacity() + self.stream().held()
    }

    /// Returns the number of bytes that the socket has certainly accepted.
    fn sent(&self) -> i64 {
        self.exchanges.protocol.flushed - self.exchanges.protocol.stream.unsent() as i64
    }
}
