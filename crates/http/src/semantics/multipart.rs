//! Bodies with several ranges: multipart/byteranges (RFC 9110 §14.6).

use super::range::{ByteRange, content_range};

/// The framing of a body with several ranges of a representation.
#[derive(Debug)]
pub struct Multipart<'a> {
    boundary: &'a [u8],
    media_type: &'a str,
    length: u64,
    ranges: &'a [ByteRange],
}

impl<'a> Multipart<'a> {
    /// `boundary` must not occur in the content. `length` is the length of the complete representation.
    pub fn new(
        boundary: &'a [u8],
        media_type: &'a str,
        length: u64,
        ranges: &'a [ByteRange],
    ) -> Self {
        Self { boundary, media_type, length, ranges }
    }

    /// Returns the Content-Type of the response.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", String::from_utf8_lossy(self.boundary))
    }

    /// Returns the ranges, each with the delimiter and fields that precede it.
    pub fn parts(&self) -> impl Iterator<Item = (Vec<u8>, ByteRange)> {
        self.ranges.iter().enumerate().map(|(number, range)| {
            let mut head = Vec::with_capacity(128);
            // The CR LF before a delimiter is part of it, except for the first one.
            head.extend_from_slice(if number == 0 { b"--" } else { b"\r\n--" });
            head.extend_from_slice(self.boundary);
            head.extend_from_slice(b"\r\nContent-Type: ");
            head.extend_from_slice(self.media_type.as_bytes());
            head.extend_from_slice(b"\r\nContent-Range: ");
            head.extend_from_slice(content_range(range, self.length).as_bytes());
            head.extend_from_slice(b"\r\n\r\n");
            (head, *range)
        })
    }

    /// Returns the final delimiter.
    pub fn end(&self) -> Vec<u8> {
        [b"\r\n--", self.boundary, b"--\r\n"].concat()
    }
}
