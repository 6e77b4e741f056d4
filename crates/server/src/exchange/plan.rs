//! The plan of a response, for every version of HTTP: the rules of heads and bodies (RFC 9110 §6.4, §8.6, §9.3.2), pacing, and
//! the record. An adapter writes it.

use std::ops::Deref;
use std::rc::Rc;

use bytes::Bytes;
use dunlin_exchange::{
    Body, BodyWriter, RequestContext, Response, ResponseFacts, StreamBody, StreamKind, stream,
};
use dunlin_files::cache::resource::Representation;
use dunlin_fs::content::{Piece, StoredContent};
use dunlin_http::semantics::{ContentCoding, Method, status};
use dunlin_http::{FieldLines, Request};
use dunlin_limits::bandwidth::Pacer;
use dunlin_net::clock;

use super::link::Link;
use super::{INLINE_BODY, deferred_record};
use crate::route::reply::CachedResponse;
use crate::route::sites::CacheEntry;
use crate::worker::{DeferredRecord, OutputRange, Pending, ResponseOutcome};

/// A response as it is sent.
pub(crate) struct ResponsePlan<'a> {
    pub(crate) status: u16,
    pub(crate) lines: HeadLines<'a>,
    /// The lines have a `Date`.
    pub(crate) has_date: bool,
    /// Identifies the lines to HPACK; 0 if they are those of one response.
    pub(crate) serial: u64,
    pub(crate) body: PlanBody<'a>,
    /// Paces the body, if a bandwidth limit applies.
    pub(crate) pacer: Option<Pacer>,
}

/// All field lines except `Date`, `Connection` and `Transfer-Encoding`.
pub(crate) enum HeadLines<'a> {
    Stored(&'a [u8]),
    Own(FieldLines),
}

/// The body of a response as it is sent.
pub(crate) enum PlanBody<'a> {
    /// Nothing follows the head.
    None,
    /// Content of the cache, and its length.
    Stored(&'a StoredContent, u64),
    /// A sequence of pieces, whose length is stated.
    Pieces(Body),
    Stream {
        body: StreamBody,
        /// The head states the length.
        has_length: bool,
    },
    /// A whole message including its head, which replaces status and fields.
    Message(stream::Receiver),
}

/// A response that the cache keeps ready.
pub(crate) struct CachedReply<H> {
    pub(super) cached: CachedResponse<H>,
    pub(super) context: Option<Rc<RequestContext>>,
    pub(super) pacer: Option<Pacer>,
    /// The record needs the fields of the response.
    pub(super) keeps_head: bool,
}

/// The record of a response, which is made when the bytes were sent.
pub(crate) enum PlannedRecord<'a> {
    /// Of a request that is in the buffer.
    Present(&'a Request<'a>, Rc<RequestContext>, ResponseOutcome),
    Deferred(Box<DeferredRecord>),
    None,
}

impl HeadLines<'_> {
    /// Returns the lines without the empty one behind them.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Stored(lines) => lines,
            Self::Own(fields) => fields.as_bytes(),
        }
    }
}

impl PlanBody<'_> {
    /// Returns the whole body, if it is in memory in one piece.
    #[inline]
    pub(crate) fn as_memory(&self) -> Option<&[u8]> {
        match self {
            Self::None => Some(b""),
            Self::Stored(StoredContent::Memory(bytes), _) => Some(bytes),
            Self::Pieces(body) => body.as_memory().map(|bytes| &**bytes),
            _ => None,
        }
    }

    /// Returns the pieces of a body that is not streamed.
    pub(crate) fn into_pieces(self) -> Body {
        match self {
            Self::Pieces(body) => body,
            Self::Stored(content, length) => {
                let mut body = Body::default();
                body.push(Piece::of(content, 0..length));
                body
            }
            Self::None | Self::Stream { .. } | Self::Message(_) => Body::default(),
        }
    }

    /// Returns what yields the body part by part.
    pub(crate) fn into_writer(self, pacer: Option<Pacer>) -> BodyWriter {
        match self {
            Self::Stream { body, .. } => BodyWriter::stream(body, pacer),
            body => BodyWriter::pieces(body.into_pieces(), pacer),
        }
    }
}

impl<H: Deref<Target = CacheEntry>> CachedReply<H> {
    /// Returns the plan of the response, and its record.
    #[inline]
    pub(crate) fn plan<'a>(
        &'a mut self,
        request: &'a Request<'a>,
    ) -> (ResponsePlan<'a>, PlannedRecord<'a>) {
        let (record, pacer) = (self.record(request), self.pacer.take());
        let cached = &self.cached;
        let (form, status, lines) = form_of(cached);
        let has_body = !cached.not_modified && request.method() == Method::Get && form.length > 0;
        let plan = ResponsePlan {
            status,
            lines: HeadLines::Stored(lines.strip_suffix(b"\r\n").unwrap_or(lines)),
            has_date: false,
            serial: form.serial,
            body: match has_body {
                true => PlanBody::Stored(&form.body, form.length),
                false => PlanBody::None,
            },
            pacer,
        };
        (plan, record)
    }

    /// Returns the record of the response.
    #[inline]
    pub(crate) fn record<'a>(&mut self, request: &'a Request<'a>) -> PlannedRecord<'a> {
        let Some(context) = self.context.take() else { return PlannedRecord::None };
        if self.keeps_head {
            context.keep_response_lines(form_of(&self.cached).2);
        }
        let CachedResponse { coding, not_modified, cache, .. } = self.cached;
        let status = if not_modified { 304 } else { 200 };
        let coding = match coding {
            ContentCoding::Identity => "-",
            coding => coding.as_str(),
        };
        let outcome = ResponseOutcome { status, cache, coding, ..ResponseOutcome::NONE };
        PlannedRecord::Present(request, context, outcome)
    }

    /// Returns the response if it is prebuilt and may be sent at once.
    #[inline]
    pub(crate) fn prebuilt(&self) -> Option<&dunlin_files::cache::worker_cache::Prebuilt> {
        self.cached.prebuilt(INLINE_BODY).filter(|_| self.pacer.is_none())
    }
}

/// Returns the representation that is sent, its status and its head lines with the empty one behind them.
fn form_of<H: Deref<Target = CacheEntry>>(
    cached: &CachedResponse<H>,
) -> (&Representation, u16, &[u8]) {
    let resource = &cached.entry.resource;
    let form: &Representation = match resource.representation(cached.coding) {
        Some(Some(form)) => form,
        _ => &resource.identity,
    };
    match cached.not_modified {
        true => (form, 304, &form.head_not_modified),
        false => (form, 200, &form.block[..form.head_length]),
    }
}

impl PlannedRecord<'_> {
    /// Records a response that is complete in an output, once that was sent.
    #[inline]
    pub(crate) fn settle(self, pending: &mut Pending, range: OutputRange) {
        let bytes = range.body;
        match self {
            Self::Present(request, context, outcome) => {
                pending.record(range, request, context, ResponseOutcome { bytes, ..outcome });
            }
            Self::Deferred(mut log) => {
                log.outcome.bytes = bytes;
                pending.record_later(range, log);
            }
            Self::None => {}
        }
    }

    /// Returns the record of a response whose body follows.
    pub(crate) fn defer(self) -> Option<Box<DeferredRecord>> {
        match self {
            Self::Present(request, context, outcome) => {
                context.begin_response();
                let mut log = deferred_record(request, Some(context))?;
                log.outcome = outcome;
                Some(log)
            }
            Self::Deferred(log) => Some(log),
            Self::None => None,
        }
    }
}

impl Link {
    /// Applies the rules of response heads and bodies to the response of a handler, and starts pacing.
    pub(crate) fn plan(
        &mut self,
        response: Response,
        is_head: bool,
        mut log: Option<&mut DeferredRecord>,
    ) -> ResponsePlan<'static> {
        let Response {
            status, mut fields, has_date, mut body, stated_length, cache, coding, ..
        } = response;
        let has_date = has_date && fields.get("Date").is_some();
        let stream = body.take_stream();
        if let Some(log) = &mut log {
            let is_endless =
                stream.as_ref().is_some_and(|stream| stream.kind == StreamKind::Endless);
            log.outcome =
                ResponseOutcome { status, cache, coding, is_endless, ..ResponseOutcome::NONE };
            let (connection, requests) = (&self.facts, self.requests);
            let facts = ResponseFacts { status, cache, connection, requests };
            log.context.append_fields(&mut fields, &facts);
        }
        let length = match &stream {
            Some(stream) => stream.length,
            None => Some(stated_length.unwrap_or_else(|| body.length())),
        };
        if let Some(length) = length.filter(|_| status::has_body(status)) {
            fields.push_number("Content-Length", length);
        }
        if self.ctx.http1.server_field && fields.get("Server").is_none() {
            fields.push("Server", "dunlin");
        }
        if let Some(log) = log.as_ref().filter(|_| self.ctx.logs_response_fields) {
            log.context.keep_response_lines(fields.as_bytes());
        }
        let has_body = !is_head && status::has_body(status);
        let body = match stream {
            Some(stream) if stream.kind == StreamKind::Message => PlanBody::Message(stream.source),
            Some(stream) => {
                let mut body = StreamBody::new(stream.source, length);
                if has_body && !body.is_complete() {
                    PlanBody::Stream { body, has_length: length.is_some() }
                } else {
                    // A script continues to its end, as for another method.
                    body.discard();
                    PlanBody::None
                }
            }
            None if has_body && !body.is_empty() => PlanBody::Pieces(body),
            None => PlanBody::None,
        };
        let short = match &body {
            PlanBody::Pieces(body) => body.as_memory().map(Bytes::len),
            _ => None,
        };
        let short = short.filter(|&length| length <= INLINE_BODY);
        let pacer = log.and_then(|log| log.context.pacer(&mut self.pace, short, clock::now));
        ResponsePlan { status, lines: HeadLines::Own(fields), has_date, serial: 0, body, pacer }
    }
}
