//! Responds to one request: the reply of the router becomes bytes, now or later.

use std::ops::Deref;
use std::rc::Rc;

use dunlin_config::Persistence as ConnectionMode;
use dunlin_exchange::{RequestBody, Response};
use dunlin_files::cache::worker_cache::Prebuilt;
use dunlin_http::http1::{Persistence, response};
use dunlin_http::semantics::Method;
use dunlin_http::{Head, Request, RequestError, Version};

use super::sending::LastResponse;
use super::{Http1Driver, Next, Parts};
use crate::exchange::{
    Begun, CachedReply, Exchange, Fast, INLINE_BODY, PlannedRecord, ReadyResponse, RequestContent,
    ResponsePlan, deferred_record,
};
use crate::handler::admin;
use crate::route::fast_path::{FastPath, FastResponse, fast_path};
use crate::route::reply::{Direction, Routed};
use crate::route::sites::CacheEntry;
use crate::worker::{DeferredRecord, Output, OutputRange, ResponseOutcome};

impl Http1Driver {
    /// Responds to one request. Returns `None` if the response was added to the output and the next request can be
    /// processed.
    pub(super) fn respond_to(&mut self, bytes: &[u8], parts: &mut Parts<'_>) -> Option<Next> {
        let Parts { output, head, path } = parts;
        let request = Request::new(bytes, head);
        self.link.requests += 1;
        self.decide_persistence(&request);
        if self.is_admin {
            let routed = admin::respond(&self.link.ctx, &request);
            return self.reply(&request, routed, output);
        }
        let client = self.link.client();
        if !self.engine.has_body() {
            let ctx = Rc::clone(&self.link.ctx);
            let worker_cache = ctx.files.cache.borrow();
            match fast_path(&ctx, &worker_cache, client, &request, INLINE_BODY) {
                Some(FastPath::Response(fast)) => {
                    return self.send_fast(&request, fast, output);
                }
                Some(FastPath::Routed(routed)) => {
                    return self.reply(&request, *routed, output);
                }
                None => {}
            }
        }
        match self.link.dispatch(&mut self.stream, &request, path) {
            Ok(routed) => self.reply(&request, routed, output),
            Err(error) => Some(self.reject(error, &request, output)),
        }
    }

    /// Sends a response of the fast path.
    #[inline]
    fn send_fast(
        &mut self,
        request: &Request<'_>,
        fast: FastResponse<'_>,
        output: &mut Output,
    ) -> Option<Next> {
        match self.link.start_fast(request, fast, |_| true) {
            Fast::Prebuilt(entry, prebuilt, context) => {
                let range = self.send_prebuilt(request.method(), prebuilt, &mut output.bytes);
                let counted = (entry, context.as_deref());
                self.link.count(&mut output.pending, range, request, counted);
                self.after_response(output)
            }
            Fast::Cached(cached) => self.send_cached(request, cached, output),
        }
    }

    pub(super) fn decide_persistence(&mut self, request: &Request<'_>) {
        let settings = &self.link.ctx.http1;
        let is_requested = self.engine.persistence() == Persistence::Close;
        let is_last = settings.requests != 0 && self.link.requests >= settings.requests;
        if settings.persistence == ConnectionMode::Close || is_last || self.link.ctx.is_draining() {
            self.engine.close();
            // A client that has not requested the close may have sent more.
            self.linger = !is_requested;
        }
        if request.method() == Method::Connect {
            self.end_requests();
        }
    }

    /// Makes the present request the last one, although the client may have sent more.
    pub(super) fn end_requests(&mut self) {
        self.engine.close();
        self.linger = true;
    }

    fn reply(
        &mut self,
        request: &Request<'_>,
        routed: Routed,
        output: &mut Output,
    ) -> Option<Next> {
        if routed.direction == Direction::Ended {
            self.end_requests();
        }
        let content = RequestContent { length: self.engine.body_length(), is_tunnel: false };
        // Commands to the server are not recorded.
        let is_recorded = !self.is_admin;
        match self.link.start(&self.stream, (request, routed), content, is_recorded) {
            Begun::Cached(cached, rest) => {
                self.discard_rest(rest);
                self.send_cached(request, cached, output)
            }
            Begun::Ready(ReadyResponse { response, is_head, log }, rest) => {
                self.discard_rest(rest);
                self.send_response(*response, is_head, log, output)
            }
            Begun::Exchange(exchange) => self.begin(exchange, request.version(), output),
            Begun::Rejected(exchange) => {
                Some(self.send_rejection(exchange, request.version(), output))
            }
            Begun::Lost => Some(Next::Abort),
        }
    }

    /// Waits for the handler of an exchange, or for the request body. Sends the response of one that is rejected.
    fn begin(
        &mut self,
        mut exchange: Exchange,
        version: Version,
        output: &mut Output,
    ) -> Option<Next> {
        if let Some(response) = exchange.take_response() {
            return self.send_response(response, exchange.is_head, exchange.log, output);
        }
        if exchange.has_response() {
            if self.engine.expects_continue() {
                output.bytes.extend_from_slice(response::CONTINUE);
                self.engine.continue_sent();
            }
            self.body = Some(Box::new(exchange));
            return None;
        }
        if !exchange.is_reading() && self.engine.expects_continue() {
            self.end_requests();
        }
        Some(match self.flush_before(output) {
            Ok(before) => self.begin_handling(exchange, version, before),
            Err(next) => next,
        })
    }

    /// Discards the rest of the body of a request to which the response is sent.
    pub(super) fn discard_rest(&mut self, rest: Option<RequestBody>) {
        let Some(rest) = rest else { return };
        if self.engine.expects_continue() {
            // The client decides whether it sends the body after a final response, so that what follows could be read in two
            // ways.
            self.end_requests();
        } else if self.engine.persistence() != Persistence::Close {
            self.body = Some(Box::new(Exchange::for_rest(rest, self.link.now())));
        }
    }

    /// Sends earlier responses as far as the socket has room. Returns the rest, which precedes the next response.
    fn flush_before(&mut self, output: &mut Output) -> Result<Output, Next> {
        match self.flush_responses(output) {
            Next::Receive => Ok(Output::default()),
            Next::Send(sending) => Ok(sending.into_unsent()),
            next => Err(next),
        }
    }

    /// Responds with an error and ends the connection.
    fn reject(&mut self, error: RequestError, request: &Request<'_>, output: &mut Output) -> Next {
        let context = self.link.begin(request, None);
        let exchange = self.link.reject(&self.stream, error, request, context);
        self.send_rejection(exchange, request.version(), output)
    }

    /// Rejects a message whose head the engine does not accept. Its request line is recorded if that was accepted.
    pub(super) fn reject_head(
        &mut self,
        error: RequestError,
        message: &[u8],
        parts: &mut Parts<'_>,
    ) -> Next {
        if self.engine.has_read_head() {
            return self.reject_message(error, message, parts);
        }
        parts.head.clear_fields();
        self.reject_unread(error, &Request::new(message, parts.head), message, parts.output)
    }

    /// Rejects a message that the engine does not accept.
    pub(super) fn reject_message(
        &mut self,
        error: RequestError,
        message: &[u8],
        parts: &mut Parts<'_>,
    ) -> Next {
        let Parts { output, head, .. } = parts;
        if self.engine.has_read_head() {
            self.link.requests += 1;
            return self.reject(error, &Request::new(message, head), output);
        }
        self.reject_unread(error, &Request::new(b"", &Head::default()), message, output)
    }

    /// Rejects a message whose head was not read. `request` is what is recorded of it.
    fn reject_unread(
        &mut self,
        error: RequestError,
        request: &Request<'_>,
        message: &[u8],
        output: &mut Output,
    ) -> Next {
        // A client that requests a head would take a body for the next response.
        let is_head = message.starts_with(b"HEAD ");
        let mut exchange = self.link.rejected(&self.stream, error, None, None, is_head);
        exchange.log = deferred_record(request, self.link.begin(request, None));
        self.send_rejection(exchange, Version::Http11, output)
    }

    /// Sends the last response of the connection.
    pub(super) fn send_rejection(
        &mut self,
        exchange: Exchange,
        version: Version,
        output: &mut Output,
    ) -> Next {
        self.end_requests();
        self.body = None;
        self.begin(exchange, version, output).unwrap_or(Next::Close)
    }

    /// Sends a cached response.
    #[inline]
    fn send_cached<H: Deref<Target = CacheEntry>>(
        &mut self,
        request: &Request<'_>,
        mut cached: CachedReply<H>,
        output: &mut Output,
    ) -> Option<Next> {
        if let Some(prebuilt) = cached.prebuilt() {
            let range = self.send_prebuilt(request.method(), prebuilt, &mut output.bytes);
            cached.record(request).settle(&mut output.pending, range);
            return self.after_response(output);
        }
        let (plan, record) = cached.plan(request);
        self.send_plan(plan, record, output)
    }

    /// Adds a prebuilt response. Returns its range.
    #[inline]
    fn send_prebuilt(
        &mut self,
        method: Method,
        prebuilt: &Prebuilt,
        output: &mut Vec<u8>,
    ) -> OutputRange {
        let (start, body) = (output.len(), prebuilt.sent(method).len());
        self.begin_head(200, false, output);
        output.extend_from_slice(&prebuilt.block[..prebuilt.head_length() + body]);
        OutputRange::new(start, output.len(), body as u64)
    }

    /// Sends a response that is complete in memory or in files.
    pub(super) fn send_response(
        &mut self,
        response: Response,
        is_head: bool,
        mut log: Option<Box<DeferredRecord>>,
        output: &mut Output,
    ) -> Option<Next> {
        if response.is_withheld {
            return Some(self.close_without_response(response.status, log, output));
        }
        let plan = self.link.plan(response, is_head, log.as_deref_mut());
        self.send_plan(plan, log.map_or(PlannedRecord::None, PlannedRecord::Deferred), output)
    }

    fn send_plan(
        &mut self,
        plan: ResponsePlan<'_>,
        record: PlannedRecord<'_>,
        output: &mut Output,
    ) -> Option<Next> {
        let start = output.bytes.len();
        self.write_head(&plan, b"", &mut output.bytes);
        let inline = plan.body.as_memory().filter(|bytes| {
            bytes.len() <= INLINE_BODY && (plan.pacer.is_none() || bytes.is_empty())
        });
        if let Some(bytes) = inline {
            output.bytes.extend_from_slice(bytes);
            let range = OutputRange::new(start, output.bytes.len(), bytes.len() as u64);
            record.settle(&mut output.pending, range);
            return self.after_response(output);
        }
        let last = record.defer().map(|log| LastResponse { log, start: start as i64 });
        self.send_body(plan.body.into_pieces(), plan.pacer, last, output)
    }

    /// Adds the head of a response, with the field lines `more`.
    #[inline]
    pub(super) fn write_head(
        &mut self,
        plan: &ResponsePlan<'_>,
        more: &[u8],
        output: &mut Vec<u8>,
    ) {
        self.begin_head(plan.status, plan.has_date, output);
        output.extend_from_slice(plan.lines.as_bytes());
        output.extend_from_slice(more);
        output.extend_from_slice(b"\r\n");
    }

    /// Closes the connection behind the earlier responses. `status` is that of the record.
    fn close_without_response(
        &mut self,
        status: u16,
        log: Option<Box<DeferredRecord>>,
        output: &mut Output,
    ) -> Next {
        self.engine.close();
        (self.closing, self.linger, self.body) = (true, false, None);
        if let Some(mut log) = log {
            log.outcome = ResponseOutcome { status, ..ResponseOutcome::NONE };
            let end = output.bytes.len();
            output.pending.record_later(OutputRange::new(end, end, 0), log);
        }
        match self.flush_responses(output) {
            // What the client still sends is not received.
            Next::Close if self.engine.has_body() => Next::Abort,
            next => next,
        }
    }

    /// Adds the status line and the fields of each response: without `Date` if the response `has_date` among its own.
    #[inline]
    fn begin_head(&mut self, status: u16, has_date: bool, output: &mut Vec<u8>) {
        let persistence = self.engine.persistence();
        self.closing = persistence == Persistence::Close;
        let start = output.len();
        if has_date {
            response::begin(status, b"", persistence, output);
        } else {
            let begin = |date: &[u8]| response::begin(status, date, persistence, output);
            self.link.ctx.clock.with_date_line(begin);
        }
        self.remove_head_start(start, output);
        if let Some(line) = self.link.alternative.take() {
            output.extend_from_slice(line.as_bytes());
        }
    }

    #[inline]
    pub(super) fn after_response(&mut self, output: &mut Output) -> Option<Next> {
        self.closing.then(|| self.flush_responses(output))
    }
}
