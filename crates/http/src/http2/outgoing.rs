//! Answers, windows, and the end.

use super::connection::{Connection, Drain};
use super::frame::{self, ErrorCode, FrameHead, HEAD, flag, kind};
use super::incoming::DRAIN_PING;
use super::response::ResponseHead;

/// What the client may send on all streams together before somebody has taken it, in bytes.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// What it may send on one stream at the most.
const STREAM_WINDOW: u32 = 512 << 10;
/// Streams that were reset lately are remembered up to this number.
const RESETS: usize = 256;

/// What keeps bytes from being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldUp {
    /// The window of the stream.
    Stream,
    /// The window of the connection.
    Connection,
}

impl Connection {
    /// Sends the head of a response; with `ended` it is all of it. False when the stream is over.
    #[inline]
    pub fn respond(
        &mut self,
        stream: u32,
        head: &ResponseHead<'_>,
        ended: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        match self.streams.get(stream) {
            Some(state) if !state.is_finished => state.is_answered = true,
            _ => return false,
        }
        self.write_head(stream, head, ended, out);
        if ended {
            self.finish(stream);
        }
        true
    }

    /// Sends an interim response (RFC 9110 §15.2), as 100 or 103, unless the stream is over or
    /// was answered.
    pub fn inform(&mut self, stream: u32, head: &ResponseHead<'_>, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some_and(|stream| !stream.is_answered) {
            self.write_head(stream, head, false, out);
        }
    }

    #[inline]
    fn write_head(&mut self, stream: u32, head: &ResponseHead<'_>, ended: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        self.heads.write(head, out);
        let flags = if ended { flag::END_STREAM } else { 0 };
        let length = out.len() - start - HEAD;
        if length <= self.flow.frame {
            let flags = flags | flag::END_HEADERS;
            let head = FrameHead { length, kind: kind::HEADERS, flags, stream };
            out[start..start + HEAD].copy_from_slice(&head.to_bytes());
            return;
        }
        let section = out.split_off(start + HEAD);
        out.truncate(start);
        let mut rest = section.chunks(self.flow.frame).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, flags);
        while let Some(piece) = rest.next() {
            if rest.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            FrameHead { length: piece.len(), kind, flags, stream }.write(out);
            out.extend_from_slice(piece);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }

    /// Bytes of a body that may be sent now, in one frame.
    #[inline]
    pub fn allowance(&mut self, stream: u32) -> usize {
        let connection = self.flow.send;
        let frame = self.flow.frame;
        let own = self.streams.get(stream).map_or(0, |stream| stream.send);
        usize::try_from(own.min(connection)).unwrap_or(0).min(frame)
    }

    /// Sends all of a body at once, when the windows allow that; false when nothing was sent.
    #[inline]
    pub fn send_whole(&mut self, stream: u32, body: &[u8], out: &mut Vec<u8>) -> bool {
        if body.len() > self.allowance(stream) {
            return false;
        }
        let mark = self.begin_data(out);
        out.extend_from_slice(body);
        self.end_data(stream, mark, true, out);
        true
    }

    /// Begins a DATA frame: what is appended to `out` until [`Connection::end_data`] is its
    /// payload, at most as much as [`Connection::allowance`] says.
    #[inline]
    pub fn begin_data(&self, out: &mut Vec<u8>) -> usize {
        let mark = out.len();
        out.extend_from_slice(&[0; HEAD]);
        mark
    }

    /// Ends the DATA frame that was begun at `mark`. One without bytes is sent only when it ends
    /// the body.
    #[inline]
    pub fn end_data(&mut self, stream: u32, mark: usize, ended: bool, out: &mut Vec<u8>) {
        let length = out.len() - mark - HEAD;
        self.turn += 1;
        let turn = self.turn;
        let Some(state) =
            self.streams.get(stream).filter(|state| !state.is_finished && (length > 0 || ended))
        else {
            return out.truncate(mark);
        };
        state.send -= length as i64;
        state.turn = turn;
        self.flow.send -= length as i64;
        self.budget.earn_window_update();
        let flags = if ended { flag::END_STREAM } else { 0 };
        let head = FrameHead { length, kind: kind::DATA, flags, stream };
        out[mark..mark + HEAD].copy_from_slice(&head.to_bytes());
        if ended {
            self.finish(stream);
        }
    }

    /// Says whether there are bytes to be sent on that stream.
    pub fn set_ready(&mut self, stream: u32, is_ready: bool) {
        if let Some(stream) = self.streams.get(stream) {
            stream.is_ready = is_ready;
        }
    }

    /// The stream on which bytes are to be sent next, among those that have some and whose windows
    /// are open.
    pub fn next_to_send(&self) -> Option<u32> {
        if self.flow.send <= 0 { None } else { self.streams.next_to_send() }
    }

    /// Which of the client's windows keeps bytes from being sent on that stream; `None` when they
    /// may be sent.
    pub fn held_up(&self, stream: u32) -> Option<HeldUp> {
        if self.streams.look(stream).is_some_and(|stream| stream.send <= 0) {
            Some(HeldUp::Stream)
        } else {
            (self.flow.send <= 0).then_some(HeldUp::Connection)
        }
    }

    /// Whether the windows let the client send on that stream.
    pub fn may_receive(&self, stream: u32) -> bool {
        let stream = self.streams.look(stream);
        self.flow.receive > 0 && stream.is_some_and(|stream| stream.is_open && stream.receive > 0)
    }

    /// The response is complete.
    #[inline]
    fn finish(&mut self, id: u32) {
        self.budget.earn();
        match self.streams.get(id) {
            Some(stream) if stream.is_open => {
                stream.is_finished = true;
                stream.is_ready = false;
            }
            _ => {
                self.streams.remove(id);
            }
        }
    }

    /// Ends a stream from the server's side, whatever is still to be sent or received.
    pub fn cancel(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.remove(stream).is_some() {
            self.reset(stream, code, out);
        }
    }

    pub(super) fn reset(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) {
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

    /// A first body is on its way: the connection's window is as large as a stream's only at the
    /// beginning.
    pub(super) fn widen(&mut self, out: &mut Vec<u8>) {
        if self.flow.window < CONNECTION_WINDOW {
            let increment = CONNECTION_WINDOW - self.flow.window;
            self.flow.window = CONNECTION_WINDOW;
            self.flow.receive += i64::from(increment);
            frame::write_window_update(0, increment, out);
        }
    }

    /// `count` bytes of a request's body have gone their way, so that the client may send as many
    /// again, and on a stream whose handler keeps up twice as many as before.
    pub fn taken(&mut self, stream: u32, count: usize, out: &mut Vec<u8>) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.give_back(count, out);
        let Some(stream) = self.streams.get(stream).filter(|stream| stream.is_open) else { return };
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

    /// Bytes that came for a stream that is over, or that have gone their way.
    pub fn give_back(&mut self, count: u32, out: &mut Vec<u8>) {
        self.flow.taken += count;
        if self.flow.taken >= self.flow.window / 2 {
            self.flow.receive += i64::from(self.flow.taken);
            frame::write_window_update(0, self.flow.taken, out);
            self.flow.taken = 0;
        }
    }

    /// Says that the connection will end (RFC 9113 §6.8). Requests that are on their way are
    /// served; when the client has heard of it, it is told which was the last.
    pub fn begin_drain(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            frame::write_goaway(0x7fff_ffff, ErrorCode::NoError, "", out);
            frame::write_ping(DRAIN_PING, false, out);
        }
    }

    /// Says which request was the last: no other is served.
    pub fn end_drain(&mut self, out: &mut Vec<u8>) {
        if self.drain != Drain::Final {
            self.drain = Drain::Final;
            frame::write_goaway(self.last, ErrorCode::NoError, "", out);
        }
    }

    /// Whether nothing is left to be done: the last request was answered.
    pub fn is_done(&self) -> bool {
        self.drain == Drain::Final && self.streams.are_all_finished()
    }

    /// Ends the connection because of what the client has not done in time.
    pub fn give_up(&mut self, code: ErrorCode, reason: &str, out: &mut Vec<u8>) {
        self.drain = Drain::Final;
        frame::write_goaway(self.last, code, reason, out);
    }
}
