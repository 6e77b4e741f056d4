//! The demands of a request on a cache (RFC 9111 §5.2.1), and the rule that decides if a cache may respond to it at all.

use dunlin_http::semantics::Method;
use dunlin_http::{FieldName, FieldSet, Request};

use crate::directives::arguments;
use crate::fields::{MAX_SECONDS, Values, delta_seconds};

/// The cache directives of a request; times are in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the directive of that name")]
pub struct RequestDirectives {
    pub no_cache: bool,
    pub no_store: bool,
    pub only_if_cached: bool,
    pub max_age: Option<u64>,
    pub max_stale: Option<u64>,
    pub min_fresh: Option<u64>,
}

/// The treatment of a request by its method and fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A stored response may be used, and the response stored.
    Cache,
    /// The request passes by the cache.
    Pass,
    /// The request passes by the cache, and its success invalidates what is stored (RFC 9111 §4.4).
    Invalidate,
}

/// Fields of requests to which only the origin can respond.
const NOT_FOR_CACHES: FieldSet = FieldSet::of(&[
    FieldName::Upgrade,
    FieldName::TransferEncoding,
    FieldName::IfMatch,
    FieldName::IfUnmodifiedSince,
]);

/// Safe methods that [`Method`] does not know (RFC 10008, RFC 4918, RFC 3253, RFC 5323).
const SAFE: [&[u8]; 4] = [b"QUERY", b"PROPFIND", b"REPORT", b"SEARCH"];

impl RequestDirectives {
    /// Creates the directives of a request: those of `Cache-Control`, or without it those of `Pragma` (RFC 9111 §5.4).
    pub fn of(request: &Request<'_>) -> Self {
        let (mut cache_control, mut pragma) = (Values::new(), Values::new());
        for (name, value) in request.fields() {
            match name.len() {
                13 if name.eq_ignore_ascii_case(b"cache-control") => cache_control.push(value),
                6 if name.eq_ignore_ascii_case(b"pragma") => pragma.push(value),
                _ => {}
            }
        }
        if cache_control.is_empty() && !pragma.is_empty() {
            let no_cache = arguments(&pragma).any(|(name, _)| &*name == b"no-cache");
            return Self { no_cache, ..Self::default() };
        }
        Self::cache_control(&cache_control)
    }

    fn cache_control(lines: &[&[u8]]) -> Self {
        let mut directives = Self::default();
        if lines.is_empty() {
            return directives;
        }
        for (name, argument) in arguments(lines) {
            let seconds = || argument.as_deref().and_then(delta_seconds);
            match &*name {
                b"no-cache" => directives.no_cache = true,
                b"no-store" => directives.no_store = true,
                b"only-if-cached" => directives.only_if_cached = true,
                b"max-age" => directives.max_age = Some(seconds().unwrap_or(0)),
                b"min-fresh" => directives.min_fresh = seconds(),
                b"max-stale" if argument.is_none() => directives.max_stale = Some(MAX_SECONDS),
                b"max-stale" => directives.max_stale = seconds(),
                _ => {}
            }
        }
        directives
    }
}

/// Returns what the cache does with a request.
pub fn use_for(request: &Request<'_>) -> Use {
    match request.method() {
        Method::Get | Method::Head => {}
        method if method.is_safe() || SAFE.contains(&request.method_text()) => return Use::Pass,
        _ => return Use::Invalidate,
    }
    let has_body = request.field(FieldName::ContentLength).is_some_and(|length| length != b"0");
    if has_body || request.has_any(NOT_FOR_CACHES) {
        return Use::Pass;
    }
    Use::Cache
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn directives_are_read() {
        let none = RequestDirectives::default();
        for (fields, expected) in [
            ("Cache-Control: no-cache\r\n", RequestDirectives { no_cache: true, ..none }),
            (
                "Cache-Control: max-age=5, no-store\r\n",
                RequestDirectives { max_age: Some(5), no_store: true, ..none },
            ),
            (
                "cache-control: max-stale\r\n",
                RequestDirectives { max_stale: Some(1 << 31), ..none },
            ),
            (
                "cache-control: max-stale=3, min-fresh=4\r\n",
                RequestDirectives { max_stale: Some(3), min_fresh: Some(4), ..none },
            ),
            (
                "cache-control: only-if-cached\r\n",
                RequestDirectives { only_if_cached: true, ..none },
            ),
            ("cache-control: max-age=x\r\n", RequestDirectives { max_age: Some(0), ..none }),
            ("Pragma: no-cache\r\n", RequestDirectives { no_cache: true, ..none }),
            ("Pragma: foo\r\n", none),
            ("Pragma: no-cache\r\nCache-Control: x\r\n", none),
            ("", none),
        ] {
            let request = request("GET", "/", fields);
            assert_eq!(RequestDirectives::of(&request.as_request()), expected, "{fields}");
        }
    }

    #[test]
    fn the_method_and_the_fields_decide() {
        for (method, fields, expected) in [
            ("GET", "", Use::Cache),
            ("HEAD", "", Use::Cache),
            ("GET", "Content-Length: 0\r\n", Use::Cache),
            ("GET", "Content-Length: 1\r\n", Use::Pass),
            ("GET", "Upgrade: websocket\r\n", Use::Pass),
            ("GET", "If-Match: \"a\"\r\n", Use::Pass),
            ("OPTIONS", "", Use::Pass),
            ("QUERY", "", Use::Pass),
            ("PROPFIND", "", Use::Pass),
            ("POST", "", Use::Invalidate),
            ("PUT", "", Use::Invalidate),
            ("DELETE", "", Use::Invalidate),
            ("M-SEARCH", "", Use::Invalidate),
        ] {
            let request = request(method, "/", fields);
            assert_eq!(use_for(&request.as_request()), expected, "{method} {fields}");
        }
    }
}
