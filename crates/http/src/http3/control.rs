//! The control stream of the peer (RFC 9114 §6.2.1, §7.2).

use super::Http3Error;
use super::frame::{Http3ErrorCode, kind, read_varint, setting};
use super::reader::PartialHeader;
use crate::Priority;

/// The receiving side of a control stream.
#[derive(Debug)]
pub(super) struct ControlReader {
    is_server: bool,
    header: PartialHeader,
    state: State,
    has_settings: bool,
    /// The payload of a frame that is not complete.
    payload: Vec<u8>,
    /// The last GOAWAY of the peer.
    goaway: Option<u64>,
    /// The last MAX_PUSH_ID of the client.
    max_push: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Header,
    Payload { kind: u64, length: usize },
    Skip(u64),
}

/// A frame that has an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ControlFrame {
    Settings(PeerSettings),
    /// The first stream that is not processed, or of a client the first push.
    GoAway(u64),
    Priority {
        stream: u64,
        priority: Priority,
    },
    /// A frame without effect.
    Idle,
}

/// Settings of the peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PeerSettings {
    pub(super) table_capacity: u64,
    pub(super) blocked_streams: u64,
    pub(super) accepts_extended_connect: bool,
}

/// Largest payload of a frame that is read as a whole. Settings and priorities are smaller by far.
const MAX_PAYLOAD: u64 = 1024;

impl ControlReader {
    pub(super) fn new(is_server: bool) -> Self {
        Self {
            is_server,
            header: PartialHeader::default(),
            state: State::Header,
            has_settings: false,
            payload: Vec::new(),
            goaway: None,
            max_push: None,
        }
    }

    /// Reads the next frame of `input[*at..]` and advances `at`. `None` if all input was used.
    pub(super) fn next(
        &mut self,
        input: &[u8],
        at: &mut usize,
    ) -> Result<Option<ControlFrame>, Http3Error> {
        loop {
            let rest = input.len() - *at;
            match self.state {
                State::Header => {
                    let Some((kind, length)) = self.header.read(input, at) else {
                        return Ok(None);
                    };
                    self.state = self.begin(kind, length)?;
                    if let State::Skip(_) = self.state {
                        return Ok(Some(ControlFrame::Idle));
                    }
                }
                State::Payload { kind, length } => {
                    let count = rest.min(length - self.payload.len());
                    self.payload.extend_from_slice(&input[*at..*at + count]);
                    *at += count;
                    if self.payload.len() < length {
                        return Ok(None);
                    }
                    self.state = State::Header;
                    let payload = std::mem::take(&mut self.payload);
                    return self.frame(kind, &payload).map(Some);
                }
                State::Skip(left) => {
                    let count = usize::try_from(left).map_or(rest, |left| left.min(rest));
                    *at += count;
                    let left = left - count as u64;
                    self.state = if left == 0 { State::Header } else { State::Skip(left) };
                    if left > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Checks from its header alone whether a frame is permitted now.
    fn begin(&mut self, kind: u64, length: u64) -> Result<State, Http3Error> {
        if !self.has_settings && kind != kind::SETTINGS {
            let reason = "the first frame of the control stream is not SETTINGS";
            return Err(Http3Error::new(Http3ErrorCode::MissingSettings, reason));
        }
        let is_number = match kind {
            kind::SETTINGS if self.has_settings => {
                return Err(Http3Error::unexpected("a second SETTINGS frame"));
            }
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
                return Err(Http3Error::unexpected("a message on the control stream"));
            }
            kind::MAX_PUSH_ID if !self.is_server => {
                return Err(Http3Error::unexpected("MAX_PUSH_ID of a server"));
            }
            kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH if !self.is_server => {
                return Err(Http3Error::unexpected("PRIORITY_UPDATE of a server"));
            }
            other if kind::is_of_http2(other) => {
                return Err(Http3Error::unexpected("a frame of HTTP/2"));
            }
            kind::SETTINGS | kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH => false,
            kind::GOAWAY | kind::MAX_PUSH_ID | kind::CANCEL_PUSH => true,
            _ => return Ok(State::Skip(length)),
        };
        if is_number && length > 8 {
            return Err(Http3Error::frame("a frame is longer than its number"));
        }
        if length > MAX_PAYLOAD {
            return Err(Http3Error::load("a frame of the control stream is too large"));
        }
        Ok(State::Payload { kind, length: length as usize })
    }

    fn frame(&mut self, kind: u64, payload: &[u8]) -> Result<ControlFrame, Http3Error> {
        match kind {
            kind::SETTINGS => {
                self.has_settings = true;
                return settings(payload).map(ControlFrame::Settings);
            }
            kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_PUSH => {
                return priority_update(kind, payload);
            }
            _ => {}
        }
        let mut at = 0;
        let number = read_varint(payload, &mut at).filter(|_| at == payload.len());
        let number = number.ok_or(Http3Error::frame("a frame has not the length of its number"))?;
        match kind {
            kind::GOAWAY => self.go_away(number),
            kind::MAX_PUSH_ID => {
                if self.max_push.is_some_and(|before| before > number) {
                    return Err(Http3Error::id("MAX_PUSH_ID is lower than before"));
                }
                self.max_push = Some(number);
                Ok(ControlFrame::Idle)
            }
            // No response is pushed, in either direction.
            _ => Err(Http3Error::id("CANCEL_PUSH of a response that is not pushed")),
        }
    }

    fn go_away(&mut self, number: u64) -> Result<ControlFrame, Http3Error> {
        if !self.is_server && number & 3 != 0 {
            return Err(Http3Error::id("GOAWAY names a stream that is not a request"));
        }
        if self.goaway.is_some_and(|before| before < number) {
            return Err(Http3Error::id("a second GOAWAY names a later stream"));
        }
        self.goaway = Some(number);
        Ok(ControlFrame::GoAway(number))
    }
}

/// Reads PRIORITY_UPDATE (RFC 9218 §7.2).
fn priority_update(kind: u64, payload: &[u8]) -> Result<ControlFrame, Http3Error> {
    let mut at = 0;
    let stream = read_varint(payload, &mut at);
    let stream = stream.ok_or(Http3Error::frame("PRIORITY_UPDATE is too short"))?;
    if kind == kind::PRIORITY_UPDATE_PUSH || stream & 3 != 0 {
        return Err(Http3Error::id("PRIORITY_UPDATE names no request"));
    }
    Ok(ControlFrame::Priority { stream, priority: Priority::parse(&payload[at..]) })
}

/// Reads SETTINGS (RFC 9114 §7.2.4).
fn settings(payload: &[u8]) -> Result<PeerSettings, Http3Error> {
    let (mut settings, mut seen, mut at) = (PeerSettings::default(), Vec::new(), 0);
    let wrong = |reason| Http3Error::new(Http3ErrorCode::SettingsError, reason);
    while at < payload.len() {
        let cut = Http3Error::frame("SETTINGS ends within a setting");
        let name = read_varint(payload, &mut at).ok_or(cut)?;
        let value = read_varint(payload, &mut at).ok_or(cut)?;
        if seen.contains(&name) {
            return Err(wrong("a setting is repeated"));
        }
        seen.push(name);
        match name {
            setting::QPACK_MAX_TABLE_CAPACITY => settings.table_capacity = value,
            setting::QPACK_BLOCKED_STREAMS => settings.blocked_streams = value,
            setting::ENABLE_CONNECT_PROTOCOL | setting::H3_DATAGRAM if value > 1 => {
                return Err(wrong("a setting is neither 0 nor 1"));
            }
            setting::ENABLE_CONNECT_PROTOCOL => settings.accepts_extended_connect = value == 1,
            // RFC 9114 §7.2.4.1.
            0 | 2..=5 => return Err(wrong("a setting is of HTTP/2")),
            _ => {}
        }
    }
    Ok(settings)
}
