//! From the records of an application server to frames for the client.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_exchange::stream::{self, Broken, Source};
use dunlin_http::websocket::frame::{self, code, opcode};
use dunlin_net::watchdog::Watchdog;

use super::super::websocket_state::WebSocketState;
use super::record;

/// The frames for a client.
#[derive(Debug)]
pub(super) struct Frames {
    application: stream::Receiver,
    /// A record that is not complete.
    partial: BytesMut,
    /// The next part continues a message.
    is_within: bool,
    shared: Rc<WebSocketState>,
    watchdog: Watchdog,
    /// Maximum time without a byte in either direction.
    limit: Option<Duration>,
}

impl Frames {
    /// Creates the frames of an application. `limit` is the maximum time without a byte in either direction.
    pub(super) fn new(
        application: stream::Receiver,
        shared: Rc<WebSocketState>,
        watchdog: Watchdog,
        limit: Option<Duration>,
    ) -> Self {
        let partial = BytesMut::new();
        Self { application, partial, is_within: false, shared, watchdog, limit }
    }

    /// Ready when both sides have been idle for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.limit else { return Poll::Pending };
        self.watchdog.poll_until(cx, self.shared.active() + limit)
    }

    /// Returns the frames of what the application server has sent.
    fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.partial.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(bytes.len());
        while !self.shared.is_over() {
            match record::read(&mut self.partial) {
                Ok(Some((record::CLOSE, payload))) => {
                    let code = payload
                        .first_chunk()
                        .map_or(code::NORMAL, |code| u16::from_le_bytes(*code));
                    let reason = std::str::from_utf8(&payload[2..]).unwrap_or_default();
                    // A code that no frame may have, such as 1006, does not stand for a normal end.
                    let code = if frame::is_sendable(code) { code } else { code::INTERNAL_ERROR };
                    self.shared.close(code, reason);
                }
                Ok(Some((kind, payload))) => {
                    let is_text = matches!(kind, record::TEXT | record::TEXT_PART);
                    let is_final = matches!(kind, record::TEXT | record::BYTES);
                    let opcode = match self.is_within {
                        true => opcode::CONTINUATION,
                        false if is_text => opcode::TEXT,
                        false => opcode::BINARY,
                    };
                    self.is_within = !is_final;
                    frame::write_header(opcode, is_final, payload.len(), &mut out);
                    out.extend_from_slice(&payload);
                }
                Ok(None) => break,
                Err(()) => self.shared.close(code::INTERNAL_ERROR, ""),
            }
        }
        if self.partial.is_empty() {
            // A WebSocket is idle most of the time.
            self.partial = BytesMut::new();
        }
        out
    }
}

impl Source for Frames {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        loop {
            let control = self.shared.take();
            if !control.is_empty() {
                self.shared.touch();
                return Poll::Ready(Ok(Some(control.into())));
            }
            if self.shared.is_over() {
                return Poll::Ready(Ok(None));
            }
            self.shared.watch(cx);
            match self.application.poll_next(cx) {
                Poll::Ready(Ok(Some(bytes))) => {
                    let frames = self.send(&bytes);
                    if !frames.is_empty() {
                        self.shared.touch();
                        return Poll::Ready(Ok(Some(frames.into())));
                    }
                }
                Poll::Ready(Ok(None)) => self.shared.close(code::NORMAL, ""),
                // The application has failed, or its process has ended.
                Poll::Ready(Err(Broken)) => self.shared.close(code::INTERNAL_ERROR, ""),
                Poll::Pending if self.poll_idle(cx).is_pending() => return Poll::Pending,
                Poll::Pending => self.shared.close(code::GOING_AWAY, "idle"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use dunlin_net::clock::{self, manual};
    use dunlin_net::deadlines::Deadlines;
    use tokio::sync::Notify;

    use super::super::incoming::Messages;
    use super::*;

    #[test]
    fn a_code_that_may_not_be_sent_is_an_internal_error() {
        let mut cx = Context::from_waker(Waker::noop());
        for (code, expected) in [
            (1000_u16, 1000_u16),
            (1001, 1001),
            (1008, 1008),
            (1014, 1014),
            (3000, 3000),
            (4999, 4999),
            (0, 1011),
            (999, 1011),
            (1004, 1011),
            (1005, 1011),
            (1006, 1011),
            (1015, 1011),
            (2999, 1011),
            (5000, 1011),
            (65535, 1011),
        ] {
            let (application, sent) = stream::channel(1000);
            let deadlines = Rc::new(Deadlines::new(Rc::new(Notify::new())));
            let shared = Rc::new(WebSocketState::new());
            let mut frames = Frames::new(sent, shared, Watchdog::new(&deadlines), None);
            let mut close = Vec::new();
            record::write_close(code, "why", &mut close);
            application.push(close.into());
            let expected = [b"\x88\x05", &expected.to_be_bytes()[..], b"why"].concat();
            let frame = frames.poll_next(&mut cx);
            assert_eq!(frame, Poll::Ready(Ok(Some(expected.into()))), "{code}");
        }
    }

    #[test]
    fn a_websocket_closes_after_its_limit_without_a_byte() {
        let _stopped = manual::stop();
        let mut cx = Context::from_waker(Waker::noop());
        let (client, received) = stream::channel(1000);
        let (application, sent) = stream::channel(1000);
        let deadlines = Rc::new(Deadlines::new(Rc::new(Notify::new())));
        let shared = Rc::new(WebSocketState::new());
        let mut messages = Messages::new(received, 1000, Rc::clone(&shared));
        let limit = Some(Duration::from_secs(60));
        let mut frames = Frames::new(sent, shared, Watchdog::new(&deadlines), limit);
        let mut after = |seconds| {
            manual::advance(Duration::from_secs(seconds));
            deadlines.expire(clock::now());
            let _ = messages.poll_next(&mut cx);
            frames.poll_next(&mut cx)
        };
        assert!(after(59).is_pending());
        // A masked text "x".
        client.push(Bytes::from_static(b"\x81\x81\0\0\0\0x"));
        assert!(after(0).is_pending());
        assert!(after(59).is_pending(), "a message of the client counts");
        client.push(Bytes::from_static(b"\x89\x80\0\0\0\0"));
        assert_eq!(after(0), Poll::Ready(Ok(Some(Bytes::from_static(b"\x8a\0")))));
        assert!(after(59).is_pending(), "a ping counts");
        application.push(Bytes::from_static(b"\x02\x01\0\0\0y"));
        assert_eq!(after(0), Poll::Ready(Ok(Some(Bytes::from_static(b"\x81\x01y")))));
        assert!(after(59).is_pending(), "a message of the application counts");
        let close = Bytes::from_static(b"\x88\x06\x03\xe9idle");
        assert_eq!(after(1), Poll::Ready(Ok(Some(close))));
        assert_eq!(after(0), Poll::Ready(Ok(None)));
    }
}
