//! One connection's state: whether a head or a body comes next, and what follows the answer.

use super::chunked::{ChunkedDecoder, Decoded};
use super::framing::{self, BodyLength};
use super::{Limits, Refusal, head};
use crate::field::FieldName;
use crate::request::{Head, Request, Version};
use crate::semantics::target::{self, Target};
use crate::semantics::{expect, host};

/// The receiving half of an HTTP/1 connection.
///
/// The driver calls [`Connection::head`] until it has a request, answers it, calls
/// [`Connection::body`] until the body has ended, and so on. What was used of the input is the
/// driver's to drop.
#[derive(Debug)]
pub struct Connection {
    body: Body,
    /// How much of a head that is not complete was seen to hold no further line end.
    scanned: u32,
    persistence: Persistence,
    expects_continue: bool,
}

#[derive(Debug)]
enum Body {
    /// None is open: a head comes next.
    Ended,
    Known(u64),
    Chunked(Box<ChunkedDecoder>),
}

/// What the connection does after the answer, and what the answer has to say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Goes on; nothing needs saying (HTTP/1.1).
    Keep,
    /// Goes on, and an HTTP/1.0 client has to be told.
    KeepSaid,
    /// Ends.
    Close,
}

/// What [`Connection::body`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEvent<'a> {
    /// All input was used and the body goes on.
    More,
    /// A piece of the body.
    Data(&'a [u8]),
    /// The body is complete; a head comes next.
    End,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            body: Body::Ended,
            scanned: 0,
            persistence: Persistence::Keep,
            expects_continue: false,
        }
    }
}

impl Connection {
    /// Reads a request's head from the front of `input`: its length, or `None` when its end has
    /// not arrived. Empty lines before it must have been dropped by [`super::leading_empty_lines`].
    ///
    /// Call it with all bytes since the end of the last message, again when more have come.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with; the connection has to be closed after it.
    #[inline]
    pub fn head(
        &mut self,
        input: &[u8],
        limits: &Limits,
        head: &mut Head,
    ) -> Result<Option<usize>, Refusal> {
        // A head that arrives in drops is read again only when another line is complete, so that
        // the work stays in proportion to its lines and not to its bytes. Its beginning may be seen
        // to be no head at all.
        let unseen = &input[(self.scanned as usize).min(input.len())..];
        let limit = limits.head_size.min(limits.target_size);
        let is_known = self.scanned as usize >= head::REST_OF_LINE && input.len() <= limit;
        if is_known && memchr::memchr(b'\n', unseen).is_none() {
            self.scanned = input.len() as u32;
            return Ok(None);
        }
        let Some(length) = head::parse(input, limits, head)? else {
            self.scanned = input.len() as u32;
            return Ok(None);
        };
        self.scanned = 0;
        self.accept(&Request::new(input, head))?;
        use_target_authority(input, head);
        Ok(Some(length))
    }

    /// Decides framing and persistence for a head that is complete.
    #[inline]
    fn accept(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
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
            (true, Version::Http10) => Persistence::KeepSaid,
            (true, _) => Persistence::Keep,
        };
        Ok(())
    }

    /// Takes bytes of the body from the front of `input`: how many, and what they are. Only
    /// [`BodyEvent::End`] may come with no byte used.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with; the connection has to be closed after it.
    pub fn body<'a>(&mut self, input: &'a [u8]) -> Result<(usize, BodyEvent<'a>), Refusal> {
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
                    Decoded::More => BodyEvent::More,
                    Decoded::Data(data) => BodyEvent::Data(data),
                    Decoded::End => BodyEvent::End,
                };
                (used, event)
            }
        };
        if event == BodyEvent::End {
            self.body = Body::Ended;
            self.expects_continue = false;
        } else if used > 0 {
            self.expects_continue = false;
        }
        Ok((used, event))
    }

    /// Whether a body of the present request has yet to be read to its end.
    #[inline]
    pub fn has_body(&self) -> bool {
        !matches!(self.body, Body::Ended | Body::Known(0))
    }

    /// How the body of the present request is delimited, as far as it has not been read.
    pub fn body_length(&self) -> BodyLength {
        match self.body {
            Body::Ended | Body::Known(0) => BodyLength::None,
            Body::Known(left) => BodyLength::Known(left),
            Body::Chunked(_) => BodyLength::Chunked,
        }
    }

    /// Whether the client waits for a 100 and has not begun to send the body.
    #[inline]
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// To be called when the 100 was sent.
    pub fn continued(&mut self) {
        self.expects_continue = false;
    }

    /// What follows the answer to the present request.
    #[inline]
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Decides that the connection ends with the answer to the present request.
    #[inline]
    pub fn close(&mut self) {
        self.persistence = Persistence::Close;
    }
}

/// How many bytes of empty lines stand before a request line; RFC 9112 §2.2 lets a server drop
/// them. A lone CR at the end counts only when its LF has come.
pub fn leading_empty_lines(input: &[u8]) -> usize {
    let mut at = 0;
    while input[at..].starts_with(b"\r\n") {
        at += 2;
    }
    at
}

/// RFC 9112 §3.2: one well-formed Host in HTTP/1.1, at most one in HTTP/1.0. Its name must not be empty, as every request
/// is for an http or https URI (RFC 9110 §4.2.1).
#[inline]
fn check_host(request: &Request<'_>) -> Result<(), Refusal> {
    match request.field(FieldName::Host) {
        None if request.version() == Version::Http10 => Ok(()),
        None => Err(Refusal::bad("Host is missing")),
        Some(_) if request.is_repeated(FieldName::Host) => {
            Err(Refusal::bad("there is more than one Host"))
        }
        Some(value) if host::is_authority(value) => Ok(()),
        Some(b"") => Err(Refusal::bad("Host is empty")),
        Some(_) => Err(Refusal::bad("Host is malformed")),
    }
}

/// RFC 9112 §3.2.2: the authority of a target in absolute-form takes the place of the value of Host, so that everything
/// that reads the request sees one authority.
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
