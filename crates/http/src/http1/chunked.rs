//! Decoder of the chunked transfer coding (RFC 9112 §7.1).

use super::chunk_extension::Position;
use crate::field::FieldName;
use crate::semantics::{is_field_value, is_token};
use crate::{FieldLines, RequestError};

/// Incremental decoder of a chunked body. Extensions and trailer fields are validated.
#[derive(Debug, Clone, Default)]
pub struct ChunkedDecoder {
    state: State,
    /// Bytes of extensions and trailers so far. Bounded, so that a body cannot consist of overhead.
    overhead: u32,
    /// Size of the chunk whose header line is being read.
    size: u64,
    /// The incomplete trailer line.
    line: Vec<u8>,
    /// The decoder accepts arbitrary extensions without control characters, and whitespace after a size, which some servers
    /// send.
    is_lenient: bool,
    trailers: FieldLines,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        value: u64,
        digits: u8,
    },
    Extension(Position),
    /// An extension of any form, if the decoder is lenient.
    AnyExtension,
    SizeLf,
    Data(u64),
    DataCr,
    DataLf,
    Trailer,
    Done,
}

impl Default for State {
    fn default() -> Self {
        Self::Size { value: 0, digits: 0 }
    }
}

/// A part that [`ChunkedDecoder::decode`] has read.
#[derive(Debug, PartialEq, Eq)]
pub enum ChunkedPart<'a> {
    /// All input was used and the body continues.
    More,
    /// A part of the body.
    Data(&'a [u8]),
    /// The body and its trailers are complete.
    End,
}

/// Largest size of all extensions and trailers of a body, in bytes.
const MAX_OVERHEAD: u32 = 16 * 1024;
/// Digits of the largest 64-bit size.
const MAX_DIGITS: u8 = 16;

impl ChunkedDecoder {
    /// Returns a decoder for responses, which tolerates malformed extensions.
    pub(super) fn lenient() -> Self {
        Self { is_lenient: true, ..Self::default() }
    }

    /// Returns the trailer fields, after [`ChunkedPart::End`].
    pub(super) fn take_trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.trailers)
    }

    /// Decodes from the start of `input`. Returns how many bytes it has used, and what they are.
    ///
    /// # Errors
    /// The coding is malformed, or extensions and trailers exceed their limit.
    pub fn decode<'a>(
        &mut self,
        input: &'a [u8],
    ) -> Result<(usize, ChunkedPart<'a>), RequestError> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            if let State::Data(left) = self.state {
                let take = left.min((input.len() - at) as u64) as usize;
                let left = left - take as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                return Ok((at + take, ChunkedPart::Data(&input[at..at + take])));
            }
            at += 1;
            self.step(byte)?;
            if self.state == State::Done {
                return Ok((at, ChunkedPart::End));
            }
        }
        Ok((at, ChunkedPart::More))
    }

    fn step(&mut self, byte: u8) -> Result<(), RequestError> {
        self.state = match (self.state, byte) {
            (State::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == MAX_DIGITS {
                    return Err(RequestError::bad("a chunk size is too large"));
                }
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                State::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (State::Size { value, digits: 1.. }, b'\r') => {
                self.size = value;
                State::SizeLf
            }
            (State::Size { value, digits: 1.. }, byte) => {
                let first = Position::first(byte);
                let first = first.ok_or(RequestError::bad("a chunk size is malformed"))?;
                self.size = value;
                self.count_overhead()?;
                if self.is_lenient { State::AnyExtension } else { State::Extension(first) }
            }
            (State::Size { .. }, _) => return Err(RequestError::bad("a chunk size is malformed")),
            (State::Extension(position), b'\r') if position.may_end() => State::SizeLf,
            (State::Extension(position), byte) => {
                self.count_overhead()?;
                let malformed = RequestError::bad("a chunk extension is malformed");
                State::Extension(position.next(byte).ok_or(malformed)?)
            }
            (State::AnyExtension, b'\r') => State::SizeLf,
            (State::AnyExtension, b'\t' | 0x20..=0x7e | 0x80..) => {
                self.count_overhead()?;
                State::AnyExtension
            }
            (State::AnyExtension, _) => {
                return Err(RequestError::bad("a chunk extension is malformed"));
            }
            (State::SizeLf, b'\n') if self.size == 0 => State::Trailer,
            (State::SizeLf, b'\n') => State::Data(self.size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::default(),
            (State::SizeLf | State::DataCr | State::DataLf, _) => {
                return Err(RequestError::bad("a chunk does not end with CR LF"));
            }
            (State::Trailer, b'\n') => self.trailer_line()?,
            (State::Trailer, _) => {
                self.count_overhead()?;
                self.line.push(byte);
                State::Trailer
            }
            (state @ (State::Data(_) | State::Done), _) => state,
        };
        Ok(())
    }

    fn count_overhead(&mut self) -> Result<(), RequestError> {
        self.overhead += 1;
        if self.overhead > MAX_OVERHEAD {
            return Err(RequestError::new(431, "chunk extensions and trailers are too large"));
        }
        Ok(())
    }

    /// Processes a trailer line, complete but for its LF. An empty one ends the body.
    fn trailer_line(&mut self) -> Result<State, RequestError> {
        let line = std::mem::take(&mut self.line);
        let Some((b'\r', line)) = line.split_last() else {
            return Err(RequestError::bad("a trailer line ends without CR"));
        };
        if line.is_empty() {
            return Ok(State::Done);
        }
        let malformed = RequestError::bad("a trailer field is malformed");
        let colon = memchr::memchr(b':', line).ok_or(malformed)?;
        if !is_token(&line[..colon]) || !is_field_value(&line[colon + 1..]) {
            return Err(malformed);
        }
        // Trailers must not contain fields for framing or routing (RFC 9110 §6.5.1).
        match FieldName::from_bytes(&line[..colon]) {
            FieldName::ContentLength
            | FieldName::TransferEncoding
            | FieldName::Host
            | FieldName::Trailer
            | FieldName::Connection
            | FieldName::Te
            | FieldName::Expect => {
                Err(RequestError::bad("a trailer field is not permitted in trailers"))
            }
            _ => {
                self.trailers.push_parsed(&line[..colon], line[colon + 1..].trim_ascii());
                Ok(State::Trailer)
            }
        }
    }
}
