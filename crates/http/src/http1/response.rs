//! Writer of responses (RFC 9112 §4, §6, §7.1).

use super::Persistence;
use crate::semantics::status::reason;

/// The interim response 100 (Continue), after which the client sends the body (RFC 9110 §15.2.1).
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Appends the last chunk of a chunked body, with the trailer fields in `lines`, each with CR LF.
pub fn last_chunk(lines: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(lines);
    out.extend_from_slice(b"\r\n");
}

/// Appends the status line and the fields that differ between responses of the same content. `date_line` is a complete
/// `Date` line with CR LF, or empty. The caller appends the other fields and the empty line, which can be prepared ahead
/// of time together with the body.
#[inline]
pub fn begin(status: u16, date_line: &[u8], persistence: Persistence, out: &mut Vec<u8>) {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        status_line(status, out);
    }
    out.extend_from_slice(date_line);
    match persistence {
        Persistence::Keep => {}
        Persistence::KeepExplicit => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        Persistence::Close => out.extend_from_slice(b"Connection: close\r\n"),
    }
}

/// Appends an interim response (RFC 9110 §15.2). `lines` are its fields, each with CR LF.
pub fn interim(status: u16, lines: &[u8], out: &mut Vec<u8>) {
    status_line(status, out);
    out.extend_from_slice(lines);
    out.extend_from_slice(b"\r\n");
}

fn status_line(status: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the header line of a chunk of `length` bytes. The caller appends the data and CR LF. `length` must not be 0,
/// which would end the body.
pub fn chunk_head(length: usize, out: &mut Vec<u8>) {
    debug_assert!(length > 0);
    let mut digits = [0_u8; 16];
    let mut at = digits.len();
    let mut left = length;
    while left > 0 {
        at -= 1;
        digits[at] = b"0123456789abcdef"[left & 0xf];
        left >>= 4;
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}
