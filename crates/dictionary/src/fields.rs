//! The fields of Compression Dictionary Transport (RFC 9842 §2), and the requests that may use a dictionary.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dunlin_http::semantics::list::{members, split, weight};
use dunlin_http::{FieldName, Request};

use super::{Hash, dcz};

/// Returns the SHA-256 in the values of `Available-Dictionary`: one byte sequence (RFC 9651 §3.3.5) of 32 bytes. Parameters are ignored.
pub fn available(values: &[&[u8]]) -> Option<Hash> {
    let [value] = values else { return None };
    let item = split(value, b';').next()?;
    let encoded = item.strip_prefix(b":")?.strip_suffix(b":")?;
    STANDARD.decode(encoded).ok()?.try_into().ok()
}

/// Returns `true` if the values of `Accept-Encoding` name dictionary-compressed Zstandard.
pub fn accepts_dcz(values: &[&[u8]]) -> bool {
    members(values).any(|member| {
        let mut parts = split(member, b';');
        let is_named =
            parts.next().is_some_and(|name| name.eq_ignore_ascii_case(dcz::NAME.as_bytes()));
        is_named && weight(parts).is_some_and(|weight| weight > 0)
    })
}

/// Returns the value of `Use-As-Dictionary` for content that is a dictionary for requests whose URL has the pattern, and one of the
/// destinations, if there are any.
pub fn use_as_dictionary(pattern: &str, destinations: &[&str]) -> String {
    let mut value = format!("match={}", string(pattern));
    if !destinations.is_empty() {
        let all: Vec<String> = destinations.iter().map(|name| string(name)).collect();
        value.push_str(&format!(", match-dest=({})", all.join(" ")));
    }
    value
}

/// Returns a string of a structured field (RFC 9651 §4.1.6).
fn string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The pages that may see the size of a response (RFC 9842 §9.3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reader {
    /// One of the same origin, or none.
    Own,
    /// One of this origin, if the response allows it.
    Other(Box<[u8]>),
    /// One that sees nothing of the response, and is not to learn its size.
    Blind,
}

impl Reader {
    /// Returns the reader of the response to a request.
    pub fn of(request: &Request<'_>) -> Self {
        let field = |name: &[u8]| {
            request
                .fields()
                .find(|(given, _)| given.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        match (field(b"sec-fetch-site"), field(b"sec-fetch-mode")) {
            (None | Some(b"same-origin"), _) | (_, None | Some(b"navigate" | b"same-origin")) => {
                Self::Own
            }
            (_, Some(b"cors")) => {
                field(b"origin").map_or(Self::Blind, |origin| Self::Other(origin.into()))
            }
            _ => Self::Blind,
        }
    }

    /// Returns `true` if the reader may see the size of a response with this `Access-Control-Allow-Origin`.
    pub fn may_read(&self, allowed: Option<&[u8]>) -> bool {
        match self {
            Self::Own => true,
            Self::Other(origin) => {
                allowed.is_some_and(|allowed| allowed == b"*" || *allowed == **origin)
            }
            Self::Blind => false,
        }
    }
}

/// Returns `true` if a page of the origin of the request may see the size of its response (RFC 9842 §9.3.3): the request is of the same
/// origin, or the response allows the origin. `allowed` is its `Access-Control-Allow-Origin`.
pub fn is_readable(request: &Request<'_>, allowed: Option<&[u8]>) -> bool {
    Reader::of(request).may_read(allowed)
}

/// Returns the dictionary that a client has and accepts content coded with.
pub fn wanted(request: &Request<'_>) -> Option<Hash> {
    let name = b"available-dictionary".as_slice();
    let values = request.fields().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    let values: Vec<&[u8]> = values.map(|(_, value)| value).take(2).collect();
    if values.is_empty() {
        return None;
    }
    let hash = available(&values)?;
    let codings: Vec<&[u8]> = request.values(FieldName::AcceptEncoding).collect();
    accepts_dcz(&codings).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_http::http1::Http1Connection;
    use dunlin_http::{Head, Limits};

    #[test]
    fn a_dictionary_is_named_by_one_byte_sequence_of_32_bytes() {
        let hash: Hash = std::array::from_fn(|at| at as u8);
        let valid = format!(":{}:", STANDARD.encode(hash));
        assert_eq!(available(&[valid.as_bytes()]), Some(hash));
        assert_eq!(available(&[format!(" {valid};a=1 ").as_bytes()]), Some(hash));
        let short = format!(":{}:", STANDARD.encode([0; 31]));
        for wrong in ["", ":", "::", &valid[1..], &valid[..valid.len() - 1], &short, ":!!:"] {
            assert_eq!(available(&[wrong.as_bytes()]), None, "{wrong}");
        }
        assert_eq!(available(&[valid.as_bytes(), valid.as_bytes()]), None);
        assert_eq!(available(&[]), None);
    }

    #[test]
    fn the_coding_must_be_named() {
        for (value, expected) in [
            ("gzip, br, zstd, dcb, dcz", true),
            ("DCZ;q=0.1", true),
            ("dcz;q=0", false),
            ("*", false),
            ("dcb, zstd", false),
        ] {
            assert_eq!(accepts_dcz(&[value.as_bytes()]), expected, "{value}");
        }
    }

    #[test]
    fn strings_are_quoted() {
        assert_eq!(use_as_dictionary("/a.*.js", &[]), "match=\"/a.*.js\"");
        assert_eq!(use_as_dictionary("/a\\+\"", &[]), "match=\"/a\\\\+\\\"\"");
        let page = use_as_dictionary("/blog/*", &["document", "frame"]);
        assert_eq!(page, "match=\"/blog/*\", match-dest=(\"document\" \"frame\")");
    }

    #[test]
    fn other_origins_need_a_permission() {
        let is = |lines: &str, allowed: Option<&str>| {
            let input = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let (mut connection, mut head) = (Http1Connection::default(), Head::default());
            connection.head(input.as_bytes(), &Limits::default(), &mut head).unwrap().unwrap();
            is_readable(&Request::new(input.as_bytes(), &head), allowed.map(str::as_bytes))
        };
        assert!(is("", None));
        assert!(is("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: no-cors\r\n", None));
        assert!(is("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", None));
        assert!(!is("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n", Some("*")));
        let cors = "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\n";
        assert!(!is(cors, Some("*")));
        let cors = format!("{cors}Origin: https://b\r\n");
        assert!(is(&cors, Some("*")) && is(&cors, Some("https://b")));
        assert!(!is(&cors, Some("https://c")) && !is(&cors, None));
    }
}
