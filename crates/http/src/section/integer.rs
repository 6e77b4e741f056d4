//! Integers with a prefix (RFC 7541 §5.1, RFC 9204 §4.1.1).

use super::MalformedSection;

/// Largest integer of an index or a length that is accepted.
pub(crate) const MAX: u64 = 1 << 24;
/// Largest integer of QPACK: a stream identifier.
pub(crate) const MAX_LONG: u64 = (1 << 62) - 1;

/// Decodes the integer with a prefix of `prefix` bits at `at`, and advances `at` past it.
///
/// # Errors
/// The integer is incomplete or too large.
#[inline]
pub(crate) fn decode(input: &[u8], at: &mut usize, prefix: u8) -> Result<usize, MalformedSection> {
    match read(input, at, prefix, MAX)? {
        Some(value) => Ok(value as usize),
        None => Err(MalformedSection("an integer has no end")),
    }
}

/// Decodes an integer of at most `max`, of which the input may have only a part: `None`, and `at` is unspecified.
///
/// # Errors
/// The integer is too large.
#[inline]
pub(crate) fn read(
    input: &[u8],
    at: &mut usize,
    prefix: u8,
    max: u64,
) -> Result<Option<u64>, MalformedSection> {
    let mask = (1_u64 << prefix) - 1;
    let Some(first) = input.get(*at) else { return Ok(None) };
    let first = u64::from(*first) & mask;
    *at += 1;
    if first < mask {
        return Ok(Some(first));
    }
    let (mut value, mut shift) = (first, 0);
    loop {
        let Some(byte) = input.get(*at) else { return Ok(None) };
        *at += 1;
        value += u64::from(byte & 0x7f) << shift;
        shift += 7;
        if value > max {
            return Err(MalformedSection("an integer is too large"));
        }
        if byte & 0x80 == 0 {
            return Ok(Some(value));
        }
        // A bound on the length, since padding with zeros does not change the value.
        if shift > max.ilog2() {
            return Err(MalformedSection("an integer is too long"));
        }
    }
}

/// Encodes `value` with a prefix of `prefix` bits. `first` holds the other bits of the first byte.
#[inline]
pub(crate) fn encode(value: u64, prefix: u8, first: u8, out: &mut Vec<u8>) {
    let mask = (1_u64 << prefix) - 1;
    if value < mask {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
