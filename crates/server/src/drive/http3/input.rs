//! What arrives on the streams of QUIC.

use bytes::Bytes;
use dunlin_http::Request;
use dunlin_http::http3::{Http3ErrorCode, Http3Event};
use dunlin_quic::proto::Event as QuicEvent;
use dunlin_quic::{Dir, ReadEnd, StreamEvent};
use hashbrown::HashMap;

use super::sending::quic_stream;
use super::{FIRST_STREAMS, Http3Driver, STREAMS};
use crate::exchange::multiplex::{RequestStart, StreamId};
use crate::worker::{Buffers, Completion};

/// What has arrived and is not processed.
#[derive(Default)]
pub(super) struct Arrived {
    /// Streams that may be readable.
    readable: Vec<StreamId>,
    /// The rest of what has arrived on streams that wait for entries of the QPACK table, and whether the stream ends with it.
    blocked: HashMap<StreamId, (Vec<Bytes>, bool)>,
    /// The parts of one read.
    parts: Vec<Bytes>,
}

impl Arrived {
    pub(super) fn held(&self) -> usize {
        let parts = self.blocked.values().flat_map(|(parts, _)| parts);
        parts.map(Bytes::len).sum()
    }
}

/// Parts that one read takes from a stream at most.
const PARTS: usize = 64;

impl Http3Driver {
    /// Handles what QUIC reports. Returns `true` if there was anything.
    pub(super) fn receive_events(&mut self, out: &mut Vec<u8>) -> bool {
        let mut has_any = false;
        loop {
            let event = self.exchanges.protocol.carrier.connection.state().poll();
            let Some(event) = event else { break };
            has_any = true;
            match event {
                QuicEvent::Stream(StreamEvent::Opened { dir }) => self.accept(dir),
                QuicEvent::Stream(StreamEvent::Readable { id }) => {
                    self.arrived.readable.push(id.into());
                }
                QuicEvent::Stream(StreamEvent::Writable { id }) => {
                    self.exchanges.protocol.note_writable(id.into());
                }
                QuicEvent::Stream(StreamEvent::Stopped { id, .. }) => {
                    self.stopped(id.into(), out);
                }
                QuicEvent::Connected => self.complete_handshake(),
                QuicEvent::ConnectionLost { reason } => {
                    tracing::debug!(peer = %self.exchanges.link.facts.peer, "HTTP/3 connection ended: {reason}");
                    self.is_lost = true;
                }
                _ => {}
            }
        }
        has_any
    }

    /// Notes that the handshake of a client that has sent early data is complete.
    fn complete_handshake(&mut self) {
        self.handshake = None;
        let carrier = &mut self.exchanges.protocol.carrier;
        carrier.session.complete();
        self.exchanges.link.renew_facts(carrier);
    }

    fn accept(&mut self, dir: Dir) {
        let mut state = self.exchanges.protocol.carrier.connection.state();
        while let Some(id) = state.streams().accept(dir) {
            self.arrived.readable.push(id.into());
        }
        let open = state.streams().remote_open_streams(Dir::Bi);
        if !self.has_all_streams && open >= u64::from(FIRST_STREAMS) / 2 {
            self.has_all_streams = true;
            state.set_max_concurrent_streams(Dir::Bi, STREAMS.into());
        }
    }

    /// The client reads no more of a stream.
    fn stopped(&mut self, id: StreamId, out: &mut Vec<u8>) {
        if self.exchanges.protocol.stop_farewell(id) {
            return;
        }
        match self.exchanges.protocol.engine.stop_received(id) {
            Ok(true) => {
                self.exchanges.forget(id, Completion::Aborted, out);
                self.exchanges.protocol.reset(id, Http3ErrorCode::RequestCancelled);
            }
            Ok(false) => self.exchanges.protocol.forget(id),
            Err(error) => self.fail(error),
        }
    }

    /// Processes what has arrived. Returns `true` if there was anything.
    pub(super) fn receive(&mut self, buffers: &mut Buffers) -> bool {
        self.arrived.readable.append(&mut self.exchanges.protocol.resumed);
        if self.arrived.readable.is_empty() {
            return false;
        }
        // The kernel reports a change of a file before a request that came after it, but not in this order.
        self.exchanges.link.ctx.look_for_changes();
        self.exchanges.link.set_read_times(true);
        for id in std::mem::take(&mut self.arrived.readable) {
            if self.closing.is_some() {
                break;
            }
            self.read(id, buffers);
            while let Some(id) = self.exchanges.protocol.engine.next_unblocked() {
                if let Some((parts, is_end)) = self.arrived.blocked.remove(&id) {
                    self.process(id, parts, is_end, buffers);
                    self.arrived.readable.push(id);
                }
            }
        }
        let max = self.exchanges.link.ctx.http1.requests;
        if max != 0 && self.exchanges.link.requests >= max {
            let now = self.exchanges.link.now();
            crate::exchange::multiplex::Protocol::drain(
                &mut self.exchanges.protocol,
                now,
                &mut buffers.output.bytes,
            );
        }
        true
    }

    /// Reads from a stream what its handler can take.
    fn read(&mut self, id: StreamId, buffers: &mut Buffers) {
        if self.arrived.blocked.contains_key(&id) {
            return;
        }
        let mut parts = std::mem::take(&mut self.arrived.parts);
        // Beyond that, the handler has to take bytes first, or other streams get their turn.
        let room = self.exchanges.protocol.room(id);
        let connection = &self.exchanges.protocol.carrier.connection;
        let end = connection.read(quic_stream(id), room, PARTS, &mut parts);
        match end {
            ReadEnd::Reset(_) => {
                parts.clear();
                self.reset_received(id, &mut buffers.output.bytes);
            }
            ReadEnd::Open | ReadEnd::Paused | ReadEnd::Ended => {
                if matches!(end, ReadEnd::Paused) && self.exchanges.protocol.room(id) > 0 {
                    self.arrived.readable.push(id);
                }
                let is_end = matches!(end, ReadEnd::Ended);
                if is_end || !parts.is_empty() {
                    parts = self.process(id, parts, is_end, buffers);
                }
            }
        }
        parts.clear();
        self.arrived.parts = parts;
    }

    fn reset_received(&mut self, id: StreamId, out: &mut Vec<u8>) {
        match self.exchanges.protocol.engine.reset_received(id) {
            Ok(true) => {
                self.exchanges.forget(id, Completion::Aborted, out);
                self.exchanges.protocol.reset(id, Http3ErrorCode::RequestCancelled);
            }
            Ok(false) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Passes parts of a stream to the engine. Returns the list, which is empty.
    fn process(
        &mut self,
        id: StreamId,
        mut parts: Vec<Bytes>,
        is_end: bool,
        buffers: &mut Buffers,
    ) -> Vec<Bytes> {
        if parts.is_empty() {
            parts.push(Bytes::new());
        }
        let count = parts.len();
        for number in 0..count {
            let part = parts[number].clone();
            let mut at = 0;
            let ends = is_end && number + 1 == count;
            if !self.process_part(id, &part, &mut at, ends, buffers) {
                let mut rest: Vec<_> = parts.drain(number..).collect();
                rest[0] = part.slice(at..);
                self.arrived.blocked.insert(id, (rest, is_end));
                break;
            }
            if self.closing.is_some() {
                break;
            }
        }
        parts.clear();
        parts
    }

    /// Passes a part to the engine. Returns `false` if the stream waits for entries of the QPACK table.
    fn process_part(
        &mut self,
        id: StreamId,
        part: &Bytes,
        at: &mut usize,
        is_end: bool,
        buffers: &mut Buffers,
    ) -> bool {
        let Buffers { output, head, path, text, .. } = buffers;
        let out = &mut output.bytes;
        loop {
            let event = self.exchanges.protocol.engine.receive(id, part, at, is_end, head, text);
            match event {
                Ok(Http3Event::More) => return true,
                Ok(Http3Event::Blocked) => return false,
                Ok(Http3Event::Request { stream, length, ended }) => {
                    let request = Request::new(text, head);
                    let start = RequestStart { request, length, has_ended: ended };
                    self.exchanges.begin(stream, &start, path, out);
                }
                Ok(Http3Event::Rejected { stream, error }) => {
                    let request = Request::new(text, head);
                    self.exchanges.reject(stream, error, &request, out);
                }
                Ok(Http3Event::Malformed { stream, code, reason }) => {
                    tracing::debug!(peer = %self.exchanges.link.facts.peer, reason, "HTTP/3 request malformed: stream reset");
                    self.exchanges.record_malformed(&Request::new(text, head));
                    self.exchanges.protocol.reset(stream, code);
                }
                Ok(Http3Event::Data { stream, data, ended }) => {
                    self.exchanges.protocol.note_untaken(stream, data.len());
                    self.exchanges.receive_body(stream, &part[data], out);
                    if ended {
                        let trailers = self.exchanges.protocol.engine.take_trailers(stream);
                        self.exchanges.end_body(stream, trailers, out);
                    }
                }
                Ok(Http3Event::Reset { stream, code }) => {
                    self.exchanges.forget(stream, Completion::Aborted, out);
                    self.exchanges.protocol.reset(stream, code);
                }
                Ok(Http3Event::Stop { stream, code }) => self.exchanges.protocol.stop(stream, code),
                Err(error) => {
                    self.fail(error);
                    return true;
                }
            }
        }
    }

    /// Ends the connection with an error.
    fn fail(&mut self, error: dunlin_http::http3::Http3Error) {
        let (code, reason) = (error.code, error.reason);
        let peer = &self.exchanges.link.facts.peer;
        if error.is_abuse() {
            tracing::warn!(%peer, reason, "HTTP/3 connection ended: abuse");
        } else {
            tracing::debug!(%peer, %code, reason, "HTTP/3 connection ended");
        }
        // What follows the first error has no meaning.
        self.closing.get_or_insert((code, reason));
        self.exchanges.abandon_streams();
    }
}
