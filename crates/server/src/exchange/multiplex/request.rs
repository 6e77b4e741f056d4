//! Starts of exchanges and of responses.

use std::ops::Deref;
use std::rc::Rc;

use dunlin_exchange::Response;
use dunlin_http::http2::OutgoingHead;
use dunlin_http::semantics::{Method, expect};
use dunlin_http::{BodyLength, Request, RequestError};

use super::super::{
    Begun, CachedReply, Exchange, Fast, INLINE_BODY, PlanBody, ReadyResponse, RequestContent,
    ResponsePlan,
};
use super::message_head::MessageHead;
use super::stream::{Stream, StreamSending};
use super::{Cancel, Multiplexer, Protocol, StreamId};
use crate::handler::rejection::error_response;
use crate::route::fast_path::{FastPath, FastResponse, fast_path};
use crate::route::reply::{Direction, Routed};
use crate::route::sites::CacheEntry;
use crate::worker::{OutputRange, ResponseOutcome};

/// A request whose head was received.
pub(crate) struct RequestStart<'a> {
    pub(crate) request: Request<'a>,
    /// The length of the body that the head states.
    pub(crate) length: Option<u64>,
    /// There is no body.
    pub(crate) has_ended: bool,
}

impl<P: Protocol> Multiplexer<P> {
    /// Starts the exchange of a request. `path` is a buffer.
    pub(crate) fn begin(
        &mut self,
        id: StreamId,
        start: &RequestStart<'_>,
        path: &mut Vec<u8>,
        out: &mut P::Output,
    ) {
        let RequestStart { request, length, has_ended } = *start;
        self.link.requests += 1;
        self.is_at_rest = false;
        let expects_continue = match expect::wants_continue(&request) {
            Ok(expects) => expects && !has_ended && length != Some(0),
            Err(error) => return self.reject(id, error, &request, out),
        };
        let length = match (has_ended, length) {
            (true, _) => BodyLength::None,
            (false, length) => length.map_or(BodyLength::Chunked, BodyLength::Known),
        };
        if has_ended {
            let ctx = Rc::clone(&self.link.ctx);
            let worker_cache = ctx.files.cache.borrow();
            let client = self.link.client();
            match fast_path(&ctx, &worker_cache, client, &request, INLINE_BODY) {
                Some(FastPath::Response(fast)) => {
                    return self.send_fast(id, &request, fast, out);
                }
                Some(FastPath::Routed(routed)) => {
                    return self.start(id, (&request, *routed), (length, expects_continue), out);
                }
                None => {}
            }
        }
        match self.link.dispatch(self.protocol.carrier(), &request, path) {
            Ok(routed) => self.start(id, (&request, routed), (length, expects_continue), out),
            Err(error) => self.reject(id, error, &request, out),
        }
    }

    /// Starts the exchange of a routed request.
    fn start(
        &mut self,
        id: StreamId,
        (request, routed): (&Request<'_>, Routed),
        (length, expects_continue): (BodyLength, bool),
        out: &mut P::Output,
    ) {
        if routed.direction == Direction::Ended {
            self.protocol.drain(self.link.now(), out);
        }
        let is_tunnel = request.method() == Method::ExtendedConnect;
        let content = RequestContent { length, is_tunnel };
        match self.link.start(self.protocol.carrier(), (request, routed), content, true) {
            Begun::Cached(cached, _) => self.send_cached(id, cached, request, out),
            Begun::Ready(ReadyResponse { response, is_head, log }, _) => {
                let mut stream = Stream::new(id, self.link.now(), Exchange::new(log, is_head));
                stream.is_tunnel = is_tunnel;
                self.respond(stream, *response, out);
            }
            Begun::Exchange(exchange) => {
                let mut stream = Stream::new(id, self.link.now(), exchange);
                (stream.expects_continue, stream.is_tunnel) = (expects_continue, is_tunnel);
                self.streams.insert(stream);
            }
            Begun::Rejected(exchange) => {
                self.begin_rejected(Stream::new(id, self.link.now(), exchange), out);
            }
            Begun::Lost => self.is_lost = true,
        }
    }

    /// Sends the response to a rejected request, now or later.
    pub(super) fn begin_rejected(&mut self, mut stream: Stream, out: &mut P::Output) {
        match stream.exchange.take_response() {
            Some(response) => self.respond(stream, response, out),
            None => self.streams.insert(stream),
        }
    }

    /// Records a malformed request, whose stream was reset.
    pub(crate) fn record_malformed(&mut self, request: &Request<'_>) {
        self.link.requests += 1;
        if let Some(context) = self.link.begin(request, None) {
            let outcome = ResponseOutcome { status: MALFORMED, ..ResponseOutcome::NONE };
            self.link.ctx.record(request, &self.link.facts, &context, &outcome);
        }
    }

    /// Rejects a request that was not routed.
    pub(crate) fn reject(
        &mut self,
        id: StreamId,
        error: RequestError,
        request: &Request<'_>,
        out: &mut P::Output,
    ) {
        let context = self.link.begin(request, None);
        let exchange = self.link.reject(self.protocol.carrier(), error, request, context);
        self.begin_rejected(Stream::new(id, self.link.now(), exchange), out);
    }

    /// Sends a response of the fast path.
    #[inline]
    fn send_fast(
        &mut self,
        id: StreamId,
        request: &Request<'_>,
        fast: FastResponse<'_>,
        out: &mut P::Output,
    ) {
        let protocol = &mut self.protocol;
        let fits = |body: &[u8]| body.len() <= protocol.allowance(id);
        let (entry, prebuilt, context) = match self.link.start_fast(request, fast, fits) {
            Fast::Prebuilt(entry, prebuilt, context) => (entry, prebuilt, context),
            Fast::Cached(cached) => return self.send_cached(id, cached, request, out),
        };
        let (start, body) = (self.protocol.position(out), prebuilt.sent(request.method()));
        let form = &entry.resource.identity;
        let lines = &form.block[..form.head_length];
        self.send_head(id, (200, false), lines, form.serial, body.is_empty(), out);
        if !body.is_empty() {
            self.protocol.send_whole(id, body, out);
        }
        let (end, body) = (self.protocol.position(out), body.len() as u64);
        let range = OutputRange { start, end, body };
        self.link.count(&mut self.pending, range, request, (entry, context.as_deref()));
    }

    /// Sends a cached response.
    #[inline]
    fn send_cached<H: Deref<Target = CacheEntry>>(
        &mut self,
        id: StreamId,
        mut cached: CachedReply<H>,
        request: &Request<'_>,
        out: &mut P::Output,
    ) {
        let start = self.protocol.position(out);
        let (plan, record) = cached.plan(request);
        if let Some(bytes) = self.send_plan(id, &plan, out) {
            let (end, body) = (self.protocol.position(out), bytes as u64);
            return record.settle(&mut self.pending, OutputRange { start, end, body });
        }
        let exchange = Exchange::new(record.defer(), request.method() == Method::Head);
        let mut stream = Stream::new(id, self.link.now(), exchange);
        stream.start = start;
        self.send_body(stream, plan);
    }

    /// Sends the response of a handler, or starts to.
    pub(super) fn respond(
        &mut self,
        mut stream: Stream,
        mut response: Response,
        out: &mut P::Output,
    ) {
        if response.is_withheld {
            return self.withhold(stream, response.status, out);
        }
        if stream.is_tunnel {
            if response.status == 101 {
                stream.exchange.begin_tunnel(&self.link.ctx.metrics);
            }
            response = tunnel_response(response);
        }
        let Exchange { is_head, log, .. } = &mut stream.exchange;
        let plan = self.link.plan(response, *is_head, log.as_deref_mut());
        if let PlanBody::Message(source) = plan.body {
            let (head, pacer) = (MessageHead::default(), plan.pacer);
            stream.sending = StreamSending::Message { source, head, pacer };
            return self.streams.insert(stream);
        }
        self.send(stream, plan, out);
    }

    /// Sends a response, or starts to.
    pub(super) fn send(&mut self, mut stream: Stream, plan: ResponsePlan<'_>, out: &mut P::Output) {
        stream.start = self.protocol.position(out);
        match self.send_plan(stream.id, &plan, out) {
            Some(bytes) => {
                stream.note_sent(bytes, self.protocol.flushes());
                self.finish_stream(stream, out);
            }
            None => self.send_body(stream, plan),
        }
    }

    /// Resets a stream without a response. `status` is that of the record.
    fn withhold(&mut self, mut stream: Stream, status: u16, out: &mut P::Output) {
        if let Some(log) = &mut stream.exchange.log {
            log.outcome = ResponseOutcome { status, ..ResponseOutcome::NONE };
        }
        stream.release_window(&mut self.protocol, out);
        stream.exchange.abort();
        stream.start = self.protocol.position(out);
        self.protocol.cancel(stream.id, Cancel::Stopped, out);
        self.finish_stream(stream, out);
    }

    /// Sends the head of a response, and its body if that is in memory and the client's windows allow all of it. Returns the
    /// length of the body, or `None` if it is to be sent.
    #[inline]
    fn send_plan(
        &mut self,
        id: StreamId,
        plan: &ResponsePlan<'_>,
        out: &mut P::Output,
    ) -> Option<usize> {
        let has_ended = matches!(plan.body, PlanBody::None);
        let head = (plan.status, plan.has_date);
        self.send_head(id, head, plan.lines.as_bytes(), plan.serial, has_ended, out);
        let bytes = plan.body.as_memory().filter(|_| plan.pacer.is_none() || has_ended)?;
        let is_sent = has_ended || self.protocol.send_whole(id, bytes, out);
        is_sent.then_some(bytes.len())
    }

    /// Sends a body as the client's windows and the priorities allow.
    fn send_body(&mut self, mut stream: Stream, plan: ResponsePlan<'_>) {
        let is_stream = matches!(plan.body, PlanBody::Stream { .. });
        stream.sending = StreamSending::Body(plan.body.into_writer(plan.pacer));
        if !is_stream {
            self.protocol.set_ready(stream.id, stream.has_bytes());
        }
        self.streams.insert(stream);
    }

    /// Sends the status and the lines, with `Date` unless they have one.
    #[inline]
    fn send_head(
        &mut self,
        id: StreamId,
        (status, has_date): (u16, bool),
        lines: &[u8],
        serial: u64,
        has_ended: bool,
        out: &mut P::Output,
    ) {
        if let Some(line) = self.link.alternative.take() {
            let lines = [line.as_bytes(), lines].concat();
            return self.send_head(id, (status, has_date), &lines, 0, has_ended, out);
        }
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
