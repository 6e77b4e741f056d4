//! Clients that speak HTTP/2 from the first byte on (RFC 9113 §3.3).

use std::task::{Context, Poll, ready};

use dunlin_http::http2::PREFACE;
use dunlin_http::semantics::Method;

use super::super::http2::{self, Link, Outcome};
use super::{Connection, Next, Stage, Step};

/// Whether a connection that begins with these bytes is one of HTTP/2; `None` when too few have
/// come to tell.
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

/// Whether the first line has three words, of which neither the first is a known method nor the
/// last a version of HTTP: whoever sends that would understand no answer of HTTP/1 (RFC 9113 §3.4).
pub(super) fn is_no_http(start: &[u8]) -> bool {
    let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(_), Some(version), None) => {
            Method::from_bytes(method) == Method::Other && !version.starts_with(b"HTTP/")
        }
        _ => false,
    }
}

impl Connection {
    pub(super) fn begin_http2(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        self.stage = Stage::Http2(Box::new(http2::Connection::new(&self.ctx, unread)));
    }

    pub(super) fn poll_http2(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        if let Some(successor) = self.ctx.successor() {
            self.ctx = successor;
        }
        let Stage::Http2(connection) = &mut self.stage else { return Poll::Ready(Step::Again) };
        let mut link = Link {
            ctx: &self.ctx,
            stream: &mut self.stream,
            peer: self.peer,
            proxied: self.known_ends.as_deref(),
            opening: &mut self.opening,
            serial: self.serial,
            slot: self.slot,
        };
        Poll::Ready(match ready!(connection.poll(&mut link, cx)) {
            Outcome::End => Step::End,
            Outcome::Linger => self.begin_linger(),
            Outcome::Abort => self.follow(Next::Abort),
        })
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
        assert!(is_no_http(b"INVALID CONNECTION PREFACE\r\n\r\n"));
        for line in ["GET / x", "GET /", "X / HTTP/1.1", "X / HTTP/9", "a b c d", ""] {
            assert!(!is_no_http(line.as_bytes()), "{line}");
        }
    }
}
