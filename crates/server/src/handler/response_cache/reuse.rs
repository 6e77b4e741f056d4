//! Responses from stored ones.

use dunlin_config::Settings;
use dunlin_exchange::{Body, Response, Stream, StreamKind, stream};
use dunlin_fs::content::Piece;
use dunlin_http::Request;
use dunlin_response_cache::flight::Reader;
use dunlin_response_cache::respond::{CachedResponse, is_not_modified, respond, without_content};
use dunlin_response_cache::stored::{Stored, StoredHead};

use super::fill::FlightBody;
use super::outcome::Outcome;
use super::shared::ResponseCache;
use crate::worker::WorkerContext;

/// Returns the response to a request from a stored one.
pub(super) fn reuse(
    ctx: &WorkerContext,
    cache: &ResponseCache,
    request: &Request<'_>,
    settings: &Settings,
    stored: &Stored,
    outcome: Outcome,
) -> Response {
    let now = ctx.clock.now();
    let mut response = from_stored(ctx, request, settings, stored);
    response.fields.push_number("Age", stored.head.freshness.age(now));
    outcome.note_with(cache, stored.head.freshness.time_to_live(now), response)
}

/// Returns the response to a request from a stored one, without `Age`.
pub(super) fn from_stored(
    ctx: &WorkerContext,
    request: &Request<'_>,
    settings: &Settings,
    stored: &Stored,
) -> Response {
    of_cached(respond(request, stored, settings.ranges, ctx.clock.unix()))
}

/// Returns the response that was made of a stored one.
pub(super) fn of_cached(made: CachedResponse) -> Response {
    let body = Body::of(made.body.into_iter().map(Piece::Memory).collect());
    // Only a response to a range that cannot be satisfied has other fields.
    Response {
        has_date: made.status != 416,
        is_kept: made.status == 200,
        fields: made.fields,
        body,
        ..Response::new(made.status)
    }
}

/// Returns the response to a request from one whose body is on its way.
pub(super) fn from_flight(
    request: &Request<'_>,
    head: &StoredHead,
    reader: Reader,
    length: Option<u64>,
) -> Response {
    let mut response = Response { has_date: true, ..Response::new(head.status) };
    if matches!(head.status, 200..=299) && is_not_modified(request, head) {
        response.status = 304;
        response.fields = without_content(&head.fields);
        return response;
    }
    response.fields = head.fields.clone();
    let source = stream::from_source(Box::new(FlightBody(reader)));
    response.body = Body::streamed(Stream { source, length, kind: StreamKind::Body });
    response
}

/// Returns the response to a request that demands a stored response if there is none (RFC 9111 §5.2.1.7).
pub(super) fn unavailable(cache: &ResponseCache) -> Response {
    let text = "There is no stored response.\n";
    let response = Response::with_text(504, "text/plain; charset=utf-8", text);
    Outcome::Unavailable.note(cache, response)
}
