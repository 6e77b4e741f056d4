//! Messages on their way to and from an application server: a kind, a length of four bytes (little-endian), a payload.

use bytes::{Buf, BytesMut};

/// A part of a text; its end follows.
pub(super) const TEXT_PART: u8 = 1;
/// A text, or its end.
pub(super) const TEXT: u8 = 2;
/// A part of a message of bytes; its end follows.
pub(super) const BYTES_PART: u8 = 3;
/// A message of bytes, or its end.
pub(super) const BYTES: u8 = 4;
/// The end of the WebSocket: the code (two bytes, little-endian) and the reason.
pub(super) const CLOSE: u8 = 5;

/// Bytes before the payload.
const HEADER: usize = 5;
/// Largest payload of an application server.
const MAX: usize = 1 << 20;

/// Appends a record.
pub(super) fn write(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    // A payload is a part of what one read has brought.
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
}

/// Appends the end of a WebSocket.
pub(super) fn write_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    write(CLOSE, &[&code.to_le_bytes(), reason.as_bytes()].concat(), out);
}

/// Takes a record from the front; `None` if it is incomplete.
///
/// # Errors
/// It is malformed.
pub(super) fn read(bytes: &mut BytesMut) -> Result<Option<(u8, BytesMut)>, ()> {
    let Some(&[kind, a, b, c, d]) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if !(TEXT_PART..=CLOSE).contains(&kind) || length > MAX || kind == CLOSE && length < 2 {
        return Err(());
    }
    if bytes.len() < HEADER + length {
        return Ok(None);
    }
    bytes.advance(HEADER);
    Ok(Some((kind, bytes.split_to(length))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_however_they_are_cut() {
        let mut all = Vec::new();
        write(TEXT, b"text", &mut all);
        write(BYTES_PART, b"", &mut all);
        write_close(1000, "bye", &mut all);
        for size in 1..all.len() {
            let (mut bytes, mut found) = (BytesMut::new(), Vec::new());
            for part in all.chunks(size) {
                bytes.extend_from_slice(part);
                while let Ok(Some((kind, payload))) = read(&mut bytes) {
                    found.push((kind, payload.to_vec()));
                }
            }
            let close = b"\xe8\x03bye".to_vec();
            assert_eq!(found, [(TEXT, b"text".to_vec()), (BYTES_PART, vec![]), (CLOSE, close)]);
        }
        for wrong in [&[0, 0, 0, 0, 0][..], &[6, 0, 0, 0, 0], &[1, 0, 0, 0, 1], &[5, 1, 0, 0, 0]] {
            assert_eq!(read(&mut BytesMut::from(wrong)), Err(()));
        }
    }
}
