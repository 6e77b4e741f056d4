//! The adapter of HTTP/1: one state machine per connection, polled by its worker.
//!
//! Each poll parses what one read brings, responds and writes, with buffers of the worker. A connection has bytes of its
//! own only while a message is incomplete.

mod body;
mod handling;
mod respond;
mod sending;
mod unsent;
mod upgrade;

use std::borrow::Cow;
use std::task::{Context, Poll, ready};

use dunlin_config::Persistence as ConnectionMode;
use dunlin_exchange::{STALLED, SendProgress};
use dunlin_http::http1;
use dunlin_http::{Head, RequestError};
use dunlin_net::connections::Waiting;
use dunlin_tls::Transport;
use tokio::io::ReadBuf;

use self::handling::Handling;
use self::sending::Sending;
use super::{ConnectionEnd, Start};
use crate::exchange::Exchange;
use crate::exchange::link::Link;
use crate::worker::{Buffers, Output};

/// An HTTP/1 connection.
pub(super) struct Http1Driver {
    link: Link,
    stream: Transport,
    engine: http1::Http1Connection,
    /// Bytes that were received and not processed.
    unread: Vec<u8>,
    /// `unread` may hold a whole request: process it before reading.
    resume: bool,
    /// The client may still send bytes that are not processed.
    linger: bool,
    /// The last response of the connection was written, or is being written.
    closing: bool,
    /// The first byte of the next head was sent.
    has_head_start: bool,
    /// See [`Transport::cork`].
    is_corked: bool,
    /// Progress of the client while it receives.
    send_progress: SendProgress,
    /// How many of the next reads may overtake older change notifications; see
    /// [`WorkerContext::look_for_changes`](crate::worker::WorkerContext::look_for_changes).
    early_reads: u8,
    /// The bytes in process came by such a read.
    may_overtake: bool,
    /// Reads of the connection's first head, up to [`FIRST_READS`].
    first_reads: u8,
    /// Requests are commands to the server.
    is_admin: bool,
    /// The listener accepts HTTP/2.
    http2: bool,
    stage: Stage,
    /// A request whose body is received without a handler.
    body: Option<Box<Exchange>>,
}

enum Stage {
    Receive,
    Handle(Box<Handling>),
    Send(Box<Sending>),
}

/// The worker's buffers for responses.
struct Parts<'a> {
    output: &'a mut Output,
    head: &'a mut Head,
    path: &'a mut Vec<u8>,
}

/// What follows a step of a poll.
enum Step {
    Again,
    Over(ConnectionEnd),
}

/// The result of [`Http1Driver::process`].
enum Next {
    /// All complete requests have responses.
    Receive,
    Handle(Box<Handling>),
    /// Part of a response waits for the socket, or for a disk.
    Send(Box<Sending>),
    /// The connection begins with HTTP/2's preface.
    Http2,
    /// The last response was sent.
    Close,
    /// The connection cannot continue.
    Abort,
}

/// Bytes that one write collects, beyond the response that exceeds them.
const BATCH: usize = 64 * 1024;
/// The first reads of a connection, and their bytes, that Linux acknowledges at once (`tcp_incr_quickack`: 16 segments of
/// 536 bytes).
const FIRST_READS: u8 = 8;
const FIRST_BYTES: usize = 4096;

impl Http1Driver {
    /// Creates a connection whose first bytes are `unread`.
    pub(super) fn new(link: Link, stream: Transport, unread: Vec<u8>, start: Start) -> Self {
        Self {
            link,
            stream,
            engine: http1::Http1Connection::default(),
            resume: !unread.is_empty(),
            unread,
            linger: false,
            closing: false,
            has_head_start: false,
            is_corked: false,
            send_progress: SendProgress::default(),
            early_reads: 2,
            may_overtake: true,
            first_reads: 0,
            is_admin: start == Start::Admin,
            http2: start == Start::Either,
            stage: Stage::Receive,
            body: None,
        }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn into_parts(self) -> (Link, Transport) {
        (self.link, self.stream)
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        // A request that has begun is served by the configuration that it began with.
        if self.body.is_none() {
            self.link.take_newer_configuration();
        }
        let mut buffers = self.link.ctx.take_buffers();
        let result = self.receive(cx, &mut buffers);
        self.link.ctx.give_buffers(buffers);
        result
    }

    fn receive(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<Step> {
        let Buffers { input, output, head, path, .. } = buffers;
        let parts = &mut Parts { output, head, path };
        if std::mem::take(&mut self.resume) {
            let unread = std::mem::take(&mut self.unread);
            // It was read when something else had woken this task.
            self.may_overtake = true;
            if let Some(step) = self.process_input(Cow::Owned(unread), parts) {
                return Poll::Ready(step);
            }
        }
        loop {
            let mut read = ReadBuf::new(input);
            match self.link.poll_read(&mut self.stream, cx, &mut read) {
                Poll::Pending => return self.check_timeout(parts),
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
                Poll::Ready(_) => {
                    self.record_lost_body();
                    return Poll::Ready(Step::Over(ConnectionEnd::Closed));
                }
            }
            if self.early_reads > 0 {
                self.early_reads -= 1;
                self.may_overtake = true;
            }
            self.may_overtake |= self.link.ctx.is_reading_changes();
            let fresh = read.filled();
            self.link.set_read_times(self.unread.is_empty());
            let step = if self.unread.is_empty() {
                self.process_input(Cow::Borrowed(fresh), parts)
            } else {
                let mut unread = std::mem::take(&mut self.unread);
                unread.extend_from_slice(fresh);
                self.process_input(Cow::Owned(unread), parts)
            };
            if let Some(step) = step {
                return Poll::Ready(step);
            }
        }
    }

    /// Nothing was received: checks the timeouts.
    fn check_timeout(&mut self, parts: &mut Parts<'_>) -> Poll<Step> {
        let (waiting, expired) = self.link.ctx.connections.state(self.link.slot, self.link.now());
        let over = expired
            || matches!(waiting, Waiting::First | Waiting::Idle) && self.link.ctx.closes_idle();
        if !over {
            return Poll::Pending;
        }
        let is_evicted = self.link.ctx.connections.is_evicted(self.link.slot);
        let next = match waiting {
            Waiting::Head if !is_evicted => {
                let error = RequestError { status: 408, reason: "the head took too long" };
                let unread = std::mem::take(&mut self.unread);
                self.reject_message(error, &unread, parts)
            }
            Waiting::Body => self.reject_body_early(STALLED, parts.output),
            _ => {
                self.stream.end();
                return Poll::Ready(Step::Over(ConnectionEnd::Closed));
            }
        };
        Poll::Ready(self.follow(next))
    }

    /// Processes `data` and keeps what is incomplete. Returns `None` to read on.
    fn process_input(&mut self, data: Cow<'_, [u8]>, parts: &mut Parts<'_>) -> Option<Step> {
        let (mut at, before) = (0, self.link.requests);
        let next = self.process(&data, &mut at, parts);
        let is_rest = at < data.len();
        if matches!(next, Next::Close) {
            self.linger |= is_rest;
        } else if is_rest {
            self.unread = match data {
                Cow::Borrowed(fresh) => fresh[at..].to_vec(),
                Cow::Owned(mut kept) => {
                    kept.drain(..at);
                    kept
                }
            };
        }
        if let Next::Receive = next {
            self.set_read_deadline(self.link.requests != before);
            return None;
        }
        Some(self.follow(next))
    }

    /// Sets the deadline of the next bytes. `is_new`: the incomplete message began after the last deadline was set.
    fn set_read_deadline(&mut self, is_new: bool) {
        let now = self.link.now();
        if self.body.is_some() || !self.unread.is_empty() && !self.is_acknowledged() {
            self.stream.acknowledge();
        }
        if self.body.is_some() {
            self.link.wait(Waiting::Body, now + self.link.ctx.http1.body.timeout);
        } else if self.unread.is_empty() {
            self.unread = Vec::new();
            self.link.wait(Waiting::Idle, now + self.link.ctx.http1.idle_timeout);
        } else if is_new || self.link.ctx.connections.state(self.link.slot, 0).0 != Waiting::Head {
            let deadline = now + self.link.ctx.http1.head_timeout;
            self.link.ctx.connections.wait_for_head(self.link.slot, now, deadline);
        }
    }

    /// Returns `true` if the kernel acknowledges by itself, as it does with the first segments of a connection. This saves a
    /// system call for each part of a head that thousands of clients never complete.
    fn is_acknowledged(&mut self) -> bool {
        let begins = self.link.requests == 0 && self.unread.len() <= FIRST_BYTES;
        let is_among_first = begins && self.first_reads < FIRST_READS;
        self.first_reads += u8::from(is_among_first);
        is_among_first
    }

    /// The next reads may overtake change notifications.
    fn expect_early_reads(&mut self) {
        self.early_reads = 2;
    }

    fn follow(&mut self, next: Next) -> Step {
        match next {
            Next::Receive => {
                self.stage = Stage::Receive;
                self.expect_early_reads();
                // Bytes of the next request were read with the last ones.
                self.link.read_times = self.link.read_times.filter(|_| !self.unread.is_empty());
                self.resume = !self.unread.is_empty();
                self.set_read_deadline(true);
            }
            Next::Handle(handling) => {
                self.link.wait(Waiting::Handler, u64::MAX);
                self.stage = Stage::Handle(handling);
            }
            Next::Send(sending) => {
                self.set_send_deadline();
                self.stage = Stage::Send(sending);
            }
            Next::Http2 => {
                return Step::Over(ConnectionEnd::Http2(std::mem::take(&mut self.unread)));
            }
            // The end of a handshake whose early data has a response may still arrive.
            Next::Close if self.linger || self.engine.has_body() || self.stream.is_early() => {
                return Step::Over(ConnectionEnd::Linger);
            }
            Next::Close => {
                self.stream.end();
                return Step::Over(ConnectionEnd::Closed);
            }
            Next::Abort => return Step::Over(ConnectionEnd::Abort),
        }
        Step::Again
    }

    /// Sets the deadline of a client that was sent bytes.
    fn set_send_deadline(&mut self) {
        let limit = self.link.ctx.http1.send_timeout;
        self.send_progress = SendProgress::begin(self.link.now(), limit);
        self.link.wait(Waiting::Send, self.send_progress.next_check());
    }

    /// Returns `true` if the client has received nothing until its deadline.
    fn has_send_timed_out(&mut self) -> bool {
        let (now, limit) = (self.link.now(), self.link.ctx.http1.send_timeout);
        let is_over = self.send_progress.has_timed_out(&self.stream, now, limit);
        self.link.wait(Waiting::Send, self.send_progress.next_check());
        is_over
    }

    /// Responds to all complete requests in `data` from `at` on.
    fn process(&mut self, data: &[u8], at: &mut usize, parts: &mut Parts<'_>) -> Next {
        let mut served = 0;
        loop {
            if self.body.is_some() {
                if let Some(next) = self.read_body(data, at, parts.output) {
                    return next;
                }
                continue;
            }
            *at += http1::leading_empty_lines(&data[*at..]);
            if *at == data.len() {
                return self.flush_responses(parts.output);
            }
            let message = &data[*at..];
            if self.http2 && self.link.requests == 0 {
                match upgrade::is_http2(message) {
                    Some(true) => return Next::Http2,
                    Some(false) => {}
                    None => return Next::Receive,
                }
            }
            let limits = &self.link.ctx.http1.limits;
            let length = match self.engine.head(message, limits, parts.head) {
                Ok(Some(length)) => length,
                Ok(None) => return self.flush_responses(parts.output),
                Err(_)
                    if self.http2
                        && self.link.requests == 0
                        && upgrade::is_invalid_preface(message) =>
                {
                    return Next::Close;
                }
                Err(error) => return self.reject_head(error, message, parts),
            };
            *at += length;
            if self.engine.expects_continue() && *at < data.len() {
                // The client has not waited for the interim response.
                self.engine.continue_sent();
            }
            // The kernel has reported the first request of a read; the others may have been sent after a later change.
            if std::mem::take(&mut self.may_overtake) || served == 1 {
                self.link.ctx.look_for_changes();
            }
            served += 1;
            if let Some(next) = self.respond_to(&message[..length], parts) {
                return next;
            }
            let one_at_a_time = self.link.ctx.http1.persistence == ConnectionMode::Persistent;
            if parts.output.bytes.len() >= BATCH || one_at_a_time {
                match self.flush_responses(parts.output) {
                    Next::Receive => {}
                    next => return next,
                }
            }
        }
    }

    /// Polls the stages until one waits.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        loop {
            let step = match &self.stage {
                Stage::Receive => ready!(self.poll_receive(cx)),
                Stage::Handle(_) => ready!(self.poll_handling(cx)),
                Stage::Send(_) => ready!(self.poll_send(cx)),
            };
            if let Step::Over(end) = step {
                return Poll::Ready(end);
            }
        }
    }

    /// Returns the bytes of all buffers.
    pub(super) fn held(&self) -> usize {
        let of_stage = match &self.stage {
            Stage::Handle(handling) => handling.held(),
            Stage::Send(sending) => sending.held(),
            Stage::Receive => 0,
        };
        self.unread.capacity() + self.stream.held() + of_stage
    }

    /// As [`Self::follow`], after a handler whose response the socket has accepted.
    fn after_handler(&mut self, next: Next, cx: &mut Context<'_>) -> Step {
        let early_reads = self.early_reads;
        let is_reported = !matches!(next, Next::Receive) || self.stream.may_be_readable(cx);
        let step = self.follow(next);
        // The kernel has not reported another request to the worker: it reports older changes first.
        if !is_reported {
            self.early_reads = early_reads;
        }
        step
    }
}
