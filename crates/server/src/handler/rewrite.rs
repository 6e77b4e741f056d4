//! Requests that the server makes of others: the same fields, another target, no body.

use dunlin_http::http1::Http1Connection;
use dunlin_http::{FieldLines, FieldName, Head, Limits, Method, Request, Version};

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
        let is_head = request.method_text() == b"HEAD";
        let method = if is_head { Method::Head } else { Method::Get };
        Self::with_method(request, method, target, left_out, added, limits)
    }

    /// As [`with_fields`](Self::with_fields), with the method HEAD or GET.
    pub(crate) fn with_method(
        request: &Request<'_>,
        method: Method,
        target: &[u8],
        left_out: &[&str],
        added: &FieldLines,
        limits: &Limits,
    ) -> Option<Self> {
        Self::read(rewritten(request, (method, target), left_out, added), limits)
    }

    /// Returns the same request, with its body, but without the fields `left_out`, whose names are in lower case.
    pub(crate) fn without(
        request: &Request<'_>,
        left_out: &[&str],
        limits: &Limits,
    ) -> Option<Self> {
        if request.method() == Method::ExtendedConnect {
            return None;
        }
        let (method, target) = (request.method_text(), request.target());
        let mut bytes = [method, b" ", target, b" ", version(request), b"\r\n"].concat();
        let is_left_out =
            |name: &[u8]| left_out.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()));
        for (name, value) in request.fields().filter(|(name, _)| !is_left_out(name)) {
            bytes.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
        bytes.extend_from_slice(b"\r\n");
        Self::read(bytes, limits)
    }

    fn read(bytes: Vec<u8>, limits: &Limits) -> Option<Self> {
        let mut head = Head::default();
        let read = Http1Connection::default().head(&bytes, limits, &mut head);
        (read == Ok(Some(bytes.len()))).then_some(Self { bytes, head })
    }

    pub(crate) fn as_request(&self) -> Request<'_> {
        Request::new(&self.bytes, &self.head)
    }
}

fn version(request: &Request<'_>) -> &'static [u8] {
    match request.version() {
        Version::Http10 => b"HTTP/1.0",
        _ => b"HTTP/1.1",
    }
}

fn rewritten(
    request: &Request<'_>,
    (method, target): (Method, &[u8]),
    left_out: &[&str],
    added: &FieldLines,
) -> Vec<u8> {
    let method: &[u8] = if method == Method::Head { b"HEAD " } else { b"GET " };
    let mut bytes = [method, target, b" ", version(request), b"\r\n"].concat();
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
