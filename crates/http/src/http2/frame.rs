//! Frames (RFC 9113 §4, §6): their heads, their lengths and paddings, and how they are written.

use std::ops::Range;

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's head.
pub const HEAD: usize = 9;
/// The largest payload that is accepted, which is what every endpoint accepts at the least
/// (RFC 9113 §4.2).
pub const LARGEST: usize = 16_384;

/// The types that are known here (RFC 9113 §6, RFC 9218 §7.1).
pub mod kind {
    #![expect(missing_docs, reason = "each is the type of that name")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// Flags (RFC 9113 §6).
pub mod flag {
    #![expect(missing_docs, reason = "each is the flag of that name")]
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

/// Settings (RFC 9113 §6.5.2, RFC 9218 §2.1).
pub mod setting {
    #![expect(missing_docs, reason = "each is the setting of that name")]
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// Why a stream or a connection ends (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "each is the code of that name")]
pub enum ErrorCode {
    NoError = 0,
    ProtocolError = 1,
    InternalError = 2,
    FlowControlError = 3,
    SettingsTimeout = 4,
    StreamClosed = 5,
    FrameSizeError = 6,
    RefusedStream = 7,
    Cancel = 8,
    CompressionError = 9,
    ConnectError = 10,
    EnhanceYourCalm = 11,
    InadequateSecurity = 12,
    Http11Required = 13,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload.
    pub length: usize,
    /// One of [`kind`], or another.
    pub kind: u8,
    /// Of [`flag`].
    pub flags: u8,
    /// The stream, 0 for the connection. The reserved bit is dropped.
    pub stream: u32,
}

impl FrameHead {
    /// Reads the head that begins `input`; `None` when its end has not arrived.
    #[inline]
    pub fn parse(input: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD] = input.first_chunk()?;
        Some(Self {
            length: u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize,
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
        })
    }

    /// Whether that flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What of `payload` is content: without padding (RFC 9113 §6.1), and without the priority that
    /// a HEADERS frame may begin with. `None` when there is less than the flags say.
    #[inline]
    pub fn content(&self, payload: &[u8]) -> Option<Range<usize>> {
        let (mut start, mut end) = (0, payload.len());
        if self.has(flag::PADDED) {
            start = 1;
            end = end.checked_sub(usize::from(*payload.first()?))?;
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            start += 5;
        }
        (start <= end).then_some(start..end)
    }

    /// The stream that the priority of a HEADERS frame names (RFC 9113 §6.2).
    pub fn dependency(&self, payload: &[u8]) -> Option<u32> {
        let start = usize::from(self.has(flag::PADDED));
        let bytes = payload.get(start..start + 4).filter(|_| self.has(flag::PRIORITY))?;
        number(bytes).map(|stream| stream & 0x7fff_ffff)
    }

    /// Appends it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// As it is sent.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEAD] {
        let length = (self.length as u32).to_be_bytes();
        let stream = self.stream.to_be_bytes();
        [
            length[1], length[2], length[3], self.kind, self.flags, stream[0], stream[1],
            stream[2], stream[3],
        ]
    }
}

/// The first four bytes of a payload as a number.
#[inline]
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The pairs of a SETTINGS frame.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.as_chunks::<6>().0.iter().map(|pair| {
        let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
        (u16::from_be_bytes([pair[0], pair[1]]), value)
    })
}

/// Appends a SETTINGS frame.
pub fn write_settings(pairs: &[(u16, u32)], out: &mut Vec<u8>) {
    FrameHead { length: 6 * pairs.len(), kind: kind::SETTINGS, flags: 0, stream: 0 }.write(out);
    for (name, value) in pairs {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    FrameHead { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.write(out);
}

/// Appends a PING frame, or the acknowledgement of one.
pub fn write_ping(data: [u8; 8], is_ack: bool, out: &mut Vec<u8>) {
    let flags = if is_ack { flag::ACK } else { 0 };
    FrameHead { length: 8, kind: kind::PING, flags, stream: 0 }.write(out);
    out.extend_from_slice(&data);
}

/// Appends a RST_STREAM frame.
pub fn write_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    FrameHead { length: 4, kind: kind::RST_STREAM, flags: 0, stream }.write(out);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Appends a WINDOW_UPDATE frame; `increment` is not 0.
pub fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    FrameHead { length: 4, kind: kind::WINDOW_UPDATE, flags: 0, stream }.write(out);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a GOAWAY frame. `reason` is for people who look at what went over the wire.
pub fn write_goaway(last: u32, code: ErrorCode, reason: &str, out: &mut Vec<u8>) {
    FrameHead { length: 8 + reason.len(), kind: kind::GOAWAY, flags: 0, stream: 0 }.write(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends the head of a DATA frame, whose `length` bytes follow.
#[inline]
pub fn write_data_head(stream: u32, length: usize, ended: bool, out: &mut Vec<u8>) {
    let flags = if ended { flag::END_STREAM } else { 0 };
    FrameHead { length, kind: kind::DATA, flags, stream }.write(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_without_the_reserved_bit() {
        let head = FrameHead { length: 0x1_0203, kind: 9, flags: 4, stream: 0x7fff_ffff };
        let mut bytes = head.to_bytes();
        assert_eq!(FrameHead::parse(&bytes), Some(head));
        bytes[5] |= 0x80;
        assert_eq!(FrameHead::parse(&bytes), Some(head));
        assert_eq!(FrameHead::parse(&bytes[..8]), None);
    }

    #[test]
    fn padding_and_priority_are_no_content_and_have_to_be_there() {
        let content = |kind, flags, payload: &[u8]| {
            FrameHead { length: payload.len(), kind, flags, stream: 1 }.content(payload)
        };
        assert_eq!(content(kind::DATA, 0, b"abc"), Some(0..3));
        assert_eq!(content(kind::DATA, flag::PADDED, b"\x02abcd"), Some(1..3));
        assert_eq!(content(kind::DATA, flag::PADDED, b"\x04abcd"), Some(1..1));
        assert_eq!(content(kind::DATA, flag::PADDED, b"\x05abcd"), None);
        assert_eq!(content(kind::DATA, flag::PADDED, b""), None);
        let both = flag::PADDED | flag::PRIORITY;
        assert_eq!(content(kind::HEADERS, both, b"\x01\0\0\0\0\0abc"), Some(6..8));
        assert_eq!(content(kind::HEADERS, flag::PRIORITY, b"\0\0\0\0"), None);
        let head = FrameHead { length: 8, kind: kind::HEADERS, flags: both, stream: 1 };
        assert_eq!(head.dependency(b"\x01\x80\0\0\x07\0a0"), Some(7));
    }
}
