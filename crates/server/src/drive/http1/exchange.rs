//! An exchange with a handler that reads the request's body, or sends its own as it is made: both
//! ways at once, each no faster than its receiver takes it.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_http::http1::{BodyEvent, response};
use dunlin_http::semantics::{Method, status};
use dunlin_http::{BodyLength, Request, RequestError, Version};
use tokio::io::ReadBuf;

use super::super::body_limits::{BodyLimits, STALLED};
use super::{Connection, Next, Stage, Step};
use crate::checks::Pacer;
use crate::clock;
use crate::connections::Waiting;
use crate::exchange::{EarlyHints, Incoming, Response, ResponseFuture, Stream, StreamKind, stream};
use crate::route::{self};
use crate::telemetry::ScriptContext;
use crate::worker::{Completion, DeferredRecord, Output, Pending, ResponseOutcome};

/// A request whose handler is at work.
pub(super) struct Exchange {
    /// Until the handler has answered.
    job: Option<ResponseFuture>,
    /// What is sent before the handler's answer.
    early_hints: EarlyHints,
    /// Until the request's body has ended.
    upload: Option<Upload>,
    /// Until the whole answer is in `output`.
    download: Option<Download>,
    /// What is to be sent next, from `at` on.
    output: Vec<u8>,
    at: usize,
    /// Of earlier responses, which are the first in `output`.
    earlier: Pending,
    /// Something was sent since the response has begun, or it was not the client that ended it.
    is_begun: bool,
    log: Option<Box<DeferredRecord>>,
    is_head: bool,
    version: Version,
    /// Bytes of the answer's body that went into `output`.
    sent: u64,
    /// Bytes that the request's body may have.
    body_limit: u64,
    /// The socket had no room.
    was_blocked: bool,
    /// What slows the answer's body down.
    pacer: Option<Pacer>,
}

struct Upload {
    sender: stream::Sender,
    limits: BodyLimits,
    /// The handler does not keep up; its slowness is not the client's.
    held_up: bool,
}

struct Download {
    source: stream::Receiver,
    framing: Framing,
}

/// How the answer's body is delimited.
#[derive(Debug, Clone, Copy)]
enum Framing {
    Chunked,
    /// So many bytes are still to come.
    Known(u64),
    /// The connection's end is the body's.
    Close,
}

/// Bytes of a request's body that wait for the handler.
const UPLOAD: usize = 64 * 1024;
/// Bytes that may wait for the client, and bytes of further requests that are read meanwhile.
const WAITING: usize = 64 * 1024;
/// After so many steps the other connections have their turn.
const STEPS: usize = 16;

/// What one attempt came to.
enum Moved {
    Yes,
    No,
    /// The exchange is over.
    Over(Next),
}

impl Connection {
    pub(super) fn begin_exchange(
        &mut self,
        request: &Request<'_>,
        begin: route::StreamingHandler,
        body_limit: u64,
        before: Output,
        mut log: Option<Box<DeferredRecord>>,
    ) -> Next {
        let Ok(ends) = self.ends() else {
            return Next::Abort;
        };
        let length = self.engine.body_length();
        let (upload, body) = match length {
            BodyLength::None => (None, stream::empty()),
            _ => {
                let (sender, receiver) = stream::channel(UPLOAD);
                let limits = BodyLimits::new(body_limit, self.ctx.clock.now());
                (Some(Upload { sender, limits, held_up: false }), receiver)
            }
        };
        let early_hints = EarlyHints::new(request.version() != Version::Http10);
        let script_context = Rc::new(ScriptContext::new(
            clock::now(),
            log.as_ref().and_then(|log| log.telemetry.traceparent()),
        ));
        let job = begin(Incoming {
            body,
            length,
            received: None,
            ends,
            encrypted: self.stream.is_encrypted(),
            tls: self.stream.tls(),
            script_context: Rc::clone(&script_context),
            redirects: 0,
            early_hints: early_hints.clone(),
        });
        if let Some(log) = &mut log {
            log.telemetry.script_context = Some(script_context);
        }
        Next::Exchange(Box::new(Exchange {
            job: Some(job),
            early_hints,
            upload,
            download: None,
            output: before.bytes,
            earlier: before.pending,
            at: 0,
            is_begun: false,
            log,
            is_head: request.method() == Method::Head,
            version: request.version(),
            sent: 0,
            body_limit,
            was_blocked: false,
            pacer: None,
        }))
    }

    pub(super) fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let stage = std::mem::replace(&mut self.stage, Stage::Receive);
        let Stage::Exchange(mut exchange) = stage else {
            self.stage = stage;
            return Poll::Ready(Step::Again);
        };
        let next = self.exchange(cx, &mut exchange);
        match next {
            None => {
                self.stage = Stage::Exchange(exchange);
                Poll::Pending
            }
            Some(next) => {
                if !exchange.earlier.is_empty() {
                    let at = exchange.at as i64;
                    exchange.earlier.finish(&self.ctx, &self.connection_info(), at);
                }
                if let Some(log) = exchange.log.take() {
                    let completion = match next {
                        Next::Abort => Completion::Aborted,
                        _ => Completion::Complete,
                    };
                    self.record_exchange(&log, &exchange, completion);
                }
                Poll::Ready(match exchange.was_blocked {
                    true => self.follow(next),
                    false => self.follow_handler(next, cx),
                })
            }
        }
    }

    /// Moves what can be moved; `None` when that has to wait.
    fn exchange(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Option<Next> {
        for _ in 0..STEPS {
            let mut moved = false;
            for step in [Self::upload, Self::work, Self::download] {
                match step(self, cx, exchange) {
                    Moved::Yes => moved = true,
                    Moved::No => {}
                    Moved::Over(next) => return Some(next),
                }
            }
            exchange.was_blocked |= exchange.at < exchange.output.len();
            if !moved {
                return self.check_deadline(exchange);
            }
            self.set_deadline(exchange);
        }
        cx.waker().wake_by_ref();
        None
    }

    /// Hands the request's body over, and notices a client that has left.
    fn upload(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Moved {
        let mut room = true;
        if let Some(upload) = &mut exchange.upload {
            upload.sender.watch(cx);
            if self.engine.expects_continue() && upload.sender.is_wanted() && exchange.job.is_some()
            {
                exchange.output.extend_from_slice(response::CONTINUE);
                self.engine.continue_sent();
            }
            room = upload.sender.poll_room(cx).is_ready();
            if std::mem::replace(&mut upload.held_up, !room) && room {
                upload.limits.restart(self.ctx.clock.now());
            }
            if room && !self.unread.is_empty() {
                let data = std::mem::take(&mut self.unread);
                return self.feed(exchange, &data);
            }
        }
        if !room || self.unread.len() >= WAITING {
            return Moved::No;
        }
        let mut buffers = self.ctx.take_buffers();
        let mut read = ReadBuf::new(&mut buffers.input);
        let moved = match self.stream.poll_read(cx, &mut read) {
            Poll::Pending => {
                if exchange.upload.is_some() {
                    self.stream.acknowledge();
                }
                Moved::No
            }
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                let data = read.filled();
                self.note_arrival();
                if exchange.upload.is_some() {
                    self.feed(exchange, data)
                } else {
                    self.unread.extend_from_slice(data);
                    Moved::Yes
                }
            }
            // Whoever stops sending before the answer is taken not to wait for it: nothing else
            // tells a client that is gone from one that only waits.
            Poll::Ready(_) => Moved::Over(Next::Abort),
        };
        self.ctx.give_buffers(buffers);
        moved
    }

    /// Takes bytes of the request's body; what is left over is kept.
    fn feed(&mut self, exchange: &mut Exchange, data: &[u8]) -> Moved {
        let mut at = 0;
        // However small the pieces are that the client sends, they are kept as one.
        let mut gathered = Vec::new();
        let mut ended = exchange.upload.is_none();
        while !ended {
            match self.engine.body(&data[at..]) {
                Ok((used, event)) => {
                    at += used;
                    match event {
                        BodyEvent::More => break,
                        BodyEvent::Data(bytes) => gathered.extend_from_slice(bytes),
                        BodyEvent::End => ended = true,
                    }
                }
                Err(refusal) => return self.refuse_upload(exchange, refusal),
            }
        }
        if let Some(upload) = &mut exchange.upload {
            let now = self.ctx.clock.now();
            let within_limits = upload.limits.take(gathered.len(), now, &self.ctx.http1);
            upload.sender.push(Bytes::from(gathered));
            if let Err(refusal) = within_limits {
                return self.refuse_upload(exchange, refusal);
            }
        }
        if ended && let Some(upload) = exchange.upload.take() {
            upload.sender.end();
        }
        // Bytes of the next request.
        self.unread.extend_from_slice(&data[at..]);
        Moved::Yes
    }

    /// The request's body cannot be read on. A final response that has begun is sent to its end.
    fn refuse_upload(&mut self, exchange: &mut Exchange, refusal: RequestError) -> Moved {
        if exchange.job.is_some() {
            return Moved::Over(self.refuse_exchange(exchange, refusal));
        }
        exchange.upload = None;
        self.closing = true;
        self.linger = true;
        Moved::Yes
    }

    /// Has the handler go on to its answer.
    fn work(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Moved {
        let Some(job) = &mut exchange.job else { return Moved::No };
        let answer = job.as_mut().poll(cx);
        let hints = exchange.early_hints.take(cx);
        for fields in &hints {
            response::early_hints(fields.as_bytes(), &mut exchange.output);
        }
        let Poll::Ready(mut response) = answer else {
            return if hints.is_empty() { Moved::No } else { Moved::Yes };
        };
        exchange.job = None;
        if self.engine.has_body() && self.engine.expects_continue() {
            // Whether the body comes after a final answer is the client's choice.
            self.engine.close();
            self.linger = true;
        }
        match response.body.take_stream() {
            Some(stream) => {
                self.begin_stream(exchange, response, *stream);
                Moved::Yes
            }
            None => {
                let log = exchange.log.take();
                Moved::Over(self.conclude_exchange(exchange, response, log))
            }
        }
    }

    fn begin_stream(&mut self, exchange: &mut Exchange, response: Response, stream: Stream) {
        let Response { status, mut fields, cache, coding, .. } = response;
        let Stream { source, length, kind } = stream;
        if let Some(log) = &mut exchange.log {
            let is_endless = kind == StreamKind::Endless;
            log.outcome =
                ResponseOutcome { status, cache, coding, is_endless, ..ResponseOutcome::NONE };
            log.telemetry.append_fields(&mut fields);
        }
        let telemetry = exchange.log.as_ref().map(|log| &log.telemetry);
        exchange.pacer = telemetry.and_then(|telemetry| telemetry.pacer(&mut self.pace, None));
        if kind == StreamKind::Message {
            self.engine.close();
            self.closing = true;
            self.linger = true;
            exchange.download = Some(Download { source, framing: Framing::Close });
            return;
        }
        let bodiless = exchange.is_head || !status::has_body(status);
        let framing = match length {
            Some(length) => Framing::Known(length),
            None if exchange.version == Version::Http10 => Framing::Close,
            None => Framing::Chunked,
        };
        match framing {
            Framing::Known(length) if status::has_body(status) => {
                fields.push_number("Content-Length", length);
            }
            Framing::Chunked if !bodiless => fields.push("Transfer-Encoding", "chunked"),
            Framing::Close if !bodiless => self.engine.close(),
            _ => {}
        }
        if self.ctx.http1.server_field {
            fields.push("Server", "dunlin");
        }
        self.begin_head(status, &mut exchange.output);
        exchange.output.extend_from_slice(fields.as_bytes());
        exchange.output.extend_from_slice(b"\r\n");
        if bodiless {
            // The script goes on to its end, as it would for another method.
            source.discard();
        } else {
            exchange.download = Some(Download { source, framing });
        }
    }

    /// Sends what there is, and takes more of the answer as far as the client keeps up.
    fn download(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange) -> Moved {
        let mut moved = Moved::No;
        while exchange.output.len() - exchange.at < WAITING
            && let Some(download) = &mut exchange.download
        {
            match download.source.poll_next(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(Some(bytes))) => {
                    if exchange.frame(&bytes)
                        && let Some(download) = exchange.download.take()
                    {
                        // The handler may go on, as a script that works in the background.
                        download.source.discard();
                    }
                }
                Poll::Ready(Ok(None)) => {
                    match download.framing {
                        Framing::Chunked => {
                            exchange.output.extend_from_slice(response::LAST_CHUNK);
                        }
                        Framing::Known(0) | Framing::Close => {}
                        Framing::Known(_) => {
                            exchange.is_begun = true;
                            return Moved::Over(Next::Abort);
                        }
                    }
                    exchange.download = None;
                }
                // A cut answer has to be seen to be cut.
                Poll::Ready(Err(stream::Broken)) => {
                    exchange.is_begun = true;
                    return Moved::Over(Next::Abort);
                }
            }
            moved = Moved::Yes;
        }
        let (before, mut end) = (exchange.at, exchange.output.len());
        if let Some(pacer) = &mut exchange.pacer {
            match pacer.poll(cx, (end - before) as u64) {
                Poll::Ready(bytes) => end = before + bytes as usize,
                Poll::Pending => return moved,
            }
        }
        let sent = self.stream.poll_send(cx, &exchange.output[..end], &mut exchange.at);
        if exchange.at > before {
            moved = Moved::Yes;
            exchange.is_begun |= exchange.job.is_none();
            exchange.earlier.settle_before(&self.ctx, &self.connection_info(), exchange.at as i64);
        }
        if let Some(pacer) = &mut exchange.pacer {
            pacer.spend((exchange.at - before) as u64);
        }
        match sent {
            Poll::Pending => return moved,
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Moved::Over(Next::Abort),
        }
        if end < exchange.output.len() {
            return moved;
        }
        exchange.output.clear();
        exchange.at = 0;
        if exchange.job.is_none() && exchange.download.is_none() {
            return Moved::Over(self.end_exchange(exchange));
        }
        moved
    }

    /// The answer has been sent.
    fn end_exchange(&mut self, exchange: &mut Exchange) -> Next {
        self.leave_rest(exchange);
        if !self.closing {
            return Next::Receive;
        }
        self.linger |= !self.unread.is_empty();
        Next::Close
    }

    /// What is left of the request's body is read without a use.
    fn leave_rest(&mut self, exchange: &mut Exchange) {
        if exchange.upload.take().is_some() && !self.closing && !self.engine.expects_continue() {
            self.expect_body(exchange.body_limit, None);
        }
    }

    /// Sends an answer that is there as a whole.
    fn conclude_exchange(
        &mut self,
        exchange: &mut Exchange,
        response: Response,
        log: Option<Box<DeferredRecord>>,
    ) -> Next {
        self.closing = self.engine.persistence() == dunlin_http::http1::Persistence::Close;
        self.leave_rest(exchange);
        let mut buffers = self.ctx.take_buffers();
        let output = &mut buffers.output;
        output.bytes.extend_from_slice(&exchange.output[exchange.at..]);
        let earlier = exchange.earlier.split_off(&self.ctx, &self.connection_info(), exchange.at);
        output.pending.take_over(earlier);
        let next = self
            .send_response(response, exchange.is_head, log, output)
            .unwrap_or_else(|| self.flush_answers(output));
        self.ctx.give_buffers(buffers);
        next
    }

    /// The request's body cannot be read on, and no final response has begun.
    fn refuse_exchange(&mut self, exchange: &mut Exchange, refusal: RequestError) -> Next {
        tracing::debug!(peer = %self.peer, status = refusal.status, reason = refusal.reason, "request refused");
        self.engine.close();
        self.linger = true;
        exchange.upload = None;
        exchange.job = None;
        let log = exchange.log.take();
        let request = log.as_ref().map(|log| log.request.as_request());
        let is_page = !exchange.is_head;
        let response = route::refusal_to(&self.ctx, request.as_ref(), &refusal, is_page);
        self.conclude_exchange(exchange, response, log)
    }

    /// Something has moved: the time begins anew in which something has to.
    fn set_deadline(&mut self, exchange: &Exchange) {
        let (waiting, limit) = self.waits_for(exchange);
        if waiting == Waiting::Send {
            return self.await_client();
        }
        let deadline = limit.map_or(u64::MAX, |limit| self.ctx.clock.now() + limit);
        self.ctx.connections.wait(self.slot, waiting, deadline);
    }

    /// What the exchange waits for, and how many milliseconds at most.
    fn waits_for(&self, exchange: &Exchange) -> (Waiting, Option<u64>) {
        let settings = &self.ctx.http1;
        if exchange.pacer.as_ref().is_some_and(Pacer::is_waiting) {
            return (Waiting::Throttle, None);
        }
        if exchange.at < exchange.output.len() {
            return (Waiting::Send, None);
        }
        match &exchange.upload {
            Some(upload)
                if exchange.job.is_some()
                    && !upload.sender.is_full()
                    && !self.engine.expects_continue() =>
            {
                (Waiting::Body, Some(settings.body_timeout))
            }
            // The handler has limits of its own.
            _ => (Waiting::Handler, None),
        }
    }

    fn check_deadline(&mut self, exchange: &mut Exchange) -> Option<Next> {
        let (waiting, expired) = self.ctx.connections.state(self.slot, self.ctx.clock.now());
        if waiting != self.waits_for(exchange).0 {
            self.set_deadline(exchange);
            return None;
        }
        match waiting {
            Waiting::Body if expired => Some(self.refuse_exchange(exchange, STALLED)),
            Waiting::Send if expired && self.is_left_waiting() => Some(Next::Abort),
            _ => None,
        }
    }

    fn record_exchange(&self, log: &DeferredRecord, exchange: &Exchange, completion: Completion) {
        let unsent = (exchange.output.len() - exchange.at + self.stream.unsent()) as u64;
        let sent = exchange.sent.saturating_sub(unsent);
        let mut outcome = log.outcome.finish(sent, completion);
        if completion == Completion::Aborted && !exchange.is_begun {
            outcome.status = 0;
        }
        let outcome = outcome.or_client_closed();
        self.record(&log.request.as_request(), &log.telemetry, &outcome);
    }
}

impl Exchange {
    /// Adds bytes of the body to what is sent; true when they complete the stated length.
    fn frame(&mut self, bytes: &[u8]) -> bool {
        let Some(download) = &mut self.download else { return false };
        let bytes = match &mut download.framing {
            Framing::Known(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                &bytes[..taken]
            }
            Framing::Chunked | Framing::Close => bytes,
        };
        self.sent += bytes.len() as u64;
        if bytes.is_empty() {
            return false;
        }
        let chunked = matches!(download.framing, Framing::Chunked);
        if chunked {
            response::chunk_head(bytes.len(), &mut self.output);
        }
        self.output.extend_from_slice(bytes);
        if chunked {
            self.output.extend_from_slice(b"\r\n");
        }
        matches!(download.framing, Framing::Known(0))
    }
}
