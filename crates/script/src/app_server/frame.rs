//! The frames between a worker thread and an application server: a length, the number of a request, a kind, a
//! payload.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes before the payload.
const HEADER: usize = 9;
/// Largest payload of an application server.
pub(super) const MAX_PAYLOAD: usize = 1 << 20;

/// Payloads up to this size are copied.
const MAX_COPIED: usize = 4 * 1024;

/// Kinds of frames to the application server.
pub(super) const REQUEST: u8 = 1;
pub(super) const REQUEST_WITH_BODY: u8 = 2;
pub(super) const BODY: u8 = 3;
pub(super) const BODY_END: u8 = 4;
/// Allows this number of further bytes of the response.
pub(super) const ROOM: u8 = 5;
/// The client has left.
pub(super) const CANCEL: u8 = 6;
/// A request for a WebSocket. The parts of its body are records, and those of its response, if that switches.
pub(super) const WEBSOCKET: u8 = 7;
/// The server closes the WebSocket, because the application server or the server itself ends.
pub(super) const GOING_AWAY: u8 = 8;

/// A frame from the application server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Part(Bytes),
    /// The end of the response; with a reason if it is incomplete.
    End(Bytes),
    /// The whole response.
    Whole(Bytes),
    /// Allows this number of further bytes of the body.
    Room(usize),
    /// The application is loaded from these files, as NUL-terminated paths. The frame belongs to no request.
    Loaded(Bytes),
}

/// Writes a frame, whose payload `payload` appends.
pub(super) fn write(id: u32, kind: u8, payload: impl FnOnce(&mut Vec<u8>), output: &mut Vec<u8>) {
    let start = output.len();
    output.extend_from_slice(&[0; 4]);
    output.extend_from_slice(&id.to_le_bytes());
    output.push(kind);
    payload(output);
    // The callers' payloads are bounded.
    let length = u32::try_from(output.len() - start - HEADER).unwrap_or(u32::MAX);
    output[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Takes a frame from the front of `bytes`; `None` if it is incomplete.
///
/// # Errors
/// A description of the malformed frame.
pub(super) fn read(bytes: &mut BytesMut) -> Result<Option<(u32, Frame)>, &'static str> {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let &[a, b, c, d, e, f, g, h, kind] = header;
    let id = u32::from_le_bytes([e, f, g, h]);
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MAX_PAYLOAD {
        return Err("a frame is too long");
    }
    if bytes.len() < HEADER + length {
        return Ok(None);
    }
    bytes.advance(HEADER);
    let payload = take(bytes, length);
    let frame = match kind {
        1 => Frame::Part(payload),
        2 => Frame::End(payload),
        3 => Frame::Whole(payload),
        4 => match payload.first_chunk() {
            Some(room) if length == 4 => Frame::Room(u32::from_le_bytes(*room) as usize),
            _ => return Err("a frame is of an unknown kind"),
        },
        5 => Frame::Loaded(payload),
        _ => return Err("a frame is of an unknown kind"),
    };
    Ok(Some((id, frame)))
}

/// Returns the next bytes: a copy if they are few, so that the buffer can be reused; otherwise a part of the buffer.
fn take(bytes: &mut BytesMut, length: usize) -> Bytes {
    if length > MAX_COPIED {
        return bytes.split_to(length).freeze();
    }
    let payload = Bytes::copy_from_slice(&bytes[..length]);
    bytes.advance(length);
    payload
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_frames_are_rejected() {
        for bytes in [&[255_u8; 9][..], &[0, 0, 0, 0, 1, 0, 0, 0, 9], &[0, 0, 0, 0, 1, 0, 0, 0, 4]]
        {
            assert!(read(&mut BytesMut::from(bytes)).is_err());
        }
    }

    proptest! {
        #[test]
        fn frames_are_read_however_they_are_cut(
            parts in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..10),
            cut in 1_usize..30,
        ) {
            let mut all = Vec::new();
            for (id, payload) in &parts {
                write(*id, 1, |output| output.extend_from_slice(payload), &mut all);
            }
            let (mut unread, mut found) = (BytesMut::new(), Vec::new());
            for piece in all.chunks(cut) {
                unread.extend_from_slice(piece);
                while let Ok(Some((id, frame))) = read(&mut unread) {
                    found.push((id, frame));
                }
            }
            let wanted: Vec<_> =
                parts.into_iter().map(|(id, payload)| (id, Frame::Part(payload.into()))).collect();
            prop_assert_eq!(found, wanted);
            prop_assert!(unread.is_empty());
        }
    }
}
