//! What a connection has on both sides: unidirectional streams, settings, and QPACK.

use super::Http3Error;
use super::control::{ControlFrame, ControlReader, PeerSettings};
use super::frame::{self, Http3ErrorCode, read_varint, setting, stream_kind};
use super::qpack::{QpackDecoder, QpackEncoder, TABLE_SIZE};
use crate::Priority;
use crate::abuse::{Budget, Cost};
use crate::section::Heads;

/// A unidirectional stream that this side opens. It is never closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnStream {
    /// The control stream.
    Control,
    /// The instructions of the QPACK encoder.
    Encoder,
    /// The instructions of the QPACK decoder.
    Decoder,
}

impl OwnStream {
    /// All of them, in the order in which they are best opened and sent.
    pub const ALL: [Self; 3] = [Self::Control, Self::Encoder, Self::Decoder];
}

/// The state of a connection beside its requests.
#[derive(Debug)]
pub(super) struct Session {
    is_server: bool,
    pub(super) heads: Heads<QpackEncoder>,
    pub(super) decoder: QpackDecoder,
    control: ControlReader,
    /// Unidirectional streams of the peer.
    peer_streams: Vec<PeerStream>,
    /// Bytes of the control stream that were not sent.
    pub(super) out: Vec<u8>,
    /// The peer's settings, once they have arrived.
    pub(super) peer: Option<PeerSettings>,
    pub(super) budget: Budget,
    /// Bytes of sections that are not complete or wait for entries of the table.
    held: usize,
    max_held: usize,
}

/// A unidirectional stream of the peer.
#[derive(Debug)]
struct PeerStream {
    id: u64,
    kind: Option<OwnStream>,
    /// Its type is not known, and its bytes are dropped.
    is_ignored: bool,
    /// The beginning of its type.
    partial: [u8; 8],
    length: u8,
}

/// A result of bytes on a unidirectional stream.
#[derive(Debug)]
pub(super) enum ControlEvent {
    /// All input was used.
    More,
    Settings,
    GoAway(u64),
    Priority {
        stream: u64,
        priority: Priority,
    },
    /// The stream is not to be read any further.
    Stop(Http3ErrorCode),
}

/// Streams of the peer that may wait for entries of the QPACK table.
const BLOCKED_STREAMS: usize = 16;
/// Unidirectional streams of the peer, with those whose type is incomplete or not known.
const MAX_PEER_STREAMS: usize = 16;
/// Bytes of instructions of the peer's encoder that are processed at a time.
const INSTRUCTIONS: usize = 1024;
/// Bytes of instructions of the decoder that the peer does not receive.
const MAX_UNSENT: usize = 64 * 1024;

impl Session {
    /// Creates the session of one side. `max_section` is the limit of a section in bytes, as the peer gets it, and `max_held` of
    /// all bytes of sections that are held.
    pub(super) fn new(is_server: bool, max_section: usize, max_held: usize) -> Self {
        let mut out = vec![stream_kind::CONTROL as u8];
        let settings = [
            (setting::QPACK_MAX_TABLE_CAPACITY, TABLE_SIZE as u64),
            (setting::QPACK_BLOCKED_STREAMS, BLOCKED_STREAMS as u64),
            (setting::MAX_FIELD_SECTION_SIZE, max_section as u64),
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
        ];
        // Only a server announces extended CONNECT (RFC 9220 §3).
        frame::write_settings(&settings[..if is_server { 4 } else { 3 }], &mut out);
        let mut decoder = QpackDecoder::new(TABLE_SIZE, BLOCKED_STREAMS);
        decoder.begin_stream(stream_kind::DECODER as u8);
        Self {
            is_server,
            heads: Heads::new(QpackEncoder::default()),
            decoder,
            control: ControlReader::new(is_server),
            peer_streams: Vec::new(),
            out,
            peer: None,
            budget: Budget::default(),
            held: 0,
            max_held,
        }
    }

    /// Returns the bytes that wait to be sent on a stream.
    pub(super) fn pending(&mut self, stream: OwnStream) -> &[u8] {
        match stream {
            OwnStream::Control => &self.out,
            OwnStream::Encoder => self.heads.encoder.instructions(),
            OwnStream::Decoder => self.decoder.instructions(),
        }
    }

    /// Notes that the transport has taken bytes of a stream.
    pub(super) fn sent(&mut self, stream: OwnStream, count: usize) {
        match stream {
            OwnStream::Control => {
                self.out.drain(..count.min(self.out.len()));
            }
            OwnStream::Encoder => self.heads.encoder.sent(count),
            OwnStream::Decoder => self.decoder.sent(count),
        }
    }

    /// Reads bytes of a unidirectional stream. All input is used before [`ControlEvent::More`] is returned.
    pub(super) fn receive(
        &mut self,
        id: u64,
        input: &[u8],
        at: &mut usize,
        is_end: bool,
    ) -> Result<ControlEvent, Http3Error> {
        let Some(kind) = self.kind_of(id, input, at, is_end)? else {
            return Ok(ControlEvent::More);
        };
        let Ok(kind) = kind else {
            *at = input.len();
            self.budget.spend(Cost::Empty)?;
            return Ok(ControlEvent::Stop(Http3ErrorCode::StreamCreationError));
        };
        let event = match kind {
            OwnStream::Control => self.control(input, at)?,
            OwnStream::Encoder => {
                self.insertions(&input[*at..])?;
                *at = input.len();
                ControlEvent::More
            }
            OwnStream::Decoder => {
                self.acknowledgements(&input[*at..])?;
                *at = input.len();
                ControlEvent::More
            }
        };
        if is_end && *at == input.len() {
            return Err(CLOSED);
        }
        Ok(event)
    }

    /// Notes that the peer has reset a unidirectional stream.
    pub(super) fn reset(&mut self, id: u64) -> Result<(), Http3Error> {
        let position = self.peer_streams.iter().position(|stream| stream.id == id);
        let stream = position.map(|position| self.peer_streams.remove(position));
        match stream.and_then(|stream| stream.kind) {
            Some(_) => Err(CLOSED),
            None => Ok(()),
        }
    }

    /// Changes the count of bytes that are held.
    pub(super) fn hold(&mut self, before: usize, after: usize) -> Result<(), Http3Error> {
        self.held = self.held + after - before;
        if self.held > self.max_held {
            return Err(Http3Error::load("too many sections are incomplete"));
        }
        Ok(())
    }

    /// Checks that the peer receives the decoder stream, on which acknowledgements wait.
    pub(super) fn check_unsent(&self) -> Result<(), Http3Error> {
        match self.decoder.held() > MAX_UNSENT {
            true => Err(Http3Error::load("the decoder stream is not received")),
            false => Ok(()),
        }
    }

    /// Takes bytes that were held out of the count.
    pub(super) fn release(&mut self, count: usize) {
        self.held -= count;
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns what a stream carries; `Err` if it is not to be read. `None` if its type is incomplete.
    fn kind_of(
        &mut self,
        id: u64,
        input: &[u8],
        at: &mut usize,
        is_end: bool,
    ) -> Result<Option<Result<OwnStream, ()>>, Http3Error> {
        let position = self.peer_streams.iter().position(|stream| stream.id == id);
        if let Some(position) = position {
            if let Some(kind) = self.peer_streams[position].kind {
                return Ok(Some(Ok(kind)));
            }
            if self.peer_streams[position].is_ignored {
                *at = input.len();
                return Ok(None);
            }
        }
        let mut stream = match position {
            Some(position) => self.peer_streams.remove(position),
            None => PeerStream { id, kind: None, is_ignored: false, partial: [0; 8], length: 0 },
        };
        while let Some(byte) = input.get(*at) {
            stream.partial[usize::from(stream.length)] = *byte;
            stream.length += 1;
            *at += 1;
            if let Some(kind) = read_varint(&stream.partial[..usize::from(stream.length)], &mut 0) {
                let kind = self.own_kind(kind)?;
                self.make_room()?;
                self.peer_streams.push(PeerStream { kind, is_ignored: kind.is_none(), ..stream });
                return Ok(Some(kind.ok_or(())));
            }
        }
        // A stream may end before its type is known (RFC 9114 §6.2).
        if !is_end && stream.length > 0 {
            self.make_room()?;
            self.peer_streams.push(stream);
        }
        Ok(None)
    }

    /// Makes room for one more stream of the peer: bytes of streams that were stopped long ago arrive no more.
    fn make_room(&mut self) -> Result<(), Http3Error> {
        if self.peer_streams.len() >= MAX_PEER_STREAMS {
            let oldest = self.peer_streams.iter().position(|stream| stream.is_ignored);
            let oldest = oldest.ok_or(Http3Error::load("too many streams have no type"))?;
            self.peer_streams.remove(oldest);
        }
        Ok(())
    }

    /// Returns the stream of that type; `None` for a type that is not known.
    fn own_kind(&self, kind: u64) -> Result<Option<OwnStream>, Http3Error> {
        let kind = match kind {
            stream_kind::CONTROL => OwnStream::Control,
            stream_kind::ENCODER => OwnStream::Encoder,
            stream_kind::DECODER => OwnStream::Decoder,
            stream_kind::PUSH if self.is_server => {
                let reason = "a client opens a push stream";
                return Err(Http3Error::new(Http3ErrorCode::StreamCreationError, reason));
            }
            stream_kind::PUSH => return Err(Http3Error::id("the server pushes unasked")),
            _ => return Ok(None),
        };
        if self.peer_streams.iter().any(|stream| stream.kind == Some(kind)) {
            let reason = "a second stream of a type that is permitted once";
            return Err(Http3Error::new(Http3ErrorCode::StreamCreationError, reason));
        }
        Ok(Some(kind))
    }

    fn control(&mut self, input: &[u8], at: &mut usize) -> Result<ControlEvent, Http3Error> {
        while let Some(frame) = self.control.next(input, at)? {
            match frame {
                ControlFrame::Idle => self.budget.spend(Cost::Empty)?,
                ControlFrame::Priority { stream, priority } => {
                    self.budget.spend(Cost::Priority)?;
                    return Ok(ControlEvent::Priority { stream, priority });
                }
                ControlFrame::GoAway(id) => {
                    self.budget.spend(Cost::Empty)?;
                    return Ok(ControlEvent::GoAway(id));
                }
                ControlFrame::Settings(settings) => {
                    let encoder = &mut self.heads.encoder;
                    if settings.table_capacity > 0 {
                        encoder.begin_stream(stream_kind::ENCODER as u8);
                    }
                    encoder.set_limits(settings.table_capacity, settings.blocked_streams);
                    self.peer = Some(settings);
                    return Ok(ControlEvent::Settings);
                }
            }
        }
        Ok(ControlEvent::More)
    }

    fn insertions(&mut self, input: &[u8]) -> Result<(), Http3Error> {
        // An insertion of one byte can copy 4 KB, so the number is checked in between.
        for piece in input.chunks(INSTRUCTIONS) {
            let count = self.decoder.receive(piece).map_err(|malformed| {
                Http3Error::new(Http3ErrorCode::QpackEncoderStreamError, malformed.0)
            })?;
            for _ in 0..count {
                self.budget.spend(Cost::Insertion)?;
            }
        }
        Ok(())
    }

    fn acknowledgements(&mut self, input: &[u8]) -> Result<(), Http3Error> {
        let idle = self.heads.encoder.receive(input).map_err(|malformed| {
            Http3Error::new(Http3ErrorCode::QpackDecoderStreamError, malformed.0)
        })?;
        for _ in 0..idle {
            self.budget.spend(Cost::Empty)?;
        }
        Ok(())
    }
}

const CLOSED: Http3Error =
    Http3Error::new(Http3ErrorCode::ClosedCriticalStream, "a stream of the connection is closed");
