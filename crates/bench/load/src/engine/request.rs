//! Requests in wire format.

use bytes::Bytes;
use dunlin_http::{FieldLines, RequestHead};
use url::Url;

use crate::plan::{Plan, Protocol, Reuse};

/// An HTTP/1 request in wire format.
pub(super) struct Prepared {
    pub(super) bytes: Vec<u8>,
    /// The request with `Connection: close`.
    pub(super) last: Vec<u8>,
    /// Length of the body at the end of both.
    pub(super) body: usize,
    /// A HEAD request.
    pub(super) head_only: bool,
    /// The method is safe (RFC 9110 §9.2.1).
    pub(super) is_safe: bool,
}

impl Prepared {
    pub(super) fn new(plan: &Plan, method: &str, url: &Url, body: &[u8]) -> Self {
        let mut target = url.path().to_owned();
        if let Some(query) = url.query() {
            target.push('?');
            target.push_str(query);
        }
        let is_http10 = plan.protocol == Protocol::Http10;
        let version = if is_http10 { "1.0" } else { "1.1" };
        let mut head = format!("{method} {target} HTTP/{version}\r\n");
        let has =
            |name: &str| plan.request.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has("host") {
            let host = url.host_str().unwrap_or_default();
            let port = url.port().map_or(String::new(), |port| format!(":{port}"));
            head += &format!("Host: {host}{port}\r\n");
        }
        if !has("user-agent") {
            head += concat!("User-Agent: dunlin/", env!("CARGO_PKG_VERSION"), "\r\n");
        }
        if !has("accept") {
            head += "Accept: */*\r\n";
        }
        for (name, value) in &plan.request.fields {
            head += &format!("{name}: {value}\r\n");
        }
        let sends_body = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
        if sends_body && !has("content-length") {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        let kept = is_http10 && plan.reuse != Reuse::Never;
        let whole = |connection: &str| {
            let mut bytes = format!("{head}{connection}\r\n").into_bytes();
            bytes.extend_from_slice(body);
            bytes
        };
        let has_connection_field = has("connection");
        Self {
            bytes: whole(if kept && !has_connection_field {
                "Connection: keep-alive\r\n"
            } else {
                ""
            }),
            last: whole(if has_connection_field || is_http10 {
                ""
            } else {
                "Connection: close\r\n"
            }),
            body: body.len(),
            head_only: method == "HEAD",
            is_safe: matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE"),
        }
    }
}

/// Returns the head of the request of a URL for HTTP/2 and HTTP/3, and its body.
pub(super) fn request_of_streams(
    plan: &Plan,
    method: &str,
    url: &Url,
    body: &[u8],
) -> (RequestHead, Bytes) {
    let fields = &plan.request.fields;
    let find = |name: &str| fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    let authority = match find("host") {
        Some((_, host)) => host.clone(),
        None => {
            let port = url.port().map_or(String::new(), |port| format!(":{port}"));
            format!("{}{port}", url.host_str().unwrap_or_default())
        }
    };
    let query = url.query().map_or(String::new(), |query| format!("?{query}"));
    let mut head = RequestHead::new(method, &authority, &format!("{}{query}", url.path()));
    let mut lines = FieldLines::new();
    if find("user-agent").is_none() {
        lines.push("user-agent", concat!("dunlin/", env!("CARGO_PKG_VERSION")));
    }
    if find("accept").is_none() {
        lines.push("accept", "*/*");
    }
    // The authority belongs in `:authority` (RFC 9113 §8.3.1); the engine states the length of a body.
    let is_written = |name: &str| {
        name.eq_ignore_ascii_case("host")
            || !body.is_empty() && name.eq_ignore_ascii_case("content-length")
    };
    for (name, value) in fields.iter().filter(|(name, _)| !is_written(name)) {
        lines.push(name, value);
    }
    head.fields = lines;
    (head, Bytes::copy_from_slice(body))
}
