//! Responses, flow control and shutdown.

use super::connection::{Drain, Http2Connection};
use super::frame::{self, FrameHeader, HEADER_LENGTH, Http2ErrorCode, flag, kind};
use super::hpack::HpackEncoder;
use super::incoming::DRAIN_PING;
use super::stream::Stream;
use crate::section::{Heads, OutgoingHead};

/// Receive window of the connection in bytes, once a request has a body.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Largest receive window of a stream in bytes.
const STREAM_WINDOW: u32 = 512 << 10;
/// Number of recently reset streams that are remembered.
const RESETS: usize = 256;

/// The client's flow-control window that prevents sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedBy {
    /// The window of the stream.
    Stream,
    /// The window of the connection.
    Connection,
}

impl Http2Connection {
    /// Sends the head of the final response, which is all of it if `ended`. Returns false if the stream no longer exists.
    #[inline]
    pub fn respond(
        &mut self,
        stream: u32,
        head: &OutgoingHead<'_>,
        ended: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        match self.streams.get_mut(stream) {
            Some(state) if !state.is_finished => state.has_response_head = true,
            _ => return false,
        }
        self.write_head(stream, head, ended, out);
        if ended {
            self.finish(stream, out);
        }
        true
    }

    /// Sends an interim response such as 100 or 103 (RFC 9110 §15.2), unless the stream no longer exists or has its final
    /// response.
    pub fn send_interim(&mut self, stream: u32, head: &OutgoingHead<'_>, out: &mut Vec<u8>) {
        if self.streams.get_mut(stream).is_some_and(|stream| !stream.has_response_head) {
            self.write_head(stream, head, false, out);
        }
    }

    /// Ends the response with trailer fields (RFC 9113 §8.1): HTTP/1 lines (`Name: value`, CR LF) without the empty line.
    pub fn send_trailers(&mut self, stream: u32, lines: &[u8], out: &mut Vec<u8>) {
        if self.streams.get_mut(stream).is_some_and(|stream| !stream.is_finished) {
            self.write_section(stream, true, out, |heads, out| {
                heads.write_trailers((), lines, out);
            });
            self.finish(stream, out);
        }
    }

    #[inline]
    fn write_head(&mut self, stream: u32, head: &OutgoingHead<'_>, ended: bool, out: &mut Vec<u8>) {
        self.write_section(stream, ended, out, |heads, out| heads.write((), head, out));
    }

    /// Writes a field section in as many frames as it needs.
    #[inline]
    fn write_section(
        &mut self,
        stream: u32,
        ended: bool,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Heads<HpackEncoder>, &mut Vec<u8>),
    ) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LENGTH]);
        write(&mut self.heads, out);
        let flags = if ended { flag::END_STREAM } else { 0 };
        let length = out.len() - start - HEADER_LENGTH;
        if length <= self.flow.frame {
            let flags = flags | flag::END_HEADERS;
            let head = FrameHeader { length, kind: kind::HEADERS, flags, stream };
            out[start..start + HEADER_LENGTH].copy_from_slice(&head.to_bytes());
            return;
        }
        let section = out.split_off(start + HEADER_LENGTH);
        out.truncate(start);
        let mut rest = section.chunks(self.flow.frame).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, flags);
        while let Some(piece) = rest.next() {
            if rest.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            FrameHeader { length: piece.len(), kind, flags, stream }.write(out);
            out.extend_from_slice(piece);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }

    /// Largest payload of a DATA frame that the client's windows permit now.
    #[inline]
    pub fn allowance(&mut self, stream: u32) -> usize {
        let connection = self.flow.send;
        let frame = self.flow.frame;
        let own = self.streams.get_mut(stream).map_or(0, |stream| stream.send);
        usize::try_from(own.min(connection)).unwrap_or(0).min(frame)
    }

    /// Sends a complete body in one frame. Returns false, and sends nothing, if it exceeds [`Http2Connection::allowance`].
    #[inline]
    pub fn send_whole(&mut self, stream: u32, body: &[u8], out: &mut Vec<u8>) -> bool {
        if body.len() > self.allowance(stream) {
            return false;
        }
        let start = self.begin_data(out);
        out.extend_from_slice(body);
        self.end_data(stream, start, true, out);
        true
    }

    /// Begins a DATA frame and returns its offset in `out`. The caller appends the payload, at most
    /// [`Http2Connection::allowance`] bytes, and calls [`Http2Connection::end_data`].
    #[inline]
    pub fn begin_data(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LENGTH]);
        start
    }

    /// Completes the DATA frame at offset `start`, where [`Http2Connection::begin_data`] began it. `ended` ends the body; an
    /// empty frame is sent only then.
    #[inline]
    pub fn end_data(&mut self, stream: u32, start: usize, ended: bool, out: &mut Vec<u8>) {
        let length = out.len() - start - HEADER_LENGTH;
        let Some(head) = self.count_data(stream, length, ended) else {
            return out.truncate(start);
        };
        out[start..start + HEADER_LENGTH].copy_from_slice(&head.to_bytes());
        if ended {
            self.finish(stream, out);
        }
    }

    /// Sends a DATA frame of `length` bytes, at most [`Http2Connection::allowance`], that the caller sends from elsewhere.
    /// Returns the offset in `out` at which they follow; `None` if the stream sends nothing more.
    #[inline]
    pub fn frame_data(
        &mut self,
        stream: u32,
        length: usize,
        ended: bool,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let head = self.count_data(stream, length, ended)?;
        out.extend_from_slice(&head.to_bytes());
        let offset = out.len();
        if ended {
            self.finish(stream, out);
        }
        Some(offset)
    }

    /// Counts a DATA frame. Returns its header, unless the stream sends nothing more.
    #[inline]
    fn count_data(&mut self, stream: u32, length: usize, ended: bool) -> Option<FrameHeader> {
        self.data_frames += 1;
        let sequence = self.data_frames;
        let state = self.streams.get_mut(stream)?;
        if state.is_finished || (length == 0 && !ended) {
            return None;
        }
        state.send -= length as i64;
        state.last_sent = sequence;
        self.flow.send -= length as i64;
        self.budget.earn_data(length);
        let flags = if ended { flag::END_STREAM } else { 0 };
        Some(FrameHeader { length, kind: kind::DATA, flags, stream })
    }

    /// Sets whether the caller has body bytes to send on the stream.
    pub fn set_ready(&mut self, stream: u32, is_ready: bool) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.is_ready = is_ready;
        }
    }

    /// Returns the stream to send on next by priority, among those that are ready and whose windows are open.
    pub fn next_to_send(&self) -> Option<u32> {
        if self.flow.send <= 0 { None } else { self.streams.next_to_send() }
    }

    /// Returns the client's window that blocks the stream; `None` if bytes can be sent.
    pub fn blocked_by(&self, stream: u32) -> Option<BlockedBy> {
        if self.streams.get(stream).is_some_and(|stream| stream.send <= 0) {
            Some(BlockedBy::Stream)
        } else {
            (self.flow.send <= 0).then_some(BlockedBy::Connection)
        }
    }

    /// Returns `true` if the server's windows let the client send on the stream.
    pub fn may_receive(&self, stream: u32) -> bool {
        let stream = self.streams.get(stream);
        self.flow.receive > 0 && stream.is_some_and(|stream| stream.is_open && stream.receive > 0)
    }

    /// Ends the server's side of a stream: the response is complete. The client may send the rest of the request body
    /// as far as the stream's window is open, and otherwise does not need to send it (RFC 9113 §8.1).
    #[inline]
    fn finish(&mut self, id: u32, out: &mut Vec<u8>) {
        self.budget.earn();
        match self.streams.get_mut(id) {
            Some(stream) if stream.is_open && stream.receive <= 0 => {
                self.cancel(id, Http2ErrorCode::NoError, out);
            }
            Some(stream) if stream.is_open => {
                stream.is_finished = true;
                stream.is_ready = false;
            }
            _ => {
                self.streams.remove(id);
            }
        }
    }

    /// Resets a stream, whatever is still to be sent or received.
    pub fn cancel(&mut self, stream: u32, code: Http2ErrorCode, out: &mut Vec<u8>) {
        if self.streams.remove(stream).is_some() {
            self.reset(stream, code, out);
        }
    }

    pub(super) fn reset(&mut self, id: u32, code: Http2ErrorCode, out: &mut Vec<u8>) {
        frame::write_reset(id, code, out);
        self.remember_reset(id);
    }

    pub(super) fn remember_reset(&mut self, id: u32) {
        if self.resets.len() < RESETS {
            self.resets.push(id);
        } else {
            let oldest = self.next_reset % RESETS;
            self.resets[oldest] = id;
            self.next_reset += 1;
        }
    }

    pub(super) fn has_reset(&self, id: u32) -> bool {
        self.resets.contains(&id)
    }

    /// Enlarges the connection's receive window, with the first bytes that are sent: the bodies of several streams then wait for
    /// none of the others, and some clients wait for it.
    pub(super) fn enlarge_window(&mut self, out: &mut Vec<u8>) {
        if self.flow.window < CONNECTION_WINDOW {
            let increment = CONNECTION_WINDOW - self.flow.window;
            self.flow.window = CONNECTION_WINDOW;
            self.flow.receive += i64::from(increment);
            frame::write_window_update(0, increment, out);
        }
    }

    /// Reports that the handler has consumed `count` bytes of a request body, so that the client may send as many more on
    /// the connection, and on the stream until the response is complete. The window of a stream doubles, up to a limit,
    /// each time its handler has consumed half of it.
    pub fn consumed(&mut self, stream: u32, count: usize, out: &mut Vec<u8>) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.release_window(count, out);
        let receives = |stream: &&mut Stream| stream.is_open && !stream.is_finished;
        let Some(stream) = self.streams.get_mut(stream).filter(receives) else { return };
        stream.taken += count;
        if stream.taken < stream.window / 2 {
            return;
        }
        let growth = stream.window.min(STREAM_WINDOW - stream.window);
        stream.window += growth;
        let increment = stream.taken + growth;
        stream.taken = 0;
        stream.receive += i64::from(increment);
        frame::write_window_update(stream.id, increment, out);
    }

    /// Returns `count` bytes to the connection's receive window.
    pub(super) fn release_window(&mut self, count: u32, out: &mut Vec<u8>) {
        self.flow.taken += count;
        if self.flow.taken >= self.flow.window / 2 {
            self.flow.receive += i64::from(self.flow.taken);
            frame::write_window_update(0, self.flow.taken, out);
            self.flow.taken = 0;
        }
    }

    /// Announces a graceful shutdown (RFC 9113 §6.8). Requests in flight are served. When the client has acknowledged the
    /// announcement, the engine calls [`Http2Connection::end_drain`] itself.
    pub fn begin_drain(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            frame::write_goaway(0x7fff_ffff, Http2ErrorCode::NoError, "", out);
            frame::write_ping(DRAIN_PING, false, out);
        }
    }

    /// Announces the last stream that is served. Later streams are ignored.
    pub fn end_drain(&mut self, out: &mut Vec<u8>) {
        if self.drain != Drain::Final {
            self.drain = Drain::Final;
            frame::write_goaway(self.last, Http2ErrorCode::NoError, "", out);
        }
    }

    /// Returns `true` if a shutdown is complete: all responses have been sent.
    pub fn is_done(&self) -> bool {
        self.drain == Drain::Final && self.streams.are_all_finished()
    }

    /// Ends the connection with an error, such as a timeout.
    pub fn abort(&mut self, code: Http2ErrorCode, reason: &str, out: &mut Vec<u8>) {
        self.drain = Drain::Final;
        frame::write_goaway(self.last, code, reason, out);
    }
}
