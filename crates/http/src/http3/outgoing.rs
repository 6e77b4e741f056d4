//! Responses (RFC 9114 §4.1).

use super::connection::Http3Connection;
use super::frame::{self, DataHeader, kind};
use super::qpack::QpackEncoder;
use crate::Priority;
use crate::section::{Heads, OutgoingHead};

impl Http3Connection {
    /// Appends the head of the final response to `out`, bytes of the stream. With `ended` it is all of the response: end the stream
    /// behind it. Returns `false` if the stream no longer exists.
    #[inline]
    pub fn respond(
        &mut self,
        stream: u64,
        head: &OutgoingHead<'_>,
        ended: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        match self.streams.get_mut(stream) {
            Some(state) if !state.is_finished => state.has_response_head = true,
            _ => return false,
        }
        self.write_section(out, |heads, out| heads.write(stream, head, out));
        if ended {
            self.finish(stream);
        }
        true
    }

    /// Appends an interim response such as 100 or 103 (RFC 9110 §15.2), unless the stream no longer exists or has its final
    /// response.
    pub fn send_interim(&mut self, stream: u64, head: &OutgoingHead<'_>, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some_and(|stream| !stream.has_response_head) {
            self.write_section(out, |heads, out| heads.write(stream, head, out));
        }
    }

    /// Appends trailer fields: HTTP/1 lines (`Name: value`, CR LF) without the empty line. End the stream behind them.
    pub fn send_trailers(&mut self, stream: u64, lines: &[u8], out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some_and(|stream| !stream.is_finished) {
            self.write_section(out, |heads, out| heads.write_trailers(stream, lines, out));
            self.finish(stream);
        }
    }

    /// Writes a field section in a HEADERS frame.
    #[inline]
    fn write_section(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Heads<QpackEncoder>, &mut Vec<u8>),
    ) {
        let start = frame::begin(out);
        write(&mut self.session.heads, out);
        frame::end(kind::HEADERS, start, out);
    }

    /// Returns the header of a DATA frame, behind which the caller sends `length` bytes of the body; `None` if the stream no longer
    /// exists or the frame would be empty. With `ended`, the body and the stream end with them.
    #[inline]
    pub fn send_data(&mut self, stream: u64, length: usize, ended: bool) -> Option<DataHeader> {
        let state = self.streams.get_mut(stream).filter(|state| !state.is_finished)?;
        self.data_frames += 1;
        state.last_sent = self.data_frames;
        if ended {
            self.finish(stream);
        }
        (length > 0).then(|| DataHeader::new(length))
    }

    /// Begins a DATA frame and returns its offset in `out`. The caller appends the payload, at most 1 GB, and calls
    /// [`Http3Connection::end_data`].
    #[inline]
    pub fn begin_data(&self, out: &mut Vec<u8>) -> usize {
        frame::begin(out)
    }

    /// Completes the DATA frame at offset `start`, where [`Http3Connection::begin_data`] began it; an empty one is removed. With
    /// `ended`, the body ends with it: end the stream behind it.
    #[inline]
    pub fn end_data(&mut self, stream: u64, start: usize, ended: bool, out: &mut Vec<u8>) {
        let length = frame::payload_length(start, out);
        match self.send_data(stream, length, ended) {
            Some(_) => frame::end(kind::DATA, start, out),
            None => out.truncate(start),
        }
    }

    /// Sets whether the caller has body bytes to send on the stream.
    pub fn set_ready(&mut self, stream: u64, is_ready: bool) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.is_ready = is_ready;
        }
    }

    /// Sets whether the transport takes no bytes of the stream now: its window of flow control is closed.
    pub fn set_blocked(&mut self, stream: u64, is_blocked: bool) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.is_blocked = is_blocked;
        }
    }

    /// Returns the stream to send on next by priority, among those that are ready and not blocked.
    pub fn next_to_send(&self) -> Option<u64> {
        self.streams.next_to_send()
    }

    /// Returns the priority of the response on a stream, which the client may change.
    #[inline]
    pub fn priority(&self, stream: u64) -> Priority {
        self.streams.get(stream).map_or_else(Priority::default, |stream| stream.priority)
    }

    /// Returns `true` if the client may send more of the request body.
    pub fn may_receive(&self, stream: u64) -> bool {
        self.streams.get(stream).is_some_and(|stream| !stream.has_ended)
    }

    /// Ends the server's side of a stream: the response is complete. The client may send the rest of the request body, which is
    /// discarded: clients may take it for a failure if they are stopped before (RFC 9114 §4.1).
    #[inline]
    fn finish(&mut self, id: u64) {
        self.session.budget.earn();
        match self.streams.get_mut(id) {
            Some(stream) if !stream.has_ended => {
                stream.is_finished = true;
                stream.is_ready = false;
            }
            _ => {
                self.close(id);
            }
        }
    }

    /// Gives up a stream, whatever is still to be sent or received. Returns `false` if it no longer exists; otherwise reset its
    /// sending side and stop its receiving side.
    pub fn cancel(&mut self, stream: u64) -> bool {
        self.close(stream).is_some()
    }
}
