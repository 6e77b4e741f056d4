//! The frames of a stream that carries a request and its response (RFC 9114 §4.1, §7).

use std::borrow::Cow;
use std::ops::Range;

use super::Http3Error;
use super::frame::{kind, read_varint};

/// The receiving side of a stream.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    header: PartialHeader,
    state: State,
    /// The frames that are permitted next.
    pub(super) expects: Expects,
    /// The beginning of a section that is not complete.
    section: Vec<u8>,
    /// The end of the stream was reported.
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Expects {
    /// A head.
    #[default]
    Head,
    /// Content or trailers.
    Body,
    /// Content alone: a tunnel (RFC 9114 §4.4).
    Content,
    /// No frame that is known: the trailers have arrived.
    Nothing,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Header,
    /// A section of this length.
    Section(usize),
    /// Bytes of content to come.
    Data(u64),
    /// Bytes of a frame without effect to come.
    Skip(u64),
}

/// A part of a stream.
#[derive(Debug)]
pub(super) enum Part<'a> {
    /// All input was used.
    More,
    Section(Cow<'a, [u8]>),
    /// A section larger than the limit, which is skipped.
    LargeSection,
    /// Content: a range of the input that is not empty.
    Data(Range<usize>),
    /// A frame without effect begins.
    Idle,
    /// The stream ends.
    End,
}

impl MessageReader {
    /// Reads the next part of `input[*at..]` and advances `at`. `is_end`: the stream ends with the input. Sections have at most
    /// `max_section` bytes. `push` is the error of a PUSH_PROMISE frame.
    #[inline]
    pub(super) fn next<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
        is_end: bool,
        (max_section, push): (usize, Http3Error),
    ) -> Result<Part<'a>, Http3Error> {
        loop {
            match self.state {
                State::Header => {
                    let Some((kind, length)) = self.header.read(input, at) else {
                        return self.end(is_end);
                    };
                    if let Some(part) = self.begin(kind, length, max_section, push)? {
                        return Ok(part);
                    }
                }
                State::Section(length) => {
                    return match self.section(length, input, at) {
                        Some(section) => Ok(Part::Section(section)),
                        None => self.end(is_end),
                    };
                }
                State::Data(left) => {
                    if *at == input.len() {
                        return self.end(is_end);
                    }
                    let data = *at..*at + self.skip(left, input, at, State::Data);
                    return Ok(Part::Data(data));
                }
                State::Skip(left) => {
                    if *at == input.len() && left > 0 {
                        return self.end(is_end);
                    }
                    self.skip(left, input, at, State::Skip);
                }
            }
        }
    }

    /// Returns `true` if the stream ends behind the part that was read last, and notes that this is reported.
    #[inline]
    pub(super) fn take_end(&mut self, input: &[u8], at: usize, is_end: bool) -> bool {
        let has_ended = is_end
            && at == input.len()
            && matches!(self.state, State::Header)
            && self.header.is_empty();
        self.has_ended |= has_ended;
        has_ended
    }

    /// Returns the number of bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.section.len()
    }

    /// Processes the header of a frame.
    fn begin(
        &mut self,
        kind: u64,
        length: u64,
        max_section: usize,
        push: Http3Error,
    ) -> Result<Option<Part<'static>>, Http3Error> {
        match (kind, self.expects) {
            (kind::DATA, Expects::Body | Expects::Content) if length == 0 => {
                return Ok(Some(Part::Idle));
            }
            (kind::DATA, Expects::Body | Expects::Content) => self.state = State::Data(length),
            (kind::DATA, _) => {
                return Err(Http3Error::unexpected("DATA before a head or behind trailers"));
            }
            (kind::HEADERS, Expects::Head | Expects::Body) => {
                match usize::try_from(length).ok().filter(|length| *length <= max_section) {
                    Some(length) => self.state = State::Section(length),
                    None => {
                        self.state = State::Skip(length);
                        return Ok(Some(Part::LargeSection));
                    }
                }
            }
            (kind::HEADERS, _) => {
                return Err(Http3Error::unexpected("HEADERS behind trailers or in a tunnel"));
            }
            (kind::PUSH_PROMISE, _) => return Err(push),
            (
                kind::SETTINGS
                | kind::GOAWAY
                | kind::MAX_PUSH_ID
                | kind::CANCEL_PUSH
                | kind::PRIORITY_UPDATE
                | kind::PRIORITY_UPDATE_PUSH,
                _,
            ) => return Err(Http3Error::unexpected("a frame of the control stream")),
            (other, _) if kind::is_of_http2(other) => {
                return Err(Http3Error::unexpected("a frame of HTTP/2"));
            }
            _ => {
                self.state = State::Skip(length);
                return Ok(Some(Part::Idle));
            }
        }
        Ok(None)
    }

    /// Takes bytes of a section. Returns it once it is complete.
    #[inline]
    fn section<'a>(
        &mut self,
        length: usize,
        input: &'a [u8],
        at: &mut usize,
    ) -> Option<Cow<'a, [u8]>> {
        let missing = length - self.section.len();
        let bytes = &input[*at..input.len().min(*at + missing)];
        *at += bytes.len();
        let is_complete = bytes.len() == missing;
        if is_complete {
            self.state = State::Header;
            if self.section.is_empty() {
                return Some(Cow::Borrowed(bytes));
            }
        }
        self.section.extend_from_slice(bytes);
        is_complete.then(|| Cow::Owned(std::mem::take(&mut self.section)))
    }

    /// Advances `at` by at most `left` bytes, and returns their number.
    #[inline]
    fn skip(&mut self, left: u64, input: &[u8], at: &mut usize, state: fn(u64) -> State) -> usize {
        let rest = input.len() - *at;
        let count = usize::try_from(left).map_or(rest, |left| left.min(rest));
        *at += count;
        let left = left - count as u64;
        self.state = if left == 0 { State::Header } else { state(left) };
        count
    }

    /// All input was used.
    fn end(&mut self, is_end: bool) -> Result<Part<'static>, Http3Error> {
        if !is_end || self.has_ended {
            return Ok(Part::More);
        }
        if !matches!(self.state, State::Header) || !self.header.is_empty() {
            return Err(Http3Error::frame("a stream ends within a frame"));
        }
        self.has_ended = true;
        Ok(Part::End)
    }
}

/// The header of a frame, which may arrive in pieces.
#[derive(Debug, Default)]
pub(super) struct PartialHeader {
    bytes: [u8; 16],
    length: u8,
}

impl PartialHeader {
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reads type and length. `None` if the header is incomplete; all input was used then.
    #[inline]
    pub(super) fn read(&mut self, input: &[u8], at: &mut usize) -> Option<(u64, u64)> {
        if self.length == 0
            && let Some(header) = parse(input, at)
        {
            return Some(header);
        }
        while let Some(byte) = input.get(*at) {
            // Two integers have at most 16 bytes.
            self.bytes[usize::from(self.length)] = *byte;
            self.length += 1;
            *at += 1;
            if let Some(header) = parse(&self.bytes[..usize::from(self.length)], &mut 0) {
                self.length = 0;
                return Some(header);
            }
        }
        None
    }
}

#[inline]
fn parse(input: &[u8], at: &mut usize) -> Option<(u64, u64)> {
    let mut end = *at;
    let header = (read_varint(input, &mut end)?, read_varint(input, &mut end)?);
    *at = end;
    Some(header)
}
