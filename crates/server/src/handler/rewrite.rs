//! Requests that the server makes of others: the same fields, another target, no body.

use dunlin_http::http1::Http1Connection;
use dunlin_http::{FieldLines, FieldName, Head, Limits, Request, Version};

/// The fields of a body, which a rewritten request does not have.
pub(crate) const OF_BODY: [&str; 4] =
    ["content-length", "content-type", "transfer-encoding", "expect"];

/// Fields that a rewritten request has although `Connection` lists them: they belong together.
const OF_CONNECTION: [&str; 4] = ["connection", "host", "te", "upgrade"];

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
        let read = Http1Connection::default().head(&bytes, limits, &mut head);
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
    let connection = request.values(FieldName::Connection);
    let options = connection.flat_map(|value| value.split(|&byte| byte == b','));
    let listed: Vec<&[u8]> = options.map(<[u8]>::trim_ascii).collect();
    for (name, value) in request.fields() {
        let is_it = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let mut dropped = OF_BODY.iter().chain(left_out).map(|other| other.as_bytes());
        // What `Connection` lists ends here, so that no handler that the request is redirected to gets more of it than the first.
        let mut kept = OF_CONNECTION.iter().map(|other| other.as_bytes());
        let is_listed = listed.iter().any(|other| is_it(other)) && !kept.any(is_it);
        if !dropped.any(is_it) && !is_listed {
            bytes.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
    }
    bytes.extend_from_slice(added.as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connection_lists_ends_here() {
        let text =
            b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Origin, upgrade, host\r\nOrigin: a\r\n\
                     Upgrade: websocket\r\nCookie: b\r\n\r\n";
        let mut head = Head::default();
        let read = Http1Connection::default().head(text, &Limits::default(), &mut head);
        assert_eq!(read, Ok(Some(text.len())));
        let request = Request::new(text, &head);
        let rewritten = RewrittenRequest::new(&request, b"/b", &[], &Limits::default());
        let rewritten = rewritten.expect("a request");
        let names: Vec<_> =
            rewritten.as_request().fields().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(names, [&b"Host"[..], b"Connection", b"Upgrade", b"Cookie"]);
    }
}
