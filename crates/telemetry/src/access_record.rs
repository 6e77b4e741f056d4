//! The access record: all data about a finished request that logs, traces and subscribers use.

use std::sync::Arc;

use dunlin_http::Request;
use dunlin_net::address::Peer;
use dunlin_tls::TlsInfo;

use super::{ScriptContext, Timings};

/// One request and its response, borrowed from the connection.
///
/// Data from the client is the bytes that were received; formats escape it. A request that could not be
/// parsed may have an empty method and target.
#[derive(Clone, Debug)]
pub struct AccessRecord<'a> {
    /// Address of the client.
    pub peer: Peer,
    /// Name of the client by reverse DNS, if it is resolved by now.
    pub peer_name: Option<&'a str>,
    /// The authenticated user.
    pub user: Option<&'a [u8]>,
    /// Start of the request: seconds since 1970-01-01 UTC.
    pub started_secs: u64,
    /// Start of the request: nanoseconds within the second.
    pub started_nanos: u32,
    /// From the request's first byte to the response's last, in nanoseconds.
    pub duration_ns: u64,
    /// The method as received.
    pub method: &'a [u8],
    /// The request-target as received (RFC 9112 §3.2).
    pub target: &'a [u8],
    /// The request's protocol version, such as `HTTP/1.1`.
    pub version: &'static str,
    /// The status code of the final response.
    pub status: u16,
    /// Bytes of the response body that were sent.
    pub body_bytes: u64,
    /// Bytes of the response body before its content coding; `None` if it was not compressed for the request.
    pub plain_bytes: Option<u64>,
    /// Bytes that the client has sent through a tunnel; `None` if there was no tunnel.
    pub tunnel_received: Option<u64>,
    /// The `Referer` header.
    pub referer: Option<&'a [u8]>,
    /// The `User-Agent` header.
    pub user_agent: Option<&'a [u8]>,
    /// The `Host` field.
    pub host: Option<&'a [u8]>,
    /// The request, for formats that name its fields.
    pub request: Option<&'a Request<'a>>,
    /// The field lines of the response, for formats that name them; empty if no log needs them.
    pub response_lines: &'a [u8],
    /// The name of the site.
    pub site: &'a str,
    /// Result of the file cache or of the response cache: `hit`, `stale`, `revalidated`, `collapsed`, `miss`, `off` or `-`.
    pub cache: &'static str,
    /// The content coding of the response, such as `gzip`, or `-`.
    pub coding: &'static str,
    /// The serial number of the connection.
    pub connection: u64,
    /// The client used TLS, to the server or to a trusted proxy.
    pub encrypted: bool,
    /// Durations of the phases.
    pub timings: Timings,
    /// TLS parameters; `None` without TLS.
    pub tls: Option<TlsInfo>,
    /// Id and timestamps of the script's run, or the upstream, for requests to scripts and upstreams.
    pub script_context: Option<&'a ScriptContext>,
}

impl<'a> AccessRecord<'a> {
    /// Returns the subject of the client's certificate.
    pub(crate) fn tls_client(&self) -> Option<&[u8]> {
        Some(self.tls.as_ref()?.client.as_ref()?.subject.as_bytes())
    }

    /// Returns the values of a field of the request or of the response, separated by `, `.
    pub(crate) fn field(&self, name: &str, is_response: bool) -> Option<Vec<u8>> {
        let is_named = |other: &[u8]| other.eq_ignore_ascii_case(name.as_bytes());
        let values: Vec<&[u8]> = match is_response {
            true => lines(self.response_lines)
                .filter(|(name, _)| is_named(name))
                .map(|(_, value)| value)
                .collect(),
            false => {
                let fields = self.request?.fields();
                fields.filter(|(name, _)| is_named(name)).map(|(_, value)| value).collect()
            }
        };
        (!values.is_empty()).then(|| values.join(&b", "[..]))
    }

    /// Returns the request id. Only requests to scripts have one.
    pub fn request_id(&self) -> Option<&'a str> {
        self.script_context.map(ScriptContext::id).filter(|id| !id.is_empty())
    }

    /// Returns the upstream that got the request last, for requests to upstreams.
    pub fn upstream(&self) -> Option<Arc<str>> {
        self.script_context.and_then(ScriptContext::upstream)
    }

    /// Returns the path of the request-target, without the authority of the absolute form (RFC 9112 §3.2.2).
    pub fn path(&self) -> &'a [u8] {
        let end = memchr::memchr(b'?', self.target).unwrap_or(self.target.len());
        let path = &self.target[..end];
        if path.first() == Some(&b'/') {
            return path;
        }
        let Some(scheme) = memchr::memmem::find(path, b"://") else { return path };
        let authority = scheme + 3;
        match memchr::memchr(b'/', &path[authority..]) {
            Some(length) => &path[authority + length..],
            None => b"/",
        }
    }

    /// Returns the query of the request-target, without the question mark.
    pub fn query(&self) -> Option<&'a [u8]> {
        let mark = memchr::memchr(b'?', self.target)?;
        Some(&self.target[mark + 1..])
    }
}

/// Returns the names and values of field lines.
fn lines(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the record of a plain request, for tests to modify.
    pub(crate) fn sample() -> AccessRecord<'static> {
        AccessRecord {
            peer: Peer::Ip([192, 0, 2, 7].into()),
            peer_name: None,
            user: None,
            started_secs: 971_186_136,
            started_nanos: 123_456_789,
            duration_ns: 1_234_567,
            method: b"GET",
            target: b"/apache_pb.gif?x=1",
            version: "HTTP/1.1",
            status: 200,
            body_bytes: 2326,
            plain_bytes: None,
            tunnel_received: None,
            referer: Some(b"http://www.example.com/start.html"),
            user_agent: Some(
                b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            ),
            host: Some(b"www.example.com"),
            request: None,
            response_lines: b"",
            site: "main",
            cache: "hit",
            coding: "gzip",
            connection: 42,
            encrypted: false,
            timings: Timings { head: 12_999, handler: Some(345_000), ..Timings::default() },
            tls: None,
            script_context: None,
        }
    }

    #[test]
    fn path_and_query_of_each_form_of_target() {
        let table = [
            ("/a/b?c=d?e", "/a/b", Some("c=d?e")),
            ("/a", "/a", None),
            ("http://h/p?q", "/p", Some("q")),
            ("http://h?q", "/", Some("q")),
            ("*", "*", None),
            ("", "", None),
        ];
        for (target, path, query) in table {
            let record = AccessRecord { target: target.as_bytes(), ..sample() };
            assert_eq!(record.path(), path.as_bytes());
            assert_eq!(record.query(), query.map(str::as_bytes));
        }
    }
}
