//! Parts of bodies that are sent from where they are in memory, between the bytes of a buffer.

use std::io::IoSlice;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_tls::Transport;

/// The parts of bodies among the bytes that wait to be written.
#[derive(Default)]
pub(super) struct Slices {
    /// Each with the offset in the buffer at which it stands, in order.
    parts: Vec<(usize, Bytes)>,
    /// Bytes in all of them.
    length: usize,
}

impl Slices {
    pub(super) fn push(&mut self, offset: usize, part: Bytes) {
        self.length += part.len();
        self.parts.push((offset, part));
    }

    /// Returns the number of bytes of all parts.
    #[inline]
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Writes the bytes of `out` with the parts between them, until the socket has all. Advances `at`.
    pub(super) fn poll_send(
        &self,
        stream: &mut Transport,
        cx: &mut Context<'_>,
        out: &[u8],
        at: &mut usize,
    ) -> Poll<std::io::Result<()>> {
        if self.parts.is_empty() {
            return stream.poll_send(cx, out, at);
        }
        let mut slices = Vec::with_capacity(2 * self.parts.len() + 1);
        let mut from = 0;
        for (offset, part) in &self.parts {
            slices.push(IoSlice::new(&out[from..*offset]));
            slices.push(IoSlice::new(part));
            from = *offset;
        }
        slices.push(IoSlice::new(&out[from..]));
        stream.poll_send_slices(cx, &mut slices, at)
    }

    /// Removes the first `at` of all bytes, and copies the parts to where they stand in `out`.
    pub(super) fn flatten(&mut self, out: &mut Vec<u8>, at: usize) {
        if self.parts.is_empty() {
            out.drain(..at);
            return;
        }
        let mut all = Vec::with_capacity(out.len() + self.length - at);
        let (mut from, mut skipped) = (0, at);
        let mut append = |bytes: &[u8]| {
            let skip = skipped.min(bytes.len());
            skipped -= skip;
            all.extend_from_slice(&bytes[skip..]);
        };
        for (offset, part) in self.parts.drain(..) {
            append(&out[from..offset]);
            append(&part);
            from = offset;
        }
        append(&out[from..]);
        (*out, self.length) = (all, 0);
    }

    /// Drops all parts: their bytes were written.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_copied_to_where_they_stand() {
        let whole = b"head-BODY-next-OTHERend";
        for at in 0..=whole.len() {
            let mut slices = Slices::default();
            let mut out = b"head--next-end".to_vec();
            slices.push(5, Bytes::from_static(b"BODY"));
            slices.push(11, Bytes::from_static(b"OTHER"));
            assert_eq!(out.len() + slices.length(), whole.len());
            slices.flatten(&mut out, at);
            assert_eq!((&*out, slices.length()), (&whole[at..], 0));
        }
    }
}
