//! Frames (RFC 9113 §4, §6): headers, lengths and padding, and how frames are written.

use std::fmt;
use std::ops::Range;

/// The connection preface of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Size of a frame header in bytes.
pub const HEADER_LENGTH: usize = 9;
/// The largest payload that the server accepts, in bytes: the default of SETTINGS_MAX_FRAME_SIZE (RFC 9113 §4.2).
pub const MAX_PAYLOAD: usize = 16_384;

/// Frame types (RFC 9113 §6, RFC 9218 §7.1). A receiver ignores frames of other types.
pub mod kind {
    /// Content of a message; counts against the flow-control windows.
    pub const DATA: u8 = 0;
    /// A field section, or the first part of one: a request, a response, or trailers.
    pub const HEADERS: u8 = 1;
    /// Priority of a stream by the deprecated scheme of RFC 7540.
    pub const PRIORITY: u8 = 2;
    /// Ends one stream with an error code.
    pub const RST_STREAM: u8 = 3;
    /// Parameters of the connection, or the acknowledgement of the peer's.
    pub const SETTINGS: u8 = 4;
    /// Announces a pushed response. Clients must not send it, and this server does not.
    pub const PUSH_PROMISE: u8 = 5;
    /// Round-trip measurement, or its acknowledgement.
    pub const PING: u8 = 6;
    /// Ends the connection, or announces its end.
    pub const GOAWAY: u8 = 7;
    /// Enlarges the window of a stream, or of the connection.
    pub const WINDOW_UPDATE: u8 = 8;
    /// Continues the field section of a HEADERS frame without END_HEADERS.
    pub const CONTINUATION: u8 = 9;
    /// Changes the priority of a response (RFC 9218).
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// Frame flags (RFC 9113 §6). Their meaning depends on the frame type.
pub mod flag {
    /// SETTINGS and PING: the frame acknowledges the peer's.
    pub const ACK: u8 = 1;
    /// DATA and HEADERS: the last frame that the sender sends on this stream.
    pub const END_STREAM: u8 = 1;
    /// HEADERS and CONTINUATION: the field section is complete.
    pub const END_HEADERS: u8 = 4;
    /// DATA and HEADERS: the payload begins with the length of its padding.
    pub const PADDED: u8 = 8;
    /// HEADERS: five bytes of priority (RFC 7540 §5.3) precede the field section.
    pub const PRIORITY: u8 = 32;
}

/// Identifiers of settings (RFC 9113 §6.5.2, RFC 9218 §2.1).
pub mod setting {
    /// Size of the HPACK table that the sender decodes with, in bytes; 4,096 by default.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// 1 when the sender accepts pushed responses (the default), or 0.
    pub const ENABLE_PUSH: u16 = 2;
    /// Number of concurrent streams that the sender accepts; unlimited by default.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// Initial window of new streams for data to the sender, in bytes; 65,535 by default.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Largest frame payload that the sender accepts, in bytes; 16,384 by default.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// Largest field section that the sender accepts, in decoded bytes; unlimited by default.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// 1 when the sender accepts CONNECT with `:protocol` (RFC 8441 §3).
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// 1 when the sender ignores the priorities of RFC 7540.
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// Error codes of RST_STREAM and GOAWAY (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Http2ErrorCode {
    /// No error: a graceful end.
    NoError = 0,
    /// The peer broke the protocol in a way that no other code describes.
    ProtocolError = 1,
    /// An unexpected condition in the sender.
    InternalError = 2,
    /// The peer sent more than a window allows, or enlarged one beyond its limit.
    FlowControlError = 3,
    /// The peer did not acknowledge SETTINGS in time.
    SettingsTimeout = 4,
    /// A frame arrived for a stream that was half-closed or closed.
    StreamClosed = 5,
    /// A frame has an invalid size.
    FrameSizeError = 6,
    /// The stream was not processed; the request can be sent again.
    RefusedStream = 7,
    /// The sender no longer needs the stream.
    Cancel = 8,
    /// A field section cannot be decoded.
    CompressionError = 9,
    /// The connection of a CONNECT request was reset or closed.
    ConnectError = 10,
    /// The peer causes excessive load.
    EnhanceYourCalm = 11,
    /// The transport does not meet the security requirements of RFC 9113 §9.2.
    InadequateSecurity = 12,
    /// The sender requires HTTP/1.1 for this request.
    Http11Required = 13,
}

impl Http2ErrorCode {
    const ALL: [Self; 14] = [
        Self::NoError,
        Self::ProtocolError,
        Self::InternalError,
        Self::FlowControlError,
        Self::SettingsTimeout,
        Self::StreamClosed,
        Self::FrameSizeError,
        Self::RefusedStream,
        Self::Cancel,
        Self::CompressionError,
        Self::ConnectError,
        Self::EnhanceYourCalm,
        Self::InadequateSecurity,
        Self::Http11Required,
    ];

    /// Returns the error with this code; `None` if RFC 9113 §7 has none.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        let found = Self::ALL.get(code as usize).copied();
        debug_assert!(found.is_none_or(|error| error as u32 == code));
        found
    }
}

impl fmt::Display for Http2ErrorCode {
    /// Writes the name of the RFC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoError => "NO_ERROR",
            Self::ProtocolError => "PROTOCOL_ERROR",
            Self::InternalError => "INTERNAL_ERROR",
            Self::FlowControlError => "FLOW_CONTROL_ERROR",
            Self::SettingsTimeout => "SETTINGS_TIMEOUT",
            Self::StreamClosed => "STREAM_CLOSED",
            Self::FrameSizeError => "FRAME_SIZE_ERROR",
            Self::RefusedStream => "REFUSED_STREAM",
            Self::Cancel => "CANCEL",
            Self::CompressionError => "COMPRESSION_ERROR",
            Self::ConnectError => "CONNECT_ERROR",
            Self::EnhanceYourCalm => "ENHANCE_YOUR_CALM",
            Self::InadequateSecurity => "INADEQUATE_SECURITY",
            Self::Http11Required => "HTTP_1_1_REQUIRED",
        })
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes.
    pub length: usize,
    /// The frame type: one of [`kind`], or an unknown one.
    pub kind: u8,
    /// A combination of [`flag`].
    pub flags: u8,
    /// The stream; 0 for the connection. Parsing ignores the reserved bit.
    pub stream: u32,
}

impl FrameHeader {
    /// Parses the header at the start of `input`; `None` if it is incomplete.
    #[inline]
    pub fn parse(input: &[u8]) -> Option<Self> {
        let head: &[u8; HEADER_LENGTH] = input.first_chunk()?;
        Some(Self {
            length: u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize,
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff,
        })
    }

    /// Returns `true` if that flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the range of `payload` without padding (RFC 9113 §6.1) and without the priority at the start of a HEADERS
    /// frame. `None` if the payload is shorter than the flags require.
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

    /// Returns the stream that this HEADERS frame depends on, if it has a priority (RFC 9113 §6.2).
    pub fn dependency(&self, payload: &[u8]) -> Option<u32> {
        let start = usize::from(self.has(flag::PADDED));
        let bytes = payload.get(start..start + 4).filter(|_| self.has(flag::PRIORITY))?;
        number(bytes).map(|stream| stream & 0x7fff_ffff)
    }

    /// Appends the header to `out`.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// Returns the header in wire format.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let length = (self.length as u32).to_be_bytes();
        let stream = self.stream.to_be_bytes();
        [
            length[1], length[2], length[3], self.kind, self.flags, stream[0], stream[1],
            stream[2], stream[3],
        ]
    }
}

/// Returns the first four bytes of a payload as a big-endian number.
#[inline]
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Returns the pairs of a SETTINGS frame.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.as_chunks::<6>().0.iter().map(|pair| {
        let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
        (u16::from_be_bytes([pair[0], pair[1]]), value)
    })
}

/// Appends a SETTINGS frame.
pub fn write_settings(pairs: &[(u16, u32)], out: &mut Vec<u8>) {
    FrameHeader { length: 6 * pairs.len(), kind: kind::SETTINGS, flags: 0, stream: 0 }.write(out);
    for (name, value) in pairs {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of a SETTINGS frame.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    FrameHeader { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.write(out);
}

/// Appends a PING frame, or the acknowledgement of one.
pub fn write_ping(data: [u8; 8], is_ack: bool, out: &mut Vec<u8>) {
    let flags = if is_ack { flag::ACK } else { 0 };
    FrameHeader { length: 8, kind: kind::PING, flags, stream: 0 }.write(out);
    out.extend_from_slice(&data);
}

/// Appends a RST_STREAM frame.
pub fn write_reset(stream: u32, code: Http2ErrorCode, out: &mut Vec<u8>) {
    FrameHeader { length: 4, kind: kind::RST_STREAM, flags: 0, stream }.write(out);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Appends a WINDOW_UPDATE frame. `increment` must not be 0.
pub fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    FrameHeader { length: 4, kind: kind::WINDOW_UPDATE, flags: 0, stream }.write(out);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a GOAWAY frame. `reason` is additional debug data in plain text.
pub fn write_goaway(last: u32, code: Http2ErrorCode, reason: &str, out: &mut Vec<u8>) {
    FrameHeader { length: 8 + reason.len(), kind: kind::GOAWAY, flags: 0, stream: 0 }.write(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends the header of a DATA frame. The caller appends the payload of `length` bytes.
#[inline]
pub fn write_data_head(stream: u32, length: usize, ended: bool, out: &mut Vec<u8>) {
    let flags = if ended { flag::END_STREAM } else { 0 };
    FrameHeader { length, kind: kind::DATA, flags, stream }.write(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips_without_the_reserved_bit() {
        let head = FrameHeader { length: 0x1_0203, kind: 9, flags: 4, stream: 0x7fff_ffff };
        let mut bytes = head.to_bytes();
        assert_eq!(FrameHeader::parse(&bytes), Some(head));
        bytes[5] |= 0x80;
        assert_eq!(FrameHeader::parse(&bytes), Some(head));
        assert_eq!(FrameHeader::parse(&bytes[..8]), None);
    }

    #[test]
    fn content_excludes_padding_and_priority_which_must_be_complete() {
        let content = |kind, flags, payload: &[u8]| {
            FrameHeader { length: payload.len(), kind, flags, stream: 1 }.content(payload)
        };
        assert_eq!(content(kind::DATA, 0, b"abc"), Some(0..3));
        assert_eq!(content(kind::DATA, flag::PADDED, b"\x02abcd"), Some(1..3));
        assert_eq!(content(kind::DATA, flag::PADDED, b"\x04abcd"), Some(1..1));
        assert_eq!(content(kind::DATA, flag::PADDED, b"\x05abcd"), None);
        assert_eq!(content(kind::DATA, flag::PADDED, b""), None);
        let both = flag::PADDED | flag::PRIORITY;
        assert_eq!(content(kind::HEADERS, both, b"\x01\0\0\0\0\0abc"), Some(6..8));
        assert_eq!(content(kind::HEADERS, flag::PRIORITY, b"\0\0\0\0"), None);
        let head = FrameHeader { length: 8, kind: kind::HEADERS, flags: both, stream: 1 };
        assert_eq!(head.dependency(b"\x01\x80\0\0\x07\0a0"), Some(7));
    }
}
