//! The state of a connection, and the dispatch of its input.

use std::ops::Range;

use super::frame::{
    self, FrameHeader, HEADER_LENGTH, Http2ErrorCode, MAX_PAYLOAD, PREFACE, kind, setting,
};
use super::hpack::{HpackDecoder, HpackEncoder, TABLE_SIZE};
use super::stream::{Stream, Streams};
use super::{Http2Error, Priority};
use crate::FieldLines;
use crate::abuse::Budget;
use crate::request::{Head, HeadBuffers};
use crate::section::Heads;
use crate::{Limits, RequestError};

/// Limits of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Settings {
    /// Limits of a request's head.
    pub limits: Limits,
    /// Concurrent requests.
    pub streams: u32,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), streams: 128 }
    }
}

/// An event that [`Http2Connection::next`] has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Http2Event {
    /// Nothing more can be read from the input. Call again when more bytes have arrived.
    More,
    /// A request. Respond with [`Http2Connection::respond`].
    Request {
        /// The stream of the request.
        stream: u32,
        /// The value of Content-Length, if present. A body follows only if `ended` is false.
        length: Option<u64>,
        /// The request has no body.
        ended: bool,
    },
    /// A request beyond a limit. The response, sent by [`Http2Connection::respond`], has the error's status.
    Rejected {
        /// The stream of the request.
        stream: u32,
        /// The status of the response and the reason.
        error: RequestError,
    },
    /// A malformed request, whose stream was reset (RFC 9113 §8.1.1). It gets no response; the head has what could be read of it.
    Malformed {
        /// The stream of the request.
        stream: u32,
        /// Why it is malformed.
        reason: &'static str,
    },
    /// A part of a request body. Call [`Http2Connection::consumed`] once the handler has taken it.
    Data {
        /// The stream of the request.
        stream: u32,
        /// Range of the bytes in the input.
        data: Range<usize>,
        /// The body ends with this part.
        ended: bool,
    },
    /// A stream was reset before its response was complete. Nothing more can be sent on it.
    Reset {
        /// The stream.
        stream: u32,
    },
}

/// An HTTP/2 connection of a server. The [module documentation](super) has the calling contract.
#[derive(Debug, Default)]
pub struct Http2Connection {
    pub(super) settings: Http2Settings,
    phase: Phase,
    pub(super) streams: Streams,
    /// The highest stream that the client has opened.
    pub(super) last: u32,
    /// First and last stream identifier in the most recent gap that the client has left.
    pub(super) gap: (u32, u32),
    /// Streams that the server reset recently. The client may have sent frames for them before it received the reset.
    pub(super) resets: Vec<u32>,
    pub(super) next_reset: usize,
    /// A field section that is still incomplete.
    pub(super) section: Option<Box<Section>>,
    pub(super) decoder: HpackDecoder,
    pub(super) heads: Heads<HpackEncoder>,
    pub(super) flow: Flow,
    pub(super) budget: Budget,
    /// Priorities that arrived before their streams.
    pub(super) early: Vec<(u32, Priority)>,
    /// DATA frames sent.
    pub(super) data_frames: u64,
    pub(super) drain: Drain,
    /// The stream whose body ended last with trailer fields, and these.
    pub(super) trailers: Option<Box<(u32, FieldLines)>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Awaiting the preface.
    #[default]
    Preface,
    /// Awaiting the client's SETTINGS.
    Settings,
    Open,
    /// A connection error was returned and GOAWAY written.
    Failed,
}

/// Progress of a graceful shutdown (RFC 9113 §6.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Drain {
    #[default]
    No,
    /// The shutdown is announced. Requests that the client sent before it received GOAWAY are still served; the
    /// acknowledgement of a PING marks that point.
    Announced,
    /// New streams are ignored.
    Final,
}

/// Flow-control windows of the connection.
#[derive(Debug)]
pub(super) struct Flow {
    /// Send window of the connection.
    pub(super) send: i64,
    /// Initial send window of new streams.
    pub(super) initial: i64,
    /// Largest payload of frames that are sent.
    pub(super) frame: usize,
    /// Receive window: bytes that the client may still send on all streams.
    pub(super) receive: i64,
    /// Size of the receive window when empty.
    pub(super) window: u32,
    /// Bytes consumed that no WINDOW_UPDATE has returned yet.
    pub(super) taken: u32,
}

/// Initial size of every window (RFC 9113 §6.9.2).
pub(super) const WINDOW: u32 = 65_535;

impl Default for Flow {
    fn default() -> Self {
        Self {
            send: i64::from(WINDOW),
            initial: i64::from(WINDOW),
            frame: MAX_PAYLOAD,
            receive: i64::from(WINDOW),
            window: WINDOW,
            taken: 0,
        }
    }
}

/// A field section of a HEADERS frame and its CONTINUATION frames.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) stream: u32,
    pub(super) ended: bool,
    /// The priority of the HEADERS frame names its own stream, which is an error.
    pub(super) depends_on_itself: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

impl Http2Connection {
    /// Creates a connection and appends the server's SETTINGS, and the enlargement of its receive window, to `out`.
    pub fn new(settings: Http2Settings, out: &mut Vec<u8>) -> Self {
        frame::write_settings(
            &[
                (setting::MAX_CONCURRENT_STREAMS, settings.streams),
                (setting::MAX_HEADER_LIST_SIZE, settings.limits.head_size as u32),
                (setting::ENABLE_CONNECT_PROTOCOL, 1),
                (setting::NO_RFC7540_PRIORITIES, 1),
            ],
            out,
        );
        let mut connection = Self { settings, ..Self::default() };
        connection.enlarge_window(out);
        connection
    }

    /// Advances the connection's clock to `second`, in seconds of any monotonic clock. The bounds on abusive clients are
    /// rates per second.
    #[inline]
    pub fn set_time(&mut self, second: u64) {
        self.budget.advance(second);
    }

    /// Reads the next event from `input[*at..]` and advances `at` past the bytes that it has used. The bytes from `at` on
    /// must be in the input of the next call again. A request's head is stored in `head`, with its text in `text`.
    ///
    /// # Errors
    /// A connection error. Send `out` and close the connection; every further call fails, too.
    #[inline]
    pub fn next(
        &mut self,
        input: &[u8],
        at: &mut usize,
        head: &mut Head,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Http2Event, Http2Error> {
        let result = self.step(input, at, &mut HeadBuffers { head, text }, out);
        if let Err(failure) = &result
            && self.phase != Phase::Failed
        {
            self.phase = Phase::Failed;
            frame::write_goaway(self.last, failure.code, failure.reason, out);
        }
        result
    }

    fn step(
        &mut self,
        input: &[u8],
        at: &mut usize,
        into: &mut HeadBuffers<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Http2Event, Http2Error> {
        match self.phase {
            Phase::Open | Phase::Settings => {}
            Phase::Failed => {
                return Err(Http2Error::new(Http2ErrorCode::NoError, "the connection has failed"));
            }
            Phase::Preface => {
                let start = &input[*at..];
                let known = start.len().min(PREFACE.len());
                if start[..known] != PREFACE[..known] {
                    return Err(Http2Error::protocol("the preface is malformed"));
                }
                if known < PREFACE.len() {
                    return Ok(Http2Event::More);
                }
                *at += known;
                self.phase = Phase::Settings;
            }
        }
        loop {
            let Some(frame) = FrameHeader::parse(&input[*at..]) else {
                return Ok(Http2Event::More);
            };
            self.admit(&frame)?;
            let start = *at + HEADER_LENGTH;
            let Some(payload) = input.get(start..start + frame.length) else {
                return Ok(Http2Event::More);
            };
            *at = start + frame.length;
            let event = match frame.kind {
                kind::HEADERS => self.headers(&frame, payload, into, out)?,
                kind::DATA => self.body(&frame, payload, start, out)?,
                kind::CONTINUATION => self.continuation(&frame, payload, into, out)?,
                _ => self.control(&frame, payload, out)?,
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// Checks from its header alone whether a frame is permitted now.
    #[inline]
    fn admit(&mut self, frame: &FrameHeader) -> Result<(), Http2Error> {
        if self.phase == Phase::Settings {
            // Some clients acknowledge the server's SETTINGS before they send their own.
            if frame.kind != kind::SETTINGS {
                return Err(Http2Error::protocol("the first frame is not SETTINGS"));
            }
            self.phase = Phase::Open;
        }
        if frame.length > MAX_PAYLOAD {
            return Err(Http2Error::size("a frame is larger than the limit"));
        }
        let is_continuation = frame.kind == kind::CONTINUATION;
        match &self.section {
            Some(section) if !is_continuation || section.stream != frame.stream => {
                Err(Http2Error::protocol("a field section is interrupted"))
            }
            None if is_continuation => Err(Http2Error::protocol("CONTINUATION continues nothing")),
            _ => Ok(()),
        }
    }

    /// Returns `true` if the client is in the middle of a frame, a field section or the preface, if `left` bytes remain of
    /// the input after [`Http2Connection::next`] has returned [`Http2Event::More`].
    pub fn is_within(&self, left: usize) -> bool {
        left > 0 || self.section.is_some() || self.phase != Phase::Open
    }

    /// Returns the number of streams whose request or response is incomplete.
    #[inline]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Releases caches, if no stream is open. For idle connections.
    pub fn shrink(&mut self) {
        if self.streams.len() == 0 {
            self.heads.shrink();
            self.streams.shrink();
        }
    }

    pub(super) fn open_stream(&self, id: u32, ended: bool) -> Stream {
        Stream {
            id,
            send: self.flow.initial,
            receive: i64::from(WINDOW),
            window: WINDOW,
            taken: 0,
            left: None,
            is_open: !ended,
            has_response_head: false,
            is_finished: false,
            is_ready: false,
            priority: Priority::default(),
            last_sent: 0,
        }
    }

    /// Applies the client's limit of the HPACK table that responses are encoded with.
    pub(super) fn limit_table(&mut self, size: u32) {
        self.heads.encoder.limit_table((size as usize).min(TABLE_SIZE));
    }
}
