//! Reading the responses of a connection, one after the other, at the cost of a load generator (RFC 9112 §4, §6.3).

use memchr::memchr;

use super::framing::{Framing, FramingFields};
use crate::http1::chunked::{ChunkedDecoder, Decoded};
use crate::semantics::status;

/// Reads the responses of one connection, one after the other.
#[derive(Debug, Default)]
pub struct ResponseReader {
    state: State,
    keep: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Known(u64),
    Chunked(Box<ChunkedDecoder>),
    UntilClose,
}

/// What [`ResponseReader::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum ResponseEvent<'a> {
    /// All input was used, or what is left is the beginning of a head.
    More,
    /// A final response's head.
    Head {
        /// Its status code.
        status: u16,
        /// Length of the body, when the head tells.
        length: Option<u64>,
    },
    /// A piece of the body.
    Data(&'a [u8]),
    /// The response is complete.
    End {
        /// Whether the server goes on with the connection.
        keep: bool,
    },
}

/// The response is not one: what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// The last head that was read. A head that equals it byte for byte means the same, and servers send
/// the same head many times in a second.
#[derive(Debug, Default)]
pub struct LastHead {
    bytes: Vec<u8>,
    meaning: Option<Meaning>,
}

#[derive(Debug, Clone, Copy)]
struct Meaning {
    status: u16,
    framing: Framing,
    keep: bool,
    head_only: bool,
}

/// A head may have this many bytes.
const MOST_HEAD: usize = 64 * 1024;

impl ResponseReader {
    /// Takes bytes from the front of `input`: how many, and what they are. `head_only`: the answer is to a
    /// HEAD request and has no body.
    ///
    /// # Errors
    /// [`Malformed`] when it is not a response, or one that could be read in two ways.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
        head_only: bool,
        last: &mut LastHead,
    ) -> Result<(usize, ResponseEvent<'a>), Malformed> {
        match &mut self.state {
            State::Head => self.head(input, head_only, last),
            State::Known(0) => Ok((0, self.end())),
            State::Known(_) | State::UntilClose if input.is_empty() => Ok((0, ResponseEvent::More)),
            State::Known(left) => {
                let take = (*left).min(input.len() as u64) as usize;
                *left -= take as u64;
                Ok((take, ResponseEvent::Data(&input[..take])))
            }
            State::UntilClose => Ok((input.len(), ResponseEvent::Data(input))),
            State::Chunked(decoder) => {
                let (used, decoded) =
                    decoder.decode(input).map_err(|refusal| Malformed(refusal.reason))?;
                Ok((
                    used,
                    match decoded {
                        Decoded::More => ResponseEvent::More,
                        Decoded::Data(data) => ResponseEvent::Data(data),
                        Decoded::End => self.end(),
                    },
                ))
            }
        }
    }

    /// Bytes of the present body that are known to be still to come.
    #[must_use]
    pub fn known_rest(&self) -> u64 {
        match self.state {
            State::Known(left) => left,
            _ => 0,
        }
    }

    /// Whether the length of the present body is known and all of it has come.
    #[must_use]
    pub fn is_body_complete(&self) -> bool {
        matches!(self.state, State::Known(0))
    }

    /// Tells that `count` bytes of the body were taken elsewhere; not more than
    /// [`ResponseReader::known_rest`].
    pub fn skip(&mut self, count: u64) {
        if let State::Known(left) = &mut self.state {
            *left = left.saturating_sub(count);
        }
    }

    /// Whether a response has begun and not ended.
    #[must_use]
    pub fn is_within(&self) -> bool {
        !matches!(self.state, State::Head)
    }

    /// The server has closed: whether that ends the present response as it should.
    #[must_use]
    pub fn ends_at_close(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    fn end(&mut self) -> ResponseEvent<'static> {
        self.state = State::Head;
        ResponseEvent::End { keep: self.keep }
    }

    #[inline]
    fn head<'a>(
        &mut self,
        input: &'a [u8],
        head_only: bool,
        last: &mut LastHead,
    ) -> Result<(usize, ResponseEvent<'a>), Malformed> {
        if let Some(meaning) = last.meaning.filter(|meaning| meaning.head_only == head_only)
            && input.starts_with(&last.bytes)
        {
            return Ok((last.bytes.len(), self.begin(meaning)));
        }
        let mut at = 0;
        loop {
            let Some((length, meaning)) = parse(&input[at..], head_only)? else {
                return if input.len() - at > MOST_HEAD {
                    Err(Malformed("the head is larger than 64 KB"))
                } else {
                    Ok((at, ResponseEvent::More))
                };
            };
            // Interim responses (RFC 9110 §15.2) come before the one that is waited for.
            if meaning.status < 200 && meaning.status != 101 {
                at += length;
                continue;
            }
            last.bytes.clear();
            last.bytes.extend_from_slice(&input[at..at + length]);
            last.meaning = Some(meaning);
            return Ok((at + length, self.begin(meaning)));
        }
    }

    #[inline]
    fn begin(&mut self, meaning: Meaning) -> ResponseEvent<'static> {
        let Meaning { status, framing, keep, .. } = meaning;
        self.keep = keep;
        let length = match framing {
            Framing::None => Some(0),
            Framing::Known(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        self.state = match framing {
            Framing::None => State::Known(0),
            Framing::Known(length) => State::Known(length),
            Framing::Chunked => State::Chunked(Box::new(ChunkedDecoder::of_response())),
            Framing::UntilClose => State::UntilClose,
        };
        ResponseEvent::Head { status, length }
    }
}

/// Reads one head: its length and what it means; `None` when its end has not arrived.
fn parse(input: &[u8], head_only: bool) -> Result<Option<(usize, Meaning)>, Malformed> {
    let Some((line, mut at)) = next_line(input, 0) else {
        let start = &input[..input.len().min(5)];
        return if b"HTTP/".starts_with(start) {
            Ok(None)
        } else {
            Err(Malformed("this is not HTTP/1"))
        };
    };
    let (status, minor) = status_line(line)?;
    let mut fields = FramingFields { keep_alive: minor >= 1, ..FramingFields::default() };
    loop {
        let Some((line, next)) = next_line(input, at) else { return Ok(None) };
        at = next;
        if line.is_empty() {
            break;
        }
        let colon = memchr(b':', line).ok_or(Malformed("a field has no colon"))?;
        fields.add(&line[..colon], line[colon + 1..].trim_ascii())?;
    }
    let framing = framing(&fields, status, head_only)?;
    let keep = fields.keep_alive && !fields.close && framing != Framing::UntilClose;
    Ok(Some((at, Meaning { status, framing, keep, head_only })))
}

/// The line that begins at `start` without its end, and where the next one begins.
#[inline]
fn next_line(input: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let length = memchr(b'\n', &input[start..])?;
    let line = &input[start..start + length];
    Some((line.strip_suffix(b"\r").unwrap_or(line), start + length + 1))
}

/// `HTTP-version SP status-code SP [reason-phrase]` (RFC 9112 §4): status and minor version.
fn status_line(line: &[u8]) -> Result<(u16, u8), Malformed> {
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(Malformed("this is not HTTP/1"))?;
    let [minor @ b'0'..=b'9', b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', tail @ ..] =
        rest
    else {
        return Err(Malformed("the status line is malformed"));
    };
    if !matches!(tail.first(), None | Some(b' ')) {
        return Err(Malformed("the status line is malformed"));
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok((digit(a) * 100 + digit(b) * 10 + digit(c), minor - b'0'))
}

/// The framing of a response to a request that may be HEAD (RFC 9112 §6.3).
fn framing(fields: &FramingFields, status: u16, head_only: bool) -> Result<Framing, Malformed> {
    if head_only || !status::has_body(status) { Ok(Framing::None) } else { fields.framing() }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Told = (Vec<(u16, Option<u64>)>, Vec<u8>, Vec<bool>);

    /// Reads `input` in pieces of `step` bytes: heads, all bodies together, ends.
    fn read(input: &[u8], step: usize, head_only: bool) -> Result<Told, Malformed> {
        let (mut reader, mut last) = (ResponseReader::default(), LastHead::default());
        let (mut heads, mut body, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffer = Vec::new();
        for piece in input.chunks(step) {
            buffer.extend_from_slice(piece);
            loop {
                let (used, event) = reader.next(&buffer, head_only, &mut last)?;
                let more = event == ResponseEvent::More;
                match event {
                    ResponseEvent::More => {}
                    ResponseEvent::Head { status, length } => heads.push((status, length)),
                    ResponseEvent::Data(data) => body.extend_from_slice(data),
                    ResponseEvent::End { keep } => ends.push(keep),
                }
                buffer.drain(..used);
                if more {
                    break;
                }
            }
        }
        Ok((heads, body, ends))
    }

    #[test]
    fn responses_are_told_apart_however_they_arrive() {
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
            HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nde\r\n1;=[ \r\nf\r\n0\r\nT: 1\r\n\r\n\
            HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nghi\
            HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let told = (
            vec![(200, Some(3)), (200, None), (304, Some(0)), (200, Some(3)), (200, Some(0))],
            b"abcdefghi".to_vec(),
            vec![true, true, true, true, false],
        );
        for step in 1..input.len() {
            assert_eq!(read(input, step, false), Ok(told.clone()), "in pieces of {step}");
        }
    }

    #[test]
    fn without_a_length_the_body_ends_with_the_connection() {
        let mut reader = ResponseReader::default();
        let input = b"HTTP/1.0 200 OK\n\nabc";
        let (used, event) = reader.next(input, false, &mut LastHead::default()).unwrap();
        assert_eq!(event, ResponseEvent::Head { status: 200, length: None });
        let (_, event) = reader.next(&input[used..], false, &mut LastHead::default()).unwrap();
        assert_eq!(event, ResponseEvent::Data(b"abc"));
        assert!(reader.ends_at_close());
    }

    #[test]
    fn persistence_follows_version_and_connection_field() {
        let keep = |head: &[u8]| read(head, 1000, true).unwrap().2[0];
        assert!(keep(b"HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!keep(b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keep(b"HTTP/1.0 200 OK\r\n\r\n"));
        assert!(keep(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn what_is_no_response_or_is_ambiguous_is_told() {
        for input in [
            &b"SSH-2.0-x\r\n"[..],
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(read(input, 1000, false).is_err(), "{}", String::from_utf8_lossy(input));
        }
    }
}
