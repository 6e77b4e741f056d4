//! Processing of frames from the server (RFC 9113 §6).

use std::cmp::Reverse;

use super::connection::{Http2ClientConnection, Http2ClientEvent, PartialSection, Phase};
use crate::abuse::Cost;
use crate::http2::Http2Error;
use crate::http2::frame::{
    self, FrameHeader, HEADER_LENGTH, Http2ErrorCode, MAX_PAYLOAD, flag, kind, number, setting,
    settings,
};
use crate::request::Version;
use crate::section::{MAX_SECTION, ResponsePart, ResponseSection, USUAL_FIELD};

type Found = Result<Option<Http2ClientEvent>, Http2Error>;

/// The largest window (RFC 9113 §6.9.1).
const MAX_WINDOW: i64 = 0x7fff_ffff;
/// Most CONTINUATION frames of one section.
const MAX_CONTINUATIONS: u32 = 32;

impl Http2ClientConnection {
    pub(super) fn step(
        &mut self,
        input: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<Http2ClientEvent, Http2Error> {
        loop {
            let Some(frame) = FrameHeader::parse(&input[*at..]) else {
                return Ok(Http2ClientEvent::NeedInput);
            };
            self.admit(&frame)?;
            let start = *at + HEADER_LENGTH;
            let Some(payload) = input.get(start..start + frame.length) else {
                return Ok(Http2ClientEvent::NeedInput);
            };
            *at = start + frame.length;
            let event = match frame.kind {
                kind::DATA => self.data(&frame, payload, start, out)?,
                kind::HEADERS => self.headers(&frame, payload, out)?,
                kind::CONTINUATION => self.continuation(&frame, payload, out)?,
                kind::RST_STREAM => self.reset_by_server(&frame, payload)?,
                kind::SETTINGS => self.settings(&frame, payload, out)?,
                kind::PING => self.ping(&frame, payload, out)?,
                kind::GOAWAY => self.go_away(&frame, payload)?,
                kind::WINDOW_UPDATE => self.window_update(&frame, payload, out)?,
                kind::PUSH_PROMISE => {
                    return Err(Http2Error::protocol("the server pushes unasked"));
                }
                // It has no meaning for a client.
                kind::PRIORITY => self.without_effect(Cost::Priority)?,
                // Unknown ones are ignored (§5.5).
                _ => self.without_effect(Cost::Empty)?,
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// Counts a frame that changes nothing.
    fn without_effect(&mut self, cost: Cost) -> Found {
        self.budget.spend(cost)?;
        Ok(None)
    }

    /// Counts a frame on a closed stream, unless the server may have sent it before it knew of a reset: how often the requests of
    /// others are cancelled is no fault of it.
    fn late_frame(&mut self) -> Found {
        match self.late_frames.checked_sub(1) {
            Some(left) => {
                self.late_frames = left;
                Ok(None)
            }
            None => self.without_effect(Cost::Empty),
        }
    }

    /// Returns whether the frame may come now, by its head alone.
    fn admit(&mut self, frame: &FrameHeader) -> Result<(), Http2Error> {
        if self.phase == Phase::Settings {
            if frame.kind != kind::SETTINGS || frame.has(flag::ACK) {
                return Err(Http2Error::protocol("the first frame is not SETTINGS"));
            }
            self.phase = Phase::Open;
        }
        if frame.length > MAX_PAYLOAD {
            return Err(Http2Error::size("a frame is larger than the limit"));
        }
        let is_continued = frame.kind == kind::CONTINUATION;
        match &self.section {
            Some(section) if !is_continued || section.stream != frame.stream => {
                Err(Http2Error::protocol("a section is interrupted"))
            }
            None if is_continued => Err(Http2Error::protocol("CONTINUATION continues nothing")),
            _ => Ok(()),
        }
    }

    /// Rejects frames of a stream that the client has not opened.
    fn check_opened(&self, id: u32) -> Result<(), Http2Error> {
        if id == 0 || id & 1 == 0 || id >= self.next {
            return Err(Http2Error::protocol("a frame is on a stream that is not open"));
        }
        Ok(())
    }

    fn headers(&mut self, head: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Found {
        self.check_opened(head.stream)?;
        let content = head.content(payload).ok_or(Http2Error::protocol("padding is too long"))?;
        let (stream, is_end) = (head.stream, head.has(flag::END_STREAM));
        let block = &payload[content];
        if head.has(flag::END_HEADERS) {
            return self.section_end(stream, is_end, block, out);
        }
        let bytes = block.to_vec();
        self.section = Some(PartialSection { stream, is_end, bytes, frames: 0 });
        Ok(None)
    }

    fn continuation(&mut self, head: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Found {
        let Some(mut section) = self.section.take() else { return Ok(None) };
        section.frames += 1;
        section.bytes.extend_from_slice(payload);
        if section.frames > MAX_CONTINUATIONS || section.bytes.len() > 2 * MAX_SECTION {
            let reason = "too many or too large CONTINUATION frames";
            return Err(Http2Error::new(Http2ErrorCode::EnhanceYourCalm, reason));
        }
        if !head.has(flag::END_HEADERS) {
            self.section = Some(section);
            return Ok(None);
        }
        self.section_end(section.stream, section.is_end, &section.bytes, out)
    }

    /// A section is complete: a head or trailers.
    fn section_end(&mut self, id: u32, is_end: bool, block: &[u8], out: &mut Vec<u8>) -> Found {
        let mut section = ResponseSection::default();
        self.decoder
            .decode(block, &mut Vec::with_capacity(USUAL_FIELD), |text, field| {
                section.take(text, &field);
            })
            .map_err(|malformed| Http2Error::new(Http2ErrorCode::CompressionError, malformed.0))?;
        if section.is_too_large() {
            self.budget.spend(Cost::LargeHead)?;
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            // The stream was reset while the section was on its way.
            return self.late_frame();
        };
        if stream.response.has_head() && !is_end {
            return self.fail_stream(id, "trailers do not end the response", out);
        }
        let part = stream.response.section(section, Version::Http2);
        let part = match part
            .and_then(|part| if is_end { stream.response.end().map(|()| part) } else { Ok(part) })
        {
            Ok(part) => part,
            Err(reason) => return self.fail_stream(id, reason, out),
        };
        if is_end {
            self.response_end(id, out);
        }
        Ok(Some(match part {
            ResponsePart::Interim(head) => Http2ClientEvent::Interim { stream: id, head },
            ResponsePart::Head(head) => Http2ClientEvent::Head { stream: id, head, is_end },
            ResponsePart::Trailers(fields) => Http2ClientEvent::Trailers { stream: id, fields },
        }))
    }

    fn data(
        &mut self,
        head: &FrameHeader,
        payload: &[u8],
        start: usize,
        out: &mut Vec<u8>,
    ) -> Found {
        let id = head.stream;
        self.check_opened(id)?;
        let content = head.content(payload).ok_or(Http2Error::protocol("padding is too long"))?;
        self.receive -= payload.len() as i64;
        if self.receive < 0 {
            let reason = "the server sent more than the connection's window";
            return Err(Http2Error::new(Http2ErrorCode::FlowControlError, reason));
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            // The stream was reset while the data was on its way; no caller will consume it.
            self.in_flight -= payload.len() as i64;
            if self.in_flight < 0 {
                let reason = "the server sends data on a stream that is closed";
                return Err(Http2Error::new(Http2ErrorCode::StreamClosed, reason));
            }
            if payload.is_empty() {
                return self.late_frame();
            }
            self.consumed(id, payload.len(), out);
            return Ok(None);
        };
        stream.receive -= payload.len() as i64;
        if stream.receive < 0 {
            let reason = "the server sent more than the stream's window";
            return Err(Http2Error::new(Http2ErrorCode::FlowControlError, reason));
        }
        let is_end = head.has(flag::END_STREAM);
        let result = stream.response.data(content.len());
        let result = result.and_then(|()| if is_end { stream.response.end() } else { Ok(()) });
        if let Err(reason) = result {
            self.consumed(id, payload.len(), out);
            return self.fail_stream(id, reason, out);
        }
        // Padding is consumed at once.
        self.consumed(id, payload.len() - content.len(), out);
        if is_end {
            self.response_end(id, out);
        }
        let data = start + content.start..start + content.end;
        if data.is_empty() && !is_end {
            return self.without_effect(Cost::Empty);
        }
        Ok(Some(Http2ClientEvent::Data { stream: id, data, is_end }))
    }

    /// The response is complete. A request that is not is given up: the server does not need the rest of it
    /// (RFC 9113 §8.1).
    fn response_end(&mut self, id: u32, out: &mut Vec<u8>) {
        self.budget.earn();
        if let Some(stream) = self.streams.remove(&id)
            && !stream.is_sent
        {
            frame::write_reset(id, Http2ErrorCode::Cancel, out);
        }
    }

    /// Ends a stream on which the server has broken a rule.
    fn fail_stream(&mut self, id: u32, reason: &'static str, out: &mut Vec<u8>) -> Found {
        self.reset(id, Http2ErrorCode::ProtocolError, out);
        Ok(Some(Http2ClientEvent::Reset { stream: id, reason, is_unprocessed: false, code: None }))
    }

    fn reset_by_server(&mut self, head: &FrameHeader, payload: &[u8]) -> Found {
        self.check_opened(head.stream)?;
        let code = number(payload).filter(|_| payload.len() == 4);
        let code = code.ok_or(Http2Error::size("RST_STREAM has a wrong length"))?;
        if self.streams.remove(&head.stream).is_none() {
            return self.late_frame();
        }
        let is_unprocessed = code == Http2ErrorCode::RefusedStream as u32;
        let reason = "the server has reset the stream";
        let (stream, code) = (head.stream, Some(code));
        Ok(Some(Http2ClientEvent::Reset { stream, reason, is_unprocessed, code }))
    }

    fn settings(&mut self, head: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Found {
        if head.stream != 0 {
            return Err(Http2Error::protocol("SETTINGS is on a stream"));
        }
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                let reason = "an acknowledgement of SETTINGS is not empty";
                return Err(Http2Error::size(reason));
            }
            if std::mem::replace(&mut self.is_acknowledged, true) {
                self.budget.spend(Cost::Empty)?;
            }
            return Ok(None);
        }
        self.budget.spend(Cost::Settings)?;
        if !payload.len().is_multiple_of(6) {
            return Err(Http2Error::size("SETTINGS has a wrong length"));
        }
        self.peer.max_streams.get_or_insert(self.settings.streams);
        for (name, value) in settings(payload) {
            self.setting(name, value)?;
        }
        frame::write_settings_ack(out);
        // Streams may have got more window, or more of them may be opened.
        Ok(Some(Http2ClientEvent::Window))
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), Http2Error> {
        match name {
            setting::HEADER_TABLE_SIZE => self.encoder.limit_table(value as usize),
            setting::ENABLE_PUSH if value != 0 => {
                return Err(Http2Error::protocol("a server cannot enable push"));
            }
            setting::ENABLE_CONNECT_PROTOCOL => self.peer.accepts_extended_connect = value == 1,
            setting::MAX_CONCURRENT_STREAMS => self.peer.max_streams = Some(value),
            setting::INITIAL_WINDOW_SIZE => {
                if i64::from(value) > MAX_WINDOW {
                    let reason = "the initial window is too large";
                    return Err(Http2Error::new(Http2ErrorCode::FlowControlError, reason));
                }
                let change = i64::from(value) - self.peer.initial_window;
                self.peer.initial_window = i64::from(value);
                for stream in self.streams.values_mut() {
                    stream.send += change;
                    if stream.send > MAX_WINDOW {
                        let reason = "a window is too large";
                        return Err(Http2Error::new(Http2ErrorCode::FlowControlError, reason));
                    }
                }
            }
            setting::MAX_FRAME_SIZE => {
                if !(16_384..=16_777_215).contains(&value) {
                    return Err(Http2Error::protocol("MAX_FRAME_SIZE is out of range"));
                }
                // Larger frames would keep others waiting.
                self.peer.max_frame = MAX_PAYLOAD;
            }
            _ => {}
        }
        Ok(())
    }

    fn go_away(&mut self, head: &FrameHeader, payload: &[u8]) -> Found {
        let last = number(payload).filter(|_| head.stream == 0);
        let (Some(last), Some(code)) = (last, payload.get(4..).and_then(number)) else {
            return Err(Http2Error::protocol("GOAWAY is malformed"));
        };
        let last = last & 0x7fff_ffff;
        if self.last_processed.is_some_and(|before| before < last) {
            return Err(Http2Error::protocol("a second GOAWAY names a later stream"));
        }
        if self.last_processed.replace(last).is_some() {
            self.budget.spend(Cost::Empty)?;
        }
        for (id, stream) in self.streams.extract_if(|id, _| *id > last) {
            self.in_flight += stream.receive;
            self.unprocessed.push(id);
        }
        // The last one is taken first: requests are repeated in their order.
        self.unprocessed.sort_unstable_by_key(|id| Reverse(*id));
        Ok(Some(Http2ClientEvent::GoAway { code }))
    }

    fn window_update(&mut self, head: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Found {
        let increment = number(payload).filter(|_| payload.len() == 4);
        let increment = increment.ok_or(Http2Error::size("WINDOW_UPDATE has a wrong length"))?;
        let increment = i64::from(increment & 0x7fff_ffff);
        self.budget.spend(Cost::WindowUpdate)?;
        if head.stream == 0 {
            self.send += increment;
            if increment == 0 || self.send > MAX_WINDOW {
                let reason = "a WINDOW_UPDATE of the connection is zero or too large";
                return Err(Http2Error::new(Http2ErrorCode::FlowControlError, reason));
            }
            return Ok(Some(Http2ClientEvent::Window));
        }
        self.check_opened(head.stream)?;
        let Some(stream) = self.streams.get_mut(&head.stream) else { return Ok(None) };
        stream.send += increment;
        if increment == 0 || stream.send > MAX_WINDOW {
            return self.fail_stream(head.stream, "a WINDOW_UPDATE is zero or too large", out);
        }
        Ok(Some(Http2ClientEvent::Window))
    }

    fn ping(&mut self, head: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Found {
        let data: [u8; 8] =
            payload.try_into().map_err(|_| Http2Error::size("PING has a wrong length"))?;
        if head.stream != 0 {
            return Err(Http2Error::protocol("PING is on a stream"));
        }
        if head.has(flag::ACK) {
            return self.without_effect(Cost::Empty);
        }
        self.budget.spend(Cost::Ping)?;
        frame::write_ping(data, true, out);
        Ok(None)
    }
}
