//! The driver of HTTP/1 connections: one state machine per connection, polled by its loop.
//!
//! Whatever one read brings is parsed, answered and written within one poll, with buffers that
//! belong to the loop. A connection keeps bytes of its own only while it waits in the middle of
//! something.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use dunlin_http::http1::{self, BodyEvent, BodyLength, Persistence, Refusal, response};
use dunlin_http::semantics::{Coding, Method, status};
use dunlin_http::{Head, OwnedRequest, Request};
use rustix::net::sockopt::set_tcp_quickack;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::send::{self, Outgoing, Sent};
use crate::cache::Stored;
use crate::config::Persistence as Personality;
use crate::connections::Waiting;
use crate::event_loop::{Buffers, Loop, Served};
use crate::listen::Permit;

use crate::response::{Body, Piece, Response};
use crate::route::{self, Job, Prepared, Reply};

/// One HTTP/1 connection.
pub(crate) struct Connection {
    ctx: Rc<Loop>,
    stream: TcpStream,
    peer: IpAddr,
    serial: u64,
    slot: usize,
    requests: u64,
    engine: http1::Connection,
    /// Bytes that have arrived and not been used.
    unread: Vec<u8>,
    /// `unread` may hold a whole request: look there before reading.
    resume: bool,
    /// The client may still be sending what nobody will read.
    linger: bool,
    /// The answer that ends the connection has been written or is being written.
    closing: bool,
    registered: bool,
    /// How many of the next reads may come before notifications that are older than them; see
    /// [`Loop::look_for_changes`].
    early_reads: u8,
    stage: Stage,
    body: Option<Box<BodyProgress>>,
    _permit: Permit,
}

enum Stage {
    Receive,
    Handle(Box<Handling>),
    Send(Box<Sending>),
    /// The answer is sent and the sending side closed; what still comes is thrown away.
    Linger {
        left: usize,
    },
}

struct Handling {
    job: Job,
    /// Bytes of earlier answers that go before this one.
    before: Vec<u8>,
    log: Option<Box<LogLater>>,
    is_head: bool,
}

#[derive(Default)]
struct Sending {
    outgoing: Outgoing,
    at: usize,
    log: Option<Box<LogLater>>,
    warming: Option<JoinHandle<()>>,
}

/// A request body that is being read.
struct BodyProgress {
    received: u64,
    limit: u64,
    /// Milliseconds of the loop's clock.
    started: u64,
    /// What waits for the body's end; absent when the answer was sent already.
    deferred: Option<Deferred>,
}

struct Deferred {
    response: Response,
    log: Option<Box<LogLater>>,
    is_head: bool,
}

enum BodyStep {
    /// A stretch of the body, or all of it, was read; with what follows when that is not simply
    /// the next bytes.
    Ended(Option<Next>),
    /// More bytes are needed.
    More,
}

/// What the log line needs when it cannot be written at once.
struct LogLater {
    request: OwnedRequest,
    started: Instant,
    site: usize,
    served: Served,
}

/// The loop's buffers, as far as answering needs them.
struct Parts<'a> {
    output: &'a mut Vec<u8>,
    head: &'a mut Head,
    path: &'a mut Vec<u8>,
}

/// What follows when a poll has done what it could.
enum Step {
    Again,
    End,
}

/// How [`Connection::process`] ended.
enum Next {
    /// All that can be answered has been.
    Receive,
    Handle(Box<Handling>),
    /// Part of an answer waits for the socket, or for a disk.
    Send(Box<Sending>),
    /// The answer was sent and was the last.
    Close,
    /// The connection is of no more use.
    Abort,
}

/// Bodies up to this size are copied behind their heads, so that many answers leave in one write.
const INLINE_BODY: usize = 8 * 1024;
/// What one write collects at most, beyond the answer that passes it.
const BATCH: usize = 64 * 1024;
/// After the last answer, up to this many bytes are read and thrown away, so that no reset
/// overtakes the answer.
const LINGER_BYTES: usize = 1 << 20;
const LINGER_MILLIS: u64 = 2_000;

impl Connection {
    pub(crate) fn new(ctx: Rc<Loop>, stream: TcpStream, peer: IpAddr, permit: Permit) -> Self {
        let slot = ctx.connections.add();
        let serial = ctx.next_serial();
        let idle = ctx.clock.now() + ctx.http1.idle_timeout;
        ctx.connections.wait(slot, Waiting::Idle, idle);
        Self {
            ctx,
            stream,
            peer,
            serial,
            slot,
            requests: 0,
            engine: http1::Connection::default(),
            unread: Vec::new(),
            resume: false,
            linger: false,
            closing: false,
            registered: false,
            early_reads: 2,
            stage: Stage::Receive,
            body: None,
            _permit: permit,
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let mut buffers = self.ctx.take_buffers();
        let result = self.receive(cx, &mut buffers);
        self.ctx.give_buffers(buffers);
        result
    }

    fn receive(&mut self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<Step> {
        let Buffers { input, output, head, path } = buffers;
        let parts = &mut Parts { output, head, path };
        if std::mem::take(&mut self.resume) {
            let unread = std::mem::take(&mut self.unread);
            if let Some(step) = self.take_in(&unread, parts) {
                return Poll::Ready(step);
            }
        }
        loop {
            let mut read = ReadBuf::new(input);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Pending => return self.still_waiting(parts),
                Poll::Ready(Err(_)) => return Poll::Ready(Step::End),
                Poll::Ready(Ok(())) if read.filled().is_empty() => return Poll::Ready(Step::End),
                Poll::Ready(Ok(())) => {}
            }
            if self.early_reads > 0 {
                self.early_reads -= 1;
                self.ctx.look_for_changes();
            }
            let fresh = read.filled();
            let step = if self.unread.is_empty() {
                self.take_in(fresh, parts)
            } else {
                let mut unread = std::mem::take(&mut self.unread);
                unread.extend_from_slice(fresh);
                self.take_in(&unread, parts)
            };
            if let Some(step) = step {
                return Poll::Ready(step);
            }
        }
    }

    /// Nothing has arrived: either that is all right, or it has taken too long.
    fn still_waiting(&mut self, parts: &mut Parts<'_>) -> Poll<Step> {
        let (waiting, expired) = self.ctx.connections.state(self.slot, self.ctx.clock.now());
        let over = expired || waiting == Waiting::Idle && self.ctx.is_draining();
        if !over {
            return Poll::Pending;
        }
        let refusal = match waiting {
            Waiting::Head => Refusal { status: 408, reason: "the head took too long" },
            Waiting::Body => Refusal { status: 408, reason: "the body took too long" },
            _ => return Poll::Ready(Step::End),
        };
        let next = self.refuse(refusal, None, parts.output);
        Poll::Ready(self.follow(next))
    }

    /// Uses `data` as far as possible, keeps the rest, and says what follows; `None` to read on.
    fn take_in(&mut self, data: &[u8], parts: &mut Parts<'_>) -> Option<Step> {
        let mut at = 0;
        let next = self.process(data, &mut at, parts);
        let rest = &data[at..];
        if matches!(next, Next::Close) {
            self.linger |= !rest.is_empty();
        } else if !rest.is_empty() {
            self.unread.extend_from_slice(rest);
        }
        if let Next::Receive = next {
            self.await_more();
            return None;
        }
        Some(self.follow(next))
    }

    /// Sets the limit that the next bytes have to meet.
    fn await_more(&mut self) {
        let now = self.ctx.clock.now();
        if self.body.is_some() || !self.unread.is_empty() {
            // A client that sends a message in parts may hold back the next part until this one
            // is acknowledged, which the kernel would put off for 40 ms.
            let _ = set_tcp_quickack(&self.stream, true);
        }
        if self.body.is_some() {
            self.ctx.connections.wait(self.slot, Waiting::Body, now + self.ctx.http1.body_timeout);
        } else if self.unread.is_empty() {
            self.unread = Vec::new();
            self.ctx.connections.wait(self.slot, Waiting::Idle, now + self.ctx.http1.idle_timeout);
        } else if self.ctx.connections.state(self.slot, 0).0 != Waiting::Head {
            self.ctx.connections.wait(self.slot, Waiting::Head, now + self.ctx.http1.head_timeout);
        }
    }

    fn follow(&mut self, next: Next) -> Step {
        match next {
            Next::Receive => {
                self.stage = Stage::Receive;
                self.early_reads = 2;
                self.resume = !self.unread.is_empty();
                self.await_more();
            }
            Next::Handle(handling) => {
                self.ctx.connections.wait(self.slot, Waiting::Handler, u64::MAX);
                self.stage = Stage::Handle(handling);
            }
            Next::Send(sending) => {
                self.await_client();
                self.stage = Stage::Send(sending);
            }
            Next::Close if self.linger || self.engine.has_body() => return self.begin_linger(),
            Next::Close => return Step::End,
            Next::Abort => {
                // Discards what is in flight, so that a cut answer is seen to be cut.
                let _ = socket2::SockRef::from(&self.stream)
                    .set_linger(Some(std::time::Duration::ZERO));
                return Step::End;
            }
        }
        Step::Again
    }

    fn await_client(&self) {
        let deadline = self.ctx.clock.now() + self.ctx.http1.send_timeout;
        self.ctx.connections.wait(self.slot, Waiting::Send, deadline);
    }

    fn begin_linger(&mut self) -> Step {
        if socket2::SockRef::from(&self.stream).shutdown(std::net::Shutdown::Write).is_err() {
            return Step::End;
        }
        let deadline = self.ctx.clock.now() + LINGER_MILLIS;
        self.ctx.connections.wait(self.slot, Waiting::Linger, deadline);
        self.stage = Stage::Linger { left: LINGER_BYTES };
        Step::Again
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let mut buffers = self.ctx.take_buffers();
        let result = loop {
            let mut read = ReadBuf::new(&mut buffers.input);
            match Pin::new(&mut self.stream).poll_read(cx, &mut read) {
                Poll::Pending => {
                    let (_, expired) = self.ctx.connections.state(self.slot, self.ctx.clock.now());
                    break if expired { Poll::Ready(Step::End) } else { Poll::Pending };
                }
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                    let Stage::Linger { left } = &mut self.stage else {
                        break Poll::Ready(Step::End);
                    };
                    *left = left.saturating_sub(read.filled().len());
                    if *left == 0 {
                        break Poll::Ready(Step::End);
                    }
                }
                Poll::Ready(_) => break Poll::Ready(Step::End),
            }
        };
        self.ctx.give_buffers(buffers);
        result
    }

    /// Answers everything in `data` from `at` on that can be answered now.
    fn process(&mut self, data: &[u8], at: &mut usize, parts: &mut Parts<'_>) -> Next {
        loop {
            if self.body.is_some() {
                match self.read_body(data, at, parts.output) {
                    BodyStep::Ended(None) => {}
                    BodyStep::Ended(Some(next)) => return next,
                    BodyStep::More => return self.flush(Body::default(), None, parts.output),
                }
                continue;
            }
            *at += http1::leading_empty_lines(&data[*at..]);
            if *at == data.len() {
                return self.flush(Body::default(), None, parts.output);
            }
            let message = &data[*at..];
            let limits = &self.ctx.http1.limits;
            let length = match self.engine.head(message, limits, parts.head) {
                Ok(Some(length)) => length,
                Ok(None) => return self.flush(Body::default(), None, parts.output),
                Err(refusal) => return self.refuse(refusal, None, parts.output),
            };
            *at += length;
            if let Some(next) = self.answer(&message[..length], parts) {
                return next;
            }
            let one_at_a_time = self.ctx.http1.personality == Personality::Persistent;
            if parts.output.len() >= BATCH || one_at_a_time {
                match self.flush(Body::default(), None, parts.output) {
                    Next::Receive => {}
                    next => return next,
                }
            }
        }
    }

    /// Answers one request; `None` when the answer was added to the batch and the next request
    /// may be looked at.
    fn answer(&mut self, bytes: &[u8], parts: &mut Parts<'_>) -> Option<Next> {
        let started = self.ctx.is_logging().then(Instant::now);
        let Parts { output, head, path } = parts;
        let request = Request::new(bytes, head);
        self.requests += 1;
        self.decide_persistence(&request);
        match route::dispatch(&self.ctx, &request, path) {
            Ok(routed) => self.reply(&request, routed, started, output),
            Err(refusal) => Some(self.refuse(refusal, Some((&request, started)), output)),
        }
    }

    fn decide_persistence(&mut self, request: &Request<'_>) {
        let settings = &self.ctx.http1;
        let asked_to_close = self.engine.persistence() == Persistence::Close;
        let most = settings.requests != 0 && self.requests >= settings.requests;
        if settings.personality == Personality::Close || most || self.ctx.is_draining() {
            self.engine.close();
            // A client that did not ask for the end may have sent more.
            self.linger = !asked_to_close;
        }
        if request.method() == Method::Connect {
            self.engine.close();
            self.linger = true;
        }
    }

    fn reply(
        &mut self,
        request: &Request<'_>,
        routed: route::Routed,
        started: Option<Instant>,
        output: &mut Vec<u8>,
    ) -> Option<Next> {
        let route::Routed { reply, site, body_limit, reads_body, log } = routed;
        let started = started.filter(|_| log);
        let is_head = request.method() == Method::Head;
        if self.engine.has_body() {
            if let BodyLength::Known(length) = self.engine.body_length()
                && length > body_limit
            {
                return Some(self.refuse(TOO_LARGE, Some((request, started)), output));
            }
            match reply {
                Reply::Response(response) if reads_body => {
                    if self.engine.expects_continue() {
                        output.extend_from_slice(response::CONTINUE);
                        self.engine.continued();
                    }
                    let log = self.log_later(request, site, started);
                    let deferred = Deferred { response: *response, log, is_head };
                    self.expect_body(body_limit, Some(deferred));
                    return None;
                }
                _ if self.engine.expects_continue() => {
                    // Whether the body comes after a final answer is the client's choice, so
                    // that what follows could be read in two ways.
                    self.engine.close();
                    self.linger = true;
                }
                _ if self.engine.persistence() != Persistence::Close => {
                    self.expect_body(body_limit, None);
                }
                _ => {}
            }
        }
        match reply {
            Reply::Prepared(prepared) => {
                self.send_prepared(request, prepared, site, started, output)
            }
            Reply::Response(response) => {
                let log = self.log_later(request, site, started);
                self.send_response(*response, is_head, log, output)
            }
            Reply::Job(job) => {
                let mut before = Vec::new();
                match self.flush(Body::default(), None, output) {
                    Next::Receive => {}
                    // Earlier answers that the socket has no room for stay in front of this one.
                    Next::Send(sending) => before = sending.outgoing.head,
                    next => return Some(next),
                }
                let log = self.log_later(request, site, started);
                Some(Next::Handle(Box::new(Handling { job, before, log, is_head })))
            }
        }
    }

    fn expect_body(&mut self, limit: u64, deferred: Option<Deferred>) {
        let started = self.ctx.clock.now();
        self.body = Some(Box::new(BodyProgress { received: 0, limit, started, deferred }));
    }

    /// Reads on in the body of the present request.
    fn read_body(&mut self, data: &[u8], at: &mut usize, output: &mut Vec<u8>) -> BodyStep {
        let Some(progress) = &mut self.body else { return BodyStep::Ended(None) };
        let (used, event) = match self.engine.body(&data[*at..]) {
            Ok(result) => result,
            Err(refusal) => return BodyStep::Ended(Some(self.refuse_body(refusal, output))),
        };
        *at += used;
        match event {
            BodyEvent::More => BodyStep::More,
            BodyEvent::Data(data) => {
                progress.received += data.len() as u64;
                let elapsed = self.ctx.clock.now() - progress.started;
                let slow = elapsed > self.ctx.http1.body_timeout
                    && progress.received * 1000 / elapsed < self.ctx.http1.body_rate;
                if progress.received > progress.limit {
                    BodyStep::Ended(Some(self.refuse_body(TOO_LARGE, output)))
                } else if slow {
                    let refusal = Refusal { status: 408, reason: "the body comes too slowly" };
                    BodyStep::Ended(Some(self.refuse_body(refusal, output)))
                } else {
                    BodyStep::Ended(None)
                }
            }
            BodyEvent::End => {
                let deferred = self.body.take().and_then(|progress| progress.deferred);
                BodyStep::Ended(deferred.and_then(|Deferred { response, log, is_head }| {
                    self.send_response(response, is_head, log, output)
                }))
            }
        }
    }

    /// Refuses the rest of a body. When its request was answered already, the connection ends.
    fn refuse_body(&mut self, refusal: Refusal, output: &mut Vec<u8>) -> Next {
        let progress = self.body.take();
        match progress.and_then(|progress| progress.deferred) {
            Some(deferred) => {
                self.engine.close();
                self.linger = true;
                let response = route::refusal_response(&refusal, !deferred.is_head);
                let next = self.send_response(response, deferred.is_head, deferred.log, output);
                next.unwrap_or(Next::Close)
            }
            None => {
                self.closing = true;
                self.linger = true;
                self.flush(Body::default(), None, output)
            }
        }
    }

    /// Answers with an error and ends the connection.
    fn refuse(
        &mut self,
        refusal: Refusal,
        request: Option<(&Request<'_>, Option<Instant>)>,
        output: &mut Vec<u8>,
    ) -> Next {
        tracing::debug!(peer = %self.peer, status = refusal.status, reason = refusal.reason, "request refused");
        self.engine.close();
        self.linger = true;
        self.body = None;
        let (log, is_head) = match request {
            Some((request, started)) => {
                (self.log_later(request, 0, started), request.method() == Method::Head)
            }
            None => (
                self.log_later(
                    &Request::new(b"", &Head::default()),
                    0,
                    self.ctx.is_logging().then(Instant::now),
                ),
                false,
            ),
        };
        let response = route::refusal_response(&refusal, !is_head);
        self.send_response(response, is_head, log, output).unwrap_or(Next::Close)
    }

    /// Sends an answer that the cache keeps ready.
    #[inline]
    fn send_prepared(
        &mut self,
        request: &Request<'_>,
        prepared: Prepared,
        site: usize,
        started: Option<Instant>,
        output: &mut Vec<u8>,
    ) -> Option<Next> {
        let Prepared { hit, coding, not_modified, cache } = prepared;
        if coding == Coding::Identity
            && !not_modified
            && let Some(plain) = &hit.plain
            && plain.block.len() <= INLINE_BODY
        {
            let end = match request.method() {
                Method::Head => plain.head_length,
                _ => plain.block.len(),
            };
            self.begin_head(200, output);
            output.extend_from_slice(&plain.block[..end]);
            if let Some(started) = started {
                let bytes = (end - plain.head_length) as u64;
                let served = Served { status: 200, bytes, cache, coding: "-" };
                self.record(request, started, site, &served);
            }
            return self.after_answer(output);
        }
        let form = match hit.resource.representation(coding) {
            Some(Some(form)) => form,
            _ => &hit.resource.identity,
        };
        let (status, head) = if not_modified {
            (304, &*form.head_not_modified)
        } else {
            (200, &form.block[..form.head_length])
        };
        self.begin_head(status, output);
        output.extend_from_slice(head);
        let mut served = Served { status, bytes: 0, cache, coding: token(coding) };
        let mut body = Body::default();
        if !not_modified && request.method() == Method::Get {
            match &form.body {
                Stored::Memory(bytes) if bytes.len() <= INLINE_BODY => {
                    output.extend_from_slice(bytes);
                    served.bytes = form.length;
                }
                stored => body.push(Piece::of(stored, 0..form.length)),
            }
        }
        if body.is_empty() {
            if let Some(started) = started {
                self.record(request, started, site, &served);
            }
            return self.after_answer(output);
        }
        let mut log = self.log_later(request, site, started);
        if let Some(log) = &mut log {
            log.served = served;
        }
        self.send_body(body, log, output)
    }

    /// Sends a response that was made for this request.
    fn send_response(
        &mut self,
        response: Response,
        is_head: bool,
        mut log: Option<Box<LogLater>>,
        output: &mut Vec<u8>,
    ) -> Option<Next> {
        let Response { status, mut fields, mut body, stated_length, cache, coding } = response;
        if self.ctx.http1.server_field {
            fields.push("Server", "dunlin");
        }
        let length = stated_length.unwrap_or_else(|| body.length());
        if status::has_body(status) {
            fields.push_number("Content-Length", length);
        }
        self.begin_head(status, output);
        output.extend_from_slice(fields.as_bytes());
        output.extend_from_slice(b"\r\n");
        if is_head || !status::has_body(status) {
            body = Body::default();
        }
        let mut inline = 0;
        if let Some(bytes) = body.as_memory().filter(|bytes| bytes.len() <= INLINE_BODY) {
            output.extend_from_slice(bytes);
            inline = bytes.len() as u64;
            body = Body::default();
        }
        if let Some(log) = &mut log {
            log.served = Served { status, bytes: inline, cache, coding };
        }
        if body.is_empty() {
            if let Some(log) = log {
                self.record_later(&log, inline);
            }
            return self.after_answer(output);
        }
        self.send_body(body, log, output)
    }

    #[inline]
    fn begin_head(&mut self, status: u16, output: &mut Vec<u8>) {
        let persistence = self.engine.persistence();
        self.closing = persistence == Persistence::Close;
        self.ctx.clock.with_date_line(|date| response::begin(status, date, persistence, output));
    }

    #[inline]
    fn after_answer(&mut self, output: &mut Vec<u8>) -> Option<Next> {
        self.closing.then(|| self.flush(Body::default(), None, output))
    }

    fn send_body(
        &mut self,
        body: Body,
        log: Option<Box<LogLater>>,
        output: &mut Vec<u8>,
    ) -> Option<Next> {
        match self.flush(body, log, output) {
            Next::Receive => None,
            next => Some(next),
        }
    }

    /// Writes what has been collected, and `body` behind it.
    fn flush(&mut self, mut body: Body, log: Option<Box<LogLater>>, output: &mut Vec<u8>) -> Next {
        let (mut at, mut sent) = (0, 0);
        let result = send::send(&self.stream, output, &mut at, &mut body, &mut sent);
        let rest =
            matches!(result, Ok(Sent::Blocked | Sent::Cold { .. })).then(|| output[at..].to_vec());
        output.clear();
        match (result, rest) {
            (Ok(state), Some(head)) => {
                let outgoing = Outgoing { head, body, sent };
                let mut sending = Sending { outgoing, at: 0, log, warming: None };
                sending.begin_warming(&state);
                Next::Send(Box::new(sending))
            }
            (result, _) => self.after_sending(&result, sent, log),
        }
    }

    /// Nothing more is to be sent, for better or worse.
    fn after_sending(
        &mut self,
        result: &io::Result<Sent>,
        sent: u64,
        log: Option<Box<LogLater>>,
    ) -> Next {
        if let Some(log) = log {
            self.record_later(&log, sent);
        }
        match result {
            Ok(Sent::All) if self.closing => Next::Close,
            Ok(Sent::All) => Next::Receive,
            _ => Next::Abort,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            let Stage::Send(sending) = &mut self.stage else { return Poll::Ready(Step::Again) };
            if let Some(warming) = &mut sending.warming {
                // A failed reading shows itself when the bytes are sent.
                let _ = ready!(Pin::new(warming).poll(cx));
                sending.warming = None;
            }
            let Outgoing { head, body, sent } = &mut sending.outgoing;
            let before = (sending.at, *sent);
            let result = send::send(&self.stream, head, &mut sending.at, body, sent);
            let progress = before != (sending.at, *sent);
            match result {
                Ok(state @ Sent::Cold { .. }) => sending.begin_warming(&state),
                Ok(Sent::Blocked) => {
                    if progress {
                        self.await_client();
                    }
                    match self.stream.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(self.give_up()),
                        Poll::Pending => {
                            let now = self.ctx.clock.now();
                            let (_, expired) = self.ctx.connections.state(self.slot, now);
                            let waiting = if expired { Some(self.give_up()) } else { None };
                            return waiting.map_or(Poll::Pending, Poll::Ready);
                        }
                    }
                }
                result => {
                    let (sent, log) = (*sent, sending.log.take());
                    let next = self.after_sending(&result, sent, log);
                    return Poll::Ready(self.follow(next));
                }
            }
        }
    }

    /// The client takes nothing: what was sent is recorded, the rest is dropped.
    fn give_up(&mut self) -> Step {
        if let Stage::Send(sending) = &mut self.stage
            && let Some(log) = sending.log.take()
        {
            let sent = sending.outgoing.sent;
            self.record_later(&log, sent);
        }
        self.follow(Next::Abort)
    }

    fn poll_handle(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let Stage::Handle(handling) = &mut self.stage else { return Poll::Ready(Step::Again) };
        let response = ready!(handling.job.as_mut().poll(cx));
        let (log, is_head) = (handling.log.take(), handling.is_head);
        let before = std::mem::take(&mut handling.before);
        let mut buffers = self.ctx.take_buffers();
        let output = &mut buffers.output;
        output.extend_from_slice(&before);
        let next = self
            .send_response(response, is_head, log, output)
            .unwrap_or_else(|| self.flush(Body::default(), None, output));
        self.ctx.give_buffers(buffers);
        Poll::Ready(self.follow(next))
    }

    fn log_later(
        &self,
        request: &Request<'_>,
        site: usize,
        started: Option<Instant>,
    ) -> Option<Box<LogLater>> {
        started.map(|started| {
            let served = Served { status: 0, bytes: 0, cache: "-", coding: "-" };
            Box::new(LogLater { request: request.to_owned(), started, site, served })
        })
    }

    fn record_later(&self, log: &LogLater, bytes: u64) {
        let served = Served { bytes: log.served.bytes.max(bytes), ..log.served };
        self.record(&log.request.as_request(), log.started, log.site, &served);
    }

    fn record(&self, request: &Request<'_>, started: Instant, site: usize, served: &Served) {
        self.ctx.record(request, self.peer, self.serial, started, site, served);
    }
}

impl Sending {
    /// Reads what is not in memory where waiting for the disk holds up nobody.
    fn begin_warming(&mut self, state: &Sent) {
        if let (Sent::Cold { offset, length }, Some(Piece::File(file, _))) =
            (state, self.outgoing.body.first_mut())
        {
            let (file, offset, length) = (Arc::clone(file), *offset, *length);
            self.warming = Some(tokio::task::spawn_blocking(move || {
                send::warm(&file, offset, length);
            }));
        }
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.registered {
            this.registered = true;
            this.ctx.connections.set_waker(this.slot, cx);
        }
        loop {
            let step = match &this.stage {
                Stage::Receive => ready!(this.poll_receive(cx)),
                Stage::Handle(_) => ready!(this.poll_handle(cx)),
                Stage::Send(_) => ready!(this.poll_send(cx)),
                Stage::Linger { .. } => ready!(this.poll_linger(cx)),
            };
            if let Step::End = step {
                return Poll::Ready(());
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.ctx.connections.remove(self.slot);
    }
}

const TOO_LARGE: Refusal = Refusal { status: 413, reason: "the body is larger than the limit" };

/// The coding as the log names it.
fn token(coding: Coding) -> &'static str {
    if coding == Coding::Identity { "-" } else { coding.as_str() }
}
