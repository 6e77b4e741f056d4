//! Strings, which may be Huffman-coded (RFC 7541 §5.2, RFC 9204 §4.1.2).

use super::{MalformedSection, huffman, integer};

/// A string as it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentString<'a> {
    bytes: &'a [u8],
    is_coded: bool,
}

impl SentString<'_> {
    /// Appends the decoded string to `text`.
    ///
    /// # Errors
    /// The coding is malformed.
    pub(crate) fn append_to(self, text: &mut Vec<u8>) -> Result<(), MalformedSection> {
        if self.is_coded {
            huffman::decode(self.bytes, text)
        } else {
            text.extend_from_slice(self.bytes);
            Ok(())
        }
    }
}

/// Reads the string at `at` whose length has a prefix of `prefix` bits below the bit of the coding, and advances `at` past it.
/// `None` if the input has only a part of it; `at` is unspecified then.
///
/// # Errors
/// The string takes more than `max` bytes.
#[inline]
pub(crate) fn read<'a>(
    block: &'a [u8],
    at: &mut usize,
    prefix: u8,
    max: usize,
) -> Result<Option<SentString<'a>>, MalformedSection> {
    let is_coded = block.get(*at).is_some_and(|first| first >> prefix & 1 != 0);
    let Some(length) = integer::read(block, at, prefix, integer::MAX)? else { return Ok(None) };
    let length = length as usize;
    if length > max {
        return Err(MalformedSection("a string is larger than the limit"));
    }
    let Some(bytes) = block.get(*at..*at + length) else { return Ok(None) };
    *at += length;
    Ok(Some(SentString { bytes, is_coded }))
}

/// Decodes the string at `at`, appends it to `text`, and advances `at` past it.
///
/// # Errors
/// The string is incomplete, or its coding is malformed.
#[inline]
pub(crate) fn decode(
    block: &[u8],
    at: &mut usize,
    prefix: u8,
    text: &mut Vec<u8>,
) -> Result<(), MalformedSection> {
    match read(block, at, prefix, usize::MAX)? {
        Some(string) => string.append_to(text),
        None => Err(MalformedSection("a string has no end")),
    }
}

/// Encodes `text` in the shorter way. `first` holds the bits of the first byte that precede the bit of the coding.
pub(crate) fn encode(text: &[u8], prefix: u8, first: u8, out: &mut Vec<u8>) {
    let coded = huffman::encoded_length(text);
    if coded <= text.len() {
        integer::encode(coded as u64, prefix, first | 1 << prefix, out);
        huffman::encode(text, out);
    } else {
        integer::encode(text.len() as u64, prefix, first, out);
        out.extend_from_slice(text);
    }
}
