//! Responds to one request: the reply of the router becomes bytes, now or later.

use std::rc::Rc;

use dunlin_config::Persistence as ConnectionMode;
use dunlin_exchange::{Body, RequestContext, Response};
use dunlin_fs::content::Piece;
use dunlin_http::http1::{Persistence, response};
use dunlin_http::semantics::Method;
use dunlin_http::{BodyLength, Head, Request, RequestError, Version};

use super::super::INLINE_BODY;
use super::super::exchange::{
    CachedParts, ConnectionView, Exchange, Rejected, RequestContent, ResponseBody, Started,
    StartedResponse, TOO_LARGE, deferred_record, start_response,
};
use super::sending::LastResponse;
use super::{Http1Driver, Next, Parts};
use crate::handler::admin;
use crate::route::fast_path::{FastPath, FastResponse, fast_path};
use crate::route::reply::{CachedResponse, Direction, Reply, Routed};
use crate::route::sites::CacheEntry;
use crate::worker::{CountedResponse, DeferredRecord, Output, OutputRange, ResponseOutcome};
use dunlin_files::cache::worker_cache::Prebuilt;
use dunlin_fs::content::StoredContent;
use dunlin_limits::bandwidth::Pacer;

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
            Err(error) => {
                let context = self.link.begin(&request);
                Some(self.reject(error, (&request, context), output))
            }
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
        let FastResponse { cached, site, context } = fast;
        let pacer = self.link.pacer(context.as_deref(), &cached, request.method());
        let settings = &cached.entry.route;
        if pacer.is_none()
            && !self.link.ctx.needs_records()
            && let Some(prebuilt) = cached.prebuilt(INLINE_BODY)
        {
            self.link.connection_start = None;
            let start = output.bytes.len();
            let bytes = self.send_prebuilt(request.method(), prebuilt, &mut output.bytes);
            if self.link.ctx.shared.is_counting {
                let counted = CountedResponse::new(
                    request,
                    (settings.label, bytes),
                    self.link.read_times,
                    context.as_deref(),
                    || self.link.client(),
                );
                let range = OutputRange::new(start, output.bytes.len(), bytes);
                output.pending.count(range, counted);
            }
            return self.after_response(output);
        }
        let context = self.link.begin_fast(request, (site, settings), context);
        self.send_cached(request, cached, context, pacer, output)
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
            self.engine.close();
            self.linger = true;
        }
    }

    pub(super) fn reply(
        &mut self,
        request: &Request<'_>,
        routed: Routed,
        output: &mut Output,
    ) -> Option<Next> {
        if routed.direction == Direction::Ended {
            self.engine.close();
            self.linger = true;
        }
        // Commands to the server are not recorded.
        let started = self.link.start(request, routed, !self.is_admin);
        let Started { reply, context, body_limit, reads_body } = started;
        let is_head = request.method() == Method::Head;
        if self.engine.has_body() {
            if let BodyLength::Known(length) = self.engine.body_length()
                && length > body_limit
            {
                return Some(self.reject(TOO_LARGE, (request, context), output));
            }
            match reply {
                Reply::Response(response) if reads_body => {
                    if self.engine.expects_continue() {
                        output.bytes.extend_from_slice(response::CONTINUE);
                        self.engine.continue_sent();
                    }
                    let log = deferred_record(request, context);
                    self.defer(body_limit, *response, log, is_head);
                    return None;
                }
                // The handler reads the body.
                Reply::Streaming(_) => {}
                _ if self.engine.expects_continue() => {
                    // The client decides whether it sends the body after a final response, so that what follows could be
                    // read in two ways.
                    self.engine.close();
                    self.linger = true;
                }
                _ if self.engine.persistence() != Persistence::Close => {
                    self.discard_body(body_limit);
                }
                _ => {}
            }
        }
        let (exchange, reads_ahead) = match reply {
            Reply::Cached(CachedResponse { entry, coding, not_modified, cache }) => {
                let cached = CachedResponse { entry: &*entry, coding, not_modified, cache };
                let pacer = self.link.pacer(context.as_deref(), &cached, request.method());
                return self.send_cached(request, cached, context, pacer, output);
            }
            Reply::Response(response) => {
                let log = deferred_record(request, context);
                return self.send_response(*response, is_head, log, output);
            }
            Reply::Future(future) => {
                let log = deferred_record(request, context);
                (Exchange::with_future(future, log, is_head), false)
            }
            Reply::Streaming(begin) => {
                let Ok(ends) = self.link.ends(&self.stream) else { return Some(Next::Abort) };
                let connection = ConnectionView {
                    ends,
                    facts: &self.link.facts,
                    has_interim_responses: request.version() != Version::Http10,
                };
                let log = deferred_record(request, context);
                let content = RequestContent::Body(self.engine.body_length());
                let body = (content, body_limit, self.link.ctx.clock.now());
                let exchange =
                    Exchange::with_streaming_handler(begin, body, connection, log, is_head);
                (exchange, true)
            }
        };
        Some(match self.flush_before(output) {
            Ok(before) => self.begin_handling(exchange, request.version(), reads_ahead, before),
            Err(next) => next,
        })
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
    pub(super) fn reject(
        &mut self,
        error: RequestError,
        (request, context): (&Request<'_>, Option<Rc<RequestContext>>),
        output: &mut Output,
    ) -> Next {
        let is_head = request.method() == Method::Head;
        let rejected =
            self.link.reject(&self.stream, &error, Some(request), context.as_ref(), is_head);
        let log = deferred_record(request, context);
        self.send_rejection(rejected, (request.version(), is_head), log, output)
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
            let request = Request::new(message, head);
            self.link.requests += 1;
            let context = self.link.begin(&request);
            return self.reject(error, (&request, context), output);
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
        let rejected = self.link.reject(&self.stream, &error, None, None, is_head);
        let context = self.link.begin(request);
        let log = deferred_record(request, context);
        self.send_rejection(rejected, (Version::Http11, is_head), log, output)
    }

    /// Sends the last response of the connection.
    pub(super) fn send_rejection(
        &mut self,
        rejected: Rejected,
        (version, is_head): (Version, bool),
        log: Option<Box<DeferredRecord>>,
        output: &mut Output,
    ) -> Next {
        self.engine.close();
        self.linger = true;
        self.body = None;
        let page = match rejected {
            Rejected::Now(response) => {
                return self.send_response(response, is_head, log, output).unwrap_or(Next::Close);
            }
            Rejected::Later(page) => page,
        };
        let exchange = Exchange::with_future(page, log, is_head);
        match self.flush_before(output) {
            Ok(before) => self.begin_handling(exchange, version, false, before),
            Err(next) => next,
        }
    }

    /// Sends a cached response.
    #[inline]
    pub(super) fn send_cached(
        &mut self,
        request: &Request<'_>,
        cached: CachedResponse<&CacheEntry>,
        context: Option<Rc<RequestContext>>,
        pacer: Option<Pacer>,
        output: &mut Output,
    ) -> Option<Next> {
        let cache = cached.cache;
        if pacer.is_none()
            && let Some(prebuilt) = cached.prebuilt(INLINE_BODY)
        {
            let start = output.bytes.len();
            let bytes = self.send_prebuilt(request.method(), prebuilt, &mut output.bytes);
            if let Some(context) = context {
                let outcome =
                    ResponseOutcome { status: 200, bytes, cache, ..ResponseOutcome::NONE };
                let range = OutputRange::new(start, output.bytes.len(), bytes);
                output.pending.record(range, request, context, outcome);
            }
            return self.after_response(output);
        }
        let CachedParts { status, lines, body, length, mut outcome, .. } =
            CachedParts::new(&cached, request.method());
        let start = output.bytes.len();
        self.begin_head(status, false, &mut output.bytes);
        output.bytes.extend_from_slice(lines);
        let stored = match body {
            Some(StoredContent::Memory(bytes))
                if length <= INLINE_BODY as u64 && pacer.is_none() =>
            {
                output.bytes.extend_from_slice(bytes);
                outcome.bytes = length;
                None
            }
            body => body,
        };
        let Some(stored) = stored else {
            if let Some(context) = context {
                let range = OutputRange::new(start, output.bytes.len(), outcome.bytes);
                output.pending.record(range, request, context, outcome);
            }
            return self.after_response(output);
        };
        let mut body = Body::default();
        body.push(Piece::of(stored, 0..length));
        let mut log = deferred_record(request, context);
        if let Some(log) = &mut log {
            log.context.begin_response();
            log.outcome = outcome;
        }
        let last = log.map(|log| LastResponse { log, start: start as i64 });
        self.send_body(body, pacer, last, output)
    }

    /// Adds a prebuilt response. Returns the length of its body.
    #[inline]
    fn send_prebuilt(&mut self, method: Method, prebuilt: &Prebuilt, output: &mut Vec<u8>) -> u64 {
        let sent = prebuilt.sent(method).len();
        self.begin_head(200, false, output);
        output.extend_from_slice(&prebuilt.block[..prebuilt.head_length() + sent]);
        sent as u64
    }

    /// Sends a response that is complete in memory or in files.
    pub(super) fn send_response(
        &mut self,
        response: Response,
        is_head: bool,
        mut log: Option<Box<DeferredRecord>>,
        output: &mut Output,
    ) -> Option<Next> {
        let started = start_response(
            &self.link.ctx,
            response,
            is_head,
            log.as_deref_mut(),
            &mut self.link.pace,
        );
        let StartedResponse { status, fields, has_date, body, pacer } = started;
        let start = output.bytes.len();
        self.begin_head(status, has_date, &mut output.bytes);
        output.bytes.extend_from_slice(fields.as_bytes());
        output.bytes.extend_from_slice(b"\r\n");
        let mut inline = 0;
        let body = match body {
            ResponseBody::Pieces(body) => match body.as_memory() {
                Some(bytes) if bytes.len() <= INLINE_BODY && pacer.is_none() => {
                    output.bytes.extend_from_slice(bytes);
                    inline = bytes.len() as u64;
                    None
                }
                _ => Some(body),
            },
            // The handling of a request sends streamed bodies.
            _ => None,
        };
        let Some(body) = body else {
            if let Some(mut log) = log {
                log.outcome.bytes = inline;
                let range = OutputRange::new(start, output.bytes.len(), inline);
                output.pending.record_later(range, log);
            }
            return self.after_response(output);
        };
        let last = log.map(|log| LastResponse { log, start: start as i64 });
        self.send_body(body, pacer, last, output)
    }

    /// Adds the status line and the fields of each response: without `Date` if the response `has_date` among its own.
    #[inline]
    pub(super) fn begin_head(&mut self, status: u16, has_date: bool, output: &mut Vec<u8>) {
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
    }

    #[inline]
    pub(super) fn after_response(&mut self, output: &mut Output) -> Option<Next> {
        self.closing.then(|| self.flush_responses(output))
    }
}
