//! The head of an upstream's response as the client gets it.

use dunlin_http::FieldLines;

/// The fields of a response, and the length that they state.
pub(crate) struct Fields {
    /// The fields, without those of the connection and of the framing.
    pub(crate) lines: FieldLines,
    pub(crate) length: Option<u64>,
}

/// Takes the fields of an upstream's response.
pub(crate) fn fields(mut lines: FieldLines) -> Fields {
    let (mut length, mut listed) = (None, Vec::new());
    lines.retain(|name, value| {
        if name.len() == 14 && name.eq_ignore_ascii_case(b"content-length") {
            // The engine has read it.
            length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            return false;
        }
        if name.len() == 10 && name.eq_ignore_ascii_case(b"connection") {
            let options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            listed.extend(options.filter(|option| !is_usual(option)).map(<[u8]>::to_vec));
        }
        !ends_here(name)
    });
    if !listed.is_empty() {
        lines.retain(|name, _| !listed.iter().any(|option| name.eq_ignore_ascii_case(option)));
    }
    Fields { lines, length }
}

/// Whether an option of `Connection` names no further field.
fn is_usual(option: &[u8]) -> bool {
    [&b"close"[..], b"keep-alive", b"upgrade"]
        .iter()
        .any(|usual| option.eq_ignore_ascii_case(usual))
}

/// The trailer fields that the client gets: not those that a recipient needs before the body (RFC 9110 §6.5.1).
pub(crate) fn trailers(trailers: &FieldLines) -> FieldLines {
    let mut kept = FieldLines::default();
    for (name, value) in trailers.iter() {
        let is_early =
            [&b"content-length"[..], b"content-encoding", b"content-type", b"set-cookie"];
        let is_early = is_early.iter().any(|other| name.eq_ignore_ascii_case(other));
        if !is_early && !ends_here(name) {
            kept.push_parsed(name, value);
        }
    }
    kept
}

/// Whether a field is of one connection only (RFC 9110 §7.6.1), or the server sends its own.
fn ends_here(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    match name.len() {
        2 => is(b"te"),
        4 => is(b"date"),
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
    }

    #[test]
    fn trailer_fields_do_not_change_the_framing() {
        let mut fields = FieldLines::default();
        fields.push("grpc-status", "0");
        fields.push("Content-Length", "1");
        fields.push("Connection", "close");
        assert_eq!(trailers(&fields).as_bytes(), b"grpc-status: 0\r\n");
    }
}
