//! What the streams of a connection send, as frames of HTTP/2 (RFC 9113 §6).

use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_exchange::Filled;
use dunlin_http::FieldLines;
use dunlin_http::http2::{BlockedBy, Http2Connection as Engine, Http2ErrorCode, OutgoingHead};

use dunlin_tls::Transport;

use super::slices::Slices;
use crate::exchange::multiplex::{Cancel, Protocol, Stalled, StreamId};

/// The engine and the transport, and the number of bytes that the one has made for the other.
pub(super) struct Frames {
    pub(super) stream: Transport,
    pub(super) engine: Engine,
    /// Parts of bodies among the bytes that wait for the transport.
    slices: Slices,
    /// Bytes that were passed to the transport.
    pub(super) flushed: i64,
    /// How often all bytes were passed to the transport.
    pub(super) flushes: u64,
    /// When the connection began to close gracefully, in milliseconds of the worker's clock.
    pub(super) draining_since: Option<u64>,
}

/// Bytes that one write collects, beyond the frame that exceeds them: seven full frames. The kernel takes more bytes at a time with
/// less work for each; larger writes gain nothing.
pub(super) const BATCH: usize = 112 * 1024;

impl Frames {
    pub(super) fn new(engine: Engine, stream: Transport) -> Self {
        let slices = Slices::default();
        Self { stream, engine, slices, flushed: 0, flushes: 0, draining_since: None }
    }

    /// Returns the number of bytes that wait for the transport, of which `out` has those that are not parts of bodies.
    #[inline]
    pub(super) fn waiting(&self, out: &[u8]) -> usize {
        out.len() + self.slices.length()
    }

    /// Passes all that waits to the transport, until the socket has it. Without success, `out` has the rest afterwards. Returns
    /// the number of bytes that the transport has taken as well.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> (usize, Poll<std::io::Result<()>>) {
        let mut at = 0;
        let result = self.slices.poll_send(&mut self.stream, cx, out, &mut at);
        let is_all = matches!(result, Poll::Ready(Ok(())));
        if is_all {
            self.slices.clear();
            out.clear();
        } else {
            self.slices.flatten(out, at);
        }
        self.note_sent(at, is_all);
        (at, result)
    }

    /// Counts bytes that were passed to the transport, which were `all` that there were.
    fn note_sent(&mut self, bytes: usize, all: bool) {
        self.flushed += bytes as i64;
        self.flushes += u64::from(all);
    }
}

/// Returns the number of a stream in HTTP/2, which has 31 bits.
fn number(id: StreamId) -> u32 {
    id as u32
}

impl Protocol for Frames {
    type Output = Vec<u8>;
    type Carrier = Transport;

    #[inline]
    fn carrier(&mut self) -> &mut Transport {
        &mut self.stream
    }

    #[inline]
    fn respond(
        &mut self,
        id: StreamId,
        head: &OutgoingHead<'_>,
        has_ended: bool,
        out: &mut Vec<u8>,
    ) {
        self.engine.respond(number(id), head, has_ended, out);
    }

    fn send_interim(&mut self, id: StreamId, head: &OutgoingHead<'_>, out: &mut Vec<u8>) {
        self.engine.send_interim(number(id), head, out);
    }

    #[inline]
    fn send_whole(&mut self, id: StreamId, body: &[u8], out: &mut Vec<u8>) -> bool {
        self.engine.send_whole(number(id), body, out)
    }

    fn send_data(
        &mut self,
        id: StreamId,
        fill: impl FnOnce(usize, &mut Vec<u8>) -> Filled,
        out: &mut Vec<u8>,
    ) -> (usize, Filled) {
        let allowance = self.engine.allowance(number(id));
        let mark = self.engine.begin_data(out);
        let before = out.len();
        let filled = fill(allowance, out);
        let bytes = out.len() - before;
        if let Filled::Changed = filled {
            out.truncate(mark);
            return (0, filled);
        }
        let has_ended = matches!(filled, Filled::End);
        self.engine.end_data(number(id), mark, has_ended, out);
        (bytes, filled)
    }

    fn send_slice(
        &mut self,
        id: StreamId,
        take: impl FnOnce(usize) -> Option<(Bytes, Filled)>,
        out: &mut Vec<u8>,
    ) -> Option<(usize, Filled)> {
        let (slice, filled) = take(self.engine.allowance(number(id)))?;
        let (length, has_ended) = (slice.len(), matches!(filled, Filled::End));
        if let Some(at) = self.engine.frame_data(number(id), length, has_ended, out) {
            self.slices.push(at, slice);
        }
        Some((length, filled))
    }

    fn end_body(&mut self, id: StreamId, trailers: &FieldLines, out: &mut Vec<u8>) {
        if trailers.is_empty() {
            let mark = self.engine.begin_data(out);
            self.engine.end_data(number(id), mark, true, out);
        } else {
            self.engine.send_trailers(number(id), trailers.as_bytes(), out);
        }
    }

    fn cancel(&mut self, id: StreamId, reason: Cancel, out: &mut Vec<u8>) {
        let code = match reason {
            Cancel::Broken => Http2ErrorCode::InternalError,
            Cancel::Stopped => Http2ErrorCode::Cancel,
        };
        self.engine.cancel(number(id), code, out);
    }

    fn consumed(&mut self, id: StreamId, bytes: usize, out: &mut Vec<u8>) {
        self.engine.consumed(number(id), bytes, out);
    }

    fn drain(&mut self, now: u64, out: &mut Vec<u8>) {
        if self.draining_since.is_none() {
            self.draining_since = Some(now);
            self.engine.begin_drain(out);
        }
    }

    #[inline]
    fn allowance(&mut self, id: StreamId) -> usize {
        self.engine.allowance(number(id))
    }

    fn set_ready(&mut self, id: StreamId, is_ready: bool) {
        self.engine.set_ready(number(id), is_ready);
    }

    fn next_to_send(&mut self, out: &Vec<u8>) -> Option<StreamId> {
        if self.waiting(out) >= BATCH {
            return None;
        }
        self.engine.next_to_send().map(StreamId::from)
    }

    fn stalled_by(&self, id: StreamId) -> Option<Stalled> {
        self.engine.blocked_by(number(id)).map(|blocked| match blocked {
            BlockedBy::Stream => Stalled::Stream,
            BlockedBy::Connection => Stalled::Connection,
        })
    }

    fn may_receive(&self, id: StreamId) -> bool {
        self.engine.may_receive(number(id))
    }

    #[inline]
    fn position(&self, out: &Vec<u8>) -> i64 {
        self.flushed + self.waiting(out) as i64
    }

    #[inline]
    fn flushes(&self) -> u64 {
        self.flushes
    }

    fn shrink(&mut self) {
        self.engine.shrink();
    }
}
