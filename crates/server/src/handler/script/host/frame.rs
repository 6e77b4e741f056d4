//! The frames between a loop and a host: a length, the number of a request, a kind, a payload.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes before the payload.
const HEADER: usize = 9;
/// A payload of more bytes is no host's.
const MOST: usize = 1 << 20;

/// To the host.
pub(super) const REQUEST: u8 = 1;
pub(super) const REQUEST_WITH_BODY: u8 = 2;
pub(super) const BODY: u8 = 3;
pub(super) const BODY_END: u8 = 4;
/// So many bytes more of the answer may come.
pub(super) const ROOM: u8 = 5;
/// Nobody waits for the answer.
pub(super) const CANCEL: u8 = 6;

/// What a host says of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Part(Bytes),
    /// Its end; with a reason when the answer is not all of it.
    End(Bytes),
    /// All of the answer.
    Whole(Bytes),
    /// So many bytes more of the body may come.
    Room(usize),
}

/// Writes a frame.
pub(super) fn write(id: u32, kind: u8, payload: &[u8], output: &mut Vec<u8>) {
    // The callers' payloads are bounded.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    output.extend_from_slice(&length.to_le_bytes());
    output.extend_from_slice(&id.to_le_bytes());
    output.push(kind);
    output.extend_from_slice(payload);
}

/// Takes a frame from the front of `bytes`; `None` when it is not all there.
///
/// # Errors
/// When it is none.
pub(super) fn read(bytes: &mut BytesMut) -> Result<Option<(u32, Said)>, &'static str> {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let &[a, b, c, d, e, f, g, h, kind] = header;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > MOST {
        return Err("a frame is too long");
    }
    if bytes.len() < HEADER + length {
        return Ok(None);
    }
    let mut payload = bytes.split_to(HEADER + length);
    payload.advance(HEADER);
    let said = match kind {
        1 => Said::Part(payload.freeze()),
        2 => Said::End(payload.freeze()),
        3 => Said::Whole(payload.freeze()),
        4 if length == 4 => Said::Room(payload.get_u32_le() as usize),
        _ => return Err("a frame is of an unknown kind"),
    };
    Ok(Some((u32::from_le_bytes([e, f, g, h]), said)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_frame_is_refused() {
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
                write(*id, 1, payload, &mut all);
            }
            let (mut unread, mut found) = (BytesMut::new(), Vec::new());
            for piece in all.chunks(cut) {
                unread.extend_from_slice(piece);
                while let Ok(Some((id, said))) = read(&mut unread) {
                    found.push((id, said));
                }
            }
            let wanted: Vec<_> =
                parts.into_iter().map(|(id, payload)| (id, Said::Part(payload.into()))).collect();
            prop_assert_eq!(found, wanted);
            prop_assert!(unread.is_empty());
        }
    }
}
