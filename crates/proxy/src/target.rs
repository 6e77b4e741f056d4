//! The request-target that an upstream gets.

use dunlin_config::Proxy;
use dunlin_http::semantics::path;

use crate::call::Call;

/// Returns the request-target of a request for its upstream, and the prefix that was removed from it, if there was one.
pub(crate) fn of_call(call: &Call<'_>) -> (String, Option<String>) {
    let rules = call.group.rules();
    match &rules.path {
        Some(path) => (path.target(call.path, call.query, &call.facts()), None),
        None => target(rules, call.raw_path, call.path, call.query),
    }
}

/// Returns the request-target for an upstream, and the prefix that was removed from it, if there was one. `raw` is the path
/// as the client sent it, `decoded` the path that the router has matched, in which encoded slashes are NULs.
///
/// The upstream gets the client's own spelling, unless it could be read as another path than the one that was matched:
/// a path with `.` and `..` segments or empty ones is sent in its normal form. Encoded slashes stay encoded.
pub(crate) fn target(
    rules: &Proxy,
    raw: &[u8],
    decoded: &[u8],
    query: Option<&[u8]>,
) -> (String, Option<String>) {
    let encoded;
    let mut path = raw;
    let is_client_spelling = raw == decoded || is_spelling_of(raw, decoded);
    let keeps_prefix = rules.strip(raw).is_none() && rules.strip(decoded).is_some();
    if !is_client_spelling || keeps_prefix {
        encoded = path::encode(decoded);
        path = encoded.as_bytes();
    }
    let (prefix, path) = match rules.strip(path) {
        Some((prefix, rest)) => (Some(String::from_utf8_lossy(prefix).into_owned()), rest),
        None => (None, path),
    };
    let query_length = query.map_or(0, |query| query.len() + 1);
    let base = if prefix.is_some() { &*rules.base } else { "" };
    let mut target = String::with_capacity(base.len() + path.len().max(1) + query_length);
    target.push_str(base);
    push(if path.is_empty() && base.is_empty() { b"/" } else { path }, &mut target);
    if let Some(query) = query {
        target.push('?');
        push(query, &mut target);
    }
    (target, prefix.filter(|prefix| !prefix.is_empty()))
}

/// Returns `true` if `raw` is a spelling of the path `decoded` that nothing reads in another way.
fn is_spelling_of(raw: &[u8], decoded: &[u8]) -> bool {
    let mut before = 0;
    for (at, &byte) in raw.iter().enumerate() {
        // Segments that are empty or begin with a dot, which may be encoded.
        let is_dot =
            byte == b'.' || raw[at..].len() >= 3 && raw[at..at + 3].eq_ignore_ascii_case(b"%2e");
        if before == b'/' && (byte == b'/' || is_dot) {
            return false;
        }
        before = byte;
    }
    let mut again = Vec::with_capacity(raw.len());
    path::decode_opaque(raw, &mut again).is_ok() && again == decoded
}

/// Appends bytes of a target. Those that are not ASCII are encoded.
fn push(bytes: &[u8], target: &mut String) {
    if let (true, Ok(text)) = (bytes.is_ascii(), std::str::from_utf8(bytes)) {
        return target.push_str(text);
    }
    for &byte in bytes {
        match byte {
            0x21..=0x7e => target.push(byte as char),
            _ => target.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dunlin_config::{Config, Overrides};

    use super::*;

    fn rules(strip: &str) -> Proxy {
        let text = format!(
            "[[listen]]\naddress = ':1'\n[[site]]\n[[site.route]]\npath = '/*'\n\
             proxy = {{ to = 'http://a', strip = '{strip}' }}"
        );
        let config = Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).unwrap();
        let site = config.sites.iter().next().unwrap();
        Proxy::clone(site.route(b"/").handler.proxy().unwrap())
    }

    fn sent(raw: &str, strip: &str) -> String {
        let mut decoded = Vec::new();
        path::decode_opaque(raw.as_bytes(), &mut decoded).unwrap();
        target(&rules(strip), raw.as_bytes(), &decoded, None).0
    }

    #[test]
    fn an_upstream_gets_the_spelling_of_the_client() {
        for path in ["/", "/a/b", "/a%20b", "/a%3Bb;c", "/%C3%A4", "/a.b/c..d/"] {
            assert_eq!(sent(path, "/"), path);
        }
        assert_eq!(sent("/\u{e4}", "/"), "/%C3%A4");
        let query = Some(&b"a=%2F/../b"[..]);
        assert_eq!(target(&rules("/"), b"/x", b"/x", query).0, "/x?a=%2F/../b");
    }

    #[test]
    fn an_ambiguous_path_is_sent_in_the_form_that_was_matched() {
        for (path, normal) in [
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b", "/b"),
            ("/a//b", "/a/b"),
            ("/./a", "/a"),
            ("/.well-known/x%20y", "/.well-known/x%20y"),
        ] {
            assert_eq!(sent(path, "/"), normal, "{path}");
        }
        // An internal redirect has led to another path than the client's.
        assert_eq!(target(&rules("/"), b"/x", b"/y z", None).0, "/y%20z");
    }

    #[test]
    fn encoded_slashes_stay_encoded() {
        for (path, sent_path) in [
            ("/a%2Fb", "/a%2Fb"),
            ("/a%2fb%20c/%252F", "/a%2fb%20c/%252F"),
            ("/x/http:%2F%2Fb", "/x/http:%2F%2Fb"),
            ("/a/../b%2fc", "/b%2Fc"),
            ("/a//b%2fc", "/a/b%2Fc"),
            ("/app/%2Fx", "/%2Fx"),
            ("/%61pp/a%2Fx", "/a%2Fx"),
            ("/app%2Fx", "/app%2Fx"),
        ] {
            assert_eq!(sent(path, "/app"), sent_path, "{path}");
        }
        // An error page has another path than the client's.
        assert_eq!(target(&rules("/"), b"/a%2Fb", b"/c d", None).0, "/c%20d");
    }

    #[test]
    fn a_prefix_is_removed_however_it_is_spelled() {
        for (path, rest) in [
            ("/app/x", "/x"),
            ("/app", "/"),
            ("/app/", "/"),
            ("/%61pp/x", "/x"),
            ("/apple", "/apple"),
            ("/app/../app/y", "/y"),
        ] {
            assert_eq!(sent(path, "/app"), rest, "{path}");
        }
    }
}
