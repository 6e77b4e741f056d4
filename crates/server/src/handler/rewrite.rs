//! Requests that the server makes of others: the same fields, another target, no body.

use dunlin_http::http1::Connection;
use dunlin_http::{FieldLines, Head, Limits, Request, Version};

/// The fields of a body, which a rewritten request does not have.
pub(crate) const OF_BODY: [&str; 4] =
    ["content-length", "content-type", "transfer-encoding", "expect"];

/// The head of a rewritten request.
pub(crate) struct RewrittenRequest {
    bytes: Vec<u8>,
    head: Head,
}

impl RewrittenRequest {
    /// Rewrites a request as one for `target` without a body. Leaves out the fields `left_out`, whose names are in lower
    /// case. Returns `None` if the result is not a valid request.
    pub(crate) fn new(
        request: &Request<'_>,
        target: &[u8],
        left_out: &[&str],
        limits: &Limits,
    ) -> Option<Self> {
        Self::with_fields(request, target, left_out, &FieldLines::NONE, limits)
    }

    /// As [`new`](Self::new), with the fields `added`.
    pub(crate) fn with_fields(
        request: &Request<'_>,
        target: &[u8],
        left_out: &[&str],
        added: &FieldLines,
        limits: &Limits,
    ) -> Option<Self> {
        let bytes = rewritten(request, target, left_out, added);
        let mut head = Head::default();
        let read = Connection::default().head(&bytes, limits, &mut head);
        (read == Ok(Some(bytes.len()))).then_some(Self { bytes, head })
    }

    pub(crate) fn as_request(&self) -> Request<'_> {
        Request::new(&self.bytes, &self.head)
    }
}

fn rewritten(
    request: &Request<'_>,
    target: &[u8],
    left_out: &[&str],
    added: &FieldLines,
) -> Vec<u8> {
    let version = match request.version() {
        Version::Http10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    let method: &[u8] = if request.method_text() == b"HEAD" { b"HEAD " } else { b"GET " };
    let mut bytes = [method, target, b" ", version.as_bytes(), b"\r\n"].concat();
    for (name, value) in request.fields() {
        let mut dropped = OF_BODY.iter().chain(left_out);
        if !dropped.any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
            bytes.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
    }
    bytes.extend_from_slice(added.as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes
}
