//! The response to a request from a stored one: conditions (RFC 9111 §4.3.2) and ranges (RFC 9110 §14).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use bytes::Bytes;
use dunlin_http::semantics::conditional::{self, PreconditionOutcome, Preconditions, Validators};
use dunlin_http::semantics::multipart::Multipart;
use dunlin_http::semantics::range::{self, ByteRange, RangeOutcome};
use dunlin_http::{FieldLines, FieldName, FieldSet, Method, Request};
use smallvec::SmallVec;

use crate::fields::Values;
use crate::stored::{Stored, StoredHead};

/// A response from the cache.
#[derive(Debug, PartialEq, Eq)]
pub struct CachedResponse {
    /// The status code.
    pub status: u16,
    /// The fields, without `Age` and `Content-Length`. Those of the stored response have its `Date`.
    pub fields: FieldLines,
    /// The parts of the body.
    pub body: SmallVec<[Bytes; 1]>,
}

/// Fields of requests whose response may not be the whole stored one.
const SPECIAL: FieldSet =
    FieldSet::of(&[FieldName::IfNoneMatch, FieldName::IfModifiedSince, FieldName::Range]);

/// Bytes of the fields that the server adds.
const ROOM: usize = 160;

/// Fields that a 304 does not need (RFC 9110 §15.4.5).
const ONLY_WITH_CONTENT: [&str; 4] =
    ["Content-Encoding", "Content-Language", "Content-Type", "Content-Range"];

/// Returns the response to `request` from a stored one. `max_ranges` is the largest number of ranges, and `unix` the time in
/// seconds since 1970.
pub fn respond(
    request: &Request<'_>,
    stored: &Stored,
    max_ranges: usize,
    unix: u64,
) -> CachedResponse {
    let head = &stored.head;
    if !request.has_any(SPECIAL) {
        return whole(stored);
    }
    // Conditions apply to successful responses only (RFC 9110 §13.2.1).
    if !matches!(head.status, 200..=299) {
        return whole(stored);
    }
    if is_not_modified(request, head) {
        return CachedResponse {
            status: 304,
            fields: without_content(&head.fields),
            body: SmallVec::new(),
        };
    }
    match wanted_ranges(request, stored, max_ranges, unix) {
        RangeOutcome::Whole => whole(stored),
        RangeOutcome::Ranges(ranges) => partial(stored, &ranges),
        RangeOutcome::Unsatisfiable => {
            let mut fields = FieldLines::new();
            let length = stored.body.len() as u64;
            fields.push("Content-Range", range::content_range_unsatisfied(length));
            CachedResponse { status: 416, fields, body: SmallVec::new() }
        }
    }
}

/// Returns `true` if the request is conditional, and its condition shows that the client has the stored response.
pub fn is_not_modified(request: &Request<'_>, head: &StoredHead) -> bool {
    let values = |name| request.values(name).collect::<Values<'_>>();
    let (none_match, since) = (values(FieldName::IfNoneMatch), values(FieldName::IfModifiedSince));
    let preconditions = Preconditions {
        if_none_match: &none_match,
        if_modified_since: &since,
        ..Preconditions::default()
    };
    let current = Validators { last_modified: Some(head.modified()), ..head.validators() };
    let outcome = conditional::evaluate(request.method(), &preconditions, Some(&current));
    outcome == PreconditionOutcome::NotModified
}

fn whole(stored: &Stored) -> CachedResponse {
    whole_with(stored, &stored.head.fields)
}

/// Returns the whole response from a stored one, with these fields.
pub fn whole_with(stored: &Stored, fields: &FieldLines) -> CachedResponse {
    let mut body = SmallVec::new();
    if !stored.body.is_empty() {
        body.push(stored.body.clone());
    }
    CachedResponse { status: stored.head.status, fields: fields.with_room(ROOM), body }
}

/// Returns the fields of a 304.
pub fn without_content(fields: &FieldLines) -> FieldLines {
    let mut kept = FieldLines::new();
    for (name, value) in fields.iter() {
        if !ONLY_WITH_CONTENT.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
            kept.push_parsed(name, value);
        }
    }
    kept
}

fn wanted_ranges(
    request: &Request<'_>,
    stored: &Stored,
    max_ranges: usize,
    unix: u64,
) -> RangeOutcome {
    let is_wanted = request.method() == Method::Get
        && stored.head.status == 200
        && max_ranges > 0
        && request.has(FieldName::Range);
    if !is_wanted {
        return RangeOutcome::Whole;
    }
    let if_range: Values<'_> = request.values(FieldName::IfRange).collect();
    if !conditional::if_range_allows(&if_range, &stored.head.validators(), unix) {
        return RangeOutcome::Whole;
    }
    let ranges: Values<'_> = request.values(FieldName::Range).collect();
    range::parse(&ranges, stored.body.len() as u64, max_ranges)
}

fn partial(stored: &Stored, ranges: &[ByteRange]) -> CachedResponse {
    let mut fields = stored.head.fields.clone();
    let length = stored.body.len() as u64;
    let part = |range: &ByteRange| stored.body.slice(range.start as usize..range.end as usize);
    if let [range] = ranges {
        fields.set("Content-Range", range::content_range(range, length));
        return CachedResponse { status: 206, fields, body: SmallVec::from_iter([part(range)]) };
    }
    let boundary = boundary();
    let media_type = fields.get("Content-Type").map(String::from_utf8_lossy);
    let media_type = media_type.as_deref().unwrap_or("application/octet-stream").to_owned();
    let multipart = Multipart::new(boundary.as_bytes(), &media_type, length, ranges);
    fields.set("Content-Type", multipart.content_type());
    let mut body = SmallVec::new();
    for (head, range) in multipart.parts() {
        body.push(head.into());
        body.push(part(&range));
    }
    body.push(multipart.end().into());
    CachedResponse { status: 206, fields, body }
}

/// Returns a boundary of 128 random bits: the content cannot contain it by chance.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(0_u8);
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::Received;
    use crate::presented::Unchanged;
    use crate::storable::{Requested, Rules};
    use crate::testing::{fields, request};

    const UNIX: u64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn stored(pairs: &[(&str, &str)]) -> Stored {
        let requested = Requested { method: Method::Get, is_authenticated: false, no_store: false };
        let rules = Rules { set_cookie: false, is_heuristic: true, lifetime: None, max_body: 1000 };
        let request = request("GET", "/", "");
        let received = Received { date: Some(UNIX), unix: UNIX, at: 0, delay: 0 };
        let all: Vec<_> = [("Cache-Control", "max-age=9")].iter().chain(pairs).copied().collect();
        let head = StoredHead::new(
            requested,
            &Unchanged(request.as_request()),
            (200, &fields(&all)),
            received,
            &rules,
        );
        Stored { head: head.expect("stored"), body: Bytes::from_static(b"0123456789") }
    }

    fn response(stored: &Stored, lines: &str) -> (u16, Vec<u8>, Option<String>) {
        let request = request("GET", "/", lines);
        let response = respond(&request.as_request(), stored, 4, UNIX + 60);
        let range = response.fields.get("Content-Range").map(String::from_utf8_lossy);
        (response.status, response.body.concat(), range.map(Into::into))
    }

    #[test]
    fn conditions_are_evaluated() {
        let with_tag = stored(&[("ETag", "\"a\""), ("Content-Type", "x/y")]);
        let without = stored(&[]);
        for (stored, lines, expected) in [
            (&with_tag, "", 200),
            (&with_tag, "If-None-Match: \"b\", W/\"a\"\r\n", 304),
            (&with_tag, "If-None-Match: \"b\"\r\n", 200),
            (&with_tag, &format!("If-None-Match: \"b\"\r\nIf-Modified-Since: {DATE}\r\n"), 200),
            (&without, "If-None-Match: \"a\"\r\n", 200),
            (&without, &format!("If-Modified-Since: {DATE}\r\n"), 304),
            (&without, "If-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n", 200),
        ] {
            assert_eq!(response(stored, lines).0, expected, "{lines}");
        }
        let request = request("GET", "/", "If-None-Match: \"a\"\r\n");
        let response = respond(&request.as_request(), &with_tag, 4, UNIX);
        assert!(
            response.fields.get("ETag").is_some() && response.fields.get("Content-Type").is_none()
        );
    }

    #[test]
    fn ranges_are_parts_of_the_whole() {
        let stored = stored(&[("ETag", "\"a\"")]);
        let range = |range: &str| Some(range.to_owned());
        for (lines, status, body, content_range) in [
            ("Range: bytes=0-1\r\n", 206, "01", range("bytes 0-1/10")),
            ("Range: bytes=8-\r\n", 206, "89", range("bytes 8-9/10")),
            ("Range: bytes=-3\r\n", 206, "789", range("bytes 7-9/10")),
            ("Range: bytes=10-\r\n", 416, "", range("bytes */10")),
            ("Range: bytes=x\r\n", 200, "0123456789", None),
            ("Range: bytes=0-1\r\nIf-Range: \"a\"\r\n", 206, "01", range("bytes 0-1/10")),
            ("Range: bytes=0-1\r\nIf-Range: \"b\"\r\n", 200, "0123456789", None),
        ] {
            let expected = (status, body.as_bytes().to_vec(), content_range);
            assert_eq!(response(&stored, lines), expected, "{lines}");
        }
        let (status, body, _) = response(&stored, "Range: bytes=0-0,5-5\r\n");
        let text = String::from_utf8_lossy(&body);
        assert!(status == 206 && text.contains("bytes 0-0/10\r\n\r\n0\r\n"), "{text}");
    }
}
