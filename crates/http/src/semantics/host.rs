//! Host and authority (RFC 9110 §7.2, RFC 3986 §3.2).

use std::net::Ipv6Addr;

use super::bytes::alphanumeric_and;

/// A host with an optional port: the value of the `Host` field, or the authority of an http URI without userinfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host<'a> {
    /// The host name or address as written, with the brackets of an IPv6 address. It can be empty, which an http URI does
    /// not permit; see [`is_authority`].
    pub name: &'a [u8],
    /// The port, if present and not empty.
    pub port: Option<u16>,
}

/// Parses `uri-host [ ":" port ]` (RFC 9110 §7.2). Userinfo is rejected, as is a port above 65535.
///
/// The grammar permits an empty name. [`is_authority`] does not.
#[inline]
pub fn parse(text: &[u8]) -> Option<Host<'_>> {
    if text.first() == Some(&b'[') {
        return parse_literal(text);
    }
    let mut end = text.iter().position(|&b| !NAME[usize::from(b)]).unwrap_or(text.len());
    if text.get(end) == Some(&b'%') {
        end = encoded_name(text, end)?;
    }
    Some(Host { name: &text[..end], port: parse_port(&text[end..])? })
}

/// Returns `true` if the text is a valid authority of an `http` or `https` URI, whose name must not be empty (RFC 9110
/// §4.2.1).
#[inline]
pub fn is_authority(text: &[u8]) -> bool {
    parse(text).is_some_and(|host| !host.name.is_empty())
}

/// Returns the end of a name whose first percent-encoded byte is at `at`; `None` if an encoding is malformed (RFC 3986 §2.1).
#[cold]
fn encoded_name(text: &[u8], mut at: usize) -> Option<usize> {
    while let Some(&byte) = text.get(at) {
        match byte {
            b'%' if text.get(at + 1..at + 3)?.iter().all(u8::is_ascii_hexdigit) => at += 3,
            b'%' => return None,
            byte if NAME[usize::from(byte)] => at += 1,
            _ => break,
        }
    }
    Some(at)
}

/// `IP-literal = "[" ( IPv6address / IPvFuture ) "]"` (RFC 3986 §3.2.2).
fn parse_literal(text: &[u8]) -> Option<Host<'_>> {
    let close = memchr::memchr(b']', text)?;
    let address = &text[1..close];
    let is_address =
        || std::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok());
    if !is_future(address) && !is_address() {
        return None;
    }
    Some(Host { name: &text[..=close], port: parse_port(&text[close + 1..])? })
}

/// `IPvFuture = "v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )` (RFC 3986 §3.2.2).
fn is_future(text: &[u8]) -> bool {
    let [b'v' | b'V', rest @ ..] = text else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let Some((b'.', address)) = rest[digits..].split_first() else { return false };
    digits > 0
        && !address.is_empty()
        && address.iter().all(|&byte| NAME[usize::from(byte)] || byte == b':')
}

/// Parses a port; `None` if malformed. An empty port is legal and means none (RFC 3986 §3.2.3).
fn parse_port(text: &[u8]) -> Option<Option<u16>> {
    let digits = match text {
        [] | [b':'] => return Some(None),
        [b':', digits @ ..] => digits,
        _ => return None,
    };
    let number = digits.iter().try_fold(0_u16, |sum, &digit| {
        let value = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(value)
    })?;
    Some(Some(number))
}

/// `unreserved / sub-delims`: the characters of a `reg-name` beside percent-encoded bytes (RFC 3986 §3.2.2).
const NAME: [bool; 256] = alphanumeric_and(b"-._~!$&'()*+,;=");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split_and_malformed_ones_rejected() {
        for (text, name, port) in [
            ("example.com", "example.com", None),
            ("example.com:8080", "example.com", Some(8080)),
            ("example.com:", "example.com", None),
            ("example.com:65535", "example.com", Some(65535)),
            ("example.com:000080", "example.com", Some(80)),
            ("[::1]:80", "[::1]", Some(80)),
            ("[::ffff:192.0.2.1]", "[::ffff:192.0.2.1]", None),
            ("[v1.a:b]:80", "[v1.a:b]", Some(80)),
            ("[VaF.x]", "[VaF.x]", None),
            ("a%20b", "a%20b", None),
            ("%c3%A4.test:1", "%c3%A4.test", Some(1)),
            ("a!$&'()*+,;=-._~b", "a!$&'()*+,;=-._~b", None),
            ("", "", None),
            (":80", "", Some(80)),
        ] {
            let expected = Some(Host { name: name.as_bytes(), port });
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
            assert_eq!(is_authority(text.as_bytes()), !name.is_empty(), "{text}");
        }
        for text in [
            "user@host",
            "a b",
            "a/b",
            "a:b",
            "a:99999",
            "a:65536",
            "a:80:80",
            "a:-1",
            "a:+1",
            "[::1",
            "[x]",
            "[::1]x",
            "[::1%25eth0]",
            "[fe80::1%eth0]",
            "[192.0.2.1]",
            "[]",
            "[v.x]",
            "[v1.]",
            "[vg.x]",
            "[v1x]",
            "[v1.a b]",
            "ä",
            "a%",
            "a%2",
            "a%2g",
            "%",
            "%%20",
            "a%:80",
            "a%2:80",
            "a\\b",
            "a\"b",
            "<a>",
            "a|b",
            "a^b",
            "a`b",
            "{a}",
            "a?b",
            "a#b",
            "a]",
            "a[b",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
