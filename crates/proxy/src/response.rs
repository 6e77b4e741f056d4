//! The head of an upstream's response as the client gets it.

use std::cell::Cell;

use dunlin_exchange::{Named, is_instruction};
use dunlin_http::FieldLines;
use dunlin_http::semantics::date;

/// The fields of a response, and what they mean for the server.
#[derive(Default)]
pub(crate) struct Fields {
    /// The fields, without those of the connection and of the framing, and those for the server.
    pub(crate) lines: FieldLines,
    /// The length that they state.
    pub(crate) length: Option<u64>,
    /// They have a valid `Date`.
    pub(crate) has_date: bool,
    /// Resources to send in place of the body. There may be only one.
    pub(crate) named: Vec<Named>,
}

/// Takes the fields of an upstream's response.
pub(crate) fn fields(mut lines: FieldLines) -> Fields {
    let (mut taken, mut listed) = (Fields::default(), Vec::new());
    lines.retain(|name, value| {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => {
                // The fields about its age relate to it (RFC 9111 §4.2).
                let is_first = !taken.has_date && is_date(value);
                taken.has_date |= is_first;
                return is_first;
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                // The engine has read it.
                taken.length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                return false;
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                let options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                listed.extend(options.filter(|option| !is_usual(option)).map(<[u8]>::to_vec));
            }
            _ => {}
        }
        if let Some(named) = Named::of_field(name, value) {
            taken.named.push(named);
            return false;
        }
        !ends_here(name) && !is_instruction(name)
    });
    if !listed.is_empty() {
        lines.retain(|name, _| !listed.iter().any(|option| name.eq_ignore_ascii_case(option)));
        taken.has_date &= lines.get("Date").is_some();
    }
    Fields { lines, ..taken }
}

thread_local! {
    /// The last valid `Date`: most responses of a second have the same.
    static LAST_DATE: Cell<[u8; 29]> = const { Cell::new([0; 29]) };
}

fn is_date(value: &[u8]) -> bool {
    if LAST_DATE.get() == value {
        return true;
    }
    let is_valid = date::parse(value).is_some();
    if let (true, Ok(value)) = (is_valid, value.try_into()) {
        LAST_DATE.set(value);
    }
    is_valid
}

/// Takes the fields of an interim response, or of one after which the server writes its own `Date`.
pub(crate) fn without_date(lines: FieldLines) -> FieldLines {
    let mut lines = fields(lines).lines;
    lines.remove("Date");
    lines
}

/// Returns `true` if an option of `Connection` names no further field, or one for all recipients, which it may not name (RFC
/// 9110 §7.6.1): without it, a cache would store what is private, or for others.
fn is_usual(option: &[u8]) -> bool {
    let usual = [&b"close"[..], b"keep-alive", b"upgrade"];
    let for_caches = [
        &b"age"[..],
        b"cache-control",
        b"cdn-cache-control",
        b"dunlin-cache-control",
        b"expires",
        b"vary",
    ];
    usual.iter().chain(&for_caches).any(|other| option.eq_ignore_ascii_case(other))
}

/// Returns the trailer fields that the client gets: not those that a recipient needs before the body (RFC 9110 §6.5.1).
pub(crate) fn trailers(trailers: &FieldLines) -> FieldLines {
    let mut kept = FieldLines::default();
    for (name, value) in trailers.iter() {
        let is_early =
            [&b"content-length"[..], b"content-encoding", b"content-type", b"date", b"set-cookie"];
        let is_early = is_early.iter().any(|other| name.eq_ignore_ascii_case(other));
        let is_for_server = is_instruction(name) || Named::of_field(name, value).is_some();
        if !is_early && !is_for_server && !ends_here(name) {
            kept.push_parsed(name, value);
        }
    }
    kept
}

/// Returns `true` if a field is of one connection only (RFC 9110 §7.6.1), or the server sends its own.
fn ends_here(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        2 => is(b"te"),
        6 => is(b"server"),
        7 => is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        18 => is(b"proxy-authenticate"),
        25 => is(b"proxy-authentication-info"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_for_caches_stay_although_the_connection_lists_them() {
        let mut lines = FieldLines::new();
        lines.push("Connection", "close, Vary, cache-control, X-Hop");
        for (name, value) in [("Vary", "Cookie"), ("Cache-Control", "private"), ("X-Hop", "1")] {
            lines.push(name, value);
        }
        let kept = fields(lines).lines;
        assert_eq!(kept.as_bytes(), b"Vary: Cookie\r\nCache-Control: private\r\n");
    }

    #[test]
    fn fields_of_the_connection_end_here() {
        let mut lines = FieldLines::new();
        for (name, value) in [
            ("Connection", "keep-alive, X-Hop"),
            ("X-Hop", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "12"),
            ("Date", "x"),
            ("Server", "x"),
            ("x-accel-buffering", "no"),
            ("X-Accel-Expires", "0"),
            ("Content-Type", "text/plain"),
            ("set-cookie", "a=b"),
            ("Set-Cookie", "c=d"),
        ] {
            lines.push(name, value);
        }
        let fields = fields(lines);
        let expected = b"Content-Type: text/plain\r\nset-cookie: a=b\r\nSet-Cookie: c=d\r\n";
        assert_eq!(fields.lines.as_bytes(), expected);
        assert_eq!(fields.length, Some(12));
        assert!(!fields.has_date && fields.named.is_empty());
    }

    #[test]
    fn the_first_valid_date_stays() {
        let mut lines = FieldLines::new();
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        for value in ["x", date, "Sun, 06 Nov 1994 08:49:38 GMT"] {
            lines.push("Date", value);
        }
        let kept = fields(lines.clone());
        assert_eq!(kept.lines.as_bytes(), format!("Date: {date}\r\n").as_bytes());
        assert!(kept.has_date);
        assert!(without_date(lines.clone()).is_empty());
        lines.push("Connection", "date");
        let kept = fields(lines);
        assert!(!kept.has_date && kept.lines.is_empty());
    }

    #[test]
    fn named_resources_are_for_the_server() {
        let mut lines = FieldLines::new();
        lines.push("x-accel-redirect", "/a");
        lines.push("A", "1");
        lines.push("X-SENDFILE", "/b");
        let fields = fields(lines);
        assert_eq!(fields.lines.as_bytes(), b"A: 1\r\n");
        assert_eq!(fields.named, [Named::Path(b"/a".to_vec()), Named::File(b"/b".to_vec())]);
    }

    #[test]
    fn trailer_fields_do_not_change_the_framing() {
        let mut fields = FieldLines::default();
        fields.push("grpc-status", "0");
        fields.push("Content-Length", "1");
        fields.push("Connection", "close");
        fields.push("Date", "x");
        fields.push("X-Accel-Redirect", "/a");
        fields.push("X-Sendfile", "/a");
        assert_eq!(trailers(&fields).as_bytes(), b"grpc-status: 0\r\n");
    }
}
