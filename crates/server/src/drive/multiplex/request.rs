//! Starts of exchanges and of responses.

use std::ops::Deref;
use std::rc::Rc;

use dunlin_exchange::{Body, RequestContext, Response};
use dunlin_fs::content::Piece;
use dunlin_http::http2::OutgoingHead;
use dunlin_http::semantics::{Method, expect};
use dunlin_http::{BodyLength, FieldLines, Request, RequestError};

use super::super::INLINE_BODY;
use super::super::exchange::{
    BodyWriter, CachedParts, ConnectionView, Exchange, Rejected, RequestContent, ResponseBody,
    Started, StartedResponse, TOO_LARGE, deferred_record, start_response,
};
use super::message_head::MessageHead;
use super::stream::{Stream, StreamSending};
use super::{Multiplexer, Protocol, StreamId};
use crate::handler::rejection::error_response;
use crate::route::fast_path::{FastPath, FastResponse, fast_path};
use crate::route::reply::{CachedResponse, Direction, Reply, Routed};
use crate::route::sites::CacheEntry;
use crate::worker::{CountedResponse, OutputRange, ResponseOutcome};
use dunlin_fs::content::StoredContent;
use dunlin_limits::bandwidth::Pacer;

/// A request whose head was received.
pub(in super::super) struct RequestStart<'a> {
    pub(in super::super) request: Request<'a>,
    /// The length of the body that the head states.
    pub(in super::super) length: Option<u64>,
    /// There is no body.
    pub(in super::super) has_ended: bool,
}

/// The length of a body as the head of its request states it.
struct BodyStart {
    /// `None` if it is not stated.
    length: Option<u64>,
    has_ended: bool,
    expects_continue: bool,
}

impl<P: Protocol> Multiplexer<P> {
    /// Starts the exchange of a request. `path` is a buffer.
    pub(in super::super) fn begin(
        &mut self,
        id: StreamId,
        start: &RequestStart<'_>,
        path: &mut Vec<u8>,
        out: &mut P::Output,
    ) {
        let RequestStart { request, length, has_ended } = *start;
        self.link.requests += 1;
        let expects_continue = match expect::wants_continue(&request) {
            Ok(expects) => expects && !has_ended && length != Some(0),
            Err(error) => return self.reject(id, error, &request, out),
        };
        let body = BodyStart { length, has_ended, expects_continue };
        if has_ended {
            let ctx = Rc::clone(&self.link.ctx);
            let worker_cache = ctx.files.cache.borrow();
            let client = self.link.client();
            match fast_path(&ctx, &worker_cache, client, &request, INLINE_BODY) {
                Some(FastPath::Response(fast)) => {
                    return self.send_fast(id, &request, fast, out);
                }
                Some(FastPath::Routed(routed)) => {
                    return self.start(id, (&request, *routed), body, out);
                }
                None => {}
            }
        }
        match self.link.dispatch(self.protocol.carrier(), &request, path) {
            Ok(routed) => self.start(id, (&request, routed), body, out),
            Err(error) => self.reject(id, error, &request, out),
        }
    }

    /// Starts the exchange of a routed request.
    fn start(
        &mut self,
        id: StreamId,
        (request, routed): (&Request<'_>, Routed),
        body: BodyStart,
        out: &mut P::Output,
    ) {
        let BodyStart { length, has_ended, expects_continue } = body;
        if routed.direction == Direction::Ended {
            self.protocol.drain(self.link.ctx.clock.now(), out);
        }
        let started = self.link.start(request, routed, true);
        let Started { reply, context, body_limit, reads_body } = started;
        if length.is_some_and(|length| length > body_limit) {
            return self.reject_begun(id, TOO_LARGE, (request, context), out);
        }
        let (now, is_head) = (self.link.ctx.clock.now(), request.method() == Method::Head);
        let reply = match reply {
            Reply::Cached(cached) => {
                let pacer = self.link.pacer(context.as_deref(), &cached, request.method());
                return self.send_cached(id, cached, (request, context, pacer), out);
            }
            reply => reply,
        };
        let log = deferred_record(request, context);
        let is_tunnel = request.method() == Method::ExtendedConnect;
        let mut exchange = match reply {
            Reply::Response(response) if !reads_body || has_ended => {
                let mut stream = Stream::new(id, now, Exchange::new(log, is_head));
                stream.is_tunnel = is_tunnel;
                return self.respond(stream, *response, out);
            }
            Reply::Response(response) => Exchange::with_response(*response, log, is_head),
            Reply::Future(future) => Exchange::with_future(future, log, is_head),
            Reply::Streaming(begin) => {
                let Ok(ends) = self.link.ends(self.protocol.carrier()) else {
                    self.is_lost = true;
                    return;
                };
                let content = match (has_ended, length) {
                    _ if is_tunnel => RequestContent::Tunnel,
                    (true, _) => RequestContent::Body(BodyLength::None),
                    (false, None) => RequestContent::Body(BodyLength::Chunked),
                    (false, Some(length)) => RequestContent::Body(BodyLength::Known(length)),
                };
                let connection =
                    ConnectionView { ends, facts: &self.link.facts, has_interim_responses: true };
                let body = (content, body_limit, now);
                Exchange::with_streaming_handler(begin, body, connection, log, is_head)
            }
            Reply::Cached(_) => return,
        };
        if is_tunnel && has_ended {
            exchange.end_body(FieldLines::default());
        }
        if !has_ended && exchange.request_body.is_none() {
            exchange.discard_body(body_limit, now, reads_body);
        }
        let mut stream = Stream::new(id, now, exchange);
        stream.expects_continue = expects_continue;
        stream.is_tunnel = is_tunnel;
        self.streams.insert(stream);
    }

    /// Records a malformed request, whose stream was reset.
    pub(in super::super) fn record_malformed(&mut self, request: &Request<'_>) {
        self.link.requests += 1;
        if let Some(context) = self.link.begin(request) {
            let outcome = ResponseOutcome { status: MALFORMED, ..ResponseOutcome::NONE };
            self.link.ctx.record(request, &self.link.facts, &context, &outcome);
        }
    }

    /// Rejects a request that was not routed.
    pub(in super::super) fn reject(
        &mut self,
        id: StreamId,
        error: RequestError,
        request: &Request<'_>,
        out: &mut P::Output,
    ) {
        let context = self.link.begin(request);
        self.reject_begun(id, error, (request, context), out);
    }

    /// Rejects a request whose context was prepared.
    fn reject_begun(
        &mut self,
        id: StreamId,
        error: RequestError,
        (request, context): (&Request<'_>, Option<Rc<RequestContext>>),
        out: &mut P::Output,
    ) {
        let is_head = request.method() == Method::Head;
        let rejected = self.link.reject(
            self.protocol.carrier(),
            &error,
            Some(request),
            context.as_ref(),
            is_head,
        );
        let exchange = Exchange::new(deferred_record(request, context), is_head);
        let stream = Stream::new(id, self.link.ctx.clock.now(), exchange);
        self.respond_rejected(stream, rejected, out);
    }

    /// Sends the response to a rejected request, now or later.
    pub(super) fn respond_rejected(
        &mut self,
        mut stream: Stream,
        rejected: Rejected,
        out: &mut P::Output,
    ) {
        match rejected {
            Rejected::Now(response) => self.respond(stream, response, out),
            Rejected::Later(page) => {
                let Exchange { log, is_head, .. } = stream.exchange;
                stream.exchange = Exchange::with_future(page, log, is_head);
                self.streams.insert(stream);
            }
        }
    }

    /// Sends a response of the fast path. If it is only counted and the client's windows allow all of it, it needs no
    /// context.
    #[inline]
    fn send_fast(
        &mut self,
        id: StreamId,
        request: &Request<'_>,
        fast: FastResponse<'_>,
        out: &mut P::Output,
    ) {
        let FastResponse { cached, site, context } = fast;
        let pacer = self.link.pacer(context.as_deref(), &cached, request.method());
        let settings = &cached.entry.route;
        if pacer.is_none()
            && !self.link.ctx.needs_records()
            && let Some(prebuilt) = cached.prebuilt(INLINE_BODY)
            && prebuilt.sent(request.method()).len() <= self.protocol.allowance(id)
        {
            self.link.connection_start = None;
            let (start, body) = (self.protocol.position(out), prebuilt.sent(request.method()));
            let form = &cached.entry.resource.identity;
            let lines = &form.block[..form.head_length];
            self.send_head(id, (200, false), lines, form.serial, body.is_empty(), out);
            if !body.is_empty() {
                self.protocol.send_whole(id, body, out);
            }
            if self.link.ctx.shared.is_counting {
                let bytes = body.len() as u64;
                let client = || self.link.client();
                let counted = CountedResponse::new(
                    request,
                    (settings.label, bytes),
                    self.link.read_times,
                    context.as_deref(),
                    client,
                );
                let range = OutputRange { start, end: self.protocol.position(out), body: bytes };
                self.pending.count(range, counted);
            }
            return;
        }
        let context = self.link.begin_fast(request, (site, settings), context);
        self.send_cached(id, cached, (request, context, pacer), out);
    }

    /// Sends a cached response.
    #[inline]
    fn send_cached<H: Deref<Target = CacheEntry>>(
        &mut self,
        id: StreamId,
        cached: CachedResponse<H>,
        (request, context, pacer): (&Request<'_>, Option<Rc<RequestContext>>, Option<Pacer>),
        out: &mut P::Output,
    ) {
        let method = request.method();
        let start = self.protocol.position(out);
        let CachedParts { status, lines, serial, body, length, mut outcome } =
            CachedParts::new(&cached, method);
        self.send_head(id, (status, false), lines, serial, body.is_none(), out);
        let stored = match body {
            Some(StoredContent::Memory(bytes))
                if pacer.is_none() && self.protocol.send_whole(id, bytes, out) =>
            {
                None
            }
            body => body,
        };
        let Some(stored) = stored else {
            outcome.bytes = length;
            return self.record_when_sent(start, (request, context), outcome, out);
        };
        let mut log = deferred_record(request, context);
        if let Some(log) = &mut log {
            log.context.begin_response();
            log.outcome = outcome;
        }
        let mut body = Body::default();
        body.push(Piece::of(stored, 0..length));
        let exchange = Exchange::new(log, method == Method::Head);
        let mut stream = Stream::new(id, self.link.ctx.clock.now(), exchange);
        stream.start = start;
        self.send_pieces(stream, body, pacer);
    }

    /// Records a response that is complete in `out`, once it was sent.
    fn record_when_sent(
        &mut self,
        start: i64,
        (request, context): (&Request<'_>, Option<Rc<RequestContext>>),
        outcome: ResponseOutcome,
        out: &P::Output,
    ) {
        if let Some(context) = context {
            let range =
                OutputRange { start, end: self.protocol.position(out), body: outcome.bytes };
            self.pending.record(range, request, context, outcome);
        }
    }

    /// Sends the response of a handler, or starts to.
    pub(super) fn respond(
        &mut self,
        mut stream: Stream,
        mut response: Response,
        out: &mut P::Output,
    ) {
        if stream.is_tunnel {
            if response.status == 101 {
                stream.begin_tunnel(&self.link.ctx.metrics);
            }
            response = tunnel_response(response);
        }
        let log = stream.exchange.log.as_deref_mut();
        let is_head = stream.exchange.is_head;
        let started = start_response(&self.link.ctx, response, is_head, log, &mut self.link.pace);
        let StartedResponse { status, fields, has_date, body, pacer } = started;
        if let ResponseBody::Message(source) = body {
            stream.sending = StreamSending::Message { source, head: MessageHead::default(), pacer };
            return self.streams.insert(stream);
        }
        stream.start = self.protocol.position(out);
        let has_ended = matches!(body, ResponseBody::None);
        let head = (status, has_date);
        self.send_head(stream.id, head, fields.as_bytes(), 0, has_ended, out);
        match body {
            ResponseBody::Stream { body, .. } => {
                stream.sending = StreamSending::Body(BodyWriter::stream(body, pacer));
                self.streams.insert(stream);
            }
            ResponseBody::Pieces(body) => {
                let whole = body.as_memory().filter(|bytes| {
                    pacer.is_none() && self.protocol.send_whole(stream.id, bytes, out)
                });
                let Some(bytes) = whole else { return self.send_pieces(stream, body, pacer) };
                stream.note_sent(bytes.len(), self.protocol.flushes());
                self.finish_stream(stream, out);
            }
            ResponseBody::None | ResponseBody::Message(_) => self.finish_stream(stream, out),
        }
    }

    /// Sends a body as the client's window and the priorities allow.
    fn send_pieces(&mut self, mut stream: Stream, body: Body, pacer: Option<Pacer>) {
        stream.sending = StreamSending::Body(BodyWriter::pieces(body, pacer));
        self.protocol.set_ready(stream.id, stream.has_bytes());
        self.streams.insert(stream);
    }

    /// Sends the status and the lines, with `Date` unless they have one.
    #[inline]
    pub(super) fn send_head(
        &mut self,
        id: StreamId,
        (status, has_date): (u16, bool),
        lines: &[u8],
        serial: u64,
        has_ended: bool,
        out: &mut P::Output,
    ) {
        if has_date {
            let head = OutgoingHead { status, date: b"", lines, serial };
            self.protocol.respond(id, &head, has_ended, out);
            return;
        }
        self.link.ctx.clock.with_date_line(|line| {
            let date = line.strip_prefix(b"Date: ").unwrap_or_default().trim_ascii_end();
            let head = OutgoingHead { status, date, lines, serial };
            self.protocol.respond(id, &head, has_ended, out);
        });
    }
}

/// Status of a malformed request in its record: that of the response over HTTP/1.
const MALFORMED: u16 = 400;

/// Returns the response to an extended CONNECT. A successful one means that the stream is a tunnel (RFC 8441 §5), which only
/// a handler that has switched protocols provides.
fn tunnel_response(mut response: Response) -> Response {
    match response.status {
        101 => {
            response.fields.remove("Upgrade");
            Response { status: 200, ..response }
        }
        200..300 => error_response(501, true),
        _ => response,
    }
}
