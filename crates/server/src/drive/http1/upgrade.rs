//! Connections that use another protocol: HTTP/2 with prior knowledge (RFC 9113 §3.3), and protocols that a handler has
//! switched to (RFC 9110 §7.8), such as WebSocket.

use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_exchange::{Response, stream};
use dunlin_http::http1::{Persistence, response};
use dunlin_http::http2::PREFACE;
use dunlin_http::semantics::is_token;
use tokio::io::ReadBuf;

use super::handling::{Handling, Moved};
use super::{Http1Driver, Next};
use crate::worker::TunnelMeter;

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

impl Http1Driver {
    /// Switches the connection to another protocol. `tunnel` takes what the client sends.
    pub(super) fn begin_tunnel(
        &mut self,
        handling: &mut Handling,
        mut response: Response,
        tunnel: stream::Sender,
    ) {
        let meter = TunnelMeter::begin(&self.link.ctx.metrics);
        handling.begin_tunnel(&mut response, tunnel, meter);
        self.engine.close();
        self.closing = true;
        // What the client still sends must not reset the connection before it has received the last bytes.
        self.linger = true;
        let output = handling.output();
        let start = output.len();
        self.link.ctx.clock.with_date_line(|date| {
            response::begin(response.status, date, Persistence::Keep, output);
        });
        self.remove_head_start(start, output);
        output.extend_from_slice(b"Connection: upgrade\r\n");
        output.extend_from_slice(response.fields.as_bytes());
        output.extend_from_slice(b"\r\n");
    }

    /// Receives bytes of the other protocol.
    pub(super) fn receive_for_tunnel(
        &mut self,
        cx: &mut Context<'_>,
        handling: &mut Handling,
    ) -> Moved {
        let Some(tunnel) = handling.tunnel() else { return Moved::No };
        tunnel.watch(cx);
        if tunnel.is_abandoned() {
            // What the handler has sent before is still sent.
            handling.end_tunnel();
            return Moved::Yes;
        }
        if tunnel.is_full() {
            return Moved::No;
        }
        if !self.unread.is_empty() {
            handling.receive_for_tunnel(std::mem::take(&mut self.unread).into());
            return Moved::Yes;
        }
        let mut buffers = self.link.ctx.take_buffers();
        let mut read = ReadBuf::new(&mut buffers.input);
        let moved = match self.link.poll_read(&mut self.stream, cx, &mut read) {
            Poll::Pending => Moved::No,
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                handling.receive_for_tunnel(Bytes::copy_from_slice(read.filled()));
                Moved::Yes
            }
            Poll::Ready(Ok(())) => {
                tunnel.end();
                handling.end_tunnel();
                Moved::Yes
            }
            Poll::Ready(Err(_)) => Moved::Over(Next::Abort),
        };
        self.link.ctx.give_buffers(buffers);
        moved
    }
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
