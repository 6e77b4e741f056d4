//! The engine of a client's connection: one request and its response at a time.

use std::ops::Range;

use super::framing::{Framing, FramingFields};
use super::request::{self, Sent};
use super::{MalformedResponse, head};
use crate::FieldLines;
use crate::http1::chunked::{ChunkedDecoder, ChunkedPart};
use crate::http1::response;
use crate::message::{BodySize, InterimResponses, InvalidRequest, RequestHead, ResponseHead};
use crate::request::Version;
use crate::semantics::status;

/// A client's connection of HTTP/1.1, without I/O.
///
/// For each request the driver calls [`send_head`](Self::send_head), sends the body within the framing of
/// [`begin_data`](Self::begin_data), [`end_data`](Self::end_data) and [`end_body`](Self::end_body), and calls
/// [`receive`](Self::receive) with the bytes that have arrived until [`Http1ClientEvent::End`]. Sending and receiving are
/// independent: a server may respond before the request is complete. Another request may follow when
/// [`is_reusable`](Self::is_reusable).
#[derive(Debug, Default)]
pub struct Http1ClientConnection {
    send: Send,
    receive: Receive,
    sent: Sent,
    /// The server or the client has announced the end of the connection, or its framing requires it.
    is_closing: bool,
    interim_responses: InterimResponses,
}

/// The unsent part of the request.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Send {
    #[default]
    Complete,
    Known(u64),
    Chunked,
}

/// The part of the response that is read next.
#[derive(Debug, Default)]
enum Receive {
    /// No request is under way.
    #[default]
    Idle,
    /// A head. The number is that of its bytes known to hold no end.
    Head(usize),
    Known(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
    /// Another protocol uses the connection.
    Tunnel,
}

/// An event that [`Http1ClientConnection::receive`] has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Http1ClientEvent {
    /// More input is needed.
    NeedInput,
    /// The head of an interim response (RFC 9110 §15.2); another head follows.
    Interim(ResponseHead),
    /// The head of the final response. If [`Http1ClientConnection::is_tunnel`], all further bytes belong to the other protocol,
    /// and [`Http1ClientConnection::receive`] is not to be called again.
    Head(ResponseHead),
    /// A piece of the body: its place in the input.
    Data(Range<usize>),
    /// The response is complete; its trailer fields.
    End(FieldLines),
}

/// Most bytes of a response's head.
const MAX_HEAD: usize = 64 * 1024;
const LARGE_HEAD: MalformedResponse =
    MalformedResponse("the head of the response is larger than 64 KB");

impl Http1ClientConnection {
    /// Appends the head of a request to `out`.
    ///
    /// # Errors
    /// If the request is invalid, the body has a length that the method cannot have, or the last exchange is not
    /// complete; nothing is appended then.
    pub fn send_head(
        &mut self,
        head: &RequestHead,
        size: BodySize,
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidRequest> {
        if !matches!(self.receive, Receive::Idle) || self.send != Send::Complete {
            return Err(InvalidRequest("the last request is not complete".into()));
        }
        if head.protocol.is_some() {
            return Err(InvalidRequest("HTTP/1.1 has no extended CONNECT".into()));
        }
        self.sent = request::write(head, size, out)?;
        self.send = match size {
            BodySize::Empty | BodySize::Known(0) => Send::Complete,
            BodySize::Known(length) => Send::Known(length),
            BodySize::Unknown => Send::Chunked,
        };
        self.receive = Receive::Head(0);
        self.is_closing |= self.sent.closes;
        self.interim_responses = InterimResponses::default();
        Ok(())
    }

    /// Appends what stands before `length` bytes of the request's body, which is to be followed by
    /// [`Http1ClientConnection::end_data`]. `length` is not 0.
    ///
    /// # Errors
    /// If the body becomes longer than announced.
    pub fn begin_data(&mut self, length: usize, out: &mut Vec<u8>) -> Result<(), InvalidRequest> {
        match &mut self.send {
            Send::Chunked => response::chunk_head(length, out),
            Send::Known(left) if *left >= length as u64 => *left -= length as u64,
            Send::Known(_) | Send::Complete => {
                return Err(InvalidRequest("the request's body is longer than announced".into()));
            }
        }
        Ok(())
    }

    /// Returns the bytes that follow a part of the request's body.
    #[must_use]
    pub fn end_data(&self) -> &'static [u8] {
        if self.send == Send::Chunked { b"\r\n" } else { b"" }
    }

    /// Appends what ends the request's body. A body of known length has no trailer fields; they are dropped.
    ///
    /// # Errors
    /// If the body is shorter than announced.
    pub fn end_body(
        &mut self,
        trailers: &FieldLines,
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidRequest> {
        match self.send {
            Send::Chunked => {
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(trailers.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Send::Known(1..) => {
                return Err(InvalidRequest("the request's body is shorter than announced".into()));
            }
            Send::Known(0) | Send::Complete => {}
        }
        self.send = Send::Complete;
        Ok(())
    }

    /// Returns `true` if the request announces that its body waits for a 100 response (RFC 9110 §10.1.1).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.sent.expects_continue
    }

    /// Reads the next part of the response from the front of `input`: how many bytes it used, and what they are.
    /// `is_end`: the server has closed its side behind `input`.
    ///
    /// # Errors
    /// If the response is malformed or cut off. The connection must then be closed.
    pub fn receive(
        &mut self,
        input: &[u8],
        is_end: bool,
    ) -> Result<(usize, Http1ClientEvent), MalformedResponse> {
        let (used, event) = match &mut self.receive {
            Receive::Idle if input.is_empty() => (0, Http1ClientEvent::NeedInput),
            Receive::Idle => {
                return Err(MalformedResponse("the server sent bytes without a request"));
            }
            Receive::Tunnel => (0, Http1ClientEvent::NeedInput),
            Receive::Head(scanned) => match Self::read_head(input, scanned)? {
                Some((length, _)) if length > MAX_HEAD => return Err(LARGE_HEAD),
                Some((length, head)) => (length, self.head(length, head)?),
                None if input.len() > MAX_HEAD => return Err(LARGE_HEAD),
                None => (0, Http1ClientEvent::NeedInput),
            },
            Receive::Known(0) => (0, self.end(FieldLines::default())),
            Receive::UntilClose if is_end && input.is_empty() => {
                (0, self.end(FieldLines::default()))
            }
            Receive::Known(_) | Receive::UntilClose if input.is_empty() => {
                (0, Http1ClientEvent::NeedInput)
            }
            Receive::Known(left) => {
                let taken = (*left).min(input.len() as u64);
                *left -= taken;
                (taken as usize, Http1ClientEvent::Data(0..taken as usize))
            }
            Receive::UntilClose => (input.len(), Http1ClientEvent::Data(0..input.len())),
            Receive::Chunked(decoder) => {
                let decoded =
                    decoder.decode(input).map_err(|error| MalformedResponse(error.reason))?;
                match decoded {
                    (used, ChunkedPart::More) => (used, Http1ClientEvent::NeedInput),
                    (used, ChunkedPart::Data(data)) => {
                        (used, Http1ClientEvent::Data(used - data.len()..used))
                    }
                    (used, ChunkedPart::End) => {
                        let trailers = decoder.take_trailers();
                        (used, self.end(trailers))
                    }
                }
            }
        };
        if is_end && event == Http1ClientEvent::NeedInput {
            return Err(MalformedResponse(match self.receive {
                Receive::Head(_) if input.is_empty() => "the server closed the connection",
                Receive::Head(_) => "the server closed the connection within a head",
                _ => "the server closed the connection within a body",
            }));
        }
        Ok((used, event))
    }

    /// Reads a head, if it is complete: mostly it is when its first bytes arrive. What is wrong with it is reported when it is
    /// complete, however it arrives.
    fn read_head(
        input: &[u8],
        scanned: &mut usize,
    ) -> Result<Option<(usize, head::Parsed)>, MalformedResponse> {
        if *scanned == 0
            && let Ok(Some(parsed)) = head::parse(input)
        {
            return Ok(Some(parsed));
        }
        match head::length(input, scanned)? {
            Some(length) => head::parse(&input[..length]),
            None => Ok(None),
        }
    }

    fn head(
        &mut self,
        length: usize,
        (head, framing): head::Parsed,
    ) -> Result<Http1ClientEvent, MalformedResponse> {
        if head.is_interim() {
            self.receive = Receive::Head(0);
            self.interim_responses.add(length).map_err(MalformedResponse)?;
            return Ok(Http1ClientEvent::Interim(head));
        }
        let fields = framing?;
        let persists = match head.version {
            Version::Http10 => fields.keep_alive && !fields.is_chunked(),
            _ => true,
        };
        self.is_closing |= fields.close || !persists;
        self.receive = self.body(head.status, &fields)?;
        self.is_closing |= matches!(self.receive, Receive::UntilClose | Receive::Tunnel);
        Ok(Http1ClientEvent::Head(head))
    }

    /// Returns how the body of the final response is delimited (RFC 9112 §6.3).
    fn body(&self, status: u16, fields: &FramingFields) -> Result<Receive, MalformedResponse> {
        let Sent { is_head, is_connect, may_upgrade, .. } = self.sent;
        if status == 101 && !may_upgrade {
            return Err(MalformedResponse("the server switches protocols (101) unasked"));
        }
        if status == 101 || is_connect && (200..300).contains(&status) {
            return Ok(Receive::Tunnel);
        }
        if is_head || !status::has_body(status) {
            return Ok(Receive::Known(0));
        }
        Ok(match fields.framing()? {
            Framing::None => Receive::Known(0),
            Framing::Known(length) => Receive::Known(length),
            Framing::Chunked => Receive::Chunked(Box::new(ChunkedDecoder::lenient())),
            Framing::UntilClose => Receive::UntilClose,
        })
    }

    fn end(&mut self, trailers: FieldLines) -> Http1ClientEvent {
        self.receive = Receive::Idle;
        Http1ClientEvent::End(trailers)
    }

    /// Remaining bytes of the response's body, if its head states the length.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        match self.receive {
            Receive::Known(left) => Some(left),
            _ => None,
        }
    }

    /// Returns `true` if the request has been sent to its end.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.send == Send::Complete
    }

    /// Returns `true` if another protocol uses the connection now: after 101, or after 2xx to CONNECT.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        matches!(self.receive, Receive::Tunnel)
    }

    /// Returns `true` if another request may follow: the exchange is complete on both sides, and neither side has announced
    /// the end of the connection.
    #[must_use]
    pub fn is_reusable(&self) -> bool {
        !self.is_closing && self.send == Send::Complete && matches!(self.receive, Receive::Idle)
    }
}
