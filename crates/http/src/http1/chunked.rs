//! The chunked transfer coding, receiving side (RFC 9112 §7.1).

use super::Refusal;
use super::chunk_extension::Position;
use crate::FieldLines;
use crate::field::FieldName;
use crate::semantics::{is_field_value, is_token};

/// Takes a chunked body apart as its bytes arrive. Extensions and trailer fields are checked against their grammar.
/// The decoder of a response keeps the trailer fields.
#[derive(Debug, Clone, Default)]
pub struct ChunkedDecoder {
    state: State,
    /// Bytes of chunk heads and trailers so far beyond what a plain sender needs; bounded, so
    /// that a body cannot be all overhead.
    overhead: u32,
    /// The size of the chunk whose head is being read.
    size: u64,
    /// The trailer line that is arriving.
    line: Vec<u8>,
    /// Whether extensions may be anything without control characters, and whitespace may follow a size: some
    /// servers send that.
    is_lenient: bool,
    /// The trailer fields of a response.
    trailers: FieldLines,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size {
        value: u64,
        digits: u8,
    },
    Extension(Position),
    /// Whatever stands behind a size, when the decoder is lenient.
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

/// What [`ChunkedDecoder::decode`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// All input was used; more is needed.
    More,
    /// A piece of the body.
    Data(&'a [u8]),
    /// The body and its trailers are complete.
    End,
}

/// Extensions and trailers of one body may take this many bytes together.
const MOST_OVERHEAD: u32 = 16 * 1024;
/// 16 hexadecimal digits hold any length that fits in 64 bits.
const MOST_DIGITS: u8 = 16;

impl ChunkedDecoder {
    /// A decoder for responses, which accepts extensions that break the grammar.
    pub(super) fn of_response() -> Self {
        Self { is_lenient: true, ..Self::default() }
    }

    /// The trailer fields of a response, after [`Decoded::End`].
    pub(super) fn take_trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.trailers)
    }

    /// Takes bytes from the front of `input`: returns how many it used and what they were.
    ///
    /// # Errors
    /// When they do not follow the coding.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Decoded<'a>), Refusal> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            if let State::Data(left) = self.state {
                let take = left.min((input.len() - at) as u64) as usize;
                let left = left - take as u64;
                self.state = if left == 0 { State::DataCr } else { State::Data(left) };
                return Ok((at + take, Decoded::Data(&input[at..at + take])));
            }
            at += 1;
            self.step(byte)?;
            if self.state == State::Done {
                return Ok((at, Decoded::End));
            }
        }
        Ok((at, Decoded::More))
    }

    fn step(&mut self, byte: u8) -> Result<(), Refusal> {
        self.state = match (self.state, byte) {
            (State::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == MOST_DIGITS {
                    return Err(Refusal::bad("a chunk size is too large"));
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
                let first = first.ok_or(Refusal::bad("a chunk size is malformed"))?;
                self.size = value;
                self.spend()?;
                if self.is_lenient { State::AnyExtension } else { State::Extension(first) }
            }
            (State::Size { .. }, _) => return Err(Refusal::bad("a chunk size is malformed")),
            (State::Extension(position), b'\r') if position.may_end() => State::SizeLf,
            (State::Extension(position), byte) => {
                self.spend()?;
                let malformed = Refusal::bad("a chunk extension is malformed");
                State::Extension(position.next(byte).ok_or(malformed)?)
            }
            (State::AnyExtension, b'\r') => State::SizeLf,
            (State::AnyExtension, b'\t' | 0x20..=0x7e | 0x80..) => {
                self.spend()?;
                State::AnyExtension
            }
            (State::AnyExtension, _) => {
                return Err(Refusal::bad("a chunk extension is malformed"));
            }
            (State::SizeLf, b'\n') if self.size == 0 => State::Trailer,
            (State::SizeLf, b'\n') => State::Data(self.size),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::default(),
            (State::SizeLf | State::DataCr | State::DataLf, _) => {
                return Err(Refusal::bad("a chunk does not end where it should"));
            }
            (State::Trailer, b'\n') => self.trailer_line()?,
            (State::Trailer, _) => {
                self.spend()?;
                self.line.push(byte);
                State::Trailer
            }
            (state @ (State::Data(_) | State::Done), _) => state,
        };
        Ok(())
    }

    fn spend(&mut self) -> Result<(), Refusal> {
        self.overhead += 1;
        if self.overhead > MOST_OVERHEAD {
            return Err(Refusal::new(431, "chunk extensions and trailers are too large"));
        }
        Ok(())
    }

    /// A trailer line is complete but for its LF; an empty one ends the body.
    fn trailer_line(&mut self) -> Result<State, Refusal> {
        let line = std::mem::take(&mut self.line);
        let Some((b'\r', line)) = line.split_last() else {
            return Err(Refusal::bad("a trailer line ends without CR"));
        };
        if line.is_empty() {
            return Ok(State::Done);
        }
        let malformed = Refusal::bad("a trailer field is malformed");
        let colon = memchr::memchr(b':', line).ok_or(malformed)?;
        if !is_token(&line[..colon]) || !is_field_value(&line[colon + 1..]) {
            return Err(malformed);
        }
        // RFC 9110 §6.5.1: trailers must not carry fields that frame or route the message.
        match FieldName::from_bytes(&line[..colon]) {
            FieldName::ContentLength
            | FieldName::TransferEncoding
            | FieldName::Host
            | FieldName::Trailer
            | FieldName::Connection
            | FieldName::Te
            | FieldName::Expect => Err(Refusal::bad("a trailer carries a framing field")),
            _ => {
                if let (true, Ok(name)) = (self.is_lenient, std::str::from_utf8(&line[..colon])) {
                    self.trailers.push(name, line[colon + 1..].trim_ascii());
                }
                Ok(State::Trailer)
            }
        }
    }
}
