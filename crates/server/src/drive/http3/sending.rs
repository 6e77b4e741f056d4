//! What the streams of a connection send, as frames of HTTP/3 (RFC 9114 §7).
//!
//! The engine makes the bytes of one stream at a time. They are passed to QUIC when those of another stream follow, so that a head and
//! a short body are passed together. QUIC takes what the windows of the client and its own send window allow; the rest waits here,
//! and the stream gets no more until it is passed.

use dunlin_exchange::Filled;
use dunlin_http::FieldLines;
use dunlin_http::http3::{Http3Connection as Engine, Http3ErrorCode, OutgoingHead, OwnStream};
use dunlin_quic::{StreamId as QuicStream, VarInt};
use hashbrown::HashMap;

use super::carrier::QuicCarrier;
use crate::exchange::multiplex::{Cancel, Protocol, Stalled, StreamId};

/// The engine and the transport.
pub(super) struct QuicSending {
    pub(super) engine: Engine,
    pub(super) carrier: QuicCarrier,
    /// The streams of the server, once they are open.
    own: [Option<QuicStream>; OwnStream::ALL.len()],
    /// The stream of the bytes in the output, and whether it ends with them.
    current: Option<(StreamId, bool)>,
    /// Bytes that QUIC has not taken.
    unsent: HashMap<StreamId, Unsent>,
    /// Their number.
    unsent_bytes: usize,
    /// Streams whose rest QUIC may take now.
    writable: Vec<StreamId>,
    /// Bytes that were passed to QUIC, or wait in `unsent`.
    written: i64,
    /// How often all bytes were passed to QUIC.
    flushes: u64,
    /// Bytes of bodies of this turn.
    turn_bytes: usize,
    /// Bytes of request bodies that handlers have not taken, by stream.
    untaken: HashMap<StreamId, usize>,
    /// Streams with another priority in the transport than the usual one.
    prioritized: HashMap<StreamId, i32>,
    /// Streams from which more may be read, since their handlers have taken bytes.
    pub(super) resumed: Vec<StreamId>,
    /// When the connection began to close gracefully, in milliseconds of the worker's clock.
    pub(super) draining_since: Option<u64>,
    /// The stream that was sent with the last GOAWAY. Once the client has it, it knows which requests it has to send again.
    farewell: Option<QuicStream>,
}

/// Bytes of a stream that QUIC has not taken.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    at: usize,
    /// The stream ends behind them.
    is_end: bool,
}

/// The urgency of responses whose client states none (RFC 9218 §4.1).
const USUAL: i32 = 3;
/// The last urgency (RFC 9218 §4.1).
const LAST: i32 = 7;
/// A type of streams without a meaning (RFC 9114 §6.2.3).
const RESERVED_TYPE: u8 = 0x21;
/// Bytes of one frame at most.
const CHUNK: usize = 64 * 1024;
/// Bytes of bodies that one turn sends, beyond the frame that exceeds them.
const BATCH: usize = 256 * 1024;
/// Bytes of a connection that wait for QUIC at most, beside heads.
const MAX_UNSENT: usize = 256 * 1024;
/// Bytes of a request body that its handler has not taken, beyond which no more is read.
pub(super) const WINDOW: usize = 256 * 1024;

impl QuicSending {
    pub(super) fn new(engine: Engine, carrier: QuicCarrier) -> Self {
        Self {
            engine,
            carrier,
            own: [None; OwnStream::ALL.len()],
            current: None,
            unsent: HashMap::new(),
            unsent_bytes: 0,
            writable: Vec::new(),
            written: 0,
            flushes: 0,
            turn_bytes: 0,
            untaken: HashMap::new(),
            prioritized: HashMap::new(),
            resumed: Vec::new(),
            draining_since: None,
            farewell: None,
        }
    }

    pub(super) fn begin_turn(&mut self, now: u64) {
        self.engine.set_time(now / 1000);
        self.turn_bytes = 0;
    }

    /// Passes what is left to QUIC.
    pub(super) fn end_turn(&mut self, out: &mut Vec<u8>) {
        self.pass(out);
        while self.resume_next(LAST) {}
        self.send_own();
        if self.farewell.is_none() && self.engine.has_ended_drain() {
            self.farewell = self.carrier.connection.send_marker(&[RESERVED_TYPE]);
        }
        if self.is_flushed() {
            self.flushes += 1;
        }
    }

    /// Returns `true` if QUIC has taken all bytes.
    pub(super) fn is_flushed(&self) -> bool {
        self.unsent_bytes == 0
    }

    /// Returns `true` if no more bytes may wait.
    pub(super) fn is_full(&self) -> bool {
        self.unsent_bytes >= MAX_UNSENT
    }

    /// Returns `true` if the connection was closed gracefully, and the client has received all responses and the last GOAWAY.
    pub(super) fn is_complete(&self) -> bool {
        // The streams of the server are never finished.
        let own = self.own.iter().flatten().count();
        self.engine.is_done()
            && self.is_flushed()
            && self.carrier.connection.state().streams().send_streams() <= own
    }

    /// Returns the number of bytes that QUIC has taken.
    pub(super) fn accepted(&self) -> i64 {
        self.written - self.unsent_bytes as i64
    }

    pub(super) fn held(&self) -> usize {
        let waiting: usize = self.unsent.values().map(|unsent| unsent.bytes.capacity()).sum();
        waiting + self.engine.held() + self.carrier.connection.held()
    }

    /// Counts bytes of a request body that its handler has not taken.
    pub(super) fn note_untaken(&mut self, id: StreamId, bytes: usize) {
        *self.untaken.entry(id).or_default() += bytes;
    }

    /// Returns how many more bytes of a stream may be read.
    pub(super) fn room(&self, id: StreamId) -> usize {
        WINDOW.saturating_sub(self.untaken.get(&id).copied().unwrap_or_default())
    }

    /// Removes what is kept of a stream.
    pub(super) fn forget(&mut self, id: StreamId) {
        self.untaken.remove(&id);
        self.prioritized.remove(&id);
        if let Some(unsent) = self.unsent.remove(&id) {
            self.unsent_bytes -= unsent.bytes.len() - unsent.at;
        }
    }

    /// Notes that QUIC may take more of a stream. Others may be more urgent.
    pub(super) fn note_writable(&mut self, id: StreamId) {
        self.writable.push(id);
    }

    /// Passes the rest of the most urgent writable stream to QUIC, if it is not less urgent than `urgency`. Returns `false` if there is
    /// none.
    fn resume_next(&mut self, urgency: i32) -> bool {
        let streams = self.writable.iter().enumerate();
        let next = streams.min_by_key(|(index, id)| (self.urgency(**id), *index));
        let Some((index, id)) = next.map(|(index, id)| (index, *id)) else { return false };
        if self.urgency(id) > urgency {
            return false;
        }
        self.writable.remove(index);
        self.resume(id);
        true
    }

    /// Returns the urgency with which a stream was last sent, also after its response was completed.
    fn urgency(&self, id: StreamId) -> i32 {
        USUAL - self.prioritized.get(&id).copied().unwrap_or_default()
    }

    /// Passes the rest of a stream to QUIC.
    fn resume(&mut self, id: StreamId) {
        if let Some(mut unsent) = self.unsent.remove(&id) {
            self.unsent_bytes -= unsent.bytes.len() - unsent.at;
            unsent.at += self.carrier.connection.write(quic_stream(id), &unsent.bytes[unsent.at..]);
            self.keep(id, unsent);
        }
    }

    /// Handles the client's stop of a stream. Returns `false` if that is not the stream that was sent with the last GOAWAY.
    pub(super) fn stop_farewell(&mut self, id: StreamId) -> bool {
        let is_farewell = self.farewell == Some(quic_stream(id));
        if is_farewell {
            // It ends when the client has that, or all bytes.
            let code = code_of(Http3ErrorCode::NoError);
            let _ = self.carrier.connection.state().send_stream(quic_stream(id)).reset(code);
        }
        is_farewell
    }

    /// Resets a stream in both directions.
    pub(super) fn reset(&mut self, id: StreamId, code: Http3ErrorCode) {
        self.forget(id);
        let (stream, code) = (quic_stream(id), code_of(code));
        let mut state = self.carrier.connection.state();
        // A direction that has ended is not reset.
        let _ = state.send_stream(stream).reset(code);
        let _ = state.recv_stream(stream).stop(code);
    }

    /// Stops the client's side of a stream.
    pub(super) fn stop(&mut self, id: StreamId, code: Http3ErrorCode) {
        self.untaken.remove(&id);
        // One that has ended is not stopped.
        let _ = self.carrier.connection.state().recv_stream(quic_stream(id)).stop(code_of(code));
    }

    /// Has the transport send streams in the order of their urgency, too: what it has taken may wait there for long.
    #[inline]
    fn prioritize(&mut self, id: StreamId) {
        let wanted = USUAL - i32::from(self.engine.priority(id).urgency);
        if wanted == 0 && self.prioritized.is_empty() {
            return;
        }
        if self.prioritized.get(&id).copied().unwrap_or_default() != wanted {
            self.prioritized.insert(id, wanted);
            let mut state = self.carrier.connection.state();
            // The client may have stopped the stream.
            let _ = state.send_stream(quic_stream(id)).set_priority(wanted);
        }
    }

    /// Prepares the output for bytes of a stream.
    fn select(&mut self, id: StreamId, out: &mut Vec<u8>) {
        if self.current.is_none_or(|(current, _)| current != id) {
            self.pass(out);
            self.current = Some((id, false));
        }
    }

    /// Ends the stream behind the bytes in the output.
    fn end(&mut self, out: &mut Vec<u8>) {
        if let Some((_, is_end)) = &mut self.current {
            *is_end = true;
        }
        self.pass(out);
    }

    /// Passes the bytes in the output to QUIC.
    fn pass(&mut self, out: &mut Vec<u8>) {
        let Some((id, is_end)) = self.current.take() else { return };
        self.written += out.len() as i64;
        if let Some(unsent) = self.unsent.get_mut(&id) {
            unsent.bytes.extend_from_slice(out);
            unsent.is_end |= is_end;
            self.unsent_bytes += out.len();
        } else {
            let taken = self.carrier.connection.write(quic_stream(id), out);
            if taken < out.len() || is_end {
                let bytes = if taken < out.len() { out[taken..].to_vec() } else { Vec::new() };
                self.keep(id, Unsent { bytes, at: 0, is_end });
            }
        }
        out.clear();
    }

    /// Keeps what QUIC has not taken. Ends the stream if that is nothing.
    fn keep(&mut self, id: StreamId, unsent: Unsent) {
        let left = unsent.bytes.len() - unsent.at;
        self.engine.set_blocked(id, left > 0);
        if left > 0 {
            self.unsent_bytes += left;
            self.unsent.insert(id, unsent);
        } else if unsent.is_end {
            self.untaken.remove(&id);
            self.prioritized.remove(&id);
            // The client may have stopped the stream.
            let _ = self.carrier.connection.state().send_stream(quic_stream(id)).finish();
        }
    }

    /// Passes the bytes of the server's own streams to QUIC.
    fn send_own(&mut self) {
        for (kind, own) in OwnStream::ALL.into_iter().zip(&mut self.own) {
            let pending = self.engine.pending(kind);
            if pending.is_empty() {
                continue;
            }
            // What is not taken is pending until the next turn. Without a stream, the engine must not count on its bytes.
            let count = self.carrier.connection.write_own(own, pending);
            self.engine.sent(kind, count);
        }
    }
}

/// Returns the stream of QUIC.
pub(super) fn quic_stream(id: StreamId) -> QuicStream {
    // A stream has at most 62 bits.
    QuicStream::from(VarInt::from_u64(id).unwrap_or_default())
}

fn code_of(code: Http3ErrorCode) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or_default()
}

impl Protocol for QuicSending {
    type Output = Vec<u8>;
    type Carrier = QuicCarrier;

    #[inline]
    fn carrier(&mut self) -> &mut QuicCarrier {
        &mut self.carrier
    }

    #[inline]
    fn respond(
        &mut self,
        id: StreamId,
        head: &OutgoingHead<'_>,
        has_ended: bool,
        out: &mut Vec<u8>,
    ) {
        self.select(id, out);
        self.prioritize(id);
        if self.engine.respond(id, head, has_ended, out) && has_ended {
            self.end(out);
        }
    }

    fn send_interim(&mut self, id: StreamId, head: &OutgoingHead<'_>, out: &mut Vec<u8>) {
        self.select(id, out);
        self.engine.send_interim(id, head, out);
    }

    #[inline]
    fn send_whole(&mut self, id: StreamId, body: &[u8], out: &mut Vec<u8>) -> bool {
        if body.len() > self.allowance(id) {
            return false;
        }
        self.select(id, out);
        if let Some(header) = self.engine.send_data(id, body.len(), true) {
            out.extend_from_slice(header.as_bytes());
            out.extend_from_slice(body);
        }
        self.end(out);
        true
    }

    fn send_data(
        &mut self,
        id: StreamId,
        fill: impl FnOnce(usize, &mut Vec<u8>) -> Filled,
        out: &mut Vec<u8>,
    ) -> (usize, Filled) {
        self.select(id, out);
        self.prioritize(id);
        let mark = self.engine.begin_data(out);
        let before = out.len();
        let filled = fill(self.allowance(id), out);
        let bytes = out.len() - before;
        if let Filled::Changed = filled {
            out.truncate(mark);
            return (0, filled);
        }
        let has_ended = matches!(filled, Filled::End);
        self.engine.end_data(id, mark, has_ended, out);
        self.turn_bytes += bytes;
        match has_ended {
            true => self.end(out),
            false => self.pass(out),
        }
        (bytes, filled)
    }

    fn end_body(&mut self, id: StreamId, trailers: &FieldLines, out: &mut Vec<u8>) {
        self.select(id, out);
        match trailers.is_empty() {
            true => _ = self.engine.send_data(id, 0, true),
            false => self.engine.send_trailers(id, trailers.as_bytes(), out),
        }
        self.end(out);
    }

    fn cancel(&mut self, id: StreamId, reason: Cancel, out: &mut Vec<u8>) {
        self.pass(out);
        if self.engine.cancel(id) {
            let code = match reason {
                Cancel::Broken => Http3ErrorCode::InternalError,
                Cancel::Stopped => Http3ErrorCode::RequestCancelled,
            };
            self.reset(id, code);
        }
    }

    fn consumed(&mut self, id: StreamId, bytes: usize, _out: &mut Vec<u8>) {
        if let Some(untaken) = self.untaken.get_mut(&id) {
            let was_full = *untaken >= WINDOW;
            *untaken = untaken.saturating_sub(bytes);
            if was_full && *untaken < WINDOW {
                self.resumed.push(id);
            }
        }
    }

    fn drain(&mut self, now: u64, _out: &mut Vec<u8>) {
        if self.draining_since.is_none() {
            self.draining_since = Some(now);
            self.engine.begin_drain();
        }
    }

    #[inline]
    fn allowance(&mut self, id: StreamId) -> usize {
        if self.unsent.contains_key(&id) {
            return 0;
        }
        CHUNK.min(MAX_UNSENT.saturating_sub(self.unsent_bytes))
    }

    fn set_ready(&mut self, id: StreamId, is_ready: bool) {
        self.engine.set_ready(id, is_ready);
    }

    fn next_to_send(&mut self, _out: &Vec<u8>) -> Option<StreamId> {
        loop {
            let is_over = self.turn_bytes >= BATCH || self.is_full();
            let next = if is_over { None } else { self.engine.next_to_send() };
            let of_next = next.map_or(LAST, |id| i32::from(self.engine.priority(id).urgency));
            // Where the connection's window is small, what waits takes all of it.
            if self.writable.is_empty() || !self.resume_next(of_next) {
                return next;
            }
        }
    }

    fn stalled_by(&self, id: StreamId) -> Option<Stalled> {
        self.unsent.contains_key(&id).then_some(Stalled::Stream)
    }

    fn may_receive(&self, id: StreamId) -> bool {
        self.engine.may_receive(id)
    }

    #[inline]
    fn position(&self, out: &Vec<u8>) -> i64 {
        self.written + out.len() as i64
    }

    #[inline]
    fn flushes(&self) -> u64 {
        self.flushes
    }

    fn shrink(&mut self) {
        self.engine.shrink();
        self.unsent.shrink_to_fit();
        self.untaken.shrink_to_fit();
        self.prioritized.shrink_to_fit();
        self.writable.shrink_to_fit();
    }
}
