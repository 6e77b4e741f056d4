//! Host and authority (RFC 9110 §7.2, RFC 3986 §3.2).

use super::bytes::alphanumeric_and;

/// The parts of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host<'a> {
    /// The name or address as it was written, brackets included; empty when the field is.
    pub name: &'a [u8],
    /// The port, when there is one.
    pub port: Option<u16>,
}

/// Reads `host [":" port]`; userinfo and everything else that is no host is refused.
#[inline]
pub fn parse(text: &[u8]) -> Option<Host<'_>> {
    if text.first() == Some(&b'[') {
        return parse_bracketed(text);
    }
    let end = text.iter().position(|&b| !NAME[usize::from(b)]).unwrap_or(text.len());
    Some(Host { name: &text[..end], port: parse_port(&text[end..])? })
}

fn parse_bracketed(text: &[u8]) -> Option<Host<'_>> {
    let close = memchr::memchr(b']', text)?;
    let address = std::str::from_utf8(&text[1..close]).ok()?;
    address.parse::<std::net::Ipv6Addr>().ok()?;
    Some(Host { name: &text[..=close], port: parse_port(&text[close + 1..])? })
}

/// `None` when malformed. An empty port is legal and means none (RFC 3986 §3.2.3).
fn parse_port(text: &[u8]) -> Option<Option<u16>> {
    let digits = match text {
        [] | [b':'] => return Some(None),
        [b':', digits @ ..] if digits.len() <= 5 => digits,
        _ => return None,
    };
    let number = digits.iter().try_fold(0_u32, |sum, &digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u32::from(digit - b'0'))
    })?;
    u16::try_from(number).ok().map(Some)
}

/// `unreserved / sub-delims / pct-encoded`, without what never stands in a name that is served.
const NAME: [bool; 256] = alphanumeric_and(b"-._~!$&'()*+,;=%");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split_and_what_is_no_host_is_refused() {
        for (text, name, port) in [
            ("example.com", "example.com", None),
            ("example.com:8080", "example.com", Some(8080)),
            ("example.com:", "example.com", None),
            ("[::1]:80", "[::1]", Some(80)),
            ("", "", None),
        ] {
            let expected = Some(Host { name: name.as_bytes(), port });
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
        for text in
            ["user@host", "a b", "a/b", "a:b", "a:99999", "a:80:80", "[::1", "[x]", "[::1]x", "ä"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
