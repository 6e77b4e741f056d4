//! One connection's state: opening streams, sending bodies, and flow control.

use std::ops::Range;

use super::request::write_block;
use super::stream::{ClientStream, ClientStreams};
use crate::FieldLines;
use crate::abuse::Budget;
use crate::http2::Http2Error;
use crate::http2::frame::{self, Http2ErrorCode, MAX_PAYLOAD, PREFACE, setting};
use crate::http2::hpack::{HpackDecoder, HpackEncoder};
use crate::message::{BodySize, InvalidRequest, RequestHead, ResponseHead};
use crate::section::outgoing_request::{encode, encode_trailers};
use crate::section::{IncomingResponse, MAX_SECTION};

/// An event that [`Http2ClientConnection::receive`] has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Http2ClientEvent {
    /// All input that can be used was used.
    NeedInput,
    /// The head of an interim response; another head follows.
    Interim {
        /// The request's stream.
        stream: u32,
        /// The head.
        head: ResponseHead,
    },
    /// The head of the final response.
    Head {
        /// The request's stream.
        stream: u32,
        /// The head.
        head: ResponseHead,
        /// The response is complete.
        is_end: bool,
    },
    /// A piece of a response's body. The caller calls [`Http2ClientConnection::consumed`] when it has taken it.
    Data {
        /// The request's stream.
        stream: u32,
        /// The place of the piece in the input.
        data: Range<usize>,
        /// The response is complete.
        is_end: bool,
    },
    /// The trailer fields; the response is complete.
    Trailers {
        /// The request's stream.
        stream: u32,
        /// The fields.
        fields: FieldLines,
    },
    /// The stream has ended before the response was complete.
    Reset {
        /// The request's stream.
        stream: u32,
        /// The description of the error.
        reason: &'static str,
        /// The server did not process the request: it may be sent again (RFC 9113 §8.7).
        is_unprocessed: bool,
        /// The code with which the server has reset the stream; `None` if the client does, because the server has broken a rule.
        code: Option<u32>,
    },
    /// Bodies of requests may be sent on: [`Http2ClientConnection::capacity`] of some streams has grown.
    Window,
    /// The server serves no further requests on this connection. The streams that it did not process follow as
    /// [`Http2ClientEvent::Reset`] by [`Http2ClientConnection::unprocessed`].
    GoAway {
        /// The error code of the server.
        code: u32,
    },
}

/// A client's connection of HTTP/2.
#[derive(Debug)]
pub struct Http2ClientConnection {
    pub(super) streams: ClientStreams,
    pub(super) settings: Http2ClientSettings,
    pub(super) encoder: HpackEncoder,
    pub(super) decoder: HpackDecoder,
    /// The number of the next stream.
    pub(super) next: u32,
    pub(super) peer: Peer,
    /// Bytes that the server permits on all streams together.
    pub(super) send: i64,
    /// Bytes that the server may still send on all streams.
    pub(super) receive: i64,
    /// Bytes that were consumed and are not credited to the server yet.
    pub(super) consumed: u32,
    pub(super) phase: Phase,
    /// A section that is not complete.
    pub(super) section: Option<PartialSection>,
    /// The highest stream that the server will process, after GOAWAY.
    pub(super) last_processed: Option<u32>,
    /// Streams that the server has not processed and that the caller does not know of yet.
    pub(super) unprocessed: Vec<u32>,
    /// Bytes that the server may have sent on streams before it knows that the client has reset them.
    pub(super) in_flight: i64,
    /// Frames without data that the server may have sent on those streams.
    pub(super) late_frames: u32,
    /// The server has acknowledged the client's settings.
    pub(super) is_acknowledged: bool,
    pub(super) budget: Budget,
}

/// Frames without data that a server sends on a stream before it knows that it was reset: an interim response, a head, an empty
/// DATA frame or trailers at the end, and its own reset.
const LATE_FRAMES: u32 = 4;

/// Limits from the server's settings.
#[derive(Debug)]
pub(super) struct Peer {
    /// `None` before its settings have arrived.
    pub(super) max_streams: Option<u32>,
    pub(super) initial_window: i64,
    pub(super) max_frame: usize,
    /// It accepts extended CONNECT (RFC 8441 §3).
    pub(super) accepts_extended_connect: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The server's SETTINGS come first.
    Settings,
    Open,
    /// GOAWAY was sent because of an error.
    Failed,
}

/// A section that began with a HEADERS frame and goes on in CONTINUATION frames.
#[derive(Debug)]
pub(super) struct PartialSection {
    pub(super) stream: u32,
    pub(super) is_end: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// Initial size of every window (RFC 9113 §6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;

/// The settings of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2ClientSettings {
    /// Bytes that the server may send on a stream before the caller has consumed any (RFC 9113 §5.2): at most 2³¹ − 1.
    pub stream_window: u32,
    /// Bytes that the server may send on all streams before the caller has consumed any: from 65,535 to 2³¹ − 1.
    pub connection_window: u32,
    /// Requests at a time if the server states no limit.
    pub streams: u32,
}

impl Default for Http2ClientSettings {
    fn default() -> Self {
        Self { stream_window: 256 * 1024, connection_window: 1024 * 1024, streams: DEFAULT_STREAMS }
    }
}

/// Streams that are open at once while the server's limit is not known (RFC 9113 §6.5.2 recommends 100 at least).
const DEFAULT_STREAMS: u32 = 100;

impl Http2ClientConnection {
    /// Creates a connection; its preface and settings are appended to `out`.
    pub fn new(out: &mut Vec<u8>) -> Self {
        Self::with_settings(Http2ClientSettings::default(), out)
    }

    /// As [`Http2ClientConnection::new`], with other settings than the usual ones.
    pub fn with_settings(settings: Http2ClientSettings, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        frame::write_settings(
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, settings.stream_window),
                (setting::MAX_HEADER_LIST_SIZE, MAX_SECTION as u32),
            ],
            out,
        );
        frame::write_window_update(0, settings.connection_window - DEFAULT_WINDOW, out);
        Self {
            streams: ClientStreams::new(),
            settings,
            encoder: HpackEncoder::default(),
            decoder: HpackDecoder::default(),
            next: 1,
            peer: Peer {
                max_streams: None,
                initial_window: i64::from(DEFAULT_WINDOW),
                max_frame: MAX_PAYLOAD,
                accepts_extended_connect: false,
            },
            send: i64::from(DEFAULT_WINDOW),
            receive: i64::from(settings.connection_window),
            consumed: 0,
            phase: Phase::Settings,
            section: None,
            last_processed: None,
            unprocessed: Vec::new(),
            in_flight: 0,
            late_frames: 0,
            is_acknowledged: false,
            budget: Budget::default(),
        }
    }

    /// Advances the connection's clock to `second`, in seconds of any monotonic clock. The bounds on abusive servers are
    /// rates per second.
    pub fn set_time(&mut self, second: u64) {
        self.budget.advance(second);
    }

    /// Returns `true` if another request may be sent now.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.is_usable()
            && self.streams.len() < self.peer.max_streams.unwrap_or(DEFAULT_STREAMS) as usize
    }

    /// Returns the number of requests that the server permits at a time; `None` before its settings have arrived.
    #[must_use]
    pub fn max_streams(&self) -> Option<usize> {
        self.peer.max_streams.map(|streams| streams as usize)
    }

    /// Returns `true` if the connection takes further requests, now or when others are complete.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        let has_numbers = self.next < 0x7fff_ffff;
        self.phase != Phase::Failed && self.last_processed.is_none() && has_numbers
    }

    /// Returns whether the server accepts extended CONNECT (RFC 8441 §3); `None` before its settings have arrived.
    #[must_use]
    pub fn accepts_extended_connect(&self) -> Option<bool> {
        (self.phase != Phase::Settings).then_some(self.peer.accepts_extended_connect)
    }

    /// Requests that are not complete.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the bytes that the connection holds of what the server has sent: a section that is not complete.
    #[must_use]
    pub fn held(&self) -> usize {
        self.section.as_ref().map_or(0, |section| section.bytes.capacity())
    }

    /// Opens a stream and appends the head of its request to `out`: the number of the stream. `scheme` is `http` or
    /// `https`. Fields that concern one connection are left out.
    ///
    /// # Errors
    /// If the request is invalid or no stream may be opened.
    pub fn open(
        &mut self,
        head: &RequestHead,
        scheme: &str,
        size: BodySize,
        out: &mut Vec<u8>,
    ) -> Result<u32, InvalidRequest> {
        head.check()?;
        if !self.can_open() {
            return Err(InvalidRequest("the connection takes no further request".into()));
        }
        if head.protocol.is_some() && self.accepts_extended_connect() != Some(true) {
            let reason =
                "the server does not accept extended CONNECT (SETTINGS_ENABLE_CONNECT_PROTOCOL)";
            return Err(InvalidRequest(reason.into()));
        }
        let mut block = Vec::with_capacity(256);
        encode(head, scheme, size, (&mut self.encoder, ()), &mut block);
        let is_end = matches!(size, BodySize::Empty | BodySize::Known(0));
        let id = self.next;
        self.next += 2;
        write_block(id, &block, is_end, self.peer.max_frame, out);
        let stream = ClientStream {
            send: self.peer.initial_window,
            receive: i64::from(self.settings.stream_window),
            consumed: 0,
            is_sent: is_end,
            response: IncomingResponse::new(&head.method),
        };
        self.streams.insert(id, stream);
        Ok(id)
    }

    /// Returns how many bytes of the request's body may be sent now in one frame.
    #[must_use]
    pub fn capacity(&self, stream: u32) -> usize {
        let Some(stream) = self.streams.get(&stream).filter(|stream| !stream.is_sent) else {
            return 0;
        };
        let window = stream.send.min(self.send).max(0) as usize;
        window.min(self.peer.max_frame)
    }

    /// Returns `true` if more of the request's body is to be sent: the stream is open, and the body is not complete.
    #[must_use]
    pub fn is_sending(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|stream| !stream.is_sent)
    }

    /// Appends what stands before `length` bytes of the request's body. `length` is at most
    /// [`Http2ClientConnection::capacity`].
    pub fn begin_data(&mut self, id: u32, length: usize, is_end: bool, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send -= length as i64;
            stream.is_sent |= is_end;
            self.send -= length as i64;
            self.budget.earn_data(length);
            frame::write_data_head(id, length, is_end, out);
        }
    }

    /// Appends what ends the request's body.
    pub fn end_body(&mut self, id: u32, trailers: &FieldLines, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.is_sent) else {
            return;
        };
        stream.is_sent = true;
        if trailers.as_bytes().is_empty() {
            frame::write_data_head(id, 0, true, out);
        } else {
            let mut block = Vec::new();
            encode_trailers(trailers, (&mut self.encoder, ()), &mut block);
            write_block(id, &block, true, self.peer.max_frame, out);
        }
    }

    /// Notes that the caller has consumed `count` bytes of a response's body, and credits them to the server when they
    /// are worth a frame.
    pub fn consumed(&mut self, id: u32, count: usize, out: &mut Vec<u8>) {
        let credit = |receive: &mut i64, consumed: &mut u32, window: u32| {
            *consumed += count as u32;
            let is_due = *consumed >= window / 2;
            is_due.then(|| {
                *receive += i64::from(*consumed);
                std::mem::take(consumed)
            })
        };
        let Http2ClientSettings { stream_window, connection_window, .. } = self.settings;
        if let Some(count) = credit(&mut self.receive, &mut self.consumed, connection_window) {
            frame::write_window_update(0, count, out);
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && let Some(count) = credit(&mut stream.receive, &mut stream.consumed, stream_window)
        {
            frame::write_window_update(id, count, out);
        }
    }

    /// Gives up a stream that is not complete; `false` if there is no such stream.
    pub fn reset(&mut self, id: u32, code: Http2ErrorCode, out: &mut Vec<u8>) -> bool {
        let Some(stream) = self.streams.remove(&id) else { return false };
        self.in_flight += stream.receive;
        self.late_frames = self.late_frames.saturating_add(LATE_FRAMES);
        frame::write_reset(id, code, out);
        true
    }

    /// Returns the next stream that the server will not process, after [`Http2ClientEvent::GoAway`]; the stream is closed.
    pub fn unprocessed(&mut self) -> Option<u32> {
        self.unprocessed.pop()
    }

    /// Appends PING, to which a server that is there responds.
    pub fn send_ping(&mut self, out: &mut Vec<u8>) {
        frame::write_ping([0; 8], false, out);
    }

    /// Appends GOAWAY: the client ends the connection in good order.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        if self.phase != Phase::Failed {
            self.phase = Phase::Failed;
            frame::write_goaway(0, Http2ErrorCode::NoError, "", out);
        }
    }

    /// Reads the next thing from `input`, and moves `at` behind what was used. The bytes from `at` on have to be in the
    /// input again the next time.
    ///
    /// # Errors
    /// If the server breaks the protocol: the connection is to be closed as soon as `out` has been sent.
    pub fn receive(
        &mut self,
        input: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<Http2ClientEvent, Http2Error> {
        if self.phase == Phase::Failed {
            return Err(Http2Error::new(Http2ErrorCode::NoError, "the connection is over"));
        }
        let result = self.step(input, at, out);
        if let Err(failure) = &result {
            self.phase = Phase::Failed;
            frame::write_goaway(0, failure.code, failure.reason, out);
        }
        result
    }
}
