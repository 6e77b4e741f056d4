//! Values of a request that templates name: `{method}`, `{header.X-Kind}`, `{map.backend}`.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_http::semantics::date::civil_from_days;
use dunlin_http::semantics::{address, is_token, path::encode};

use super::facts::Facts;
use super::map::{Map, Maps};
use super::template::push_query;

/// A value of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RequestValue {
    Method,
    Scheme,
    /// The version of HTTP, as `HTTP/1.1`.
    Protocol,
    /// The address of the client.
    Client,
    /// The host in lower case, without port.
    Host,
    /// The decoded path.
    Path,
    /// The encoded query.
    Query,
    /// The encoded path with its query.
    Target,
    /// The time, as `2026-11-28T00:31:59+00:00`.
    TimeIso,
    /// The values of a field, separated by `, `, or by `; ` for Cookie.
    Header(Box<str>),
    /// The first value of a cookie.
    Cookie(Box<str>),
    /// The first value of a parameter of the query, decoded.
    Parameter(Box<str>),
    Map(Arc<Map>),
}

/// The names of values, for messages.
pub(super) const NAMES: &str = "{method}, {scheme}, {protocol}, {client}, {time_iso}, {header.NAME}, {cookie.NAME}, {query.NAME}, {map.NAME}";

impl RequestValue {
    /// Returns the value of that name; `None` if there is no value of this kind.
    ///
    /// # Errors
    /// There is no such map, or the name of the field or cookie is invalid.
    pub(super) fn parse(name: &str, maps: &Maps) -> Option<Result<Self, String>> {
        let token = |name: &str, make: fn(Box<str>) -> Self| match is_token(name.as_bytes()) {
            true => Ok(make(name.into())),
            false => Err(format!("{name:?} is not a name")),
        };
        Some(Ok(match name.split_once('.') {
            Some(("header", name)) => return Some(token(name, Self::Header)),
            Some(("cookie", name)) => return Some(token(name, Self::Cookie)),
            Some(("query", "")) => return Some(Err("\"\" is not a name".into())),
            Some(("query", name)) => Self::Parameter(name.into()),
            Some(("map", name)) => return Some(maps.find(name).map(Self::Map)),
            Some(_) => return None,
            None => match name {
                "method" => Self::Method,
                "scheme" => Self::Scheme,
                "protocol" => Self::Protocol,
                "client" => Self::Client,
                "host" => Self::Host,
                "path" => Self::Path,
                "query" => Self::Query,
                "target" => Self::Target,
                "time_iso" => Self::TimeIso,
                _ => return None,
            },
        }))
    }

    /// Returns `true` if a client can choose the value freely.
    pub(super) fn is_chosen(&self) -> bool {
        match self {
            Self::Method
            | Self::Scheme
            | Self::Protocol
            | Self::Client
            | Self::Host
            | Self::TimeIso => false,
            Self::Map(map) => map.is_chosen(),
            Self::Path
            | Self::Query
            | Self::Target
            | Self::Header(_)
            | Self::Cookie(_)
            | Self::Parameter(_) => true,
        }
    }

    /// Passes on the pieces of the value.
    pub(super) fn pieces(&self, facts: &Facts<'_>, add: &mut dyn FnMut(Piece<'_>)) {
        match self {
            Self::Method => add(Piece::Value(facts.request.method_text())),
            Self::Scheme => add(Piece::Text(if facts.encrypted { "https" } else { "http" })),
            Self::Protocol => add(Piece::Text(facts.request.version().as_str())),
            Self::Client => {
                let mut text = Vec::with_capacity(40);
                facts.client.into_iter().for_each(|client| address::push(client, &mut text));
                add(Piece::Value(&text));
            }
            Self::Host => add(Piece::Value(&facts.host())),
            Self::Path => add(Piece::Value(facts.path)),
            Self::Query => add(Piece::Encoded(facts.query.unwrap_or_default())),
            Self::Target => {
                let mut target = encode(facts.path).into_bytes();
                push_query(facts.query, &mut target);
                add(Piece::Encoded(&target));
            }
            Self::TimeIso => add(Piece::Text(&time_iso(SystemTime::now()))),
            Self::Header(name) => {
                let values: Vec<&[u8]> = facts.field_values(name).collect();
                // The lines of Cookie are joined as its pairs are (RFC 9113 §8.2.3).
                let separator: &[u8] =
                    if name.eq_ignore_ascii_case("cookie") { b"; " } else { b", " };
                add(Piece::Value(&values.join(separator)));
            }
            Self::Cookie(name) => {
                let values = facts.cookies(name);
                add(Piece::Value(values.first().map_or(&[], |value| value)));
            }
            Self::Parameter(name) => {
                let value = facts.parameters(name).next();
                add(Piece::Value(&value.unwrap_or_default()));
            }
            Self::Map(map) => map.pieces(facts, add),
        }
    }
}

impl fmt::Display for RequestValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method => f.write_str("method"),
            Self::Scheme => f.write_str("scheme"),
            Self::Protocol => f.write_str("protocol"),
            Self::Client => f.write_str("client"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Query => f.write_str("query"),
            Self::Target => f.write_str("target"),
            Self::TimeIso => f.write_str("time_iso"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Cookie(name) => write!(f, "cookie.{name}"),
            Self::Parameter(name) => write!(f, "query.{name}"),
            Self::Map(map) => write!(f, "map.{}", map.name()),
        }
    }
}

/// Returns a time in seconds (RFC 3339, UTC).
fn time_iso(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil_from_days(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+00:00")
}

/// A piece of a value: what is encoded for the place where it stands, and what is not.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'v> {
    /// A text of the configuration.
    Text(&'v str),
    /// A value of the request.
    Value(&'v [u8]),
    /// A value of the request that is encoded as in a URL.
    Encoded(&'v [u8]),
}

impl Piece<'_> {
    /// Appends the piece as it is.
    pub(super) fn push_plain(self, text: &mut Vec<u8>) {
        match self {
            Self::Text(part) => text.extend_from_slice(part.as_bytes()),
            Self::Value(part) | Self::Encoded(part) => text.extend_from_slice(part),
        }
    }

    /// Appends the piece; `encode` encodes a value of the request.
    pub(super) fn push_encoded(self, encode: impl Fn(&[u8], &mut Vec<u8>), text: &mut Vec<u8>) {
        match self {
            Self::Value(value) => encode(value, text),
            piece => piece.push_plain(text),
        }
    }
}
