//! Field sections as frames (RFC 9113 §6.2, §6.10).

use crate::http2::frame::{FrameHeader, flag, kind};

/// Appends a block as a HEADERS frame, and CONTINUATION frames if it is larger than one frame may be.
pub(super) fn write_block(stream: u32, block: &[u8], is_end: bool, max: usize, out: &mut Vec<u8>) {
    let mut parts = block.chunks(max).peekable();
    let first = parts.next().unwrap_or_default();
    let end_stream = if is_end { flag::END_STREAM } else { 0 };
    let end = |is_last: bool| if is_last { flag::END_HEADERS } else { 0 };
    let flags = end_stream | end(parts.peek().is_none());
    FrameHeader { length: first.len(), kind: kind::HEADERS, flags, stream }.write(out);
    out.extend_from_slice(first);
    while let Some(part) = parts.next() {
        let flags = end(parts.peek().is_none());
        FrameHeader { length: part.len(), kind: kind::CONTINUATION, flags, stream }.write(out);
        out.extend_from_slice(part);
    }
}
