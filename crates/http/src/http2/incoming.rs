//! Processing of the client's frames (RFC 9113 §6).

use super::connection::{Drain, Http2Connection, Http2Event, Section};
use super::frame::{self, FrameHeader, Http2ErrorCode, flag, kind, number, setting};
use super::{Http2Error, Priority};
use crate::FieldLines;
use crate::Request;
use crate::abuse::Cost;
use crate::request::{HeadBuffers, Version};
use crate::section::{Metadata, Reader, SectionOutcome};

type EventResult = Result<Option<Http2Event>, Http2Error>;

/// The largest window (RFC 9113 §6.9.1).
const MAX_WINDOW: i64 = 0x7fff_ffff;
/// Largest number of CONTINUATION frames in a field section (CONTINUATION flood, CVE-2024-27316).
const CONTINUATIONS: u32 = 32;
/// Payload of the PING whose acknowledgement shows that the client has received the GOAWAY before it.
pub(super) const DRAIN_PING: [u8; 8] = *b"draining";
/// Largest number of priorities stored for streams that are not open yet.
const EARLY: usize = 16;

impl Http2Connection {
    #[inline]
    pub(super) fn headers(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        into: &mut HeadBuffers<'_>,
        out: &mut Vec<u8>,
    ) -> EventResult {
        let content = head.content(payload).ok_or(Http2Error::protocol("padding is too long"))?;
        if head.stream & 1 == 0 {
            return Err(Http2Error::protocol("the stream identifier is not a client's"));
        }
        let depends_on_itself = head.dependency(payload) == Some(head.stream);
        let (stream, ended) = (head.stream, head.has(flag::END_STREAM));
        let block = &payload[content];
        if !head.has(flag::END_HEADERS) {
            let bytes = block.to_vec();
            let section = Section { stream, ended, depends_on_itself, bytes, frames: 0 };
            self.section = Some(Box::new(section));
            return Ok(None);
        }
        self.section_end(stream, ended, depends_on_itself, block, into, out)
    }

    pub(super) fn continuation(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        into: &mut HeadBuffers<'_>,
        out: &mut Vec<u8>,
    ) -> EventResult {
        let Some(section) = &mut self.section else { return Ok(None) };
        section.frames += 1;
        // A section somewhat beyond the limit is read to its end, so that the response can be 431.
        let max = 2 * self.settings.limits.head_size;
        if section.frames > CONTINUATIONS || section.bytes.len() + payload.len() > max {
            let reason = "too many or too large CONTINUATION frames (CONTINUATION flood)";
            return Err(Http2Error::new(Http2ErrorCode::EnhanceYourCalm, reason));
        }
        if payload.is_empty() {
            self.budget.spend(Cost::Empty)?;
        }
        section.bytes.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let Some(section) = self.section.take() else { return Ok(None) };
        let Section { stream, ended, depends_on_itself, bytes, .. } = *section;
        self.section_end(stream, ended, depends_on_itself, &bytes, into, out)
    }

    /// Decodes a complete field section.
    #[inline]
    fn section_end(
        &mut self,
        id: u32,
        ended: bool,
        depends_on_itself: bool,
        block: &[u8],
        into: &mut HeadBuffers<'_>,
        out: &mut Vec<u8>,
    ) -> EventResult {
        let text = &mut *into.text;
        text.clear();
        let limits = self.settings.limits;
        let mut reader = Reader::new(into.head, &limits, Version::Http2);
        self.decoder
            .decode(block, text, |text, field| reader.add(text, field))
            .map_err(|malformed| Http2Error::new(Http2ErrorCode::CompressionError, malformed.0))?;
        if reader.is_too_large() {
            self.budget.spend(Cost::LargeHead)?;
        }
        if id <= self.last {
            let is_too_large = reader.is_too_large();
            let malformed = reader.finish_trailers();
            self.trailers = None;
            if malformed.is_none() && !is_too_large {
                let mut lines = FieldLines::default();
                let fields = Request::new(into.text, into.head);
                fields.fields().for_each(|(name, value)| lines.push_parsed(name, value));
                self.trailers = (!lines.is_empty()).then(|| Box::new((id, lines)));
            }
            return self.trailers(id, ended, malformed, out);
        }
        let outcome = reader.finish(text);
        if id > self.last + 2 {
            self.gap = (self.last + 2, id - 2);
        }
        self.last = id;
        if self.drain == Drain::Final {
            // The final GOAWAY has announced that this stream is not served.
            self.remember_reset(id);
            return Ok(None);
        }
        self.request(id, ended, depends_on_itself, outcome, out)
    }

    #[inline]
    fn request(
        &mut self,
        id: u32,
        ended: bool,
        depends_on_itself: bool,
        outcome: SectionOutcome,
        out: &mut Vec<u8>,
    ) -> EventResult {
        let early = self.take_early(id);
        if depends_on_itself {
            return self.malformed(id, "the stream depends on itself", out);
        }
        if self.streams.len() >= self.settings.streams as usize {
            self.budget.spend(Cost::Reset)?;
            self.reset(id, Http2ErrorCode::RefusedStream, out);
            return Ok(None);
        }
        let Metadata { length, priority } = match outcome {
            SectionOutcome::Valid(metadata) => metadata,
            SectionOutcome::Malformed(reason) => return self.malformed(id, reason, out),
            SectionOutcome::Rejected(error) => {
                self.streams.add(self.open_stream(id, ended));
                return Ok(Some(Http2Event::Rejected { stream: id, error }));
            }
        };
        if ended && length.is_some_and(|length| length > 0) {
            return self.malformed(id, "the body is shorter than Content-Length", out);
        }
        let mut stream = self.open_stream(id, ended);
        stream.left = length;
        stream.priority = early.unwrap_or(priority);
        self.streams.add(stream);
        Ok(Some(Http2Event::Request { stream: id, length, ended }))
    }

    fn trailers(
        &mut self,
        id: u32,
        ended: bool,
        malformed: Option<&'static str>,
        out: &mut Vec<u8>,
    ) -> EventResult {
        if self.has_reset(id) {
            return Ok(None);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            let (first, last) = self.gap;
            return Err(if (first..=last).contains(&id) {
                Http2Error::protocol("the stream identifier is lower than the last one")
            } else {
                Http2Error::new(Http2ErrorCode::StreamClosed, "HEADERS for a closed stream")
            });
        };
        if !stream.is_open {
            return self.stream_error(id, Http2ErrorCode::StreamClosed, out);
        }
        if !ended || malformed.is_some() || stream.left.is_some_and(|left| left > 0) {
            return self.stream_error(id, Http2ErrorCode::ProtocolError, out);
        }
        stream.is_open = false;
        if stream.is_finished {
            self.streams.remove(id);
            return Ok(None);
        }
        Ok(Some(Http2Event::Data { stream: id, data: 0..0, ended: true }))
    }

    /// Returns the trailer fields of a request, when its body has ended (RFC 9113 §8.1). Sections beyond the limits of a head
    /// are discarded; which fields have a meaning is for the caller to decide (RFC 9110 §6.5.1).
    pub fn take_trailers(&mut self, stream: u32) -> FieldLines {
        let is_of_stream = self.trailers.as_ref().is_some_and(|trailers| trailers.0 == stream);
        let trailers = if is_of_stream { self.trailers.take() } else { None };
        trailers.map_or_else(FieldLines::default, |trailers| trailers.1)
    }

    pub(super) fn body(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        start: usize,
        out: &mut Vec<u8>,
    ) -> EventResult {
        let id = head.stream;
        if id == 0 || id > self.last {
            return Err(Http2Error::protocol("DATA for stream 0 or an idle stream"));
        }
        let content = head.content(payload).ok_or(Http2Error::protocol("padding is too long"))?;
        let payload_length = payload.len();
        self.flow.receive -= payload_length as i64;
        if self.flow.receive < 0 {
            let reason = "the client exceeds the connection's window";
            return Err(Http2Error::new(Http2ErrorCode::FlowControlError, reason));
        }
        let ended = head.has(flag::END_STREAM);
        if content.is_empty() && !ended {
            self.budget.spend(Cost::Empty)?;
        }
        let is_known_reset = self.has_reset(id);
        let Some(stream) = self.streams.get_mut(id) else {
            if is_known_reset {
                self.release_window(payload_length as u32, out);
                return Ok(None);
            }
            return Err(Http2Error::new(Http2ErrorCode::StreamClosed, "DATA for a closed stream"));
        };
        let error = if !stream.is_open {
            Some(Http2ErrorCode::StreamClosed)
        } else if stream.receive < payload_length as i64 {
            Some(Http2ErrorCode::FlowControlError)
        } else {
            stream.receive -= payload_length as i64;
            let length = content.len() as u64;
            stream.left = stream.left.map(|left| left.wrapping_sub(length));
            let is_wrong_length = match stream.left {
                Some(left) => left > u64::MAX / 2 || ended && left > 0,
                None => false,
            };
            is_wrong_length.then_some(Http2ErrorCode::ProtocolError)
        };
        if let Some(code) = error {
            self.release_window(payload_length as u32, out);
            return self.stream_error(id, code, out);
        }
        stream.is_open = !ended;
        if stream.is_finished {
            // Do not wait for more than the first window (RFC 9113 §8.1).
            let exceeds_window = stream.receive <= 0;
            self.release_window(payload_length as u32, out);
            if ended || exceeds_window {
                self.streams.remove(id);
            }
            if exceeds_window && !ended {
                self.reset(id, Http2ErrorCode::NoError, out);
            }
            return Ok(None);
        }
        let padding = payload_length - content.len();
        if padding > 0 {
            self.consumed(id, padding, out);
        }
        let data = start + content.start..start + content.end;
        Ok(Some(Http2Event::Data { stream: id, data, ended }))
    }

    /// Processes every frame but HEADERS, CONTINUATION and DATA.
    pub(super) fn control(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> EventResult {
        match head.kind {
            kind::SETTINGS => self.client_settings(head, payload, out)?,
            kind::PING => self.ping(head, payload, out)?,
            kind::WINDOW_UPDATE => return self.window_update(head, payload, out),
            kind::RST_STREAM => return self.client_reset(head, payload),
            kind::PRIORITY => return self.priority(head, payload, out),
            kind::PRIORITY_UPDATE => self.priority_update(head, payload)?,
            kind::GOAWAY if head.stream != 0 => {
                return Err(Http2Error::protocol("GOAWAY for a stream"));
            }
            kind::GOAWAY if payload.len() < 8 => {
                return Err(Http2Error::size("GOAWAY is too short"));
            }
            // The client opens no further streams. The connection is done when the last one is.
            kind::GOAWAY => {
                self.budget.spend(Cost::Empty)?;
                self.drain = Drain::Final;
            }
            kind::PUSH_PROMISE => return Err(Http2Error::protocol("a client cannot push")),
            _ => self.budget.spend(Cost::Empty)?,
        }
        Ok(None)
    }

    fn client_settings(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Http2Error> {
        if head.stream != 0 {
            return Err(Http2Error::protocol("SETTINGS for a stream"));
        }
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(Http2Error::size("the acknowledgement of SETTINGS is not empty"));
            }
            return Ok(self.budget.spend(Cost::Empty)?);
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Http2Error::size("the length of SETTINGS is not a multiple of six"));
        }
        self.budget.spend(Cost::Settings)?;
        for (name, value) in frame::settings(payload) {
            match name {
                setting::HEADER_TABLE_SIZE => self.limit_table(value),
                setting::ENABLE_PUSH | setting::NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Http2Error::protocol("a setting is neither 0 nor 1"));
                }
                setting::INITIAL_WINDOW_SIZE => self.initial_window(value)?,
                setting::MAX_FRAME_SIZE if !(16_384..=16_777_215).contains(&value) => {
                    return Err(Http2Error::protocol("SETTINGS_MAX_FRAME_SIZE is out of range"));
                }
                _ => {}
            }
        }
        frame::write_settings_ack(out);
        Ok(())
    }

    /// Applies SETTINGS_INITIAL_WINDOW_SIZE, also to open streams (RFC 9113 §6.9.2).
    fn initial_window(&mut self, value: u32) -> Result<(), Http2Error> {
        let too_large = Http2Error::new(Http2ErrorCode::FlowControlError, "a window is too large");
        let value = i64::from(value);
        if value > MAX_WINDOW {
            return Err(too_large);
        }
        let change = value - self.flow.initial;
        self.flow.initial = value;
        for stream in self.streams.iter_mut() {
            stream.send += change;
            if stream.send > MAX_WINDOW {
                return Err(too_large);
            }
        }
        Ok(())
    }

    fn ping(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Http2Error> {
        if head.stream != 0 {
            return Err(Http2Error::protocol("PING for a stream"));
        }
        let Ok(data) = <[u8; 8]>::try_from(payload) else {
            return Err(Http2Error::size("the length of PING is not eight"));
        };
        if head.has(flag::ACK) {
            if data == DRAIN_PING && self.drain == Drain::Announced {
                self.end_drain(out);
                return Ok(());
            }
            return Ok(self.budget.spend(Cost::Empty)?);
        }
        self.budget.spend(Cost::Ping)?;
        frame::write_ping(data, true, out);
        Ok(())
    }

    fn window_update(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> EventResult {
        let increment = match (number(payload), payload.len()) {
            (Some(increment), 4) => i64::from(increment & 0x7fff_ffff),
            _ => return Err(Http2Error::size("the length of WINDOW_UPDATE is not four")),
        };
        self.budget.spend(Cost::WindowUpdate)?;
        if head.stream == 0 {
            if increment == 0 {
                return Err(Http2Error::protocol("the increment of WINDOW_UPDATE is 0"));
            }
            self.flow.send += increment;
            if self.flow.send > MAX_WINDOW {
                let reason = "the connection's window is too large";
                return Err(Http2Error::new(Http2ErrorCode::FlowControlError, reason));
            }
            return Ok(None);
        }
        self.reject_idle(head.stream)?;
        let Some(stream) = self.streams.get_mut(head.stream) else { return Ok(None) };
        stream.send += increment;
        if increment == 0 {
            return self.stream_error(head.stream, Http2ErrorCode::ProtocolError, out);
        }
        if stream.send > MAX_WINDOW {
            return self.stream_error(head.stream, Http2ErrorCode::FlowControlError, out);
        }
        Ok(None)
    }

    fn client_reset(&mut self, head: &FrameHeader, payload: &[u8]) -> EventResult {
        if payload.len() != 4 {
            return Err(Http2Error::size("the length of RST_STREAM is not four"));
        }
        self.reject_idle(head.stream)?;
        // The client sends nothing more on this stream.
        self.resets.retain(|other| *other != head.stream);
        match self.streams.remove(head.stream) {
            Some(stream) if !stream.is_finished => {
                self.budget.spend(Cost::Reset)?;
                Ok(Some(Http2Event::Reset { stream: head.stream }))
            }
            _ => {
                self.budget.spend(Cost::Empty)?;
                Ok(None)
            }
        }
    }

    /// Checks a PRIORITY frame, which is deprecated and has no effect (RFC 9113 §5.3.2).
    fn priority(&mut self, head: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> EventResult {
        if head.stream == 0 {
            return Err(Http2Error::protocol("PRIORITY for stream 0"));
        }
        self.budget.spend(Cost::Priority)?;
        let code = if payload.len() != 5 {
            Http2ErrorCode::FrameSizeError
        } else if number(payload).map(|stream| stream & 0x7fff_ffff) == Some(head.stream) {
            Http2ErrorCode::ProtocolError
        } else {
            return Ok(None);
        };
        if self.streams.get_mut(head.stream).is_none() {
            // Only an open stream can be reset.
            return Err(Http2Error::new(code, "PRIORITY is malformed"));
        }
        self.stream_error(head.stream, code, out)
    }

    /// Stores the priority of a stream (RFC 9218 §7.1).
    fn priority_update(&mut self, head: &FrameHeader, payload: &[u8]) -> Result<(), Http2Error> {
        if head.stream != 0 {
            return Err(Http2Error::protocol("PRIORITY_UPDATE on a stream"));
        }
        let id = number(payload).ok_or(Http2Error::size("PRIORITY_UPDATE is too short"))?;
        let id = id & 0x7fff_ffff;
        if id & 1 == 0 {
            return Err(Http2Error::protocol(
                "PRIORITY_UPDATE for a stream that is not a client's",
            ));
        }
        self.budget.spend(Cost::Priority)?;
        let priority = Priority::parse(&payload[4..]);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = priority;
        } else if id > self.last {
            self.early.retain(|(other, _)| *other != id);
            if self.early.len() >= EARLY {
                self.early.remove(0);
            }
            self.early.push((id, priority));
        }
        Ok(())
    }

    #[inline]
    fn take_early(&mut self, id: u32) -> Option<Priority> {
        if self.early.is_empty() {
            return None;
        }
        let found = self.early.iter().find(|(other, _)| *other == id).map(|(_, found)| *found);
        self.early.retain(|(other, _)| *other > id);
        found
    }

    /// Rejects a frame for stream 0 or for an idle stream (RFC 9113 §5.1).
    fn reject_idle(&self, id: u32) -> Result<(), Http2Error> {
        if id == 0 || id > self.last {
            return Err(Http2Error::protocol("a frame for stream 0 or an idle stream"));
        }
        Ok(())
    }

    /// Resets the stream of a malformed request (RFC 9113 §8.1.1).
    fn malformed(&mut self, id: u32, reason: &'static str, out: &mut Vec<u8>) -> EventResult {
        self.budget.spend(Cost::StreamError)?;
        self.reset(id, Http2ErrorCode::ProtocolError, out);
        Ok(Some(Http2Event::Malformed { stream: id, reason }))
    }

    /// Resets a stream because of a client error (RFC 9113 §5.4.2).
    fn stream_error(&mut self, id: u32, code: Http2ErrorCode, out: &mut Vec<u8>) -> EventResult {
        self.budget.spend(Cost::StreamError)?;
        let was_open = self.streams.remove(id).is_some_and(|stream| !stream.is_finished);
        self.reset(id, code, out);
        Ok(was_open.then_some(Http2Event::Reset { stream: id }))
    }
}
