//! One connection's state: opening streams and sending bodies.

use std::ops::Range;

use hashbrown::HashMap;

use crate::FieldLines;
use crate::http3::frame::{self, DataHeader, kind};
use crate::http3::reader::MessageReader;
use crate::http3::session::Session;
use crate::http3::{Http3Error, Http3ErrorCode, OwnStream};
use crate::message::{BodySize, InvalidRequest, RequestHead, ResponseHead};
use crate::section::outgoing_request::{encode, encode_trailers};
use crate::section::{IncomingResponse, MAX_SECTION};

/// An event that [`Http3ClientConnection::receive`] has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Http3ClientEvent {
    /// All input was used.
    NeedInput,
    /// The stream waits for entries of the QPACK table. Keep the rest of the input, and call [`Http3ClientConnection::receive`]
    /// with it again once [`Http3ClientConnection::next_unblocked`] returns the stream.
    Blocked,
    /// The server's settings have arrived.
    Settings,
    /// The head of an interim response; another head follows.
    Interim {
        /// The request's stream.
        stream: u64,
        /// The head.
        head: ResponseHead,
    },
    /// The head of the final response.
    Head {
        /// The request's stream.
        stream: u64,
        /// The head.
        head: ResponseHead,
        /// The response is complete.
        is_end: bool,
    },
    /// A piece of a response's body.
    Data {
        /// The request's stream.
        stream: u64,
        /// The place of the piece in the input.
        data: Range<usize>,
        /// The response is complete.
        is_end: bool,
    },
    /// The trailer fields; the response is complete.
    Trailers {
        /// The request's stream.
        stream: u64,
        /// The fields.
        fields: FieldLines,
    },
    /// The server has broken a rule: reset both directions of the stream with the code.
    Reset {
        /// The request's stream.
        stream: u64,
        /// The error code.
        code: Http3ErrorCode,
        /// The description of the error.
        reason: &'static str,
    },
    /// No more of the unidirectional stream is read: stop its receiving side with the code.
    Stop {
        /// The stream.
        stream: u64,
        /// The error code.
        code: Http3ErrorCode,
    },
    /// The server serves no further requests on this connection. [`Http3ClientConnection::unprocessed`] has the streams that it
    /// did not process.
    GoAway,
}

/// A client's connection of HTTP/3.
#[derive(Debug)]
pub struct Http3ClientConnection {
    pub(super) session: Session,
    pub(super) streams: HashMap<u64, Http3ClientStream>,
    /// The first stream that the server does not process, after GOAWAY.
    pub(super) first_unprocessed: Option<u64>,
    /// Streams that the server has not processed and that the caller does not know of yet.
    pub(super) unprocessed: Vec<u64>,
    pub(super) phase: Http3ClientPhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Http3ClientPhase {
    Open,
    /// The client has announced that it ends the connection.
    Closing,
    /// A connection error was returned.
    Failed,
}

/// A request whose response is not complete.
#[derive(Debug)]
pub(super) struct Http3ClientStream {
    pub(super) reader: MessageReader,
    /// A section that waits for entries of the QPACK table.
    pub(super) blocked: Option<Box<[u8]>>,
    /// Trailer fields, before the end of the stream.
    pub(super) trailers: Option<Box<FieldLines>>,
    pub(super) response: IncomingResponse,
    /// The server has ended its side.
    pub(super) has_ended: bool,
    /// The request is complete.
    pub(super) is_sent: bool,
    is_connect: bool,
}

impl Http3ClientStream {
    /// Returns the bytes that the stream holds of what the server has sent.
    pub(super) fn held(&self) -> usize {
        self.reader.held() + self.blocked.as_ref().map_or(0, |section| section.len())
    }

    /// Returns `true` if the response with this status begins a tunnel.
    pub(super) fn is_tunnel(&self, status: u16) -> bool {
        self.is_connect && (200..300).contains(&status)
    }
}

/// Sections that may be incomplete or blocked, in multiples of the largest one.
const HELD_SECTIONS: usize = 16;

impl Default for Http3ClientConnection {
    fn default() -> Self {
        Self::new()
    }
}

impl Http3ClientConnection {
    /// Creates a connection. The client's SETTINGS are pending on [`OwnStream::Control`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            session: Session::new(false, MAX_SECTION, HELD_SECTIONS * MAX_SECTION),
            streams: HashMap::new(),
            first_unprocessed: None,
            unprocessed: Vec::new(),
            phase: Http3ClientPhase::Open,
        }
    }

    /// Advances the connection's clock to `second`, in seconds of any monotonic clock. The bounds on abusive servers are
    /// rates per second.
    pub fn set_time(&mut self, second: u64) {
        self.session.budget.advance(second);
    }

    /// Returns `true` if the connection takes further requests, as far as the server's limit of streams permits, which is one of
    /// QUIC.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.phase == Http3ClientPhase::Open && self.first_unprocessed.is_none()
    }

    /// Returns whether the server accepts extended CONNECT (RFC 9220 §3); `None` before its settings have arrived.
    #[must_use]
    pub fn accepts_extended_connect(&self) -> Option<bool> {
        self.session.peer.map(|peer| peer.accepts_extended_connect)
    }

    /// Returns the number of requests whose responses are not complete.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the bytes that the connection holds of what the server has sent: sections that are incomplete or blocked.
    #[must_use]
    pub fn held(&self) -> usize {
        self.session.held()
    }

    /// Returns a stream that was [`Http3ClientEvent::Blocked`] and can be read on.
    pub fn next_unblocked(&mut self) -> Option<u64> {
        self.session.decoder.next_unblocked()
    }

    /// Returns the bytes to send on one of the client's unidirectional streams, which is to be opened with the first of them. Call
    /// [`Http3ClientConnection::sent`] for those that the transport has taken. The streams have to be sent before
    /// others and are never closed.
    pub fn pending(&mut self, stream: OwnStream) -> &[u8] {
        self.session.pending(stream)
    }

    /// Notes that the transport has taken the first `count` bytes of [`Http3ClientConnection::pending`], which may be 0: no entries are added to
    /// the table while the peer may not receive them.
    pub fn sent(&mut self, stream: OwnStream, count: usize) {
        self.session.sent(stream, count);
    }

    /// Appends the head of a request to `out`, bytes of the bidirectional stream `stream` that the caller has opened. A request
    /// without a body is all of it: end the stream behind it. `scheme` is `http` or `https`. Fields that concern one connection are
    /// left out.
    ///
    /// # Errors
    /// If the request is invalid, or no request may be sent on the stream.
    pub fn open(
        &mut self,
        stream: u64,
        head: &RequestHead,
        scheme: &str,
        size: BodySize,
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidRequest> {
        head.check()?;
        if !self.is_usable() || stream & 3 != 0 || self.streams.contains_key(&stream) {
            return Err(InvalidRequest("the connection takes no request on this stream".into()));
        }
        if head.protocol.is_some() && self.accepts_extended_connect() != Some(true) {
            let reason =
                "the server does not accept extended CONNECT (SETTINGS_ENABLE_CONNECT_PROTOCOL)";
            return Err(InvalidRequest(reason.into()));
        }
        let start = frame::begin(out);
        encode(head, scheme, size, (&mut self.session.heads.encoder, stream), out);
        frame::end(kind::HEADERS, start, out);
        let state = Http3ClientStream {
            reader: MessageReader::default(),
            blocked: None,
            trailers: None,
            response: IncomingResponse::new(&head.method),
            has_ended: false,
            is_sent: matches!(size, BodySize::Empty | BodySize::Known(0)),
            is_connect: &*head.method == "CONNECT",
        };
        self.streams.insert(stream, state);
        Ok(())
    }

    /// Returns `true` if more of the request's body is to be sent: the stream is open, and the body is not complete.
    #[must_use]
    pub fn is_sending(&self, stream: u64) -> bool {
        self.streams.get(&stream).is_some_and(|stream| !stream.is_sent)
    }

    /// Returns the header of a DATA frame, behind which the caller sends `length` bytes of the request's body; `None` if the body is
    /// complete or the frame would be empty. With `is_end`, the body and the stream end with them.
    pub fn send_data(&mut self, stream: u64, length: usize, is_end: bool) -> Option<DataHeader> {
        let state = self.streams.get_mut(&stream).filter(|stream| !stream.is_sent)?;
        state.is_sent = is_end;
        (length > 0).then(|| DataHeader::new(length))
    }

    /// Appends the trailer fields that end the request's body, if there are any. End the stream behind them.
    pub fn end_body(&mut self, stream: u64, trailers: &FieldLines, out: &mut Vec<u8>) {
        let Some(state) = self.streams.get_mut(&stream).filter(|stream| !stream.is_sent) else {
            return;
        };
        state.is_sent = true;
        if !trailers.is_empty() {
            let start = frame::begin(out);
            encode_trailers(trailers, (&mut self.session.heads.encoder, stream), out);
            frame::end(kind::HEADERS, start, out);
        }
    }

    /// Gives up a request; `false` if its response is complete or it was given up before. Otherwise reset the sending side and
    /// stop the receiving side of the stream with H3_REQUEST_CANCELLED.
    pub fn reset(&mut self, stream: u64) -> bool {
        self.close_stream(stream).is_some()
    }

    /// Returns the next stream that the server does not process, after [`Http3ClientEvent::GoAway`]; its request may be sent again on
    /// another connection (RFC 9114 §5.2).
    pub fn unprocessed(&mut self) -> Option<u64> {
        self.unprocessed.pop()
    }

    /// Announces that the client ends the connection in good order: it sends no further requests.
    pub fn close(&mut self) {
        if self.phase == Http3ClientPhase::Open {
            self.phase = Http3ClientPhase::Closing;
            // No push was ever permitted.
            frame::write_goaway(0, &mut self.session.out);
        }
    }

    /// Notes that the server has reset its side of a stream, with that code. Returns what it means for the request, if the response
    /// is incomplete: `true` if the server did not process it, so that it may be sent again (RFC 9114 §4.1.1).
    ///
    /// # Errors
    /// A connection error, as of [`Http3ClientConnection::receive`].
    pub fn reset_received(&mut self, stream: u64, code: u64) -> Result<Option<bool>, Http3Error> {
        self.check()?;
        if stream & 2 != 0 {
            let result = self.session.reset(stream);
            return result.map(|()| None).inspect_err(|_| self.phase = Http3ClientPhase::Failed);
        }
        let is_unprocessed = code == Http3ErrorCode::RequestRejected.value();
        Ok(self.close_stream(stream).map(|_| is_unprocessed))
    }

    /// Notes that the server reads no more of a stream (STOP_SENDING of QUIC). Returns `true` if the request is incomplete: reset the
    /// sending side of the stream; the response may still arrive (RFC 9114 §4.1).
    ///
    /// # Errors
    /// A connection error, as of [`Http3ClientConnection::receive`].
    pub fn stop_received(&mut self, stream: u64) -> Result<bool, Http3Error> {
        self.check()?;
        if stream & 2 != 0 {
            self.phase = Http3ClientPhase::Failed;
            let reason = "a stream of the connection is stopped";
            return Err(Http3Error::new(Http3ErrorCode::ClosedCriticalStream, reason));
        }
        let Some(stream) = self.streams.get_mut(&stream) else { return Ok(false) };
        Ok(!std::mem::replace(&mut stream.is_sent, true))
    }

    pub(super) fn check(&self) -> Result<(), Http3Error> {
        match self.phase {
            Http3ClientPhase::Failed => {
                Err(Http3Error::new(Http3ErrorCode::NoError, "the connection has failed"))
            }
            Http3ClientPhase::Open | Http3ClientPhase::Closing => Ok(()),
        }
    }

    /// Removes a stream, and releases what belongs to it.
    pub(super) fn close_stream(&mut self, id: u64) -> Option<Http3ClientStream> {
        let stream = self.streams.remove(&id)?;
        self.session.release(stream.held());
        // A section that is not decoded may refer to the table.
        if !stream.has_ended || stream.blocked.is_some() {
            self.session.decoder.cancel(id);
        }
        Some(stream)
    }
}
