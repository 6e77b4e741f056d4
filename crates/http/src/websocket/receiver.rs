//! Receives the frames of a client: bytes in, events out.

use std::ops::Range;

use super::frame::{self, Header, MAX_CONTROL, MAX_HEADER, code, opcode};
use super::utf8::Utf8;

/// An event that [`Receiver::next`] has found.
#[derive(Debug, PartialEq, Eq)]
pub enum WebSocketEvent<'a> {
    /// All input was used.
    More,
    /// A part of a message.
    Data {
        /// Range of the bytes in the input, where they are unmasked. It is empty only if the message ends with it.
        data: Range<usize>,
        /// The message is a text.
        is_text: bool,
        /// The message ends with this part.
        is_end: bool,
    },
    /// A ping: the response is a pong with the same payload.
    Ping(&'a [u8]),
    /// A pong, which needs no response.
    Pong,
    /// The close frame of the client. Nothing may follow, and what does is ignored.
    Close {
        /// The code of the close frame; [`code::NO_STATUS`] without one.
        code: u16,
        /// The reason that the peer states.
        reason: &'a str,
    },
}

/// A client that breaks the protocol or a limit. The connection ends with a close frame that has the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// The code of the close frame.
    pub code: u16,
    /// The description of the error, for the log and the close frame.
    pub reason: &'static str,
}

/// Receives the frames of one client. Data passes through; only headers and control frames are kept while they are
/// incomplete.
#[derive(Debug)]
pub struct Receiver {
    /// Largest message in bytes.
    max_message: u64,
    /// The beginning of a header.
    header: [u8; MAX_HEADER],
    header_length: u8,
    /// The frame whose payload arrives, and the bytes that are missing.
    frame: Option<Header>,
    message: Option<Message>,
    /// The payload of a control frame; a close frame's while it is complete.
    control: Vec<u8>,
    is_closed: bool,
}

/// A message that has begun.
#[derive(Debug, Clone, Copy)]
struct Message {
    is_text: bool,
    length: u64,
    utf8: Utf8,
}

impl Receiver {
    /// Creates the receiver of a connection whose messages have at most `max_message` bytes.
    pub fn new(max_message: u64) -> Self {
        Self {
            max_message,
            header: [0; MAX_HEADER],
            header_length: 0,
            frame: None,
            message: None,
            control: Vec::new(),
            is_closed: false,
        }
    }

    /// Returns the next event of `input[*at..]`, which is unmasked in place, and advances `at` past what it has used.
    /// After [`WebSocketEvent::More`] all input was used.
    ///
    /// # Errors
    /// The client breaks the protocol. Everything that follows is ignored.
    pub fn next(
        &mut self,
        input: &mut [u8],
        at: &mut usize,
    ) -> Result<WebSocketEvent<'_>, Violation> {
        if self.is_closed {
            *at = input.len();
            return Ok(WebSocketEvent::More);
        }
        match self.step(input, at) {
            Ok(Found::More) => Ok(WebSocketEvent::More),
            Ok(Found::Data(data, is_text, is_end)) => {
                Ok(WebSocketEvent::Data { data, is_text, is_end })
            }
            Ok(Found::Control(opcode::PING)) => Ok(WebSocketEvent::Ping(&self.control)),
            Ok(Found::Control(opcode::PONG)) => Ok(WebSocketEvent::Pong),
            Ok(Found::Control(_)) => {
                self.is_closed = true;
                let (code, reason) = close(&self.control)?;
                Ok(WebSocketEvent::Close { code, reason })
            }
            Err(violation) => {
                self.is_closed = true;
                Err(violation)
            }
        }
    }

    fn step(&mut self, input: &mut [u8], at: &mut usize) -> Result<Found, Violation> {
        loop {
            let Some(frame) = &mut self.frame else {
                match self.header(input, at)? {
                    Some(header) => self.begin(header)?,
                    None => return Ok(Found::More),
                }
                continue;
            };
            let available = input.len() - *at;
            let count = usize::try_from(frame.length).map_or(available, |left| left.min(available));
            if count == 0 && frame.length > 0 {
                return Ok(Found::More);
            }
            let data = *at..*at + count;
            *at += count;
            let bytes = &mut input[data.clone()];
            frame::unmask(bytes, frame.mask);
            frame.mask.rotate_left(count % 4);
            frame.length -= count as u64;
            let (opcode, is_final, is_end) = (frame.opcode, frame.is_final, frame.length == 0);
            if is_end {
                self.frame = None;
            }
            if opcode >= opcode::CLOSE {
                self.control.extend_from_slice(bytes);
                if is_end {
                    return Ok(Found::Control(opcode));
                }
                continue;
            }
            if let Some(found) = self.data(bytes, data, is_end && is_final)? {
                return Ok(found);
            }
        }
    }

    /// Takes bytes of a header; the header when it is complete.
    fn header(&mut self, input: &[u8], at: &mut usize) -> Result<Option<Header>, Violation> {
        let known = usize::from(self.header_length);
        let count = (MAX_HEADER - known).min(input.len() - *at);
        self.header[known..known + count].copy_from_slice(&input[*at..*at + count]);
        match frame::parse(&self.header[..known + count]).map_err(protocol)? {
            Some((header, length)) => {
                *at += length - known;
                self.header_length = 0;
                Ok(Some(header))
            }
            None => {
                *at += count;
                self.header_length += count as u8;
                Ok(None)
            }
        }
    }

    /// Checks whether a frame may come now, before its payload.
    fn begin(&mut self, header: Header) -> Result<(), Violation> {
        let is_control = header.opcode >= opcode::CLOSE;
        match (&self.message, header.opcode) {
            _ if is_control => self.control.clear(),
            (None, opcode::CONTINUATION) => {
                return Err(protocol("there is no message to continue"));
            }
            (Some(_), opcode::TEXT | opcode::BINARY) => {
                return Err(protocol("a message begins within another one"));
            }
            (None, opcode) => {
                let is_text = opcode == opcode::TEXT;
                self.message = Some(Message { is_text, length: 0, utf8: Utf8::default() });
            }
            (Some(_), _) => {}
        }
        if let Some(message) = self.message.as_mut().filter(|_| !is_control) {
            message.length = message.length.saturating_add(header.length);
            if message.length > self.max_message {
                return Err(Violation { code: code::TOO_BIG, reason: "the message is too large" });
            }
        }
        debug_assert!(!is_control || header.length <= MAX_CONTROL as u64);
        self.frame = Some(header);
        Ok(())
    }

    /// Checks a part of a message. Returns nothing for a frame without content that does not end the message.
    fn data(
        &mut self,
        bytes: &[u8],
        data: Range<usize>,
        is_end: bool,
    ) -> Result<Option<Found>, Violation> {
        let Some(message) = &mut self.message else { return Ok(None) };
        let is_text = message.is_text;
        if is_text && (!message.utf8.push(bytes) || is_end && !message.utf8.is_complete()) {
            let reason = "the text is not UTF-8";
            return Err(Violation { code: code::INVALID_DATA, reason });
        }
        if is_end {
            self.message = None;
        }
        let is_something = is_end || !data.is_empty();
        Ok(is_something.then_some(Found::Data(data, is_text, is_end)))
    }
}

/// An event without borrowed parts.
enum Found {
    More,
    Data(Range<usize>, bool, bool),
    Control(u8),
}

fn protocol(reason: &'static str) -> Violation {
    Violation { code: code::PROTOCOL_ERROR, reason }
}

/// Code and reason of a close frame.
fn close(payload: &[u8]) -> Result<(u16, &str), Violation> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return match payload {
            [] => Ok((code::NO_STATUS, "")),
            _ => Err(protocol("a close frame has half a code")),
        };
    };
    let code = u16::from_be_bytes(*code);
    if !frame::is_sendable(code) {
        return Err(protocol("the code of a close frame is reserved"));
    }
    let wrong = Violation { code: code::INVALID_DATA, reason: "the close reason is not UTF-8" };
    std::str::from_utf8(reason).map(|reason| (code, reason)).map_err(|_| wrong)
}
