//! The rules of response heads and bodies (RFC 9110 §6.4, §8.6, §9.3.2), for every version of HTTP.

use bytes::Bytes;
use dunlin_exchange::{Body, Response, StreamKind, stream};
use dunlin_http::FieldLines;
use dunlin_http::semantics::status;
use dunlin_net::clock;

use super::super::INLINE_BODY;
use super::StreamBody;
use crate::worker::{DeferredRecord, ResponseOutcome, WorkerContext};
use dunlin_limits::bandwidth::{ConnectionPace, Pacer};

/// A response that is ready to be sent.
pub(in super::super) struct StartedResponse {
    pub(in super::super) status: u16,
    /// All fields except `Date`, `Connection` and `Transfer-Encoding`.
    pub(in super::super) fields: FieldLines,
    /// The fields have a `Date`.
    pub(in super::super) has_date: bool,
    pub(in super::super) body: ResponseBody,
    /// Paces the body, if a bandwidth limit applies.
    pub(in super::super) pacer: Option<Pacer>,
}

/// The body of a response as it is sent.
pub(in super::super) enum ResponseBody {
    /// Nothing follows the head.
    None,
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

/// Applies the rules of response heads and bodies to the response of a handler, and starts pacing.
pub(in super::super) fn start_response(
    ctx: &WorkerContext,
    response: Response,
    is_head: bool,
    mut log: Option<&mut DeferredRecord>,
    pace: &mut Option<ConnectionPace>,
) -> StartedResponse {
    let Response { status, mut fields, has_date, mut body, stated_length, cache, coding, .. } =
        response;
    let has_date = has_date && fields.get("Date").is_some();
    let stream = body.take_stream();
    if let Some(log) = &mut log {
        let is_endless = stream.as_ref().is_some_and(|stream| stream.kind == StreamKind::Endless);
        log.outcome =
            ResponseOutcome { status, cache, coding, is_endless, ..ResponseOutcome::NONE };
        log.context.append_fields(&mut fields);
    }
    let length = match &stream {
        Some(stream) => stream.length,
        None => Some(stated_length.unwrap_or_else(|| body.length())),
    };
    if let Some(length) = length.filter(|_| status::has_body(status)) {
        fields.push_number("Content-Length", length);
    }
    if ctx.http1.server_field {
        fields.push("Server", "dunlin");
    }
    let has_body = !is_head && status::has_body(status);
    let body = match stream {
        Some(stream) if stream.kind == StreamKind::Message => ResponseBody::Message(stream.source),
        Some(stream) => {
            let mut body = StreamBody::new(stream.source, length);
            if has_body && !body.is_complete() {
                ResponseBody::Stream { body, has_length: length.is_some() }
            } else {
                // A script continues to its end, as for another method.
                body.discard();
                ResponseBody::None
            }
        }
        None if has_body && !body.is_empty() => ResponseBody::Pieces(body),
        None => ResponseBody::None,
    };
    let short = match &body {
        ResponseBody::Pieces(body) => body.as_memory().map(Bytes::len),
        _ => None,
    };
    let short = short.filter(|&length| length <= INLINE_BODY);
    let pacer = log.and_then(|log| log.context.pacer(pace, short, clock::now));
    StartedResponse { status, fields, has_date, body, pacer }
}
