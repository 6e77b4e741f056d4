//! Packets without the padding at their end.
//!
//! quinn-proto reads PADDING frames one byte at a time, and some clients pad every packet to the size of a datagram, which
//! costs more than all else that such a packet needs. The padding is removed when the packet is decrypted.

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};

/// The key of received packets, which removes the padding at their end.
pub(super) struct WithoutPadding<K>(pub(super) K);

/// Padding of less bytes stays.
const LEAST: usize = 32;

impl<K: PacketKey> PacketKey for WithoutPadding<K> {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.0.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        PacketKey::decrypt(&self.0, packet, header, payload)?;
        if payload.ends_with(&[0; LEAST])
            && let Some(end) = padding_start(payload)
        {
            // A packet without a frame is an error (RFC 9000 §12.4), a packet of padding is none.
            payload.truncate(end.max(1));
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        PacketKey::tag_len(&self.0)
    }

    fn confidentiality_limit(&self) -> u64 {
        PacketKey::confidentiality_limit(&self.0)
    }

    fn integrity_limit(&self) -> u64 {
        PacketKey::integrity_limit(&self.0)
    }
}

/// Returns where the padding at the end of the frames begins; `None` if they end with another frame, or if one of them is
/// unknown or malformed.
fn padding_start(payload: &[u8]) -> Option<usize> {
    let mut frames = Frames { payload, at: 0 };
    loop {
        let start = frames.at;
        match frames.varint()? {
            0 => {
                let length = payload[start..].iter().take_while(|byte| **byte == 0).count();
                if start + length == payload.len() {
                    return Some(start);
                }
                frames.at = start + length;
            }
            kind => frames.skip(kind)?,
        }
    }
}

/// A walk over the frames of a packet (RFC 9000 §19).
struct Frames<'a> {
    payload: &'a [u8],
    at: usize,
}

impl Frames<'_> {
    /// Moves behind the frame whose type was read. `None` if it is malformed, unknown, or takes the rest of the packet.
    fn skip(&mut self, kind: u64) -> Option<()> {
        match kind {
            // PING, HANDSHAKE_DONE, IMMEDIATE_ACK
            0x01 | 0x1e | 0x1f => Some(()),
            0x02 | 0x03 => self.skip_ack(kind == 0x03),
            // RESET_STREAM
            0x04 => self.varints(3),
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED
            0x05 | 0x11 | 0x15 => self.varints(2),
            // CRYPTO
            0x06 => {
                self.varint()?;
                self.counted()
            }
            // NEW_TOKEN
            0x07 => self.counted(),
            // STREAM
            0x08..=0x0f => {
                self.varints(1 + usize::from(kind & 0x04 != 0))?;
                if kind & 0x02 == 0 {
                    return None;
                }
                self.counted()
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => self.varints(1),
            // NEW_CONNECTION_ID
            0x18 => {
                self.varints(2)?;
                let length = *self.payload.get(self.at)?;
                self.bytes(1 + u64::from(length) + 16)
            }
            // PATH_CHALLENGE, PATH_RESPONSE
            0x1a | 0x1b => self.bytes(8),
            // CONNECTION_CLOSE of the transport and of the application
            0x1c => {
                self.varints(2)?;
                self.counted()
            }
            0x1d => {
                self.varint()?;
                self.counted()
            }
            // ACK_FREQUENCY
            0xaf => self.varints(4),
            _ => None,
        }
    }

    fn skip_ack(&mut self, has_ecn: bool) -> Option<()> {
        self.varints(2)?;
        let ranges = usize::try_from(self.varint()?).ok()?;
        // Each has at least two bytes.
        if ranges > self.payload.len() {
            return None;
        }
        self.varints(1 + 2 * ranges + if has_ecn { 3 } else { 0 })
    }

    /// Reads an integer of variable length (RFC 9000 §16).
    fn varint(&mut self) -> Option<u64> {
        let first = *self.payload.get(self.at)?;
        let length = 1 << (first >> 6);
        let bytes = self.payload.get(self.at + 1..self.at + length)?;
        self.at += length;
        Some(
            bytes.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)),
        )
    }

    fn varints(&mut self, count: usize) -> Option<()> {
        (0..count).try_for_each(|_| self.varint().map(drop))
    }

    /// Moves behind a length and as many bytes.
    fn counted(&mut self) -> Option<()> {
        let length = self.varint()?;
        self.bytes(length)
    }

    fn bytes(&mut self, count: u64) -> Option<()> {
        let left = self.payload.len() - self.at;
        self.at += usize::try_from(count).ok().filter(|count| *count <= left)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The frames of a packet that a client sends, without padding.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let frame = prop_oneof![
            Just(vec![1]),
            // ACK of 9, delay 1, one range.
            Just(vec![2, 9, 1, 1, 0, 0, 0]),
            Just(vec![3, 9, 1, 0, 0, 1, 0, 0]),
            Just(vec![4, 0, 0x40, 0, 0]),
            Just(vec![5, 0, 0]),
            Just(vec![0x10, 0x80, 0, 0, 0]),
            Just(vec![0x19, 0]),
            Just(vec![0x1a, 0, 0, 0, 0, 0, 0, 0, 0]),
            Just(vec![0x1c, 0, 0, 2, 0, 0]),
            Just(vec![0x1d, 0, 1, 0]),
            Just(vec![0x40, 0xaf, 0, 0, 0, 0]),
            proptest::collection::vec(0..2u8, 0..40).prop_map(|data| {
                let mut frame = vec![0x0e, 0, 0, data.len() as u8];
                frame.extend(data);
                frame
            }),
            proptest::collection::vec(0..2u8, 0..40).prop_map(|data| {
                let mut frame = vec![6, 0, data.len() as u8];
                frame.extend(data);
                frame
            }),
            proptest::collection::vec(0..2u8, 1..20).prop_map(|id| {
                let mut frame = vec![0x18, 2, 0, id.len() as u8];
                frame.extend(id);
                frame.extend([0; 16]);
                frame
            }),
        ];
        proptest::collection::vec(frame, 1..6).prop_map(|frames| frames.concat())
    }

    proptest! {
        #[test]
        fn padding_begins_behind_the_last_frame(frames in frames(), length in 1..100usize) {
            let mut payload = frames.clone();
            payload.extend(vec![0; length]);
            prop_assert_eq!(padding_start(&payload), Some(frames.len()));
        }

        #[test]
        fn frames_without_padding_have_none(frames in frames()) {
            prop_assert_eq!(padding_start(&frames), None);
        }

        #[test]
        fn any_bytes_are_walked(payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Some(start) = padding_start(&payload) {
                prop_assert!(payload[start..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn zeros_of_a_stream_that_ends_with_its_packet_are_data() {
        let mut payload = vec![0x08, 0];
        payload.extend([0; 50]);
        assert_eq!(padding_start(&payload), None);
    }

    #[test]
    fn padding_between_frames_is_no_end() {
        let mut payload = vec![0; 50];
        payload.push(1);
        assert_eq!(padding_start(&payload), None);
        payload.extend([0; 9]);
        assert_eq!(padding_start(&payload), Some(51));
    }
}
