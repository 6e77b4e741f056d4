//! Kinds of requests that the cache handles differently.

use dunlin_config::{PageDictionary, Settings};
use dunlin_http::{FieldName, FieldSet, Method, Request};

use crate::route::route_match::RouteMatch;

/// Fields of requests whose response may be another than the whole one.
pub(super) const SPECIAL: FieldSet = FieldSet::of(&[
    FieldName::IfNoneMatch,
    FieldName::IfModifiedSince,
    FieldName::Range,
    FieldName::IfRange,
]);
/// The names of these fields, for requests for the whole response.
pub(super) const CONDITIONS: [&str; 4] =
    ["if-none-match", "if-modified-since", "range", "if-range"];

/// The same, and the field that selects a coding, for requests for a response that is stored without one.
pub(super) const CONDITIONS_AND_CODINGS: [&str; 5] =
    ["if-none-match", "if-modified-since", "range", "if-range", "accept-encoding"];

/// Returns `true` if the handler behind the cache does not get `Accept-Encoding`: one response is stored, and the server compresses
/// it for those that accept that.
pub(super) fn hides_codings(request: &Request<'_>, settings: &Settings) -> bool {
    !settings.compress.is_empty() && request.has(FieldName::AcceptEncoding) && !is_query(request)
}

/// Returns `true` if the handler of a route with a dictionary for its pages does not get `Accept-Encoding`: what it had coded could not
/// be compressed with the dictionary.
pub(super) fn hides_codings_for_pages(request: &Request<'_>, matched: &RouteMatch<'_>) -> bool {
    matches!(request.method(), Method::Get | Method::Head)
        && request.has(FieldName::AcceptEncoding)
        && PageDictionary::of(matched.settings).is_some()
}

/// Requests with more content pass by the cache.
const MAX_CONTENT: usize = 64 * 1024;

/// Returns `true` if the cache handles the request as a QUERY.
pub(super) fn is_query(request: &Request<'_>) -> bool {
    let length = request.field(FieldName::ContentLength).map(str::from_utf8);
    let length = length.and_then(|length| length.ok()?.parse::<usize>().ok());
    request.method_text() == b"QUERY"
        && length.is_some_and(|length| length <= MAX_CONTENT)
        && !request.has_any(SPECIAL)
        && !request.has(FieldName::Expect)
}
