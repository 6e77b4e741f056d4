//! Answering one request: what the router says becomes frames, now or later.

use std::rc::Rc;

use bytes::Bytes;
use dunlin_http::http2::ResponseHead;
use dunlin_http::semantics::{ContentCoding, Method, expect, status};
use dunlin_http::{BodyLength, Head, Request, RequestError};

use super::super::INLINE_BODY;
use super::super::body_limits::{BodyLimits, TOO_LARGE};
use super::work::{Sending, UPLOAD, Upload, Work};
use super::{Connection, Link, Parts};
use crate::clock;
use crate::exchange::{Body, EarlyHints, Incoming, Piece, Response, StreamKind, stream};
use crate::fs::content::StoredContent;
use crate::handler::file;
use crate::route::{self, CachedResponse, Direction, Reply};
use crate::telemetry::{RequestTelemetry, ScriptContext};
use crate::worker::{OutputRange, ResponseOutcome};

impl Connection {
    /// Answers the request that was read into the worker's buffers, or begins to.
    pub(super) fn request(
        &mut self,
        link: &mut Link<'_>,
        id: u32,
        length: Option<u64>,
        ended: bool,
        parts: &mut Parts<'_>,
    ) {
        let Parts { out, head, text, path } = parts;
        let request = Request::new(text, head);
        let telemetry = link.ctx.begin_telemetry(&request, self.read_times, link.connection_start);
        let expects_continue = match expect::wants_continue(&request) {
            Ok(expects) => expects && !ended && length != Some(0),
            Err(refusal) => return self.refuse(link, id, refusal, (&request, telemetry), out),
        };
        let connection = (link.peer, &mut *link.stream);
        let routed = match route::dispatch_client(link.ctx, connection, &request, path) {
            Ok(routed) => routed,
            Err(refusal) => return self.refuse(link, id, refusal, (&request, telemetry), out),
        };
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
            self.drain(link.ctx.clock.now(), out);
        }
        let telemetry = RequestTelemetry::routed(telemetry, site, context, log, route_telemetry);
        if let Some(telemetry) = &telemetry {
            link.ctx.publish_start(&request, &link.connection_info(), telemetry);
        }
        let reply = match &telemetry {
            Some(telemetry) if telemetry.has_fields() => file::unprepared(&request, reply),
            _ => reply,
        };
        if length.is_some_and(|length| length > body_limit) {
            return self.refuse(link, id, TOO_LARGE, (&request, telemetry), out);
        }
        if let Reply::Cached(cached) = reply {
            return self.send_cached(link, id, cached, (&request, telemetry), out);
        }
        let log = Self::deferred_record(&request, telemetry);
        let is_head = request.method() == Method::Head;
        let mut work = Work::new(id, link.ctx.clock.now(), log, is_head);
        work.limits = BodyLimits::new(body_limit, work.moved);
        work.expects_continue = expects_continue;
        match reply {
            Reply::Cached(_) => return,
            Reply::Response(response) => {
                work.response = Some(*response);
                work.is_deferred = reads_body && !ended;
                if !work.is_deferred {
                    return self.answer(link, work, out);
                }
            }
            Reply::Future(job) => work.job = Some(job),
            Reply::Streaming(begin) => {
                let Ok(ends) = link.ends() else {
                    self.is_over = true;
                    return;
                };
                let (length, body) = match (ended, length) {
                    (true, _) => (BodyLength::None, stream::empty()),
                    (false, length) => {
                        let (sender, receiver) = stream::channel(UPLOAD);
                        work.upload = Some(Upload::new(sender));
                        (length.map_or(BodyLength::Chunked, BodyLength::Known), receiver)
                    }
                };
                let script_context = Rc::new(ScriptContext::new(
                    clock::now(),
                    work.log.as_ref().and_then(|log| log.telemetry.traceparent()),
                ));
                if let Some(log) = &mut work.log {
                    log.telemetry.script_context = Some(Rc::clone(&script_context));
                }
                let early_hints = EarlyHints::new(true);
                work.early_hints = Some(early_hints.clone());
                work.job = Some(begin(Incoming {
                    body,
                    length,
                    received: None,
                    ends,
                    encrypted: link.stream.is_encrypted(),
                    tls: link.stream.tls(),
                    script_context,
                    redirects: 0,
                    early_hints,
                }));
            }
        }
        self.works.push(work);
    }

    /// Answers a request whose head was not kept.
    pub(super) fn refuse_unread(
        &mut self,
        link: &mut Link<'_>,
        id: u32,
        refusal: RequestError,
        parts: &mut Parts<'_>,
    ) {
        let head = Head::default();
        let request = Request::new(b"", &head);
        let telemetry = link.ctx.begin_telemetry(&request, self.read_times, link.connection_start);
        self.refuse(link, id, refusal, (&request, telemetry), parts.out);
    }

    /// Answers with an error.
    fn refuse(
        &mut self,
        link: &Link<'_>,
        id: u32,
        refusal: RequestError,
        (request, telemetry): (&Request<'_>, Option<RequestTelemetry>),
        out: &mut Vec<u8>,
    ) {
        tracing::debug!(peer = %link.peer, status = refusal.status, reason = refusal.reason, "request refused");
        let is_head = request.method() == Method::Head;
        let log = Self::deferred_record(request, telemetry);
        let mut work = Work::new(id, link.ctx.clock.now(), log, is_head);
        work.response = Some(route::refusal_to(link.ctx, Some(request), &refusal, !is_head));
        self.answer(link, work, out);
    }

    /// Sends an answer that the cache keeps ready.
    #[inline]
    fn send_cached(
        &mut self,
        link: &Link<'_>,
        id: u32,
        cached: CachedResponse,
        (request, telemetry): (&Request<'_>, Option<RequestTelemetry>),
        out: &mut Vec<u8>,
    ) {
        let CachedResponse { ref entry, coding, not_modified, cache, .. } = cached;
        let is_head = request.method() == Method::Head;
        let start = self.position(out);
        let short =
            cached.prebuilt(INLINE_BODY).map(|prebuilt| prebuilt.sent(request.method()).len());
        let pacer = telemetry.as_ref().and_then(|telemetry| telemetry.pacer(&mut self.pace, short));
        if let Some(prebuilt) = cached.prebuilt(usize::MAX) {
            let (lines, body) = prebuilt.block.split_at(prebuilt.head_length());
            let head_only = is_head || body.is_empty();
            self.send_head(link, id, 200, lines, entry.resource.identity.serial, head_only, out);
            if head_only || pacer.is_none() && self.engine.send_whole(id, body, out) {
                let bytes = if head_only { 0 } else { body.len() as u64 };
                let outcome =
                    ResponseOutcome { status: 200, bytes, cache, ..ResponseOutcome::NONE };
                return self.record_sent(start, (request, telemetry), outcome, out);
            }
        } else {
            let form = match entry.resource.representation(coding) {
                Some(Some(form)) => form,
                _ => &entry.resource.identity,
            };
            let coding = if coding == ContentCoding::Identity { "-" } else { coding.as_str() };
            let (status, lines) = if not_modified {
                (304, &*form.head_not_modified)
            } else {
                (200, &form.block[..form.head_length])
            };
            let head_only = not_modified || is_head || form.length == 0;
            self.send_head(link, id, status, lines, form.serial, head_only, out);
            let whole = match cached.body(form) {
                _ if head_only => true,
                _ if pacer.is_some() => false,
                StoredContent::Memory(bytes) => self.engine.send_whole(id, bytes, out),
                StoredContent::File(_) => false,
            };
            if whole {
                let bytes = if head_only { 0 } else { form.length };
                let outcome =
                    ResponseOutcome { status, bytes, cache, coding, ..ResponseOutcome::NONE };
                return self.record_sent(start, (request, telemetry), outcome, out);
            }
        }
        let form = match entry.resource.representation(coding) {
            Some(Some(form)) => form,
            _ => &entry.resource.identity,
        };
        let coding = if coding == ContentCoding::Identity { "-" } else { coding.as_str() };
        let mut log = Self::deferred_record(request, telemetry);
        if let Some(log) = &mut log {
            log.telemetry.begin_response();
            log.outcome = ResponseOutcome { status: 200, cache, coding, ..ResponseOutcome::NONE };
        }
        let mut body = Body::default();
        body.push(Piece::of(cached.body(form), 0..form.length));
        let mut work = Work::new(id, link.ctx.clock.now(), log, is_head);
        work.pacer = pacer;
        work.start = start;
        self.send_later(work, body);
    }

    /// Records a response that is complete in `out`, once it has been sent.
    fn record_sent(
        &mut self,
        start: i64,
        (request, telemetry): (&Request<'_>, Option<RequestTelemetry>),
        outcome: ResponseOutcome,
        out: &[u8],
    ) {
        if let Some(telemetry) = telemetry {
            let range = OutputRange { start, end: self.position(out), body: outcome.bytes };
            self.pending.record(range, request, telemetry, outcome);
        }
    }

    /// Sends the answer that a handler has made.
    pub(super) fn begin_answer(&mut self, link: &Link<'_>, work: Work, parts: &mut Parts<'_>) {
        self.answer(link, work, parts.out);
    }

    fn answer(&mut self, link: &Link<'_>, mut work: Work, out: &mut Vec<u8>) {
        if let Sending::Message { source, head } =
            std::mem::replace(&mut work.sending, Sending::Nothing)
        {
            return self.answer_with_message(link, work, source, head, out);
        }
        let Some(response) = work.response.take() else { return };
        let Response { status, mut fields, mut body, stated_length, cache, coding, .. } = response;
        if let Some(log) = &mut work.log {
            log.outcome = ResponseOutcome { status, cache, coding, ..ResponseOutcome::NONE };
            log.telemetry.append_fields(&mut fields);
        }
        let short = body.as_memory().map(Bytes::len).filter(|&length| length <= INLINE_BODY);
        work.begin_pace(&mut self.pace, short);
        if let Some(stream) = body.take_stream() {
            let length = stream.length;
            if let Some(log) = &mut work.log {
                log.outcome.is_endless = stream.kind == StreamKind::Endless;
            }
            work.sending = Sending::from(*stream);
            if matches!(work.sending, Sending::Message { .. }) {
                return self.works.push(work);
            }
            if let Some(length) = length.filter(|_| status::has_body(status)) {
                fields.push_number("Content-Length", length);
            }
            self.push_server(link, &mut fields);
            let bodiless = work.is_head || !status::has_body(status) || length == Some(0);
            work.start = self.position(out);
            self.send_head(link, work.id, status, fields.as_bytes(), 0, bodiless, out);
            if !bodiless {
                return self.works.push(work);
            }
            if let Sending::Stream { source, .. } = work.sending {
                // The script goes on to its end, as it would for another method.
                source.discard();
                work.sending = Sending::Nothing;
            }
            return self.finish_work(work, out);
        }
        let length = stated_length.unwrap_or_else(|| body.length());
        if status::has_body(status) {
            fields.push_number("Content-Length", length);
        }
        self.push_server(link, &mut fields);
        let bodiless = work.is_head || !status::has_body(status) || body.is_empty();
        work.start = self.position(out);
        self.send_head(link, work.id, status, fields.as_bytes(), 0, bodiless, out);
        let whole = body.as_memory().is_some_and(|bytes| {
            let whole =
                !bodiless && work.pacer.is_none() && self.engine.send_whole(work.id, bytes, out);
            work.note_sent(if whole { bytes.len() } else { 0 }, self.flushes);
            whole
        });
        if bodiless || whole {
            return self.finish_work(work, out);
        }
        self.send_later(work, body);
    }

    pub(super) fn push_server(&self, link: &Link<'_>, fields: &mut dunlin_http::FieldLines) {
        if link.ctx.http1.server_field {
            fields.push("Server", "dunlin");
        }
    }

    fn send_later(&mut self, mut work: Work, body: Body) {
        self.engine.set_ready(work.id, work.may_send());
        work.sending = Sending::Pieces { body, warming: None };
        self.works.push(work);
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
        ended: bool,
        out: &mut Vec<u8>,
    ) {
        link.ctx.clock.with_date_line(|line| {
            let date = line.strip_prefix(b"Date: ").unwrap_or_default().trim_ascii_end();
            let head = ResponseHead { status, date, lines, serial };
            self.engine.respond(id, &head, ended, out)
        });
    }
}
