//! Processing of what the client sends (RFC 9114 §4.1, §7.2).

use std::borrow::Cow;
use std::ops::Range;

use super::Http3Error;
use super::connection::{Http3Connection, Http3Event, Input, Shutdown};
use super::frame::Http3ErrorCode;
use super::qpack::Decoded;
use super::reader::{Expects, Part};
use super::session::ControlEvent;
use super::stream::RequestStream;
use crate::abuse::Cost;
use crate::request::{HeadBuffers, Version};
use crate::section::{Metadata, Reader, SectionOutcome};
use crate::semantics::Method;
use crate::{FieldLines, Priority, Request, RequestError};

type EventResult = Result<Option<Http3Event>, Http3Error>;

/// Largest number of priorities stored for streams that are not open yet.
const EARLY: usize = 16;
/// Largest number of streams of which nothing has arrived, although later ones are open.
const MAX_UNSEEN: u64 = 1024;
/// Bytes of a request that are discarded after the end of its response, before the client is stopped.
const MAX_DISCARDED: usize = 64 * 1024;

const NO_PUSH: Http3Error = Http3Error::unexpected("a client cannot push");
const SHORTER: &str = "the body is shorter than Content-Length";

impl Http3Connection {
    /// Reads bytes of a unidirectional stream.
    pub(super) fn control_stream(
        &mut self,
        id: u64,
        input: &Input<'_>,
        at: &mut usize,
    ) -> Result<Http3Event, Http3Error> {
        loop {
            match self.session.receive(id, input.bytes, at, input.is_end)? {
                ControlEvent::More => return Ok(Http3Event::More),
                ControlEvent::Priority { stream, priority } => self.reprioritize(stream, priority),
                // The client pushes nothing, and may still send requests.
                ControlEvent::Settings | ControlEvent::GoAway(_) => {}
                ControlEvent::Stop(code) => return Ok(Http3Event::Stop { stream: id, code }),
            }
        }
    }

    /// Reads bytes of a request's stream.
    #[inline]
    pub(super) fn request_stream(
        &mut self,
        id: u64,
        input: &Input<'_>,
        at: &mut usize,
        into: &mut HeadBuffers<'_>,
    ) -> Result<Http3Event, Http3Error> {
        if let Some(event) = self.open(id, input, at)? {
            return Ok(event);
        }
        let max_section = 2 * self.settings.limits.head_size;
        loop {
            let Some(stream) = self.streams.get_mut(id) else {
                // It was reset or stopped; what was on its way is dropped.
                *at = input.bytes.len();
                return Ok(Http3Event::More);
            };
            let before = stream.held();
            let part = match stream.blocked.take() {
                Some(section) => Part::Section(Cow::Owned(section.into_vec())),
                None => {
                    stream.reader.next(input.bytes, at, input.is_end, (max_section, NO_PUSH))?
                }
            };
            let after = stream.held();
            if before != after {
                self.session.hold(before, after)?;
            }
            let has_ended = matches!(part, Part::Section(_) | Part::Data(_))
                && stream.reader.take_end(input.bytes, *at, input.is_end);
            let event = match part {
                Part::More => return Ok(Http3Event::More),
                Part::Section(section) => self.section(id, section, has_ended, into)?,
                Part::LargeSection => self.large_section(id, into)?,
                Part::Data(data) => self.data(id, data, has_ended)?,
                Part::End => self.end(id, into)?,
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

    /// Returns `true` the first time for a stream of which something has arrived.
    fn is_new(&mut self, id: u64) -> Result<bool, Http3Error> {
        if id < self.next {
            let position = self.unseen.iter().position(|unseen| *unseen == id);
            return Ok(position.map(|position| self.unseen.swap_remove(position)).is_some());
        }
        let skipped = (id - self.next) / 4;
        if self.unseen.len() as u64 + skipped > MAX_UNSEEN {
            return Err(Http3Error::load("too many streams without bytes"));
        }
        self.unseen.extend((self.next..id).step_by(4));
        self.next = id + 4;
        Ok(true)
    }

    /// Opens a stream with its first bytes.
    #[inline]
    fn open(&mut self, id: u64, input: &Input<'_>, at: &mut usize) -> EventResult {
        if !self.is_new(id)? {
            return Ok(None);
        }
        let is_late = matches!(self.drain, Shutdown::Final(first) if id >= first);
        if is_late || self.streams.len() >= self.settings.streams as usize {
            self.session.budget.spend(Cost::Reset)?;
            *at = input.bytes.len();
            self.session.decoder.cancel(id);
            return Ok(Some(Http3Event::Reset {
                stream: id,
                code: Http3ErrorCode::RequestRejected,
            }));
        }
        self.streams.add(id, RequestStream::default());
        Ok(None)
    }

    /// Decodes a section: a head or trailers. `has_ended`: the stream ends with it.
    #[inline]
    fn section(
        &mut self,
        id: u64,
        section: Cow<'_, [u8]>,
        has_ended: bool,
        into: &mut HeadBuffers<'_>,
    ) -> EventResult {
        let text = &mut *into.text;
        text.clear();
        let limits = self.settings.limits;
        let mut reader = Reader::new(into.head, &limits, Version::Http3);
        let decoded = self.session.decoder.decode(id, &section, text, |text, field| {
            reader.add(text, field);
            !reader.is_too_large()
        })?;
        self.session.check_unsent()?;
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        stream.has_ended |= has_ended;
        if decoded == Decoded::Blocked {
            self.session.hold(0, section.len())?;
            stream.blocked = Some(section.into_owned().into_boxed_slice());
            return Ok(Some(Http3Event::Blocked));
        }
        if reader.is_too_large() {
            self.session.budget.spend(Cost::LargeHead)?;
        }
        if stream.has_head {
            let is_too_large = reader.is_too_large();
            let malformed = reader.finish_trailers();
            return self.trailers(id, malformed.is_none() && is_too_large, malformed, into);
        }
        let outcome = reader.finish(into.text);
        stream.has_head = true;
        let is_tunnel = matches!(into.head.method, Method::Connect | Method::ExtendedConnect);
        stream.reader.expects = if is_tunnel { Expects::Content } else { Expects::Body };
        self.request(id, outcome)
    }

    #[inline]
    fn request(&mut self, id: u64, outcome: SectionOutcome) -> EventResult {
        let early = self.take_early(id);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        let ended = stream.has_ended;
        let Metadata { length, priority } = match outcome {
            SectionOutcome::Valid(metadata) => metadata,
            SectionOutcome::Malformed(reason) => {
                return self.malformed(id, Http3ErrorCode::MessageError, reason);
            }
            SectionOutcome::Rejected(error) => {
                return Ok(Some(Http3Event::Rejected { stream: id, error }));
            }
        };
        if ended && length.is_some_and(|length| length > 0) {
            return self.malformed(id, Http3ErrorCode::MessageError, SHORTER);
        }
        stream.left = length;
        stream.priority = early.unwrap_or(priority);
        Ok(Some(Http3Event::Request { stream: id, length, ended }))
    }

    /// Skips a section beyond the limit. The table does not depend on it.
    fn large_section(&mut self, id: u64, into: &mut HeadBuffers<'_>) -> EventResult {
        self.session.budget.spend(Cost::LargeHead)?;
        self.session.decoder.cancel(id);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        if stream.has_head {
            stream.reader.expects = Expects::Nothing;
            return Ok(None);
        }
        stream.has_head = true;
        stream.reader.expects = Expects::Body;
        into.text.clear();
        into.head.clear();
        into.head.version = Version::Http3;
        let error = RequestError::new(431, "the head is larger than the limit");
        Ok(Some(Http3Event::Rejected { stream: id, error }))
    }

    /// Stores trailers. Those beyond the limits of a head are discarded.
    fn trailers(
        &mut self,
        id: u64,
        is_too_large: bool,
        malformed: Option<&'static str>,
        into: &mut HeadBuffers<'_>,
    ) -> EventResult {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        if malformed.is_some() {
            return self.stream_error(id);
        }
        stream.reader.expects = Expects::Nothing;
        if !is_too_large {
            let mut lines = FieldLines::default();
            let fields = Request::new(into.text, into.head);
            fields.fields().for_each(|(name, value)| lines.push_parsed(name, value));
            stream.trailers = (!lines.is_empty()).then(|| Box::new(lines));
        }
        if stream.has_ended { self.end(id, into) } else { Ok(None) }
    }

    /// Returns the trailer fields of a request, when its body has ended (RFC 9114 §4.1). Sections beyond the limits of a head
    /// are discarded; which fields have a meaning is for the caller to decide (RFC 9110 §6.5.1).
    pub fn take_trailers(&mut self, stream: u64) -> FieldLines {
        let trailers = self.streams.get_mut(stream).and_then(|stream| stream.trailers.take());
        trailers.map_or_else(FieldLines::default, |trailers| *trailers)
    }

    #[inline]
    fn data(&mut self, id: u64, data: Range<usize>, ended: bool) -> EventResult {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        stream.has_ended |= ended;
        if let Some(left) = &mut stream.left {
            match left.checked_sub(data.len() as u64) {
                Some(rest) if rest == 0 || !ended => *left = rest,
                _ => return self.stream_error(id),
            }
        }
        if !stream.is_finished {
            return Ok(Some(Http3Event::Data { stream: id, data, ended }));
        }
        stream.discarded += data.len();
        if ended {
            self.close(id);
        } else if stream.discarded > MAX_DISCARDED {
            self.close(id);
            return Ok(Some(Http3Event::Stop { stream: id, code: Http3ErrorCode::NoError }));
        }
        Ok(None)
    }

    /// Processes the end of a stream.
    fn end(&mut self, id: u64, into: &mut HeadBuffers<'_>) -> EventResult {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(None) };
        stream.has_ended = true;
        if !stream.has_head {
            into.text.clear();
            into.head.clear();
            into.head.version = Version::Http3;
            let reason = "the stream ends before the head of a request";
            return self.malformed(id, Http3ErrorCode::RequestIncomplete, reason);
        }
        if stream.left.is_some_and(|left| left > 0) {
            return self.stream_error(id);
        }
        if stream.is_finished {
            self.close(id);
            return Ok(None);
        }
        Ok(Some(Http3Event::Data { stream: id, data: 0..0, ended: true }))
    }

    /// Notes that the client has given up a request. Returns `true` if its response is incomplete.
    pub(super) fn abandoned(&mut self, id: u64) -> Result<bool, Http3Error> {
        // Its request has not been read.
        if self.is_new(id)? {
            self.session.decoder.cancel(id);
            self.session.budget.spend(Cost::Reset)?;
            return Ok(false);
        }
        match self.close(id) {
            Some(stream) if !stream.is_finished => {
                self.session.budget.spend(Cost::Reset)?;
                Ok(true)
            }
            // A client that cancels resets its side and stops the server's. The transport reports each once for a stream.
            _ => Ok(false),
        }
    }

    /// Removes a stream, and releases what belongs to it.
    pub(super) fn close(&mut self, id: u64) -> Option<RequestStream> {
        let stream = self.streams.remove(id)?;
        self.session.release(stream.held());
        // A section that is not decoded may refer to the table.
        if !stream.has_ended || stream.blocked.is_some() {
            self.session.decoder.cancel(id);
        }
        Some(stream)
    }

    /// Stores the priority of a stream (RFC 9218 §7.2).
    fn reprioritize(&mut self, id: u64, priority: Priority) {
        if let Some(stream) = self.streams.get_mut(id).filter(|stream| stream.has_head) {
            stream.priority = priority;
            return;
        }
        let is_known = self.streams.get(id).is_some() || self.unseen.contains(&id);
        if id >= self.next || is_known {
            self.early.retain(|(other, _)| *other != id);
            if self.early.len() >= EARLY {
                self.early.remove(0);
            }
            self.early.push((id, priority));
        }
    }

    #[inline]
    fn take_early(&mut self, id: u64) -> Option<Priority> {
        if self.early.is_empty() {
            return None;
        }
        let position = self.early.iter().position(|(other, _)| *other == id)?;
        Some(self.early.remove(position).1)
    }

    /// Ends the stream of a malformed request (RFC 9114 §4.1.2).
    fn malformed(&mut self, id: u64, code: Http3ErrorCode, reason: &'static str) -> EventResult {
        self.session.budget.spend(Cost::StreamError)?;
        self.close(id);
        Ok(Some(Http3Event::Malformed { stream: id, code, reason }))
    }

    /// Ends a stream whose request turns out to be malformed behind its head.
    fn stream_error(&mut self, id: u64) -> EventResult {
        self.session.budget.spend(Cost::StreamError)?;
        let code = Http3ErrorCode::MessageError;
        let is_finished = self.close(id).is_some_and(|stream| stream.is_finished);
        Ok(Some(match is_finished {
            true => Http3Event::Stop { stream: id, code },
            false => Http3Event::Reset { stream: id, code },
        }))
    }
}
