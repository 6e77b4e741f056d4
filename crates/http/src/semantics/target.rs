//! Request-targets (RFC 9112 §3.2).

use super::host;
use super::method::Method;

/// A request-target by its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/path?query`.
    Origin {
        /// Begins with a slash.
        path: &'a [u8],
        /// The query without its question mark, if present.
        query: Option<&'a [u8]>,
    },
    /// `http://authority/path?query`.
    Absolute {
        /// `http` or `https`, in any case.
        scheme: &'a [u8],
        /// A well-formed host with or without port.
        authority: &'a [u8],
        /// Begins with a slash.
        path: &'a [u8],
        /// The query without its question mark, if present.
        query: Option<&'a [u8]>,
    },
    /// `host:port`, for CONNECT.
    Authority(&'a [u8]),
    /// `*`, for OPTIONS.
    Asterisk,
}

impl Target<'_> {
    /// Path and query; `None` for forms without a path.
    pub fn path_and_query(&self) -> Option<Vec<u8>> {
        let (Self::Origin { path, query } | Self::Absolute { path, query, .. }) = self else {
            return None;
        };
        Some(match query {
            Some(query) => [path, &b"?"[..], query].concat(),
            None => path.to_vec(),
        })
    }
}

/// A request-target that is malformed, or whose form the method does not permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetError;

/// Parses a request-target.
///
/// # Errors
/// The target has a fragment, an invalid byte, another scheme, userinfo, or a form that the method does not permit.
#[inline]
pub fn parse(method: Method, raw: &[u8]) -> Result<Target<'_>, TargetError> {
    let mut question = raw.len();
    for (at, &byte) in raw.iter().enumerate() {
        match CLASS[usize::from(byte)] {
            Class::Plain => {}
            Class::Question if question == raw.len() => question = at,
            Class::Question => {}
            Class::Illegal => return Err(TargetError),
        }
    }
    let query = raw.get(question + 1..);
    let before = &raw[..question];
    match (method, raw) {
        (Method::Connect, authority) => match host::parse(authority) {
            Some(host::Host { port: Some(_), name: [_, ..] }) => Ok(Target::Authority(authority)),
            _ => Err(TargetError),
        },
        (_, [b'/', ..]) => Ok(Target::Origin { path: before, query }),
        (Method::Options, b"*") => Ok(Target::Asterisk),
        _ => parse_absolute(before, query),
    }
}

fn parse_absolute<'a>(
    before: &'a [u8],
    query: Option<&'a [u8]>,
) -> Result<Target<'a>, TargetError> {
    let colon = memchr::memmem::find(before, b"://").ok_or(TargetError)?;
    let scheme = &before[..colon];
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return Err(TargetError);
    }
    let rest = &before[colon + 3..];
    let slash = memchr::memchr(b'/', rest).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    if !host::is_authority(authority) {
        return Err(TargetError);
    }
    let path = if path.is_empty() { b"/" } else { path };
    Ok(Target::Absolute { scheme, authority, path, query })
}

#[derive(Clone, Copy)]
enum Class {
    Plain,
    Question,
    Illegal,
}

/// The characters of URIs (RFC 3986 §2), and those that browsers send unencoded nevertheless, which RFC 9112 §3.2 permits,
/// since they are unambiguous.
const CLASS: [Class; 256] = {
    let mut table = [Class::Illegal; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte] = match byte as u8 {
            b'?' => Class::Question,
            b'#' => Class::Illegal,
            _ => Class::Plain,
        };
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_accepted_for_its_methods() {
        let origin = |path: &'static str, query: Option<&'static str>| Target::Origin {
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
        };
        assert_eq!(parse(Method::Get, b"/a?b?c"), Ok(origin("/a", Some("b?c"))));
        assert_eq!(parse(Method::Get, b"/?"), Ok(origin("/", Some(""))));
        assert_eq!(parse(Method::Get, b"//a"), Ok(origin("//a", None)));
        for (raw, text) in [("/a?b?c", "/a?b?c"), ("http://a?b", "/?b"), ("http://a/b?", "/b?")] {
            let parsed = parse(Method::Get, raw.as_bytes()).unwrap();
            assert_eq!(parsed.path_and_query(), Some(text.into()));
        }
        assert_eq!(Target::Asterisk.path_and_query(), None);
        assert_eq!(parse(Method::Options, b"*"), Ok(Target::Asterisk));
        assert_eq!(parse(Method::Connect, b"a:80"), Ok(Target::Authority(b"a:80")));
        assert_eq!(
            parse(Method::Get, b"HTTP://a:80?x"),
            Ok(Target::Absolute {
                scheme: b"HTTP",
                authority: b"a:80",
                path: b"/",
                query: Some(b"x")
            })
        );
        for raw in [
            "",
            "a",
            "*",
            "/a#b",
            "/a b",
            "/\u{e4}",
            "/\u{7f}",
            "ftp://a/",
            "http:///a",
            "http://u@a/",
            "http://",
            "http:/a",
            "http:a",
            "http://:80/",
            "http://a%/",
            "http://a:x/",
            "http://a\\b/",
            "://a/",
            "a.test/",
            "a.test:80",
        ] {
            assert_eq!(parse(Method::Get, raw.as_bytes()), Err(TargetError), "{raw}");
        }
        for raw in ["a", "a:", ":80", "/", "http://a/"] {
            assert_eq!(parse(Method::Connect, raw.as_bytes()), Err(TargetError), "{raw}");
        }
    }
}
