//! Answering one request: what the router says becomes bytes, now or later.

use std::rc::Rc;

use bytes::Bytes;
use dunlin_http::http1::{Persistence, response};
use dunlin_http::semantics::{ContentCoding, Method, status};
use dunlin_http::{BodyLength, Head, Request, RequestError};

use super::super::INLINE_BODY;
use super::super::body_limits::TOO_LARGE;
use super::body::Deferred;
use super::sending::LastResponse;
use super::{Connection, Handling, Next, Parts};
use crate::cache::worker_cache::{CacheEntry, Prebuilt};
use crate::checks::{Client, Pacer, RequestContext};
use crate::config::Persistence as Personality;
use crate::exchange::{Body, Piece, Response};
use crate::fs::content::StoredContent;
use crate::handler::{admin, file};
use crate::route::{self, CachedResponse, Direction, FastPath, FastResponse, Reply};
use crate::telemetry::{RequestTelemetry, RouteTelemetry};
use crate::worker::{
    Completion, ConnectionInfo, CountedResponse, DeferredRecord, Output, OutputRange,
    ResponseOutcome,
};

impl Connection {
    /// Answers one request; `None` when the answer was added to the batch and the next request
    /// may be looked at.
    pub(super) fn answer(&mut self, bytes: &[u8], parts: &mut Parts<'_>) -> Option<Next> {
        let Parts { output, head, path } = parts;
        let request = Request::new(bytes, head);
        self.requests += 1;
        self.decide_persistence(&request);
        if self.is_admin {
            let routed = admin::answer(&self.ctx, &request);
            return self.reply(&request, routed, None, output);
        }
        let client = Client::of(self.peer, &self.stream);
        if !self.engine.has_body() {
            let ctx = Rc::clone(&self.ctx);
            let worker_cache = ctx.cache.borrow();
            match route::fast_path(&ctx, &worker_cache, client, &request, INLINE_BODY) {
                Some(FastPath::Response(answer)) => {
                    return self.send_fast(&request, answer, output);
                }
                Some(FastPath::Routed(routed)) => {
                    let telemetry =
                        ctx.begin_telemetry(&request, self.read_times, &mut self.connection_start);
                    return self.reply(&request, *routed, telemetry, output);
                }
                None => {}
            }
        }
        let telemetry =
            self.ctx.begin_telemetry(&request, self.read_times, &mut self.connection_start);
        let connection = (self.peer, &mut self.stream);
        match route::dispatch_client(&self.ctx, connection, &request, path) {
            Ok(routed) => self.reply(&request, routed, telemetry, output),
            Err(refusal) => Some(self.refuse(refusal, (&request, telemetry), output)),
        }
    }

    /// Sends an answer that the router had at hand.
    #[inline]
    fn send_fast(
        &mut self,
        request: &Request<'_>,
        answer: FastResponse<'_>,
        output: &mut Output,
    ) -> Option<Next> {
        let FastResponse { cached, site, context } = answer;
        let pacer = self.pacer(context.as_deref(), &cached, request.method());
        let settings = &cached.entry.settings;
        if pacer.is_none()
            && !self.ctx.needs_records()
            && let Some(prebuilt) = cached.prebuilt(INLINE_BODY)
        {
            self.connection_start = None;
            let start = output.bytes.len();
            let bytes = self.send_short(request.method(), prebuilt, &mut output.bytes);
            if self.ctx.shared.is_counting {
                let counted = CountedResponse {
                    method: request.method(),
                    version: request.version(),
                    client: context.as_ref().map_or_else(
                        || Client::of(self.peer, &self.stream),
                        |context| context.client,
                    ),
                    label: settings.label,
                    status: 200,
                    read_times: self.read_times,
                    routed: context.map(|context| context.routed_at),
                    bytes,
                };
                let range = OutputRange::new(start, output.bytes.len(), bytes);
                output.pending.count(range, counted);
            }
            return self.after_answer(output);
        }
        let telemetry =
            self.ctx.begin_telemetry(request, self.read_times, &mut self.connection_start);
        let (is_logged, route_telemetry) = (settings.access_log, RouteTelemetry::of(settings));
        let telemetry =
            RequestTelemetry::routed(telemetry, site, context, is_logged, route_telemetry);
        if let Some(telemetry) = &telemetry {
            self.ctx.publish_start(request, &self.connection_info(), telemetry);
        }
        self.send_cached(request, cached, telemetry, pacer, output)
    }

    /// What slows the answer down: nothing, when all of it may be sent at once.
    #[inline]
    fn pacer(
        &mut self,
        context: Option<&RequestContext>,
        cached: &CachedResponse<&CacheEntry>,
        method: Method,
    ) -> Option<Pacer> {
        let context = context?;
        let length = cached.prebuilt(INLINE_BODY).map(|prebuilt| prebuilt.sent(method).len());
        context.pacer(&mut self.pace, length, || context.routed_at)
    }

    pub(super) fn decide_persistence(&mut self, request: &Request<'_>) {
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

    pub(super) fn reply(
        &mut self,
        request: &Request<'_>,
        routed: route::Routed,
        telemetry: Option<RequestTelemetry>,
        output: &mut Output,
    ) -> Option<Next> {
        let route::Routed {
            reply,
            site,
            body_limit,
            reads_body,
            log,
            route_telemetry,
            context,
            direction,
        } = routed;
        if direction == Direction::Ended {
            self.engine.close();
            self.linger = true;
        }
        let telemetry = RequestTelemetry::routed(telemetry, site, context, log, route_telemetry);
        if let Some(telemetry) = &telemetry {
            self.ctx.publish_start(request, &self.connection_info(), telemetry);
        }
        let reply = match &telemetry {
            Some(telemetry) if telemetry.has_fields() => file::unprepared(request, reply),
            _ => reply,
        };
        let is_head = request.method() == Method::Head;
        if self.engine.has_body() {
            let taken = matches!(reply, Reply::Streaming(_));
            if let BodyLength::Known(length) = self.engine.body_length()
                && length > body_limit
            {
                return Some(self.refuse(TOO_LARGE, (request, telemetry), output));
            }
            match reply {
                Reply::Response(response) if reads_body => {
                    if self.engine.expects_continue() {
                        output.bytes.extend_from_slice(response::CONTINUE);
                        self.engine.continue_sent();
                    }
                    let log = deferred_record(request, telemetry);
                    let deferred = Deferred { response: *response, log, is_head };
                    self.expect_body(body_limit, Some(deferred));
                    return None;
                }
                // The handler reads it.
                _ if taken => {}
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
            Reply::Cached(CachedResponse { entry, coding, not_modified, cache, content }) => {
                let cached =
                    CachedResponse { entry: &*entry, coding, not_modified, cache, content };
                let context = telemetry.as_ref().and_then(|telemetry| telemetry.context.as_deref());
                let pacer = self.pacer(context, &cached, request.method());
                self.send_cached(request, cached, telemetry, pacer, output)
            }
            Reply::Response(response) => {
                let log = deferred_record(request, telemetry);
                self.send_response(*response, is_head, log, output)
            }
            Reply::Future(job) => {
                let before = match self.flush_before(output) {
                    Ok(before) => before,
                    Err(next) => return Some(next),
                };
                let log = deferred_record(request, telemetry);
                Some(Next::Handle(Box::new(Handling { job, before, log, is_head })))
            }
            Reply::Streaming(begin) => {
                let before = match self.flush_before(output) {
                    Ok(before) => before,
                    Err(next) => return Some(next),
                };
                let log = deferred_record(request, telemetry);
                Some(self.begin_exchange(request, begin, body_limit, before, log))
            }
        }
    }

    /// Sends earlier responses, as far as the socket has room for them; the rest stays in front of
    /// the response that is not there yet.
    fn flush_before(&mut self, output: &mut Output) -> Result<Output, Next> {
        match self.flush_answers(output) {
            Next::Receive => Ok(Output::default()),
            Next::Send(sending) => Ok(sending.into_unsent()),
            next => Err(next),
        }
    }

    /// Answers with an error and ends the connection.
    pub(super) fn refuse(
        &mut self,
        refusal: RequestError,
        (request, telemetry): (&Request<'_>, Option<RequestTelemetry>),
        output: &mut Output,
    ) -> Next {
        tracing::debug!(peer = %self.peer, status = refusal.status, reason = refusal.reason, "request refused");
        let is_head = request.method() == Method::Head;
        let response = route::refusal_to(&self.ctx, Some(request), &refusal, !is_head);
        let log = deferred_record(request, telemetry);
        self.send_rejection(response, is_head, log, output)
    }

    /// Rejects a message whose head the engine does not accept.
    pub(super) fn refuse_message(
        &mut self,
        refusal: RequestError,
        message: &[u8],
        parts: &mut Parts<'_>,
    ) -> Next {
        let Parts { output, head, .. } = parts;
        if self.engine.has_read_head() {
            let request = Request::new(message, head);
            self.requests += 1;
            let telemetry =
                self.ctx.begin_telemetry(&request, self.read_times, &mut self.connection_start);
            return self.refuse(refusal, (&request, telemetry), output);
        }
        tracing::debug!(peer = %self.peer, status = refusal.status, reason = refusal.reason, "request refused");
        // A client that asks for a head alone takes a body for the next response.
        let is_head = message.starts_with(b"HEAD ");
        let response = route::refusal_to(&self.ctx, None, &refusal, !is_head);
        let log = self.log_unread();
        self.send_rejection(response, is_head, log, output)
    }

    /// The record of a request whose head could not be read.
    fn log_unread(&mut self) -> Option<Box<DeferredRecord>> {
        let head = Head::default();
        let request = Request::new(b"", &head);
        let telemetry =
            self.ctx.begin_telemetry(&request, self.read_times, &mut self.connection_start);
        deferred_record(&request, telemetry)
    }

    /// Sends the last response of the connection.
    fn send_rejection(
        &mut self,
        response: Response,
        is_head: bool,
        log: Option<Box<DeferredRecord>>,
        output: &mut Output,
    ) -> Next {
        self.engine.close();
        self.linger = true;
        self.body = None;
        self.send_response(response, is_head, log, output).unwrap_or(Next::Close)
    }

    /// Sends an answer that the cache keeps ready.
    #[inline]
    pub(super) fn send_cached(
        &mut self,
        request: &Request<'_>,
        cached: CachedResponse<&CacheEntry>,
        telemetry: Option<RequestTelemetry>,
        pacer: Option<Pacer>,
        output: &mut Output,
    ) -> Option<Next> {
        let CachedResponse { entry, coding, not_modified, cache, .. } = cached;
        if pacer.is_none()
            && let Some(prebuilt) = cached.prebuilt(INLINE_BODY)
        {
            let start = output.bytes.len();
            let bytes = self.send_short(request.method(), prebuilt, &mut output.bytes);
            if let Some(telemetry) = telemetry {
                let outcome =
                    ResponseOutcome { status: 200, bytes, cache, ..ResponseOutcome::NONE };
                let range = OutputRange::new(start, output.bytes.len(), bytes);
                output.pending.record(range, request, telemetry, outcome);
            }
            return self.after_answer(output);
        }
        let form = match entry.resource.representation(coding) {
            Some(Some(form)) => form,
            _ => &entry.resource.identity,
        };
        let (status, head) = if not_modified {
            (304, &*form.head_not_modified)
        } else {
            (200, &form.block[..form.head_length])
        };
        let start = output.bytes.len();
        self.begin_head(status, &mut output.bytes);
        output.bytes.extend_from_slice(head);
        let mut outcome =
            ResponseOutcome { status, cache, coding: token(coding), ..ResponseOutcome::NONE };
        let mut body = Body::default();
        if !not_modified && request.method() == Method::Get {
            match cached.body(form) {
                StoredContent::Memory(bytes) if bytes.len() <= INLINE_BODY && pacer.is_none() => {
                    output.bytes.extend_from_slice(bytes);
                    outcome.bytes = form.length;
                }
                stored => body.push(Piece::of(stored, 0..form.length)),
            }
        }
        if body.is_empty() {
            if let Some(telemetry) = telemetry {
                let range = OutputRange::new(start, output.bytes.len(), outcome.bytes);
                output.pending.record(range, request, telemetry, outcome);
            }
            return self.after_answer(output);
        }
        let mut log = deferred_record(request, telemetry);
        if let Some(log) = &mut log {
            log.telemetry.begin_response();
            log.outcome = outcome;
        }
        let last = log.map(|log| LastResponse { log, start: start as i64 });
        self.send_body(body, pacer, last, output)
    }

    /// Sends a short answer as it is kept. Bytes of its body that are sent.
    #[inline]
    fn send_short(&mut self, method: Method, prebuilt: &Prebuilt, output: &mut Vec<u8>) -> u64 {
        let sent = prebuilt.sent(method).len();
        self.begin_head(200, output);
        output.extend_from_slice(&prebuilt.block[..prebuilt.head_length() + sent]);
        sent as u64
    }

    /// Sends a response that was made for this request.
    pub(super) fn send_response(
        &mut self,
        response: Response,
        is_head: bool,
        mut log: Option<Box<DeferredRecord>>,
        output: &mut Output,
    ) -> Option<Next> {
        let Response { status, mut fields, mut body, stated_length, cache, coding, .. } = response;
        if let Some(log) = &mut log {
            log.telemetry.append_fields(&mut fields);
        }
        if self.ctx.http1.server_field {
            fields.push("Server", "dunlin");
        }
        let length = stated_length.unwrap_or_else(|| body.length());
        if status::has_body(status) {
            fields.push_number("Content-Length", length);
        }
        let start = output.bytes.len();
        self.begin_head(status, &mut output.bytes);
        output.bytes.extend_from_slice(fields.as_bytes());
        output.bytes.extend_from_slice(b"\r\n");
        if is_head || !status::has_body(status) {
            body = Body::default();
        }
        let short = body.as_memory().map(Bytes::len).filter(|&length| length <= INLINE_BODY);
        let pacer = log.as_ref().and_then(|log| log.telemetry.pacer(&mut self.pace, short));
        let is_inline = |bytes: &&Bytes| bytes.len() <= INLINE_BODY && pacer.is_none();
        let mut inline = 0;
        if let Some(bytes) = body.as_memory().filter(is_inline) {
            output.bytes.extend_from_slice(bytes);
            inline = bytes.len() as u64;
            body = Body::default();
        }
        if let Some(log) = &mut log {
            log.outcome =
                ResponseOutcome { status, bytes: inline, cache, coding, ..ResponseOutcome::NONE };
        }
        if body.is_empty() {
            if let Some(log) = log {
                output
                    .pending
                    .record_later(OutputRange::new(start, output.bytes.len(), inline), log);
            }
            return self.after_answer(output);
        }
        let last = log.map(|log| LastResponse { log, start: start as i64 });
        self.send_body(body, pacer, last, output)
    }

    #[inline]
    pub(super) fn begin_head(&mut self, status: u16, output: &mut Vec<u8>) {
        let persistence = self.engine.persistence();
        self.closing = persistence == Persistence::Close;
        self.ctx.clock.with_date_line(|date| response::begin(status, date, persistence, output));
    }

    #[inline]
    pub(super) fn after_answer(&mut self, output: &mut Output) -> Option<Next> {
        self.closing.then(|| self.flush_answers(output))
    }

    pub(super) fn record_later(&self, log: &DeferredRecord, bytes: u64, completion: Completion) {
        let outcome = log.outcome.finish(bytes, completion).or_client_closed();
        self.record(&log.request.as_request(), &log.telemetry, &outcome);
    }

    pub(super) fn record(
        &self,
        request: &Request<'_>,
        telemetry: &RequestTelemetry,
        outcome: &ResponseOutcome,
    ) {
        self.ctx.record(request, &self.connection_info(), telemetry, outcome);
    }

    /// Where its requests come from.
    pub(super) fn connection_info(&self) -> ConnectionInfo<'_> {
        ConnectionInfo { peer: self.peer, serial: self.serial, stream: &self.stream }
    }
}

fn deferred_record(
    request: &Request<'_>,
    telemetry: Option<RequestTelemetry>,
) -> Option<Box<DeferredRecord>> {
    telemetry.map(|telemetry| DeferredRecord::new(request, telemetry))
}

/// The coding as the log names it.
fn token(coding: ContentCoding) -> &'static str {
    if coding == ContentCoding::Identity { "-" } else { coding.as_str() }
}
