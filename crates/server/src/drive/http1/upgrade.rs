//! Connections that begin with HTTP/2, with prior knowledge (RFC 9113 §3.3).

use dunlin_http::http2::PREFACE;
use dunlin_http::semantics::is_token;

/// Returns `true` if a connection that begins with these bytes uses HTTP/2; `None` if there are too few.
#[inline]
pub(super) fn is_http2(start: &[u8]) -> Option<bool> {
    if !start.starts_with(b"P") {
        return Some(false);
    }
    let known = start.len().min(PREFACE.len());
    if start[..known] != PREFACE[..known] {
        return Some(false);
    }
    (known == PREFACE.len()).then_some(true)
}

/// Returns `true` if the first line has the form of HTTP/2's preface and not of a request line: three words without a slash, which
/// every version has. A client of HTTP/2 would not understand a response of HTTP/1 (RFC 9113 §3.4).
pub(super) fn is_invalid_preface(start: &[u8]) -> bool {
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let mut words = line.split(|&byte| byte == b' ');
    let is_word = |word: Option<&[u8]>| word.is_some_and(is_token);
    is_word(words.next())
        && is_word(words.next())
        && is_word(words.next())
        && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_preface_is_one() {
        for cut in 1..PREFACE.len() {
            assert_eq!(is_http2(&PREFACE[..cut]), None);
        }
        assert_eq!(is_http2(&[PREFACE, b"x"].concat()), Some(true));
        assert_eq!(is_http2(b"POST / HTTP/1.1"), Some(false));
        assert_eq!(is_http2(b"PRI * HTTP/1.1\r\n"), Some(false));
        assert!(is_invalid_preface(b"INVALID CONNECTION PREFACE\r\n\r\n"));
        for line in
            ["SOURCE / ICE/1.0", "GET / x", "GET /", "X / HTTP/1.1", "a b c d", "a b", "a  b", ""]
        {
            assert!(!is_invalid_preface(line.as_bytes()), "{line}");
        }
    }
}
