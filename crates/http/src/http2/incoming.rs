//! What the frames of a client do (RFC 9113 §6).

use super::abuse::Cost;
use super::connection::{Connection, Drain, Event, HeadBuffers, Section};
use super::frame::{self, ErrorCode, FrameHead, flag, kind, number, setting};
use super::section::{Facts, Outcome, Reader};
use super::{Failure, Priority};

type Found = Result<Option<Event>, Failure>;

/// The largest window (RFC 9113 §6.9.1).
const MOST_WINDOW: i64 = 0x7fff_ffff;
/// CONTINUATION frames of one section: more than these come only from a client that means to keep
/// the server busy (CONTINUATION flood, CVE-2024-27316).
const CONTINUATIONS: u32 = 32;
/// What a PING carries that asks whether the client has heard of the end.
pub(super) const DRAIN_PING: [u8; 8] = *b"draining";
/// Priorities that are kept of streams to come.
const EARLY: usize = 16;

impl Connection {
    #[inline]
    pub(super) fn headers(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        into: &mut HeadBuffers<'_>,
        out: &mut Vec<u8>,
    ) -> Found {
        let content = head.content(payload).ok_or(Failure::protocol("padding is too long"))?;
        if head.stream & 1 == 0 {
            return Err(Failure::protocol("a stream's number is not the client's"));
        }
        let is_absurd = head.dependency(payload) == Some(head.stream);
        let (stream, ended) = (head.stream, head.has(flag::END_STREAM));
        let block = &payload[content];
        if !head.has(flag::END_HEADERS) {
            let bytes = block.to_vec();
            let section = Section { stream, ended, is_absurd, bytes, frames: 0 };
            self.section = Some(Box::new(section));
            return Ok(None);
        }
        self.section_end(stream, ended, is_absurd, block, into, out)
    }

    pub(super) fn continuation(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        into: &mut HeadBuffers<'_>,
        out: &mut Vec<u8>,
    ) -> Found {
        let Some(section) = &mut self.section else { return Ok(None) };
        section.frames += 1;
        // What is somewhat too large is still read to its end, so that it can be answered with 431.
        let most = 2 * self.settings.limits.head_size;
        if section.frames > CONTINUATIONS || section.bytes.len() + payload.len() > most {
            let reason = "too many or too large CONTINUATION frames (CONTINUATION flood)";
            return Err(Failure::new(ErrorCode::EnhanceYourCalm, reason));
        }
        if payload.is_empty() {
            self.budget.spend(Cost::Empty)?;
        }
        section.bytes.extend_from_slice(payload);
        if !head.has(flag::END_HEADERS) {
            return Ok(None);
        }
        let Some(section) = self.section.take() else { return Ok(None) };
        let Section { stream, ended, is_absurd, bytes, .. } = *section;
        self.section_end(stream, ended, is_absurd, &bytes, into, out)
    }

    /// A section is complete.
    #[inline]
    fn section_end(
        &mut self,
        id: u32,
        ended: bool,
        is_absurd: bool,
        block: &[u8],
        into: &mut HeadBuffers<'_>,
        out: &mut Vec<u8>,
    ) -> Found {
        let text = &mut *into.text;
        text.clear();
        let limits = self.settings.limits;
        let mut reader = Reader::new(into.head, &limits);
        self.decoder
            .decode(block, text, |text, field| reader.take(text, field))
            .map_err(|malformed| Failure::new(ErrorCode::CompressionError, malformed.0))?;
        if reader.is_too_large() {
            self.budget.spend(Cost::LargeHead)?;
        }
        if id <= self.last {
            let malformed = reader.finish_trailers();
            return self.trailers(id, ended, malformed, out);
        }
        let outcome = reader.finish(text);
        if id > self.last + 2 {
            self.gap = (self.last + 2, id - 2);
        }
        self.last = id;
        if self.drain == Drain::Final {
            // The client was told that this one will not be served.
            self.remember_reset(id);
            return Ok(None);
        }
        self.request(id, ended, is_absurd, outcome, out)
    }

    #[inline]
    fn request(
        &mut self,
        id: u32,
        ended: bool,
        is_absurd: bool,
        outcome: Outcome,
        out: &mut Vec<u8>,
    ) -> Found {
        let early = self.take_early(id);
        if is_absurd {
            return self.stream_error(id, ErrorCode::ProtocolError, out);
        }
        if self.streams.len() >= self.settings.streams as usize {
            self.budget.spend(Cost::Reset)?;
            self.reset(id, ErrorCode::RefusedStream, out);
            return Ok(None);
        }
        let Facts { length, priority } = match outcome {
            Outcome::Fine(facts) => facts,
            Outcome::Malformed(reason) => {
                self.complaint = Some(reason);
                return self.stream_error(id, ErrorCode::ProtocolError, out);
            }
            Outcome::Refused(refusal) => {
                self.streams.add(self.open_stream(id, ended));
                return Ok(Some(Event::Refused { stream: id, refusal }));
            }
        };
        if ended && length.is_some_and(|length| length > 0) {
            return self.stream_error(id, ErrorCode::ProtocolError, out);
        }
        let mut stream = self.open_stream(id, ended);
        stream.left = length;
        stream.priority = early.unwrap_or(priority);
        self.streams.add(stream);
        if !ended {
            self.widen(out);
        }
        Ok(Some(Event::Request { stream: id, length, ended }))
    }

    fn trailers(
        &mut self,
        id: u32,
        ended: bool,
        malformed: Option<&'static str>,
        out: &mut Vec<u8>,
    ) -> Found {
        if self.has_reset(id) {
            return Ok(None);
        }
        let Some(stream) = self.streams.get(id) else {
            let (first, last) = self.gap;
            return Err(if (first..=last).contains(&id) {
                Failure::protocol("a stream's number is lower than the last one's")
            } else {
                Failure::new(ErrorCode::StreamClosed, "HEADERS came for a closed stream")
            });
        };
        if !stream.is_open {
            return self.stream_error(id, ErrorCode::StreamClosed, out);
        }
        if !ended || malformed.is_some() || stream.left.is_some_and(|left| left > 0) {
            return self.stream_error(id, ErrorCode::ProtocolError, out);
        }
        stream.is_open = false;
        if stream.is_finished {
            self.streams.remove(id);
            return Ok(None);
        }
        Ok(Some(Event::Data { stream: id, data: 0..0, ended: true }))
    }

    pub(super) fn body(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        start: usize,
        out: &mut Vec<u8>,
    ) -> Found {
        let id = head.stream;
        if id == 0 || id > self.last {
            return Err(Failure::protocol("DATA came for no stream, or for one that is not open"));
        }
        let content = head.content(payload).ok_or(Failure::protocol("padding is too long"))?;
        let whole = payload.len();
        self.flow.receive -= whole as i64;
        if self.flow.receive < 0 {
            let reason = "the client sends more than the connection's window";
            return Err(Failure::new(ErrorCode::FlowControlError, reason));
        }
        let ended = head.has(flag::END_STREAM);
        if content.is_empty() && !ended {
            self.budget.spend(Cost::Empty)?;
        }
        let is_known_reset = self.has_reset(id);
        let Some(stream) = self.streams.get(id) else {
            if is_known_reset {
                self.give_back(whole as u32, out);
                return Ok(None);
            }
            return Err(Failure::new(ErrorCode::StreamClosed, "DATA came for a closed stream"));
        };
        let error = if !stream.is_open {
            Some(ErrorCode::StreamClosed)
        } else if stream.receive < whole as i64 {
            Some(ErrorCode::FlowControlError)
        } else {
            stream.receive -= whole as i64;
            let length = content.len() as u64;
            stream.left = stream.left.map(|left| left.wrapping_sub(length));
            let is_wrong = match stream.left {
                Some(left) => left > u64::MAX / 2 || ended && left > 0,
                None => false,
            };
            is_wrong.then_some(ErrorCode::ProtocolError)
        };
        if let Some(code) = error {
            self.give_back(whole as u32, out);
            return self.stream_error(id, code, out);
        }
        stream.is_open = !ended;
        if stream.is_finished {
            // More than fits into the first window is not waited for (RFC 9113 §8.1).
            let is_too_much = stream.receive <= 0;
            self.give_back(whole as u32, out);
            if ended || is_too_much {
                self.streams.remove(id);
            }
            if is_too_much && !ended {
                self.reset(id, ErrorCode::NoError, out);
            }
            return Ok(None);
        }
        let padding = whole - content.len();
        if padding > 0 {
            self.taken(id, padding, out);
        }
        let data = start + content.start..start + content.end;
        Ok(Some(Event::Data { stream: id, data, ended }))
    }

    /// Every frame but HEADERS, CONTINUATION and DATA.
    pub(super) fn control(&mut self, head: &FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Found {
        match head.kind {
            kind::SETTINGS => self.client_settings(head, payload, out)?,
            kind::PING => self.ping(head, payload, out)?,
            kind::WINDOW_UPDATE => return self.window_update(head, payload, out),
            kind::RST_STREAM => return self.client_reset(head, payload),
            kind::PRIORITY => return self.priority(head, payload, out),
            kind::PRIORITY_UPDATE => self.priority_update(head, payload)?,
            kind::GOAWAY if head.stream != 0 => {
                return Err(Failure::protocol("GOAWAY came for a stream"));
            }
            kind::GOAWAY if payload.len() < 8 => return Err(Failure::size("GOAWAY is too short")),
            // The client opens no further streams; the driver sees the end of the last.
            kind::GOAWAY => {
                self.budget.spend(Cost::Empty)?;
                self.drain = Drain::Final;
            }
            kind::PUSH_PROMISE => return Err(Failure::protocol("a client cannot push")),
            _ => self.budget.spend(Cost::Empty)?,
        }
        Ok(None)
    }

    fn client_settings(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if head.stream != 0 {
            return Err(Failure::protocol("SETTINGS came for a stream"));
        }
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(Failure::size("the acknowledgement of SETTINGS is not empty"));
            }
            return self.budget.spend(Cost::Empty);
        }
        if !payload.len().is_multiple_of(6) {
            return Err(Failure::size("SETTINGS is no list of settings"));
        }
        self.budget.spend(Cost::Settings)?;
        for (name, value) in frame::settings(payload) {
            match name {
                setting::HEADER_TABLE_SIZE => self.limit_table(value),
                setting::ENABLE_PUSH | setting::NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Failure::protocol("a setting is neither 0 nor 1"));
                }
                setting::INITIAL_WINDOW_SIZE => self.initial_window(value)?,
                setting::MAX_FRAME_SIZE if !(16_384..=16_777_215).contains(&value) => {
                    return Err(Failure::protocol("the frame size is out of range"));
                }
                _ => {}
            }
        }
        frame::write_settings_ack(out);
        Ok(())
    }

    /// RFC 9113 §6.9.2: the change holds for streams that are open, too.
    fn initial_window(&mut self, value: u32) -> Result<(), Failure> {
        let too_large = Failure::new(ErrorCode::FlowControlError, "a window is too large");
        let value = i64::from(value);
        if value > MOST_WINDOW {
            return Err(too_large);
        }
        let change = value - self.flow.initial;
        self.flow.initial = value;
        for stream in self.streams.iter_mut() {
            stream.send += change;
            if stream.send > MOST_WINDOW {
                return Err(too_large);
            }
        }
        Ok(())
    }

    fn ping(&mut self, head: &FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        if head.stream != 0 {
            return Err(Failure::protocol("PING came for a stream"));
        }
        let Ok(data) = <[u8; 8]>::try_from(payload) else {
            return Err(Failure::size("PING has not eight bytes"));
        };
        if head.has(flag::ACK) {
            if data == DRAIN_PING && self.drain == Drain::Announced {
                self.end_drain(out);
                return Ok(());
            }
            return self.budget.spend(Cost::Empty);
        }
        self.budget.spend(Cost::Ping)?;
        frame::write_ping(data, true, out);
        Ok(())
    }

    fn window_update(&mut self, head: &FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Found {
        let increment = match (number(payload), payload.len()) {
            (Some(increment), 4) => i64::from(increment & 0x7fff_ffff),
            _ => return Err(Failure::size("WINDOW_UPDATE has not four bytes")),
        };
        self.budget.spend(Cost::WindowUpdate)?;
        if head.stream == 0 {
            if increment == 0 {
                return Err(Failure::protocol("WINDOW_UPDATE adds nothing"));
            }
            self.flow.send += increment;
            if self.flow.send > MOST_WINDOW {
                let reason = "the connection's window is too large";
                return Err(Failure::new(ErrorCode::FlowControlError, reason));
            }
            return Ok(None);
        }
        self.refuse_idle(head.stream)?;
        let Some(stream) = self.streams.get(head.stream) else { return Ok(None) };
        stream.send += increment;
        if increment == 0 {
            return self.stream_error(head.stream, ErrorCode::ProtocolError, out);
        }
        if stream.send > MOST_WINDOW {
            return self.stream_error(head.stream, ErrorCode::FlowControlError, out);
        }
        Ok(None)
    }

    fn client_reset(&mut self, head: &FrameHead, payload: &[u8]) -> Found {
        if payload.len() != 4 {
            return Err(Failure::size("RST_STREAM has not four bytes"));
        }
        self.refuse_idle(head.stream)?;
        // The client knows now, and sends nothing more.
        self.resets.retain(|other| *other != head.stream);
        match self.streams.remove(head.stream) {
            Some(stream) if !stream.is_finished => {
                self.budget.spend(Cost::Reset)?;
                Ok(Some(Event::Reset { stream: head.stream }))
            }
            _ => {
                self.budget.spend(Cost::Empty)?;
                Ok(None)
            }
        }
    }

    /// The scheme that this belongs to is no longer in use (RFC 9113 §5.3.2): it is only checked.
    fn priority(&mut self, head: &FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Found {
        if head.stream == 0 {
            return Err(Failure::protocol("PRIORITY came for no stream"));
        }
        self.budget.spend(Cost::Priority)?;
        let code = if payload.len() != 5 {
            ErrorCode::FrameSizeError
        } else if number(payload).map(|stream| stream & 0x7fff_ffff) == Some(head.stream) {
            ErrorCode::ProtocolError
        } else {
            return Ok(None);
        };
        if self.streams.get(head.stream).is_none() {
            // A stream that is not open cannot be reset.
            return Err(Failure::new(code, "PRIORITY is malformed"));
        }
        self.stream_error(head.stream, code, out)
    }

    /// RFC 9218 §7.1.
    fn priority_update(&mut self, head: &FrameHead, payload: &[u8]) -> Result<(), Failure> {
        if head.stream != 0 {
            return Err(Failure::protocol("PRIORITY_UPDATE came for a stream"));
        }
        let id = number(payload).ok_or(Failure::size("PRIORITY_UPDATE is too short"))?;
        let id = id & 0x7fff_ffff;
        if id & 1 == 0 {
            return Err(Failure::protocol("PRIORITY_UPDATE is for no stream of the client"));
        }
        self.budget.spend(Cost::Priority)?;
        let priority = Priority::parse(&payload[4..]);
        if let Some(stream) = self.streams.get(id) {
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

    /// A frame that only a stream can have came for one that was never opened.
    fn refuse_idle(&self, id: u32) -> Result<(), Failure> {
        if id == 0 || id > self.last {
            return Err(Failure::protocol(
                "a frame came for no stream, or for one that is not open",
            ));
        }
        Ok(())
    }

    /// Ends a stream because of what the client has done on it (RFC 9113 §5.4.2).
    fn stream_error(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) -> Found {
        self.budget.spend(Cost::StreamError)?;
        let was_open = self.streams.remove(id).is_some_and(|stream| !stream.is_finished);
        self.reset(id, code, out);
        Ok(was_open.then_some(Event::Reset { stream: id }))
    }
}
