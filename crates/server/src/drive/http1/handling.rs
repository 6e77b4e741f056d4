//! A request whose handler is at work: the request body goes to the handler and the response to the client, both at the
//! same time and each no faster than its receiver takes it.

use std::io;
use std::task::{Context, Poll};

use dunlin_exchange::{
    BodyWriter, Part, RequestBody, Response, STALLED, StreamBody, StreamKind, stream,
};
use dunlin_http::http1::{Persistence, response};
use dunlin_http::{FieldLines, RequestError, Version};
use dunlin_net::connections::Waiting;
use tokio::io::ReadBuf;

use super::body::receive_part;
use super::unsent::Unsent;
use super::{Http1Driver, Next, Stage, Step};
use crate::exchange::{Exchange, PlanBody, tunnel_body};
use crate::worker::{Completion, Output, Pending};

/// A request whose handler is at work, or streams its response.
pub(super) struct Handling {
    exchange: Exchange,
    version: Version,
    /// The connection is read while the handler reads the request body or streams its response.
    reads_ahead: bool,
    /// The client has closed its sending side, or has left.
    has_ended: bool,
    /// The start of the next chunk was sent.
    has_chunk_start: bool,
    /// The streamed body, until all of it is in `output`.
    body: Option<(BodyWriter, Framing)>,
    output: Unsent,
    /// Records of earlier responses, whose bytes are the first of `output`.
    earlier: Pending,
    /// Part of the response was sent, or the response did not end because of the client.
    has_begun: bool,
    /// The socket had no room.
    was_blocked: bool,
}

/// The framing of a streamed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Chunked,
    /// The head states the length.
    Length,
    /// The body ends with the connection.
    Close,
}

/// Maximum of bytes that wait for the client, and of bytes of further requests that are read ahead.
const WAITING: usize = 64 * 1024;
/// A client of a script that has closed its sending side counts as gone if nothing can be sent to it for this number of
/// milliseconds, before the response and within it: until then, nothing distinguishes it from one that waits.
const LEFT_BEFORE: u64 = 3_000;
const LEFT_WITHIN: u64 = 1_000;
/// After this number of milliseconds without a byte for such a client, an upstream's response is begun: the system of a client
/// that has left resets the connection then, which the server notices when it looks again after the same time.
const LOOK_AGAIN: u64 = 1_000;
/// The first byte of each head.
const HEAD_START: &[u8] = b"H";
/// A digit with which the length of each chunk may begin (RFC 9112 §7.1).
const CHUNK_START: &[u8] = b"0";
/// After this number of steps other connections get their turn.
const STEPS: usize = 16;

/// The result of one step.
pub(super) enum Moved {
    Yes,
    No,
    /// The handling is over.
    Over(Next),
}

impl Http1Driver {
    /// Starts to handle a request. The bytes in `before` are sent first.
    pub(super) fn begin_handling(
        &mut self,
        exchange: Exchange,
        version: Version,
        before: Output,
    ) -> Next {
        Next::Handle(Box::new(Handling {
            reads_ahead: exchange.is_reading(),
            exchange,
            version,
            has_ended: false,
            has_chunk_start: false,
            body: None,
            output: Unsent::new(before.bytes),
            earlier: before.pending,
            has_begun: false,
            was_blocked: false,
        }))
    }

    pub(super) fn poll_handling(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let stage = std::mem::replace(&mut self.stage, Stage::Receive);
        let Stage::Handle(mut handling) = stage else {
            self.stage = stage;
            return Poll::Ready(Step::Again);
        };
        let Some(next) = self.handle(cx, &mut handling) else {
            handling.output.shrink();
            self.stage = Stage::Handle(handling);
            return Poll::Pending;
        };
        if !handling.earlier.is_empty() {
            let at = handling.output.sent() as i64;
            handling.earlier.finish(&self.link.ctx, &self.link.facts, at);
        }
        let completion = match next {
            Next::Abort => Completion::Aborted,
            _ => Completion::Complete,
        };
        self.record_handling(&mut handling, completion);
        Poll::Ready(match handling.was_blocked {
            true => self.follow(next),
            false => self.after_handler(next, cx),
        })
    }

    /// Runs all steps while one of them makes progress. Returns `None` to wait.
    fn handle(&mut self, cx: &mut Context<'_>, handling: &mut Handling) -> Option<Next> {
        for _ in 0..STEPS {
            let mut moved = false;
            for step in [Self::receive_body, Self::run_handler, Self::send_handling] {
                match step(self, cx, handling) {
                    Moved::Yes => moved = true,
                    Moved::No => {}
                    Moved::Over(next) => return Some(next),
                }
            }
            handling.was_blocked |= !handling.output.is_empty();
            if !moved {
                match self.check_deadline(handling) {
                    Moved::Yes => {}
                    Moved::No => return None,
                    Moved::Over(next) => return Some(next),
                }
            }
            self.set_deadline(handling);
        }
        cx.waker().wake_by_ref();
        None
    }

    /// Receives the request body, or what the client sends through a tunnel, and notices a client that has closed the
    /// connection.
    fn receive_body(&mut self, cx: &mut Context<'_>, handling: &mut Handling) -> Moved {
        if !handling.reads_ahead {
            return Moved::No;
        }
        let exchange = &mut handling.exchange;
        let wants_continue = exchange.wants_continue();
        let is_tunnel = exchange.request_body.as_ref().is_some_and(RequestBody::is_tunnel);
        if let Some(body) = &mut exchange.request_body {
            body.watch(cx);
            if body.is_abandoned_tunnel() {
                // What the handler has sent before is still sent.
                handling.end_tunnel();
                return Moved::Yes;
            }
            if self.engine.expects_continue() && wants_continue {
                handling.output.buffer().extend_from_slice(response::CONTINUE);
                self.engine.continue_sent();
            }
            if !body.has_room(self.link.now()) {
                return Moved::No;
            }
            if !self.unread.is_empty() {
                let data = std::mem::take(&mut self.unread);
                return self.feed(handling, &data);
            }
        }
        if self.unread.len() >= WAITING {
            return Moved::No;
        }
        let has_body = exchange.request_body.is_some();
        let mut buffers = self.link.ctx.take_buffers();
        let mut read = ReadBuf::new(&mut buffers.input);
        let moved = match self.link.poll_read(&mut self.stream, cx, &mut read) {
            Poll::Pending => {
                if has_body && !is_tunnel {
                    self.stream.acknowledge();
                }
                Moved::No
            }
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                let data = read.filled();
                if !is_tunnel {
                    self.link.set_read_times(self.unread.is_empty());
                }
                if has_body {
                    self.feed(handling, data)
                } else {
                    self.unread.extend_from_slice(data);
                    Moved::Yes
                }
            }
            Poll::Ready(Ok(())) if is_tunnel => {
                handling.end_tunnel();
                Moved::Yes
            }
            // It may still receive. Over TLS, clients that do so end with their connection (RFC 9112 §9.8).
            Poll::Ready(Ok(())) if !has_body && !self.link.facts.is_encrypted() => {
                (handling.reads_ahead, handling.has_ended) = (false, true);
                self.stream.probe();
                Moved::Yes
            }
            Poll::Ready(_) => Moved::Over(Next::Abort),
        };
        self.link.ctx.give_buffers(buffers);
        moved
    }

    /// Passes bytes of the request body to the handler and keeps those behind it.
    fn feed(&mut self, handling: &mut Handling, data: &[u8]) -> Moved {
        if handling.exchange.receive_for_tunnel(data) {
            return Moved::Yes;
        }
        let Some(body) = &mut handling.exchange.request_body else { return Moved::No };
        let (mut at, now) = (0, (self.link.now(), self.link.ctx.http1.body));
        let has_ended = match receive_part(&mut self.engine, body, (data, &mut at), now) {
            Ok(has_ended) => has_ended,
            Err(error) => return self.reject_body(handling, error),
        };
        if has_ended {
            handling.exchange.end_body(self.engine.take_trailers());
        }
        // Bytes of the next request.
        self.unread.extend_from_slice(&data[at..]);
        Moved::Yes
    }

    /// Rejects a request because of its body. A final response that has begun is sent to its end.
    fn reject_body(&mut self, handling: &mut Handling, error: RequestError) -> Moved {
        if handling.exchange.has_handler() {
            return self.reject_handling(handling, error);
        }
        handling.exchange.request_body = None;
        self.closing = true;
        self.linger = true;
        Moved::Yes
    }

    /// Polls the handler and starts its response.
    fn run_handler(&mut self, cx: &mut Context<'_>, handling: &mut Handling) -> Moved {
        let exchange = &mut handling.exchange;
        if !exchange.poll_handler(cx) {
            return Moved::No;
        }
        for (status, fields) in exchange.take_hints() {
            let output = handling.output.buffer();
            let start = output.len();
            response::interim(status, fields.as_bytes(), output);
            self.remove_head_start(start, output);
        }
        let Some(mut response) = exchange.take_response() else { return Moved::Yes };
        if let Some(tunnel) = response.upgrade.take() {
            self.begin_tunnel(handling, response, tunnel);
            return Moved::Yes;
        }
        let is_message = response.body.stream_kind() == Some(StreamKind::Message);
        if is_message && self.has_head_start {
            // The head of a script's message begins as the script has it.
            return Moved::Over(Next::Abort);
        }
        if self.engine.has_body() && self.engine.expects_continue() {
            // The client decides whether it sends the body after a final response.
            self.end_requests();
        }
        if !response.body.is_stream() {
            return Moved::Over(self.conclude_handling(handling, response));
        }
        self.begin_stream(handling, response);
        Moved::Yes
    }

    /// Switches the connection to another protocol (RFC 9110 §7.8), such as WebSocket: bytes are forwarded in both directions.
    /// `tunnel` takes what the client sends.
    fn begin_tunnel(
        &mut self,
        handling: &mut Handling,
        mut response: Response,
        tunnel: stream::Sender,
    ) {
        self.end_requests();
        // What the client still sends must not reset the connection before it has received the last bytes.
        self.closing = true;
        let Handling { exchange, output, .. } = handling;
        exchange.switch_to(tunnel, response.status, &self.link.ctx.metrics);
        handling.body =
            tunnel_body(&mut response).map(|body| (BodyWriter::stream(body, None), Framing::Close));
        handling.reads_ahead = true;
        let output = output.buffer();
        let start = output.len();
        self.link.ctx.clock.with_date_line(|date| {
            response::begin(response.status, date, Persistence::Keep, output);
        });
        self.remove_head_start(start, output);
        output.extend_from_slice(b"Connection: upgrade\r\n");
        output.extend_from_slice(response.fields.as_bytes());
        output.extend_from_slice(b"\r\n");
    }

    /// Starts a response whose body is streamed.
    fn begin_stream(&mut self, handling: &mut Handling, response: Response) {
        let Exchange { is_head, log, .. } = &mut handling.exchange;
        let mut plan = self.link.plan(response, *is_head, log.as_deref_mut());
        let framing = match plan.body {
            PlanBody::Message(source) => {
                self.end_requests();
                self.closing = true;
                let body = BodyWriter::stream(StreamBody::new(source, None), plan.pacer);
                handling.body = Some((body, Framing::Close));
                return;
            }
            PlanBody::Stream { has_length: true, .. } => Framing::Length,
            PlanBody::Stream { .. } if handling.version != Version::Http10 => Framing::Chunked,
            PlanBody::Stream { .. } => {
                self.engine.close();
                Framing::Close
            }
            // The body is not sent.
            _ => Framing::Length,
        };
        let more: &[u8] = match framing {
            Framing::Chunked => b"Transfer-Encoding: chunked\r\n",
            Framing::Length | Framing::Close => b"",
        };
        self.write_head(&plan, more, handling.output.buffer());
        if let body @ PlanBody::Stream { .. } = std::mem::replace(&mut plan.body, PlanBody::None) {
            handling.body = Some((body.into_writer(plan.pacer), framing));
        }
    }

    /// Sends what is in the output, and adds more of the body as the client takes it.
    fn send_handling(&mut self, cx: &mut Context<'_>, handling: &mut Handling) -> Moved {
        let mut moved = Moved::No;
        while let room @ 1.. = WAITING.saturating_sub(handling.output.len())
            && let Some((body, framing)) = &mut handling.body
        {
            let framing = *framing;
            match body.poll_part(cx, room) {
                Poll::Pending => break,
                Poll::Ready(Part::Data(bytes)) => handling.frame(&bytes, framing),
                Poll::Ready(Part::End(trailers)) => {
                    if framing == Framing::Chunked {
                        response::last_chunk(trailers.as_bytes(), handling.output.buffer());
                    }
                    handling.body = None;
                }
                Poll::Ready(Part::Broken) => {
                    handling.has_begun = true;
                    return Moved::Over(Next::Abort);
                }
            }
            moved = Moved::Yes;
        }
        let before = handling.output.sent();
        let result = handling.output.poll_send(&mut self.stream, cx);
        let sent = handling.output.sent();
        if sent > before {
            moved = Moved::Yes;
            handling.has_begun |= !handling.exchange.has_handler();
            handling.earlier.settle_before(&self.link.ctx, &self.link.facts, sent as i64);
        }
        match result {
            Poll::Pending => return moved,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Moved::Over(Next::Abort),
        }
        if !handling.exchange.has_handler() && handling.body.is_none() {
            return Moved::Over(self.end_handling(handling));
        }
        moved
    }

    /// Returns what follows a response that was sent.
    fn end_handling(&mut self, handling: &mut Handling) -> Next {
        self.discard_rest(handling.exchange.request_body.take());
        if !self.closing {
            return Next::Receive;
        }
        self.linger |= !self.unread.is_empty();
        Next::Close
    }

    /// Sends a response that is complete in memory or in files.
    fn conclude_handling(&mut self, handling: &mut Handling, response: Response) -> Next {
        let Exchange { is_head, log, request_body, .. } = &mut handling.exchange;
        let (is_head, log, rest) = (*is_head, log.take(), request_body.take());
        self.discard_rest(rest);
        let mut buffers = self.link.ctx.take_buffers();
        let output = &mut buffers.output;
        output.bytes.extend_from_slice(handling.output.rest());
        let sent = handling.output.sent() as usize;
        let earlier = handling.earlier.split_off(&self.link.ctx, &self.link.facts, sent);
        output.pending.take_over(earlier);
        let next = self
            .send_response(response, is_head, log, output)
            .unwrap_or_else(|| self.flush_responses(output));
        self.link.ctx.give_buffers(buffers);
        next
    }

    /// Rejects a request whose final response has not begun.
    fn reject_handling(&mut self, handling: &mut Handling, error: RequestError) -> Moved {
        self.end_requests();
        self.link.reject_exchange(&self.stream, error, &mut handling.exchange);
        if let Some(response) = handling.exchange.take_response() {
            return Moved::Over(self.conclude_handling(handling, response));
        }
        // What follows of the body is left to the end of the connection.
        handling.reads_ahead = false;
        Moved::Yes
    }

    /// Restarts the timeout after progress.
    fn set_deadline(&mut self, handling: &Handling) {
        let (waiting, limit) = self.waits_for(handling);
        if waiting == Waiting::Send {
            return self.set_send_deadline();
        }
        let deadline = limit.map_or(u64::MAX, |limit| self.link.now() + limit);
        self.link.wait(waiting, deadline);
    }

    /// Returns what the handling waits for, and the timeout in milliseconds.
    fn waits_for(&self, handling: &Handling) -> (Waiting, Option<u64>) {
        if !handling.output.is_empty() {
            return (Waiting::Send, None);
        }
        if handling.body.as_ref().is_some_and(|(body, _)| body.is_paced()) {
            return (Waiting::Throttle, None);
        }
        if handling.exchange.waits_for_body() && !self.engine.expects_continue() {
            return (Waiting::Body, Some(self.link.ctx.http1.body.timeout));
        }
        // The handler has timeouts of its own.
        let limit = match handling.has_begun {
            _ if handling.exchange.is_proxied() => LOOK_AGAIN,
            true => LEFT_WITHIN,
            false => LEFT_BEFORE,
        };
        (Waiting::Handler, handling.has_ended.then_some(limit))
    }

    fn check_deadline(&mut self, handling: &mut Handling) -> Moved {
        let (waiting, has_expired) =
            self.link.ctx.connections.state(self.link.slot, self.link.now());
        if waiting != self.waits_for(handling).0 {
            self.set_deadline(handling);
            return Moved::No;
        }
        match waiting {
            Waiting::Body if has_expired => self.reject_handling(handling, STALLED),
            Waiting::Send if has_expired && self.has_send_timed_out() => Moved::Over(Next::Abort),
            Waiting::Handler if has_expired && handling.has_ended => {
                let is_proxied = handling.exchange.is_proxied();
                if !is_proxied || self.stream.is_closed() || self.begin_early(handling).is_err() {
                    return Moved::Over(Next::Abort);
                }
                self.set_deadline(handling);
                Moved::No
            }
            _ => Moved::No,
        }
    }

    /// Sends the first byte of what comes next to a client that has closed its sending side, and that may have left.
    fn begin_early(&mut self, handling: &mut Handling) -> io::Result<()> {
        let (start, is_begun) = match &handling.body {
            Some((_, Framing::Chunked)) => (CHUNK_START, &mut handling.has_chunk_start),
            None if handling.exchange.has_handler() => (HEAD_START, &mut self.has_head_start),
            _ => return Ok(()),
        };
        if *is_begun {
            return Ok(());
        }
        match self.stream.try_write(start) {
            Ok(count) => *is_begun = count > 0,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes from the head at `start` of `output` what was sent of it.
    #[inline]
    pub(super) fn remove_head_start(&mut self, start: usize, output: &mut Vec<u8>) {
        if std::mem::take(&mut self.has_head_start) {
            output.drain(start..start + HEAD_START.len());
        }
    }

    fn record_handling(&self, handling: &mut Handling, completion: Completion) {
        let unsent = (handling.output.len() + self.stream.unsent()) as u64;
        let sent = handling.exchange.sent.saturating_sub(unsent);
        if completion == Completion::Aborted
            && !handling.has_begun
            && let Some(log) = &mut handling.exchange.log
        {
            log.outcome.status = 0;
        }
        self.link.record(&mut handling.exchange, sent, completion);
    }
}

impl Handling {
    /// Returns the bytes in memory that wait for the client.
    pub(super) fn held(&self) -> usize {
        self.output.held() + self.body.as_ref().map_or(0, |(body, _)| body.held())
    }

    /// The client sends nothing more through the tunnel, or nothing takes it.
    fn end_tunnel(&mut self) {
        self.exchange.end_body(FieldLines::default());
        self.reads_ahead = false;
    }

    /// Adds bytes of the body to the output.
    fn frame(&mut self, bytes: &[u8], framing: Framing) {
        if bytes.is_empty() {
            return;
        }
        self.exchange.note_sent(bytes.len());
        self.has_chunk_start = false;
        let output = self.output.buffer();
        if framing != Framing::Chunked {
            return output.extend_from_slice(bytes);
        }
        response::chunk_head(bytes.len(), output);
        output.extend_from_slice(bytes);
        output.extend_from_slice(b"\r\n");
    }
}
