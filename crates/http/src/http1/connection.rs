//! The state of a server's connection: whether a head or a body comes next, and whether the connection persists.

use super::chunked::{ChunkedDecoder, ChunkedPart};
use super::{framing, head};
use crate::FieldLines;
use crate::field::FieldName;
use crate::request::{Head, Request, Version};
use crate::semantics::target::{self, Target};
use crate::semantics::{expect, host};
use crate::{BodyLength, Limits, RequestError};

/// The receiving side of a server's HTTP/1 connection. The [module documentation](super) has the calling contract.
#[derive(Debug)]
pub struct Http1Connection {
    body: Body,
    /// Length of the part of an incomplete head that has been searched for the end of a line.
    scanned: u32,
    persistence: Persistence,
    expects_continue: bool,
    /// The trailer fields of the last body.
    trailers: Option<Box<FieldLines>>,
    /// The last call of [`Http1Connection::head`] has read a whole head.
    has_read_head: bool,
}

#[derive(Debug)]
enum Body {
    /// No body is open; a head comes next.
    Ended,
    Known(u64),
    Chunked(Box<ChunkedDecoder>),
}

/// The fate of the connection after the response, and the `Connection` field that announces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Persists without a field, the default of HTTP/1.1.
    Keep,
    /// Persists with `Connection: keep-alive`, for HTTP/1.0.
    KeepExplicit,
    /// Closes, with `Connection: close`.
    Close,
}

/// An event that [`Http1Connection::body`] has read.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEvent<'a> {
    /// All input was used and the body continues.
    More,
    /// A part of the body.
    Data(&'a [u8]),
    /// The body is complete; a head comes next.
    End,
}

impl Default for Http1Connection {
    fn default() -> Self {
        Self {
            body: Body::Ended,
            scanned: 0,
            persistence: Persistence::Keep,
            expects_continue: false,
            trailers: None,
            has_read_head: false,
        }
    }
}

impl Http1Connection {
    /// Parses a request's head at the start of `input`. Returns its length, or `None` if it is incomplete: call it again
    /// with all these bytes and more. [`leading_empty_lines`] must have been dropped before.
    ///
    /// # Errors
    /// The [`RequestError`] to respond with. The connection has to be closed after the response.
    #[inline]
    pub fn head(
        &mut self,
        input: &[u8],
        limits: &Limits,
        head: &mut Head,
    ) -> Result<Option<usize>, RequestError> {
        // An incomplete head is parsed again only when another line is complete, so that a client that sends single bytes
        // causes work per line and not per byte. The first bytes are always parsed, since they may not be HTTP at all.
        let unseen = &input[(self.scanned as usize).min(input.len())..];
        let limit = limits.head_size.min(limits.target_size);
        let is_begun = self.scanned as usize >= head::REST_OF_LINE && input.len() <= limit;
        if is_begun && memchr::memchr(b'\n', unseen).is_none() {
            self.scanned = input.len() as u32;
            return Ok(None);
        }
        self.has_read_head = false;
        let Some(length) = head::parse(input, limits, head)? else {
            self.scanned = input.len() as u32;
            return Ok(None);
        };
        self.scanned = 0;
        self.has_read_head = true;
        self.set_framing(&Request::new(input, head))?;
        use_target_authority(input, head);
        Ok(Some(length))
    }

    /// Returns `true` if the last call of [`Self::head`] has read a whole head. Then the head can be used even if the call
    /// has failed, because the request is one that the engine does not accept.
    pub fn has_read_head(&self) -> bool {
        self.has_read_head
    }

    /// Determines framing and persistence from a complete head.
    #[inline]
    fn set_framing(&mut self, request: &Request<'_>) -> Result<(), RequestError> {
        self.persistence = Persistence::Close;
        check_host(request)?;
        self.body = match framing::body_length(request)? {
            BodyLength::None => Body::Ended,
            BodyLength::Known(length) => Body::Known(length),
            BodyLength::Chunked => Body::Chunked(Box::default()),
        };
        self.expects_continue = expect::wants_continue(request)? && self.has_body();
        self.persistence = match (framing::wants_persistence(request), request.version()) {
            (false, _) => Persistence::Close,
            (true, Version::Http10) => Persistence::KeepExplicit,
            (true, _) => Persistence::Keep,
        };
        Ok(())
    }

    /// Reads a part of the body from the start of `input`. Returns how many bytes it has used, and what they are. Unless
    /// `input` is empty, only [`BodyEvent::End`] can use none.
    ///
    /// # Errors
    /// The [`RequestError`] to respond with. The connection has to be closed after the response.
    pub fn body<'a>(&mut self, input: &'a [u8]) -> Result<(usize, BodyEvent<'a>), RequestError> {
        let (used, event) = match &mut self.body {
            Body::Ended => (0, BodyEvent::End),
            Body::Known(0) => (0, BodyEvent::End),
            Body::Known(_) if input.is_empty() => (0, BodyEvent::More),
            Body::Known(left) => {
                let take = (*left).min(input.len() as u64) as usize;
                *left -= take as u64;
                (take, BodyEvent::Data(&input[..take]))
            }
            Body::Chunked(decoder) => {
                let (used, decoded) = decoder.decode(input)?;
                let event = match decoded {
                    ChunkedPart::More => BodyEvent::More,
                    ChunkedPart::Data(data) => BodyEvent::Data(data),
                    ChunkedPart::End => BodyEvent::End,
                };
                (used, event)
            }
        };
        if event == BodyEvent::End {
            if let Body::Chunked(decoder) = &mut self.body {
                let trailers = decoder.take_trailers();
                self.trailers = (!trailers.is_empty()).then(|| Box::new(trailers));
            }
            self.body = Body::Ended;
            self.expects_continue = false;
        } else if used > 0 {
            self.expects_continue = false;
        }
        Ok((used, event))
    }

    /// Returns the trailer fields of a body, after [`BodyEvent::End`]. Their size is bounded, and none concerns the framing;
    /// which of them have a meaning is for the caller to decide (RFC 9110 §6.5.1).
    pub fn take_trailers(&mut self) -> FieldLines {
        self.trailers.take().map_or_else(FieldLines::default, |trailers| *trailers)
    }

    /// Returns `true` if the current request has a body that has not been read to its end.
    #[inline]
    pub fn has_body(&self) -> bool {
        !matches!(self.body, Body::Ended | Body::Known(0))
    }

    /// Returns the length of the current request's body, as far as it has not been read.
    pub fn body_length(&self) -> BodyLength {
        match self.body {
            Body::Ended | Body::Known(0) => BodyLength::None,
            Body::Known(left) => BodyLength::Known(left),
            Body::Chunked(_) => BodyLength::Chunked,
        }
    }

    /// Returns `true` if the client awaits 100 (Continue) and has not begun to send the body.
    #[inline]
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Reports that 100 (Continue) was sent.
    pub fn continue_sent(&mut self) {
        self.expects_continue = false;
    }

    /// Returns whether the connection persists after the response to the current request.
    #[inline]
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Requests that the connection closes after the response to the current request.
    #[inline]
    pub fn close(&mut self) {
        self.persistence = Persistence::Close;
    }
}

/// Length of the empty lines at the start of `input`, which a server should ignore before a request (RFC 9112 §2.2). A CR
/// whose LF has not arrived does not count.
pub fn leading_empty_lines(input: &[u8]) -> usize {
    let mut at = 0;
    while input[at..].starts_with(b"\r\n") {
        at += 2;
    }
    at
}

/// Requires one well-formed Host in HTTP/1.1 and at most one in HTTP/1.0 (RFC 9112 §3.2). Its name must not be empty, as in
/// every http or https URI (RFC 9110 §4.2.1).
#[inline]
fn check_host(request: &Request<'_>) -> Result<(), RequestError> {
    match request.field(FieldName::Host) {
        None if request.version() == Version::Http10 => Ok(()),
        None => Err(RequestError::bad("Host is missing")),
        Some(_) if request.is_repeated(FieldName::Host) => {
            Err(RequestError::bad("there is more than one Host"))
        }
        Some(value) if host::is_authority(value) => Ok(()),
        Some(b"") => Err(RequestError::bad("Host is empty")),
        Some(_) => Err(RequestError::bad("Host is malformed")),
    }
}

/// Replaces the value of Host by the authority of a target in absolute-form (RFC 9112 §3.2.2), so that all readers of the
/// request see the same authority.
#[inline]
fn use_target_authority(input: &[u8], head: &mut Head) {
    let request = Request::new(input, head);
    let (method, target) = (request.method(), request.target());
    if target.first() != Some(&b'/')
        && let Ok(Target::Absolute { scheme, authority, .. }) = target::parse(method, target)
    {
        let start = scheme.len() + b"://".len();
        head.set_host(start..start + authority.len());
    }
}
