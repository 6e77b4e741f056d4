//! Kinds of requests that the cache handles differently.

use dunlin_http::{FieldName, FieldSet, Request};

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
