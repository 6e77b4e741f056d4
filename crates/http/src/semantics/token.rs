//! Tokens and field values (RFC 9110 §5.5, §5.6.2).

use super::bytes::{alphanumeric_and, has_no_controls};

const TCHAR: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");

/// Returns `true` if the text is a token: one or more token characters.
#[inline]
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&b| TCHAR[usize::from(b)])
}

/// Returns `true` if the byte is a token character.
#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TCHAR[usize::from(byte)]
}

/// Returns the number of token characters at the start of the text.
#[inline]
pub(crate) fn token_length(text: &[u8]) -> usize {
    text.iter().position(|&b| !TCHAR[usize::from(b)]).unwrap_or(text.len())
}

/// Returns `true` if the text is valid in a field value: no control character but tab.
#[inline]
pub fn is_field_value(text: &[u8]) -> bool {
    has_no_controls(text)
}
