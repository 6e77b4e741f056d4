//! Processing of what the server sends (RFC 9114 §4.1, §7.2).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::Range;

use super::connection::{Http3ClientConnection, Http3ClientEvent, Http3ClientPhase};
use crate::abuse::Cost;
use crate::http3::qpack::Decoded;
use crate::http3::reader::{Expects, Part};
use crate::http3::session::ControlEvent;
use crate::http3::{Http3Error, Http3ErrorCode};
use crate::request::Version;
use crate::section::{MAX_SECTION, ResponsePart, ResponseSection, USUAL_FIELD};

type Found = Result<Option<Http3ClientEvent>, Http3Error>;

const NO_PUSH: Http3Error = Http3Error::id("the server pushes unasked");

impl Http3ClientConnection {
    /// Reads the next thing from `input[*at..]`, bytes of the stream `stream` of either side, and moves `at` behind what was used.
    /// `is_end`: the stream ends with the input, which may be empty.
    ///
    /// # Errors
    /// If the server breaks the protocol: close the connection with the code of the error. Every further call fails, too.
    pub fn receive(
        &mut self,
        stream: u64,
        input: &[u8],
        at: &mut usize,
        is_end: bool,
    ) -> Result<Http3ClientEvent, Http3Error> {
        self.check()?;
        let result = match stream & 3 {
            0 => self.response_stream(stream, input, at, is_end),
            3 => self.control_stream(stream, input, at, is_end),
            _ => Err(Http3Error::new(
                Http3ErrorCode::StreamCreationError,
                "the stream is not one of a server",
            )),
        };
        if result.is_err() {
            self.phase = Http3ClientPhase::Failed;
        }
        result
    }

    fn control_stream(
        &mut self,
        id: u64,
        input: &[u8],
        at: &mut usize,
        is_end: bool,
    ) -> Result<Http3ClientEvent, Http3Error> {
        Ok(match self.session.receive(id, input, at, is_end)? {
            ControlEvent::More => Http3ClientEvent::NeedInput,
            ControlEvent::Settings => Http3ClientEvent::Settings,
            ControlEvent::Stop(code) => Http3ClientEvent::Stop { stream: id, code },
            ControlEvent::GoAway(first) => {
                self.go_away(first);
                Http3ClientEvent::GoAway
            }
            ControlEvent::Priority { .. } => {
                return Err(Http3Error::unexpected("PRIORITY_UPDATE of a server"));
            }
        })
    }

    fn go_away(&mut self, first: u64) {
        self.first_unprocessed = Some(first);
        let mut unprocessed: Vec<u64> =
            self.streams.keys().copied().filter(|id| *id >= first).collect();
        // The last one is taken first: requests are repeated in their order.
        unprocessed.sort_unstable_by_key(|id| Reverse(*id));
        for id in &unprocessed {
            self.close_stream(*id);
        }
        self.unprocessed.extend(unprocessed);
        self.unprocessed.sort_unstable_by_key(|id| Reverse(*id));
    }

    fn response_stream(
        &mut self,
        id: u64,
        input: &[u8],
        at: &mut usize,
        is_end: bool,
    ) -> Result<Http3ClientEvent, Http3Error> {
        loop {
            let Some(stream) = self.streams.get_mut(&id) else {
                // It was given up; what was on its way is dropped.
                *at = input.len();
                return Ok(Http3ClientEvent::NeedInput);
            };
            let before = stream.held();
            let part = match stream.blocked.take() {
                Some(section) => Part::Section(Cow::Owned(section.into_vec())),
                None => stream.reader.next(input, at, is_end, (2 * MAX_SECTION, NO_PUSH))?,
            };
            let after = stream.held();
            if before != after {
                self.session.hold(before, after)?;
            }
            let has_ended = matches!(part, Part::Section(_) | Part::Data(_))
                && stream.reader.take_end(input, *at, is_end);
            stream.has_ended |= has_ended;
            let event = match part {
                Part::More => return Ok(Http3ClientEvent::NeedInput),
                Part::Section(section) => self.section(id, section)?,
                Part::LargeSection => {
                    self.session.budget.spend(Cost::LargeHead)?;
                    self.fail_stream(id, "the head of the response is larger than 64 KB")?
                }
                Part::Data(data) => self.data(id, data)?,
                Part::End => {
                    stream.has_ended = true;
                    self.end(id)?
                }
                Part::Idle => {
                    self.session.budget.spend(Cost::Empty)?;
                    None
                }
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// Decodes a section: a head or trailers.
    fn section(&mut self, id: u64, bytes: Cow<'_, [u8]>) -> Found {
        let mut section = ResponseSection::default();
        let take = |text: &mut Vec<u8>, field| {
            section.take(text, &field);
            !section.is_too_large()
        };
        let decoded =
            self.session.decoder.decode(id, &bytes, &mut Vec::with_capacity(USUAL_FIELD), take)?;
        self.session.check_unsent()?;
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(None) };
        if decoded == Decoded::Blocked {
            self.session.hold(0, bytes.len())?;
            stream.blocked = Some(bytes.into_owned().into_boxed_slice());
            return Ok(Some(Http3ClientEvent::Blocked));
        }
        if section.is_too_large() {
            self.session.budget.spend(Cost::LargeHead)?;
        }
        let part = stream.response.section(section, Version::Http3);
        let is_end = stream.has_ended;
        let checked = part.and_then(|part| match is_end {
            true => stream.response.end().map(|()| part),
            false => Ok(part),
        });
        let part = match checked {
            Ok(part) => part,
            Err(reason) => return self.fail_stream(id, reason),
        };
        match part {
            ResponsePart::Interim(head) => Ok(Some(Http3ClientEvent::Interim { stream: id, head })),
            ResponsePart::Head(head) => {
                let is_tunnel = stream.is_tunnel(head.status);
                stream.reader.expects = if is_tunnel { Expects::Content } else { Expects::Body };
                if is_end {
                    self.response_end(id);
                }
                Ok(Some(Http3ClientEvent::Head { stream: id, head, is_end }))
            }
            ResponsePart::Trailers(fields) => {
                stream.reader.expects = Expects::Nothing;
                stream.trailers = Some(Box::new(fields));
                if is_end { self.end(id) } else { Ok(None) }
            }
        }
    }

    fn data(&mut self, id: u64, data: Range<usize>) -> Found {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(None) };
        let is_end = stream.has_ended;
        let result = stream.response.data(data.len());
        let result = result.and_then(|()| if is_end { stream.response.end() } else { Ok(()) });
        if let Err(reason) = result {
            return self.fail_stream(id, reason);
        }
        if is_end {
            self.response_end(id);
        }
        Ok(Some(Http3ClientEvent::Data { stream: id, data, is_end }))
    }

    /// Processes the end of a stream.
    fn end(&mut self, id: u64) -> Found {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(None) };
        if let Err(reason) = stream.response.end() {
            return self.fail_stream(id, reason);
        }
        let trailers = stream.trailers.take();
        self.response_end(id);
        Ok(Some(match trailers {
            Some(fields) => Http3ClientEvent::Trailers { stream: id, fields: *fields },
            None => Http3ClientEvent::Data { stream: id, data: 0..0, is_end: true },
        }))
    }

    /// The response is complete.
    fn response_end(&mut self, id: u64) {
        self.session.budget.earn();
        self.close_stream(id);
    }

    /// Ends a stream on which the server has broken a rule.
    fn fail_stream(&mut self, id: u64, reason: &'static str) -> Found {
        self.close_stream(id);
        Ok(Some(Http3ClientEvent::Reset { stream: id, code: Http3ErrorCode::MessageError, reason }))
    }
}
