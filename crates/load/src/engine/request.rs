//! Requests in wire format.

use bytes::Bytes;
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
}

impl Prepared {
    pub(super) fn new(plan: &Plan, method: &str, url: &Url, body: &[u8]) -> Self {
        let mut target = url.path().to_owned();
        if let Some(query) = url.query() {
            target.push('?');
            target.push_str(query);
        }
        let version = if plan.protocol == Protocol::Http10 { "1.0" } else { "1.1" };
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
        let kept = plan.protocol == Protocol::Http10 && plan.reuse != Reuse::Never;
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
            last: whole(if has_connection_field || plan.protocol == Protocol::Http10 {
                ""
            } else {
                "Connection: close\r\n"
            }),
            body: body.len(),
            head_only: method == "HEAD",
        }
    }
}

/// An HTTP/2 request, and its body.
pub(super) fn http2_request(
    plan: &Plan,
    method: &str,
    url: &Url,
    body: &[u8],
) -> Result<(http::Request<()>, Bytes), String> {
    let mut request =
        http::Request::builder().method(method).uri(url.as_str()).version(http::Version::HTTP_2);
    request = request
        .header("user-agent", concat!("dunlin/", env!("CARGO_PKG_VERSION")))
        .header("accept", "*/*");
    for (name, value) in &plan.request.fields {
        request = request.header(name, value);
    }
    if !body.is_empty() {
        request = request.header("content-length", body.len());
    }
    let request = request.body(()).map_err(|error| error.to_string())?;
    Ok((request, Bytes::copy_from_slice(body)))
}
