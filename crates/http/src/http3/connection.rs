//! The state of a server's connection, its settings and its events.

use std::ops::Range;

use super::frame::{self, Http3ErrorCode};
use super::session::Session;
use super::stream::RequestStreams;
use super::{Http3Error, OwnStream};
use crate::request::{Head, HeadBuffers};
use crate::{Limits, Priority, RequestError};

/// Limits of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http3Settings {
    /// Limits of a request's head.
    pub limits: Limits,
    /// Concurrent requests. The transport has to announce the same limit of streams.
    pub streams: u32,
}

impl Default for Http3Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), streams: 128 }
    }
}

/// An event that [`Http3Connection::receive`] has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Http3Event {
    /// All input was used. Call again when more bytes of a stream have arrived.
    More,
    /// The stream waits for entries of the QPACK table. Keep the rest of the input, and call [`Http3Connection::receive`] with it
    /// again once [`Http3Connection::next_unblocked`] returns the stream.
    Blocked,
    /// A request. Respond with [`Http3Connection::respond`].
    Request {
        /// The stream of the request.
        stream: u64,
        /// The value of Content-Length, if present. A body follows only if `ended` is false.
        length: Option<u64>,
        /// The request has no body.
        ended: bool,
    },
    /// A request beyond a limit. The response, sent by [`Http3Connection::respond`], has the error's status.
    Rejected {
        /// The stream of the request.
        stream: u64,
        /// The status of the response and the reason.
        error: RequestError,
    },
    /// A malformed request (RFC 9114 §4.1.2). It gets no response: reset both directions of the stream with the code. The head has
    /// what could be read of it.
    Malformed {
        /// The stream of the request.
        stream: u64,
        /// The error code.
        code: Http3ErrorCode,
        /// Why it is malformed.
        reason: &'static str,
    },
    /// A part of a request body.
    Data {
        /// The stream of the request.
        stream: u64,
        /// Range of the bytes in the input.
        data: Range<usize>,
        /// The body ends with this part.
        ended: bool,
    },
    /// The stream cannot be continued: reset both directions with the code, and drop everything that belongs to it.
    Reset {
        /// The stream.
        stream: u64,
        /// The error code.
        code: Http3ErrorCode,
    },
    /// No more of the stream is read: stop its receiving side with the code.
    Stop {
        /// The stream, which may be a unidirectional one.
        stream: u64,
        /// The error code.
        code: Http3ErrorCode,
    },
}

/// An HTTP/3 connection of a server. The [module documentation](super) has the calling contract.
#[derive(Debug)]
pub struct Http3Connection {
    pub(super) settings: Http3Settings,
    pub(super) session: Session,
    pub(super) streams: RequestStreams,
    /// The lowest stream that neither has arrived nor is below one that has.
    pub(super) next: u64,
    /// Streams below `next` of which nothing has arrived.
    pub(super) unseen: Vec<u64>,
    /// Priorities that arrived before their streams.
    pub(super) early: Vec<(u64, Priority)>,
    /// DATA frames sent.
    pub(super) data_frames: u64,
    pub(super) drain: Shutdown,
    /// A connection error was returned.
    has_failed: bool,
}

/// Progress of a graceful shutdown (RFC 9114 §5.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shutdown {
    #[default]
    No,
    /// The shutdown is announced. Requests that the client sent before it received GOAWAY are still served.
    Announced,
    /// Streams from this one on are rejected.
    Final(u64),
}

/// Bytes of a stream that have arrived.
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
    /// The stream ends with them.
    pub(super) is_end: bool,
}

/// The largest identifier of a request's stream (RFC 9114 §5.2).
const LAST_STREAM: u64 = frame::MAX_VARINT - 3;
/// Sections that may be incomplete or blocked, in multiples of the largest head.
const HELD_HEADS: usize = 8;

impl Http3Connection {
    /// Creates a connection. The server's SETTINGS are pending on [`OwnStream::Control`].
    pub fn new(settings: Http3Settings) -> Self {
        let max_section = settings.limits.head_size;
        Self {
            settings,
            session: Session::new(true, max_section, HELD_HEADS * max_section),
            streams: RequestStreams::default(),
            next: 0,
            unseen: Vec::new(),
            early: Vec::new(),
            data_frames: 0,
            drain: Shutdown::No,
            has_failed: false,
        }
    }

    /// Advances the connection's clock to `second`, in seconds of any monotonic clock. The bounds on abusive clients are
    /// rates per second.
    #[inline]
    pub fn set_time(&mut self, second: u64) {
        self.session.budget.advance(second);
    }

    /// Reads the next event from `input[*at..]`, bytes of the stream `stream` of the client, and advances `at` past the bytes that
    /// it has used. `is_end`: the stream ends with the input, which may be empty. A request's head is stored in `head`, with its
    /// text in `text`.
    ///
    /// # Errors
    /// A connection error. Close the connection with its code; every further call fails, too.
    #[inline]
    pub fn receive(
        &mut self,
        stream: u64,
        input: &[u8],
        at: &mut usize,
        is_end: bool,
        head: &mut Head,
        text: &mut Vec<u8>,
    ) -> Result<Http3Event, Http3Error> {
        self.check()?;
        let input = Input { bytes: input, is_end };
        let result = match stream & 3 {
            0 => self.request_stream(stream, &input, at, &mut HeadBuffers { head, text }),
            2 => self.control_stream(stream, &input, at),
            _ => Err(Http3Error::new(
                Http3ErrorCode::StreamCreationError,
                "the stream is not one of a client",
            )),
        };
        self.has_failed |= result.is_err();
        result
    }

    /// Notes that the client has reset its side of a stream. Returns `true` if a response on it is incomplete: drop everything
    /// that belongs to the stream, and reset the server's side with H3_REQUEST_CANCELLED.
    ///
    /// # Errors
    /// A connection error, as of [`Http3Connection::receive`].
    pub fn reset_received(&mut self, stream: u64) -> Result<bool, Http3Error> {
        self.check()?;
        let result = if stream & 2 == 0 {
            self.abandoned(stream)
        } else {
            self.session.reset(stream).map(|()| false)
        };
        self.has_failed |= result.is_err();
        result
    }

    /// Notes that the client reads no more of a stream (STOP_SENDING of QUIC). Returns `true` as
    /// [`Http3Connection::reset_received`] does; the server's receiving side is to be stopped, too.
    ///
    /// # Errors
    /// A connection error, as of [`Http3Connection::receive`].
    pub fn stop_received(&mut self, stream: u64) -> Result<bool, Http3Error> {
        self.check()?;
        let result = if stream & 2 == 0 {
            self.abandoned(stream)
        } else {
            // The server's unidirectional streams are all critical (RFC 9114 §6.2.1, RFC 9204 §4.2).
            let reason = "a stream of the connection is stopped";
            Err(Http3Error::new(Http3ErrorCode::ClosedCriticalStream, reason))
        };
        self.has_failed |= result.is_err();
        result
    }

    fn check(&self) -> Result<(), Http3Error> {
        match self.has_failed {
            true => Err(Http3Error::new(Http3ErrorCode::NoError, "the connection has failed")),
            false => Ok(()),
        }
    }

    /// Returns a stream that was [`Http3Event::Blocked`] and can be read on.
    pub fn next_unblocked(&mut self) -> Option<u64> {
        self.session.decoder.next_unblocked()
    }

    /// Returns the bytes to send on one of the server's unidirectional streams, which is to be opened with the first of them. Call
    /// [`Http3Connection::sent`] for those that the transport has taken. The streams have to be sent before others
    /// and are never closed.
    pub fn pending(&mut self, stream: OwnStream) -> &[u8] {
        self.session.pending(stream)
    }

    /// Notes that the transport has taken the first `count` bytes of [`Http3Connection::pending`], which may be 0: no entries are added to
    /// the table while the peer may not receive them.
    pub fn sent(&mut self, stream: OwnStream, count: usize) {
        self.session.sent(stream, count);
    }

    /// Returns `true` if the head of a request has arrived in part.
    pub fn awaits_head(&self) -> bool {
        self.streams.iter().any(|stream| !stream.has_head)
    }

    /// Returns the number of streams whose request or response is incomplete.
    #[inline]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the bytes that the connection holds of what the client has sent: sections that are incomplete or blocked.
    pub fn held(&self) -> usize {
        self.session.held()
    }

    /// Releases caches, if no stream is open. For idle connections.
    pub fn shrink(&mut self) {
        if self.streams.len() == 0 {
            self.session.heads.shrink();
            self.streams.shrink();
        }
    }

    /// Announces a graceful shutdown (RFC 9114 §5.2). Requests in flight are served. After the time that the announcement takes,
    /// call [`Http3Connection::end_drain`].
    pub fn begin_drain(&mut self) {
        if self.drain == Shutdown::No {
            self.drain = Shutdown::Announced;
            frame::write_goaway(LAST_STREAM, &mut self.session.out);
        }
    }

    /// Announces the last stream that is served. Later ones are rejected.
    pub fn end_drain(&mut self) {
        if !self.has_ended_drain() {
            self.drain = Shutdown::Final(self.next);
            frame::write_goaway(self.next, &mut self.session.out);
        }
    }

    /// Returns `true` once the last stream was announced that is served.
    pub fn has_ended_drain(&self) -> bool {
        matches!(self.drain, Shutdown::Final(_))
    }

    /// Returns `true` if a shutdown is complete: all responses have been sent.
    pub fn is_done(&self) -> bool {
        self.has_ended_drain() && self.streams.iter().all(|stream| stream.is_finished)
    }
}
