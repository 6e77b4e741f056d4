//! Access to the fields of responses.

use dunlin_http::FieldLines;
use smallvec::SmallVec;

/// The values of all lines of a field, in order.
pub(crate) type Values<'a> = SmallVec<[&'a [u8]; 2]>;

/// Returns the values of the field `name`, one for each line.
pub(crate) fn values<'a>(fields: &'a FieldLines, name: &str) -> Values<'a> {
    let is_it = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
    fields.iter().filter(is_it).map(|(_, value)| value).collect()
}

/// Returns a number of seconds (RFC 9111 §1.2.2): digits, which saturate at 2³¹; `None` if malformed.
pub(crate) fn delta_seconds(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |sum: u64, byte: &u8| (sum * 10 + u64::from(byte - b'0')).min(MAX_SECONDS);
    Some(text.iter().fold(0, digit))
}

/// The largest number of seconds; larger ones count as this (RFC 9111 §1.2.2).
pub(crate) const MAX_SECONDS: u64 = 1 << 31;
