//! Messages that a script writes with their head (RFC 3875 §5), which HTTP/2 needs apart.

use bytes::Bytes;
use dunlin_exchange::stream;
use dunlin_http::FieldLines;
use dunlin_http::http2::ErrorCode;
use dunlin_http::semantics::{is_field_value, is_token, status};

use super::super::exchange::{BodyWriter, StreamBody};
use super::Connection;
use super::progress::release_window;
use super::stream::{Sending, Stream};
use crate::worker::Completion;
use dunlin_limits::bandwidth::Pacer;

/// The head of such a message.
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
    fn parse(&self) -> Option<(u16, FieldLines, Option<u64>)> {
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

impl Connection {
    /// Starts a response with a message whose head is complete.
    pub(super) fn respond_with_message(
        &mut self,
        mut stream: Stream,
        (source, head, pacer): (stream::Receiver, MessageHead, Option<Pacer>),
        out: &mut Vec<u8>,
    ) {
        let Some((status, fields, length)) = head.parse() else {
            tracing::warn!("a script's message cannot be sent over HTTP/2: its head is malformed");
            release_window(&mut self.engine, &stream, out);
            self.engine.cancel(stream.id, ErrorCode::InternalError, out);
            return self.record(&mut stream, Completion::Aborted);
        };
        if let Some(log) = &mut stream.exchange.log {
            log.outcome.status = status;
            log.context.begin_response();
        }
        stream.start = self.position(out);
        let is_bodiless = stream.exchange.is_head || !status::has_body(status) || length == Some(0);
        self.send_head(stream.id, (status, false), fields.as_bytes(), 0, is_bodiless, out);
        if is_bodiless {
            source.discard();
            return self.finish_stream(stream, out);
        }
        let first = Bytes::copy_from_slice(&head.bytes[head.end.unwrap_or_default()..]);
        let mut body = StreamBody::new(source, length);
        let chunk = body.take_part(first);
        stream.sending = Sending::Body(BodyWriter::stream_from(body, chunk, pacer));
        self.streams.insert(stream);
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
            assert_eq!(&head.bytes[head.end.unwrap()..], b"body");
        }
        let mut coded = MessageHead::default();
        assert!(coded.take(b"HTTP/1.1 200\nTransfer-Encoding: chunked\n\n"));
        assert!(coded.parse().is_none());
    }
}
