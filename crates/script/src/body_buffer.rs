//! The part of a body that was received.

use bytes::{Buf, Bytes};

/// A response that ends within this size is buffered.
pub(super) const MAX_BUFFERED: usize = 128 * 1024;
/// Parts of a body up to this size are joined.
pub(super) const MAX_JOINED: usize = 8 * 1024;

/// The received part of a body, in the pieces in which it was received.
#[derive(Debug, Default)]
pub(super) struct BodyBuffer {
    pub(super) pieces: Vec<Bytes>,
    pub(super) length: usize,
}

impl BodyBuffer {
    pub(super) fn add(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        match self.pieces.last_mut() {
            _ if bytes.is_empty() => {}
            Some(last) if last.len() + bytes.len() <= MAX_JOINED => join(last, &bytes),
            _ => self.pieces.push(bytes),
        }
    }

    pub(super) fn truncate(&mut self, length: usize) {
        let mut left = length.min(self.length);
        self.length = left;
        for piece in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
        self.pieces.retain(|piece| !piece.is_empty());
    }

    /// Drops `count` bytes of the first piece.
    pub(super) fn skip(&mut self, count: usize) {
        if let Some(first) = self.pieces.first_mut() {
            first.advance(count);
            self.length -= count;
            if first.is_empty() {
                self.pieces.remove(0);
            }
        }
    }
}

/// Appends `more` to `first`.
pub(super) fn join(first: &mut Bytes, more: &[u8]) {
    let mut joined = Vec::from(std::mem::take(first));
    joined.extend_from_slice(more);
    *first = joined.into();
}
