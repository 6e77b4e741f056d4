//! Frames, settings, stream types and error codes of HTTP/3 (RFC 9114 §6, §7, §8).

use std::fmt;

/// Frame types (RFC 9114 §7.2, RFC 9218 §7.2). A receiver ignores frames of other types.
pub mod kind {
    /// Content of a message.
    pub const DATA: u64 = 0;
    /// A field section: a request, a response, or trailers.
    pub const HEADERS: u64 = 1;
    /// Cancels a pushed response.
    pub const CANCEL_PUSH: u64 = 3;
    /// Parameters of the connection.
    pub const SETTINGS: u64 = 4;
    /// Announces a pushed response.
    pub const PUSH_PROMISE: u64 = 5;
    /// Announces the end of the connection.
    pub const GOAWAY: u64 = 7;
    /// The number of responses that a server may push.
    pub const MAX_PUSH_ID: u64 = 0xd;
    /// Changes the priority of a response.
    pub const PRIORITY_UPDATE: u64 = 0xf_0700;
    /// Changes the priority of a pushed response.
    pub const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

    /// Returns `true` for types of HTTP/2 that must not occur (RFC 9114 §7.2.8).
    pub(crate) fn is_of_http2(kind: u64) -> bool {
        matches!(kind, 2 | 6 | 8 | 9)
    }
}

/// Identifiers of settings (RFC 9114 §7.2.4.1, RFC 9204 §5, RFC 9220 §3).
pub mod setting {
    /// Largest capacity of the QPACK table that the sender decodes with, in bytes; 0 by default.
    pub const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
    /// Largest field section that the sender accepts, in decoded bytes; unlimited by default.
    pub const MAX_FIELD_SECTION_SIZE: u64 = 6;
    /// Number of streams that may wait for entries of the QPACK table; 0 by default.
    pub const QPACK_BLOCKED_STREAMS: u64 = 7;
    /// 1 when the sender accepts CONNECT with `:protocol`.
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 8;
    /// 1 when the sender accepts datagrams (RFC 9297 §2.1.1), which this engine does not have.
    pub const H3_DATAGRAM: u64 = 0x33;
}

/// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
pub mod stream_kind {
    /// Frames of the connection. Each side has one.
    pub const CONTROL: u64 = 0;
    /// A pushed response.
    pub const PUSH: u64 = 1;
    /// Instructions of the QPACK encoder.
    pub const ENCODER: u64 = 2;
    /// Instructions of the QPACK decoder.
    pub const DECODER: u64 = 3;
}

/// Error codes of streams and connections (RFC 9114 §8.1, RFC 9204 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Http3ErrorCode {
    /// No error: a graceful end.
    NoError = 0x100,
    /// The peer broke the protocol in a way that no other code describes.
    GeneralProtocolError = 0x101,
    /// An unexpected condition in the sender.
    InternalError = 0x102,
    /// The peer created a stream that the sender does not accept.
    StreamCreationError = 0x103,
    /// A stream that the connection requires was closed.
    ClosedCriticalStream = 0x104,
    /// A frame arrived that is not permitted in this state or on this stream.
    FrameUnexpected = 0x105,
    /// A frame has an invalid size or layout.
    FrameError = 0x106,
    /// The peer causes excessive load.
    ExcessiveLoad = 0x107,
    /// An identifier is used incorrectly.
    IdError = 0x108,
    /// SETTINGS has an error.
    SettingsError = 0x109,
    /// The control stream does not begin with SETTINGS.
    MissingSettings = 0x10a,
    /// The request was not processed; it can be sent again.
    RequestRejected = 0x10b,
    /// The request or its response is of no more use.
    RequestCancelled = 0x10c,
    /// The client's stream ended without a whole request.
    RequestIncomplete = 0x10d,
    /// A message is malformed.
    MessageError = 0x10e,
    /// The connection of a CONNECT request was reset or closed.
    ConnectError = 0x10f,
    /// The sender requires another version of HTTP for this request.
    VersionFallback = 0x110,
    /// A field section cannot be decoded.
    QpackDecompressionFailed = 0x200,
    /// An instruction of the encoder stream is malformed.
    QpackEncoderStreamError = 0x201,
    /// An instruction of the decoder stream is malformed.
    QpackDecoderStreamError = 0x202,
}

impl Http3ErrorCode {
    /// Returns the code that QUIC sends.
    pub fn value(self) -> u64 {
        self as u64
    }
}

impl fmt::Display for Http3ErrorCode {
    /// Writes the name of the RFC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoError => "H3_NO_ERROR",
            Self::GeneralProtocolError => "H3_GENERAL_PROTOCOL_ERROR",
            Self::InternalError => "H3_INTERNAL_ERROR",
            Self::StreamCreationError => "H3_STREAM_CREATION_ERROR",
            Self::ClosedCriticalStream => "H3_CLOSED_CRITICAL_STREAM",
            Self::FrameUnexpected => "H3_FRAME_UNEXPECTED",
            Self::FrameError => "H3_FRAME_ERROR",
            Self::ExcessiveLoad => "H3_EXCESSIVE_LOAD",
            Self::IdError => "H3_ID_ERROR",
            Self::SettingsError => "H3_SETTINGS_ERROR",
            Self::MissingSettings => "H3_MISSING_SETTINGS",
            Self::RequestRejected => "H3_REQUEST_REJECTED",
            Self::RequestCancelled => "H3_REQUEST_CANCELLED",
            Self::RequestIncomplete => "H3_REQUEST_INCOMPLETE",
            Self::MessageError => "H3_MESSAGE_ERROR",
            Self::ConnectError => "H3_CONNECT_ERROR",
            Self::VersionFallback => "H3_VERSION_FALLBACK",
            Self::QpackDecompressionFailed => "QPACK_DECOMPRESSION_FAILED",
            Self::QpackEncoderStreamError => "QPACK_ENCODER_STREAM_ERROR",
            Self::QpackDecoderStreamError => "QPACK_DECODER_STREAM_ERROR",
        })
    }
}

/// Largest integer of variable length (RFC 9000 §16).
pub const MAX_VARINT: u64 = (1 << 62) - 1;

/// Reads an integer of variable length (RFC 9000 §16) at `at`, and advances `at` past it; `None` if it is incomplete.
#[inline]
pub fn read_varint(input: &[u8], at: &mut usize) -> Option<u64> {
    let first = *input.get(*at)?;
    let length = 1 << (first >> 6);
    let bytes = input.get(*at..*at + length)?;
    *at += length;
    let rest = bytes[1..].iter();
    Some(rest.fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)))
}

/// Appends an integer of variable length, at most [`MAX_VARINT`].
#[inline]
pub fn write_varint(value: u64, out: &mut Vec<u8>) {
    debug_assert!(value <= MAX_VARINT);
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends a frame.
pub fn write(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    write_varint(kind, out);
    write_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// Appends a SETTINGS frame.
pub fn write_settings(pairs: &[(u64, u64)], out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    for (name, value) in pairs {
        write_varint(*name, &mut payload);
        write_varint(*value, &mut payload);
    }
    write(kind::SETTINGS, &payload, out);
}

/// Appends a GOAWAY frame.
pub fn write_goaway(id: u64, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(8);
    write_varint(id, &mut payload);
    write(kind::GOAWAY, &payload, out);
}

/// The header of a DATA frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    bytes: [u8; Self::MAX_LENGTH],
    length: u8,
}

impl DataHeader {
    /// Largest length of a header in bytes.
    pub const MAX_LENGTH: usize = 9;

    /// Creates the header of a frame with a payload of `length` bytes.
    #[inline]
    pub fn new(length: usize) -> Self {
        let mut bytes = [0; Self::MAX_LENGTH];
        let length = length as u64;
        let size: usize = match length {
            0..0x40 => 1,
            0x40..0x4000 => 2,
            0x4000..0x4000_0000 => 4,
            _ => 8,
        };
        let tag = u64::from(size.ilog2()) << (8 * size - 2);
        bytes[1..=size].copy_from_slice(&(length | tag).to_be_bytes()[8 - size..]);
        Self { bytes, length: size as u8 + 1 }
    }

    /// Returns the header as it is sent.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// Bytes that [`begin`] reserves for a header.
const RESERVED: usize = 5;
/// Largest payload of a frame between [`begin`] and [`end`].
pub(crate) const MAX_RESERVED: usize = 0x3fff_ffff;

/// Reserves the header of a frame whose payload is appended next, and returns its offset.
#[inline]
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; RESERVED]);
    start
}

/// Returns the length of the payload of the frame that begins at `start`.
#[inline]
pub(crate) fn payload_length(start: usize, out: &[u8]) -> usize {
    out.len() - start - RESERVED
}

/// Writes the header of a frame of a type below 64 that begins at `start`. The length need not have its shortest form.
#[inline]
pub(crate) fn end(kind: u64, start: usize, out: &mut [u8]) {
    let length = (payload_length(start, out).min(MAX_RESERVED)) as u32 | 0x8000_0000;
    out[start] = kind as u8;
    out[start + 1..start + RESERVED].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn integers_come_back(value in 0..=MAX_VARINT, shift in 0..62_u32) {
            let value = value >> shift;
            let mut out = Vec::new();
            write_varint(value, &mut out);
            for length in 0..out.len() {
                prop_assert_eq!(read_varint(&out[..length], &mut 0), None);
            }
            let mut at = 0;
            prop_assert_eq!(read_varint(&out, &mut at), Some(value));
            prop_assert_eq!(at, out.len());
            let mut header = vec![0];
            write_varint(value, &mut header);
            let written = DataHeader::new(value as usize);
            prop_assert_eq!(written.as_bytes(), header.as_slice());
        }
    }

    #[test]
    fn the_examples_of_rfc_9000_are_read() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ] {
            assert_eq!(read_varint(bytes, &mut 0), Some(value));
        }
    }

    #[test]
    fn a_reserved_header_is_that_of_its_payload() {
        let mut out = b"x".to_vec();
        let start = begin(&mut out);
        out.extend_from_slice(b"payload");
        end(kind::DATA, start, &mut out);
        assert_eq!(out, b"x\0\x80\0\0\x07payload");
    }
}
