//! Starts of exchanges and of responses.

use std::rc::Rc;

use dunlin_http::http2::ResponseHead;
use dunlin_http::semantics::{Method, expect};
use dunlin_http::{BodyLength, Head, Request, RequestError};

use super::super::INLINE_BODY;
use super::super::exchange::{
    CachedParts, ConnectionView, Exchange, ResponseBody, Started, StartedResponse, TOO_LARGE,
    begin, deferred_record, reject, start, start_response,
};
use super::message::MessageHead;
use super::stream::{Sending, Stream};
use super::{Connection, Link, Parts};
use crate::clock;
use crate::exchange::{Body, Piece, RequestContext, Response};
use crate::route::dispatch::dispatch_client;
use crate::route::reply::{CachedResponse, Direction, Reply};
use crate::worker::{OutputRange, ResponseOutcome};
use dunlin_fs::content::StoredContent;

impl Connection {
    /// Starts the exchange of the request in the worker's buffers.
    pub(super) fn request(
        &mut self,
        link: &mut Link<'_>,
        id: u32,
        length: Option<u64>,
        has_ended: bool,
        parts: &mut Parts<'_>,
    ) {
        let Parts { out, head, text, path } = parts;
        let request = Request::new(text, head);
        let expects_continue = match expect::wants_continue(&request) {
            Ok(expects) => expects && !has_ended && length != Some(0),
            Err(error) => return self.reject_request(link, id, error, &request, out),
        };
        let connection = (link.peer, &mut *link.stream);
        let routed = match dispatch_client(link.ctx, connection, &request, path) {
            Ok(routed) => routed,
            Err(error) => return self.reject_request(link, id, error, &request, out),
        };
        if routed.direction == Direction::Ended {
            self.drain(link.ctx.clock.now(), out);
        }
        let ctx = link.ctx;
        let (connection, arrival) = link.arrival(self.read_times);
        let started = start(ctx, &request, &connection, routed, Some(arrival));
        let Started { reply, context, body_limit, reads_body } = started;
        if length.is_some_and(|length| length > body_limit) {
            return self.reject(link, id, TOO_LARGE, (&request, context), out);
        }
        let (now, is_head) = (link.ctx.clock.now(), request.method() == Method::Head);
        let reply = match reply {
            Reply::Cached(cached) => {
                return self.send_cached(link, id, cached, (&request, context), out);
            }
            reply => reply,
        };
        let log = deferred_record(&request, context);
        let mut exchange = match reply {
            Reply::Response(response) if !reads_body || has_ended => {
                let stream = Stream::new(id, now, Exchange::new(log, is_head));
                return self.respond(link, stream, *response, out);
            }
            Reply::Response(response) => Exchange::with_response(*response, log, is_head),
            Reply::Future(future) => Exchange::with_future(future, log, is_head),
            Reply::Streaming(begin) => {
                let Ok(ends) = link.ends() else {
                    self.is_over = true;
                    return;
                };
                let length = match (has_ended, length) {
                    (true, _) => BodyLength::None,
                    (false, length) => length.map_or(BodyLength::Chunked, BodyLength::Known),
                };
                let connection = ConnectionView {
                    ends,
                    encrypted: link.stream.is_encrypted(),
                    tls: link.stream.tls(),
                    has_interim_responses: true,
                };
                let body = (length, body_limit, now);
                Exchange::with_streaming_handler(begin, body, connection, log, is_head)
            }
            Reply::Cached(_) => return,
        };
        if !has_ended && exchange.request_body.is_none() {
            exchange.discard_body(body_limit, now, reads_body);
        }
        let mut stream = Stream::new(id, now, exchange);
        stream.expects_continue = expects_continue;
        self.streams.insert(stream);
    }

    /// Rejects a request whose head was not kept.
    pub(super) fn reject_unread(
        &mut self,
        link: &mut Link<'_>,
        id: u32,
        error: RequestError,
        parts: &mut Parts<'_>,
    ) {
        let head = Head::default();
        let request = Request::new(b"", &head);
        self.reject_request(link, id, error, &request, parts.out);
    }

    /// Rejects a request that was not routed.
    fn reject_request(
        &mut self,
        link: &mut Link<'_>,
        id: u32,
        error: RequestError,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) {
        let ctx = link.ctx;
        let (connection, arrival) = link.arrival(self.read_times);
        let context = begin(ctx, request, &connection, None, arrival);
        self.reject(link, id, error, (request, context), out);
    }

    /// Responds with an error.
    fn reject(
        &mut self,
        link: &Link<'_>,
        id: u32,
        error: RequestError,
        (request, context): (&Request<'_>, Option<Rc<RequestContext>>),
        out: &mut Vec<u8>,
    ) {
        let is_head = request.method() == Method::Head;
        let response = reject(link.ctx, link.peer, &error, Some(request), is_head);
        let exchange = Exchange::new(deferred_record(request, context), is_head);
        self.respond(link, Stream::new(id, link.ctx.clock.now(), exchange), response, out);
    }

    /// Sends a cached response.
    #[inline]
    fn send_cached(
        &mut self,
        link: &Link<'_>,
        id: u32,
        cached: CachedResponse,
        (request, context): (&Request<'_>, Option<Rc<RequestContext>>),
        out: &mut Vec<u8>,
    ) {
        let method = request.method();
        let start = self.position(out);
        let short = cached.prebuilt(INLINE_BODY).map(|prebuilt| prebuilt.sent(method).len());
        let pacer =
            context.as_ref().and_then(|context| context.pacer(&mut self.pace, short, clock::now));
        let CachedParts { status, lines, serial, body, length, mut outcome } =
            CachedParts::new(&cached, method);
        self.send_head(link, id, status, lines, serial, body.is_none(), out);
        let stored = match body {
            Some(StoredContent::Memory(bytes))
                if pacer.is_none() && self.engine.send_whole(id, bytes, out) =>
            {
                None
            }
            body => body,
        };
        let Some(stored) = stored else {
            outcome.bytes = length;
            return self.record_sent(start, (request, context), outcome, out);
        };
        let mut log = deferred_record(request, context);
        if let Some(log) = &mut log {
            log.context.begin_response();
            log.outcome = outcome;
        }
        let mut body = Body::default();
        body.push(Piece::of(stored, 0..length));
        let exchange = Exchange::new(log, method == Method::Head);
        let mut stream = Stream::new(id, link.ctx.clock.now(), exchange);
        stream.pacer = pacer;
        stream.start = start;
        self.send_pieces(stream, body);
    }

    /// Records a response that is complete in `out`, once it was sent.
    fn record_sent(
        &mut self,
        start: i64,
        (request, context): (&Request<'_>, Option<Rc<RequestContext>>),
        outcome: ResponseOutcome,
        out: &[u8],
    ) {
        if let Some(context) = context {
            let range = OutputRange { start, end: self.position(out), body: outcome.bytes };
            self.pending.record(range, request, context, outcome);
        }
    }

    /// Sends the response of a handler, or starts to.
    pub(super) fn respond(
        &mut self,
        link: &Link<'_>,
        mut stream: Stream,
        response: Response,
        out: &mut Vec<u8>,
    ) {
        let log = stream.exchange.log.as_deref_mut();
        let is_head = stream.exchange.is_head;
        let started = start_response(link.ctx, response, is_head, log, &mut self.pace);
        let StartedResponse { status, fields, body, pacer } = started;
        stream.pacer = pacer;
        if let ResponseBody::Message(source) = body {
            stream.sending = Sending::Message { source, head: MessageHead::default() };
            return self.streams.insert(stream);
        }
        stream.start = self.position(out);
        let has_ended = matches!(body, ResponseBody::None);
        self.send_head(link, stream.id, status, fields.as_bytes(), 0, has_ended, out);
        match body {
            ResponseBody::Stream { body, .. } => {
                let (chunk, is_at_end) = (bytes::Bytes::new(), false);
                stream.sending = Sending::Stream { body, chunk, is_at_end };
                self.streams.insert(stream);
            }
            ResponseBody::Pieces(body) => {
                let whole = body.as_memory().filter(|bytes| {
                    stream.pacer.is_none() && self.engine.send_whole(stream.id, bytes, out)
                });
                let Some(bytes) = whole else { return self.send_pieces(stream, body) };
                stream.note_sent(bytes.len(), self.flushes);
                self.finish_stream(stream, out);
            }
            ResponseBody::None | ResponseBody::Message(_) => self.finish_stream(stream, out),
        }
    }

    /// Sends a body as the client's window and the priorities allow.
    fn send_pieces(&mut self, mut stream: Stream, body: Body) {
        self.engine.set_ready(stream.id, stream.may_send());
        stream.sending = Sending::Pieces { body, warming: None };
        self.streams.insert(stream);
    }

    #[expect(clippy::too_many_arguments, reason = "all of a head's parts")]
    #[inline]
    pub(super) fn send_head(
        &mut self,
        link: &Link<'_>,
        id: u32,
        status: u16,
        lines: &[u8],
        serial: u64,
        has_ended: bool,
        out: &mut Vec<u8>,
    ) {
        link.ctx.clock.with_date_line(|line| {
            let date = line.strip_prefix(b"Date: ").unwrap_or_default().trim_ascii_end();
            let head = ResponseHead { status, date, lines, serial };
            self.engine.respond(id, &head, has_ended, out)
        });
    }
}
