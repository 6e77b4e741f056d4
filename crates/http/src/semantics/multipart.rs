//! Bodies of several ranges: multipart/byteranges (RFC 9110 §14.6).

use super::range::{ByteRange, content_range};

/// Several ranges of one representation as one body.
#[derive(Debug)]
pub struct Multipart<'a> {
    boundary: &'a [u8],
    media_type: &'a str,
    length: u64,
    ranges: &'a [ByteRange],
}

impl<'a> Multipart<'a> {
    /// `boundary` must not occur in the content; `length` is that of the whole representation.
    pub fn new(
        boundary: &'a [u8],
        media_type: &'a str,
        length: u64,
        ranges: &'a [ByteRange],
    ) -> Self {
        Self { boundary, media_type, length, ranges }
    }

    /// The Content-Type of the response.
    pub fn content_type(&self) -> String {
        format!("multipart/byteranges; boundary={}", String::from_utf8_lossy(self.boundary))
    }

    /// What goes before each range, with the range.
    pub fn parts(&self) -> impl Iterator<Item = (Vec<u8>, ByteRange)> {
        self.ranges.iter().enumerate().map(|(number, range)| {
            let mut head = Vec::with_capacity(128);
            // The CR LF before a delimiter belongs to it; the first stands at the very start.
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

    /// What goes behind the last range.
    pub fn end(&self) -> Vec<u8> {
        [b"\r\n--", self.boundary, b"--\r\n"].concat()
    }
}
