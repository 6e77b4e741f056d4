//! One connection's state, and the way of its input.

use std::ops::Range;

use super::abuse::Budget;
use super::frame::{self, ErrorCode, FrameHead, HEAD, LARGEST, PREFACE, kind, setting};
use super::hpack::{Decoder, TABLE_SIZE};
use super::response::Heads;
use super::stream::{Stream, Streams};
use super::{Failure, Priority};
use crate::http1::{Limits, Refusal};
use crate::request::Head;

/// What a client may do at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bounds of a head, as for HTTP/1.
    pub limits: Limits,
    /// Requests at once.
    pub streams: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), streams: 128 }
    }
}

/// What [`Connection::next`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All input that can be used was used.
    More,
    /// A request, whose head was read. It is to be answered by [`Connection::respond`].
    Request {
        /// Its stream.
        stream: u32,
        /// How long its body is, when that was stated. A body follows only when not `ended`.
        length: Option<u64>,
        /// It has no body.
        ended: bool,
    },
    /// A request that cannot be served; its answer is the refusal's status.
    Refused {
        /// Its stream.
        stream: u32,
        /// What to answer.
        refusal: Refusal,
    },
    /// A piece of a request's body. [`Connection::taken`] is to be called when it has gone its way.
    Data {
        /// The request's stream.
        stream: u32,
        /// Where in the input it stands.
        data: Range<usize>,
        /// The body ends with it.
        ended: bool,
    },
    /// A stream is over before its answer was complete: nothing can be sent on it any more.
    Reset {
        /// The stream.
        stream: u32,
    },
}

/// A server's HTTP/2 connection.
#[derive(Debug, Default)]
pub struct Connection {
    pub(super) settings: Settings,
    phase: Phase,
    pub(super) streams: Streams,
    /// The highest stream that the client has opened.
    pub(super) last: u32,
    /// Numbers that the client has passed over, as the last gap's bounds.
    pub(super) gap: (u32, u32),
    /// Streams that were reset here lately: what still comes for them was sent before the client
    /// heard of it.
    pub(super) resets: Vec<u32>,
    pub(super) next_reset: usize,
    /// A section that is not complete.
    pub(super) section: Option<Box<Section>>,
    pub(super) decoder: Decoder,
    pub(super) heads: Heads,
    pub(super) flow: Flow,
    pub(super) budget: Budget,
    /// Priorities of streams that are still to be opened.
    pub(super) early: Vec<(u32, Priority)>,
    pub(super) turn: u64,
    pub(super) drain: Drain,
    pub(super) complaint: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The preface comes next, and then the client's SETTINGS.
    #[default]
    Preface,
    Settings,
    Open,
    /// GOAWAY was sent because of an error.
    Failed,
}

/// How far the end of the connection has come (RFC 9113 §6.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Drain {
    #[default]
    No,
    /// The client was told that the end is near. What it sent before it heard of that is served;
    /// the answer to a PING shows when it has.
    Announced,
    /// No further stream is served.
    Final,
}

/// The windows of the connection.
#[derive(Debug)]
pub(super) struct Flow {
    /// Bytes that the client lets be sent on all streams.
    pub(super) send: i64,
    /// What it lets be sent on a new stream.
    pub(super) initial: i64,
    /// The largest payload that is sent.
    pub(super) frame: usize,
    /// Bytes that the client may still send on all streams.
    pub(super) receive: i64,
    /// What `receive` was at the most.
    pub(super) window: u32,
    /// Bytes that were taken and not given back to `receive`.
    pub(super) taken: u32,
}

/// What every window is at first (RFC 9113 §6.9.2).
pub(super) const WINDOW: u32 = 65_535;

impl Default for Flow {
    fn default() -> Self {
        Self {
            send: i64::from(WINDOW),
            initial: i64::from(WINDOW),
            frame: LARGEST,
            receive: i64::from(WINDOW),
            window: WINDOW,
            taken: 0,
        }
    }
}

/// A section that began with a HEADERS frame and goes on in CONTINUATION frames.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) stream: u32,
    pub(super) ended: bool,
    /// The stream says that it depends on itself.
    pub(super) is_absurd: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// The loop's memory that a request's head is read into.
pub(super) struct HeadBuffers<'a> {
    pub(super) head: &'a mut Head,
    pub(super) text: &'a mut Vec<u8>,
}

impl Connection {
    /// The connection of a client that will send the preface. The server's own preface is appended
    /// to `out`.
    pub fn new(settings: Settings, out: &mut Vec<u8>) -> Self {
        frame::write_settings(
            &[
                (setting::MAX_CONCURRENT_STREAMS, settings.streams),
                (setting::MAX_HEADER_LIST_SIZE, settings.limits.head_size as u32),
                (setting::NO_RFC7540_PRIORITIES, 1),
            ],
            out,
        );
        Self { settings, ..Self::default() }
    }

    /// Says what the time is, in seconds of any clock that only goes forward.
    #[inline]
    pub fn set_time(&mut self, second: u64) {
        self.budget.pass(second);
    }

    /// Reads the next thing from `input`, and moves `at` behind what was used. The bytes from `at`
    /// on have to be in the input again the next time. A request's head is read into `head`, beside
    /// which `text` is to be read.
    ///
    /// # Errors
    /// When the connection is to be closed as soon as `out` has been sent.
    #[inline]
    pub fn next(
        &mut self,
        input: &[u8],
        at: &mut usize,
        head: &mut Head,
        text: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Event, Failure> {
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
    ) -> Result<Event, Failure> {
        match self.phase {
            Phase::Open | Phase::Settings => {}
            Phase::Failed => {
                return Err(Failure::new(ErrorCode::NoError, "the connection is over"));
            }
            Phase::Preface => {
                let start = &input[*at..];
                let known = start.len().min(PREFACE.len());
                if start[..known] != PREFACE[..known] {
                    return Err(Failure::protocol("the preface is malformed"));
                }
                if known < PREFACE.len() {
                    return Ok(Event::More);
                }
                *at += known;
                self.phase = Phase::Settings;
            }
        }
        loop {
            let Some(frame) = FrameHead::parse(&input[*at..]) else { return Ok(Event::More) };
            self.admit(&frame)?;
            let start = *at + HEAD;
            let Some(payload) = input.get(start..start + frame.length) else {
                return Ok(Event::More);
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

    /// Whether the frame may come now, judged by its head alone.
    #[inline]
    fn admit(&mut self, frame: &FrameHead) -> Result<(), Failure> {
        if self.phase == Phase::Settings {
            if frame.kind != kind::SETTINGS || frame.has(frame::flag::ACK) {
                return Err(Failure::protocol("the first frame is not SETTINGS"));
            }
            self.phase = Phase::Open;
        }
        if frame.length > LARGEST {
            return Err(Failure::size("a frame is larger than the limit"));
        }
        let is_continued = frame.kind == kind::CONTINUATION;
        match &self.section {
            Some(section) if !is_continued || section.stream != frame.stream => {
                Err(Failure::protocol("a section is interrupted"))
            }
            None if is_continued => Err(Failure::protocol("CONTINUATION continues nothing")),
            _ => Ok(()),
        }
    }

    /// Whether a frame or a section of the client is incomplete after `next` has used what it
    /// could of an input of which `left` bytes remain.
    pub fn is_within(&self, left: usize) -> bool {
        left > 0 || self.section.is_some() || self.phase != Phase::Open
    }

    /// What was wrong with a request that was reset for breaking a rule, once, for the log.
    pub fn complaint(&mut self) -> Option<&'static str> {
        self.complaint.take()
    }

    /// Requests that are not answered to their end.
    #[inline]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Lets go of what is kept only to be fast: for a connection that has nothing to do.
    pub fn rest(&mut self) {
        if self.streams.len() == 0 {
            self.heads.rest();
            self.streams.rest();
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
            is_answered: false,
            is_finished: false,
            is_ready: false,
            priority: Priority::default(),
            turn: 0,
        }
    }

    /// The client's limit for the table of the fields that it is sent.
    pub(super) fn limit_table(&mut self, most: u32) {
        self.heads.limit_table((most as usize).min(TABLE_SIZE));
    }
}
