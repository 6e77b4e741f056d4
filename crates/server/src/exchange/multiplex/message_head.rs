//! The head of a message that a script writes with its head (RFC 3875 §5), which protocols with frames need apart.

use dunlin_http::FieldLines;
use dunlin_http::semantics::{is_field_value, is_token};

/// The head of such a message, as far as it was received.
#[derive(Debug, Default)]
pub(super) struct MessageHead {
    bytes: Vec<u8>,
    /// Offset of the body, once the head is complete.
    end: Option<usize>,
}

/// Maximum size of a head in bytes.
const MAX: usize = 64 * 1024;

impl MessageHead {
    pub(super) fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the bytes behind the head.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.end.unwrap_or_default()..]
    }

    pub(super) fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Adds bytes. Returns `false` if the head is too large.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = memchr::memchr(b'\n', &self.bytes[at..]) {
            let line = self.bytes[at..at + length].trim_ascii_end();
            at += length + 1;
            if line.is_empty() {
                self.end = Some(at);
                return true;
            }
        }
        self.bytes.len() < MAX
    }

    /// Returns status, fields and stated length; `None` if the head is malformed.
    pub(super) fn parse(&self) -> Option<(u16, FieldLines, Option<u64>)> {
        let mut lines = self.bytes[..self.end?].split(|&byte| byte == b'\n');
        let first = lines.next()?.strip_prefix(b"HTTP/")?;
        let space = memchr::memchr(b' ', first)?;
        let digits = std::str::from_utf8(first.get(space + 1..space + 4)?).ok()?;
        let status = digits.parse().ok().filter(|status| (200..600).contains(status))?;
        let (mut fields, mut length) = (FieldLines::new(), None);
        for line in lines.map(<[u8]>::trim_ascii_end).filter(|line| !line.is_empty()) {
            let colon = memchr::memchr(b':', line)?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if !is_token(name) || !is_field_value(value) {
                return None;
            }
            let name = std::str::from_utf8(name).ok()?;
            if name.eq_ignore_ascii_case("transfer-encoding") {
                return None;
            }
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(std::str::from_utf8(value).ok()?.parse().ok()?);
            }
            // The server adds its own.
            if !name.eq_ignore_ascii_case("date") {
                fields.push(name, value);
            }
        }
        Some((status, fields, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_taken_apart_wherever_it_is_cut() {
        let message = b"HTTP/1.1 203 x\r\nA: b\r\nContent-Length: 4\r\nDate: x\r\n\r\nbody";
        for cut in 0..message.len() {
            let mut head = MessageHead::default();
            assert!(head.take(&message[..cut]) && head.take(&message[cut..]));
            let (status, fields, length) = head.parse().unwrap();
            assert_eq!((status, length), (203, Some(4)));
            assert_eq!(fields.as_bytes(), b"A: b\r\nContent-Length: 4\r\n");
            assert_eq!(head.rest(), b"body");
        }
        let mut coded = MessageHead::default();
        assert!(coded.take(b"HTTP/1.1 200\nTransfer-Encoding: chunked\n\n"));
        assert!(coded.parse().is_none());
    }
}
