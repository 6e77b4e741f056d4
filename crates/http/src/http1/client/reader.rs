//! Reading the responses of a connection, one after the other, at the cost of a load generator (RFC 9112 §4, §6.3).

use memchr::memchr;

use super::framing::{Framing, FramingFields};
use crate::http1::chunked::{ChunkedDecoder, ChunkedPart};
use crate::semantics::status;

/// Parser of the responses on one connection.
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

/// An event that [`ResponseReader::next`] has read.
#[derive(Debug, PartialEq, Eq)]
pub enum ResponseEvent<'a> {
    /// More input is needed. Unused bytes, the start of a head, must be at the start of the next input.
    More,
    /// The head of a final response.
    Head {
        /// The status code of the response.
        status: u16,
        /// Length of the body, if the head states it.
        length: Option<u64>,
    },
    /// A part of the body.
    Data(&'a [u8]),
    /// The response is complete.
    End {
        /// The connection persists.
        keep: bool,
    },
}

/// A malformed response, with a short description of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedResponse(pub &'static str);

/// The last head and its parsed form. Servers send the same head many times per second; one that equals the last byte for
/// byte is not parsed again.
#[derive(Debug, Default)]
pub struct HeadCache {
    bytes: Vec<u8>,
    parsed: Option<ParsedHead>,
}

#[derive(Debug, Clone, Copy)]
struct ParsedHead {
    status: u16,
    framing: Framing,
    keep: bool,
    head_only: bool,
}

/// Largest size of a head in bytes.
const MAX_HEAD: usize = 64 * 1024;

impl ResponseReader {
    /// Reads from the start of `input`. Returns how many bytes it has used, and what they are. `head_only` states that the
    /// response is to a HEAD request and has no body.
    ///
    /// # Errors
    /// [`MalformedResponse`] if the input is not a response, or its framing is ambiguous.
    #[inline]
    pub fn next<'a>(
        &mut self,
        input: &'a [u8],
        head_only: bool,
        cache: &mut HeadCache,
    ) -> Result<(usize, ResponseEvent<'a>), MalformedResponse> {
        match &mut self.state {
            State::Head => self.head(input, head_only, cache),
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
                    decoder.decode(input).map_err(|error| MalformedResponse(error.reason))?;
                Ok((
                    used,
                    match decoded {
                        ChunkedPart::More => ResponseEvent::More,
                        ChunkedPart::Data(data) => ResponseEvent::Data(data),
                        ChunkedPart::End => self.end(),
                    },
                ))
            }
        }
    }

    /// Returns the bytes of the current body that are still to arrive; 0 if the length is unknown.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        match self.state {
            State::Known(left) => left,
            _ => 0,
        }
    }

    /// Returns `true` if all bytes of a body with a known length have arrived.
    #[must_use]
    pub fn is_body_complete(&self) -> bool {
        matches!(self.state, State::Known(0))
    }

    /// Reports that the caller has read `count` bytes of the body by other means, at most [`ResponseReader::remaining`].
    pub fn skip(&mut self, count: u64) {
        if let State::Known(left) = &mut self.state {
            *left = left.saturating_sub(count);
        }
    }

    /// Returns `true` if a response has begun and is incomplete.
    #[must_use]
    pub fn is_within(&self) -> bool {
        !matches!(self.state, State::Head)
    }

    /// Returns `true` if the end of the connection completes the current response.
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
        cache: &mut HeadCache,
    ) -> Result<(usize, ResponseEvent<'a>), MalformedResponse> {
        if let Some(parsed) = cache.parsed.filter(|parsed| parsed.head_only == head_only)
            && input.starts_with(&cache.bytes)
        {
            return Ok((cache.bytes.len(), self.begin(parsed)));
        }
        let mut at = 0;
        loop {
            let Some((length, parsed)) = parse(&input[at..], head_only)? else {
                return if input.len() - at > MAX_HEAD {
                    Err(MalformedResponse("the head is larger than 64 KB"))
                } else {
                    Ok((at, ResponseEvent::More))
                };
            };
            // Skip interim responses (RFC 9110 §15.2).
            if parsed.status < 200 && parsed.status != 101 {
                at += length;
                continue;
            }
            cache.bytes.clear();
            cache.bytes.extend_from_slice(&input[at..at + length]);
            cache.parsed = Some(parsed);
            return Ok((at + length, self.begin(parsed)));
        }
    }

    #[inline]
    fn begin(&mut self, parsed: ParsedHead) -> ResponseEvent<'static> {
        let ParsedHead { status, framing, keep, .. } = parsed;
        self.keep = keep;
        let length = match framing {
            Framing::None => Some(0),
            Framing::Known(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        self.state = match framing {
            Framing::None => State::Known(0),
            Framing::Known(length) => State::Known(length),
            Framing::Chunked => State::Chunked(Box::new(ChunkedDecoder::lenient())),
            Framing::UntilClose => State::UntilClose,
        };
        ResponseEvent::Head { status, length }
    }
}

/// Parses a head. Returns its length and its parsed form, or `None` if it is incomplete.
fn parse(input: &[u8], head_only: bool) -> Result<Option<(usize, ParsedHead)>, MalformedResponse> {
    let Some((line, mut at)) = next_line(input, 0) else {
        let start = &input[..input.len().min(5)];
        return if b"HTTP/".starts_with(start) {
            Ok(None)
        } else {
            Err(MalformedResponse("this is not HTTP/1"))
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
        let colon = memchr(b':', line).ok_or(MalformedResponse("a field has no colon"))?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        match input.get(at) {
            // The next line may continue this one.
            None => return Ok(None),
            Some(b' ' | b'\t') => {}
            Some(_) => {
                fields.add(name, value)?;
                continue;
            }
        }
        let Some((value, next)) = folded(input, at, value) else { return Ok(None) };
        at = next;
        fields.add(name, value.trim_ascii())?;
    }
    let framing = framing(&fields, status, head_only)?;
    let keep = fields.keep_alive && !fields.close && framing != Framing::UntilClose;
    Ok(Some((at, ParsedHead { status, framing, keep, head_only })))
}

/// Returns the value of a field that continues on the line at `at`, in one line (RFC 9112 §5.2), and the offset behind it;
/// `None` if it is incomplete.
#[cold]
fn folded(input: &[u8], mut at: usize, value: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut value = value.to_vec();
    while matches!(input.get(at)?, b' ' | b'\t') {
        let (line, next) = next_line(input, at)?;
        value.push(b' ');
        value.extend_from_slice(line.trim_ascii());
        at = next;
    }
    Some((value, at))
}

/// Returns the line at `start` without its end, and the offset of the next line.
#[inline]
fn next_line(input: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let length = memchr(b'\n', &input[start..])?;
    let line = &input[start..start + length];
    Some((line.strip_suffix(b"\r").unwrap_or(line), start + length + 1))
}

/// `HTTP-version SP status-code SP [reason-phrase]` (RFC 9112 §4): status and minor version.
fn status_line(line: &[u8]) -> Result<(u16, u8), MalformedResponse> {
    let rest = line.strip_prefix(b"HTTP/1.").ok_or(MalformedResponse("this is not HTTP/1"))?;
    let [minor @ b'0'..=b'9', b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', tail @ ..] =
        rest
    else {
        return Err(MalformedResponse("the status line is malformed"));
    };
    if !matches!(tail.first(), None | Some(b' ')) {
        return Err(MalformedResponse("the status line is malformed"));
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok((digit(a) * 100 + digit(b) * 10 + digit(c), minor - b'0'))
}

/// Returns the framing of a response to a request that may be HEAD (RFC 9112 §6.3).
fn framing(
    fields: &FramingFields,
    status: u16,
    head_only: bool,
) -> Result<Framing, MalformedResponse> {
    if head_only || !status::has_body(status) { Ok(Framing::None) } else { fields.framing() }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Responses = (Vec<(u16, Option<u64>)>, Vec<u8>, Vec<bool>);

    /// Reads `input` in pieces of `step` bytes. Returns the heads, the bytes of all bodies, and the ends.
    fn read(input: &[u8], step: usize, head_only: bool) -> Result<Responses, MalformedResponse> {
        let (mut reader, mut cache) = (ResponseReader::default(), HeadCache::default());
        let (mut heads, mut body, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut buffer = Vec::new();
        for piece in input.chunks(step) {
            buffer.extend_from_slice(piece);
            loop {
                let (used, event) = reader.next(&buffer, head_only, &mut cache)?;
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
    fn responses_are_parsed_at_every_split() {
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc\
            HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
            HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nde\r\n1;=[ \r\nf\r\n0\r\nT: 1\r\n\r\n\
            HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nghi\
            HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let expected = (
            vec![(200, Some(3)), (200, None), (304, Some(0)), (200, Some(3)), (200, Some(0))],
            b"abcdefghi".to_vec(),
            vec![true, true, true, true, false],
        );
        for step in 1..input.len() {
            assert_eq!(read(input, step, false), Ok(expected.clone()), "in pieces of {step}");
        }
    }

    #[test]
    fn without_a_length_the_body_ends_with_the_connection() {
        let mut reader = ResponseReader::default();
        let input = b"HTTP/1.0 200 OK\n\nabc";
        let (used, event) = reader.next(input, false, &mut HeadCache::default()).unwrap();
        assert_eq!(event, ResponseEvent::Head { status: 200, length: None });
        let (_, event) = reader.next(&input[used..], false, &mut HeadCache::default()).unwrap();
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
    fn a_folded_field_is_read_as_one_line() {
        let input = b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length:\r\n\t2\r\nConnection: a,\r\n close\r\n\r\nok";
        for step in 1..input.len() {
            let (heads, body, ends) = read(input, step, false).unwrap();
            assert_eq!(
                (&heads[..], &body[..], &ends[..]),
                (&[(200, Some(2))][..], &b"ok"[..], &[false][..])
            );
        }
    }

    #[test]
    fn malformed_and_ambiguous_responses_are_errors() {
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
