//! Frames (RFC 6455 §5.2).

/// The kinds of frames.
pub mod opcode {
    /// A further part of a message.
    pub const CONTINUATION: u8 = 0;
    /// A text, or its first part.
    pub const TEXT: u8 = 1;
    /// Bytes, or their first part.
    pub const BINARY: u8 = 2;
    /// The end of the connection.
    pub const CLOSE: u8 = 8;
    /// A question whether the peer is there.
    pub const PING: u8 = 9;
    /// The response to it.
    pub const PONG: u8 = 10;
}

/// Codes of close frames (RFC 6455 §7.4.1).
pub mod code {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: u16 = 1000;
    /// The server stops, or ends a connection that is idle.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer breaks the protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// The close frame had no code. It is never sent.
    pub const NO_STATUS: u16 = 1005;
    /// The connection ended without a close frame. It is never sent.
    pub const ABNORMAL: u16 = 1006;
    /// The data is not of its type, as a text that is not UTF-8.
    pub const INVALID_DATA: u16 = 1007;
    /// The message is larger than the limit.
    pub const TOO_BIG: u16 = 1009;
    /// The server has failed.
    pub const INTERNAL_ERROR: u16 = 1011;
}

/// Bytes of the longest header.
pub(super) const MAX_HEADER: usize = 14;
/// Bytes of the payload of a control frame.
pub const MAX_CONTROL: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// Appends the header of a frame that is not masked, as servers send it. `length` bytes of payload follow.
pub fn write_header(opcode: u8, is_final: bool, length: usize, out: &mut Vec<u8>) {
    out.push(if is_final { FIN | opcode } else { opcode });
    if length < 126 {
        out.push(length as u8);
    } else if let Ok(length) = u16::try_from(length) {
        out.push(126);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(127);
        out.extend_from_slice(&(length as u64).to_be_bytes());
    }
}

/// Appends a frame that is not masked.
pub fn write(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    write_header(opcode, true, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends a close frame; without a code for [`code::NO_STATUS`]. The reason is cut to the length of a control frame.
pub fn write_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    if code == code::NO_STATUS {
        return write(opcode::CLOSE, b"", out);
    }
    let mut end = reason.len().min(MAX_CONTROL - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    write_header(opcode::CLOSE, true, 2 + end, out);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&reason.as_bytes()[..end]);
}

/// Returns `true` if a close frame may have this code (RFC 6455 §7.4, and the registry that it founds).
pub fn is_sendable(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// The header of a client's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) opcode: u8,
    pub(super) is_final: bool,
    pub(super) length: u64,
    pub(super) mask: [u8; 4],
}

/// Parses the header at the front of `bytes`; `None` if it is incomplete. Returns its length, too.
///
/// # Errors
/// Returns the rule of the protocol that the frame breaks, which is found as early as possible.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Header, usize)>, &'static str> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    let (opcode, is_final) = (first & 0x0f, first & FIN != 0);
    if first & RESERVED != 0 {
        return Err("a reserved bit is set");
    }
    if !matches!(opcode, 0..=2 | 8..=10) {
        return Err("the opcode is reserved");
    }
    let is_control = opcode >= opcode::CLOSE;
    if is_control && !is_final {
        return Err("a control frame is fragmented");
    }
    let Some(&second) = bytes.get(1) else { return Ok(None) };
    if second & MASKED == 0 {
        return Err("a frame is not masked");
    }
    let (short, rest) = (second & !MASKED, &bytes[2..]);
    if is_control && usize::from(short) > MAX_CONTROL {
        return Err("a control frame is too long");
    }
    let (length, extended) = match short {
        126 => match rest.first_chunk() {
            Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(length) => (u64::from_be_bytes(*length), 8),
            None => return Ok(None),
        },
        short => (u64::from(short), 0),
    };
    let is_minimal = match short {
        126 => length >= 126,
        127 => length > u64::from(u16::MAX) && length >> 63 == 0,
        _ => true,
    };
    if !is_minimal {
        return Err("the length of a frame is malformed");
    }
    let Some(mask) = rest[extended..].first_chunk() else { return Ok(None) };
    Ok(Some((Header { opcode, is_final, length, mask: *mask }, 2 + extended + 4)))
}

/// Removes the mask, whose first byte belongs to the first of `bytes`.
pub(super) fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip([a, b, c, d, a, b, c]) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_met() {
        let mut out = Vec::new();
        write(opcode::TEXT, b"Hello", &mut out);
        assert_eq!(out, b"\x81\x05Hello");
        let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
        let (header, length) = parse(masked).unwrap().unwrap();
        assert_eq!((header.opcode, header.is_final, header.length, length), (1, true, 5, 6));
        let mut payload = masked[length..].to_vec();
        unmask(&mut payload, header.mask);
        assert_eq!(payload, b"Hello");
        for (size, head) in
            [(256, &b"\x82\x7e\x01\x00"[..]), (65_536, b"\x82\x7f\0\0\0\0\0\x01\0\0")]
        {
            out.clear();
            write_header(opcode::BINARY, true, size, &mut out);
            assert_eq!(out, head);
        }
    }

    #[test]
    fn a_close_frame_has_a_code_and_as_much_of_the_reason_as_fits() {
        let mut out = Vec::new();
        write_close(code::NORMAL, "bye", &mut out);
        assert_eq!(out, b"\x88\x05\x03\xe8bye");
        out.clear();
        write_close(code::NO_STATUS, "unused", &mut out);
        assert_eq!(out, b"\x88\0");
        out.clear();
        write_close(code::NORMAL, &"ä".repeat(100), &mut out);
        assert_eq!((out[1], out.len()), (124, 126), "a whole number of characters");
    }

    #[test]
    fn any_length_is_unmasked() {
        for length in 0..40 {
            let mut bytes = vec![0; length];
            unmask(&mut bytes, [1, 2, 3, 4]);
            let expected = [1, 2, 3, 4].into_iter().cycle().take(length);
            assert!(bytes.iter().copied().eq(expected), "{length}");
        }
    }
}
