//! Integers with a prefix (RFC 7541 §5.1).

use super::MalformedSection;

/// Largest integer that is accepted.
const MAX: u32 = 1 << 24;

/// Decodes the integer with a prefix of `prefix` bits at `at`, and advances `at` past it.
///
/// # Errors
/// The integer is incomplete or too large.
#[inline]
pub(super) fn decode(input: &[u8], at: &mut usize, prefix: u8) -> Result<usize, MalformedSection> {
    let mask = (1_u16 << prefix) as u32 - 1;
    let first = u32::from(*input.get(*at).ok_or(MalformedSection("an integer is missing"))?) & mask;
    *at += 1;
    if first < mask {
        return Ok(first as usize);
    }
    let (mut value, mut shift) = (first, 0);
    loop {
        let byte = *input.get(*at).ok_or(MalformedSection("an integer has no end"))?;
        *at += 1;
        value += u32::from(byte & 0x7f) << shift;
        shift += 7;
        if value > MAX {
            return Err(MalformedSection("an integer is too large"));
        }
        if byte & 0x80 == 0 {
            return Ok(value as usize);
        }
        // A bound on the length, since padding with zeros does not change the value.
        if shift > 21 {
            return Err(MalformedSection("an integer is too long"));
        }
    }
}

/// Encodes `value` with a prefix of `prefix` bits. `first` holds the other bits of the first byte.
#[inline]
pub(super) fn encode(value: usize, prefix: u8, first: u8, out: &mut Vec<u8>) {
    let mask = (1_usize << prefix) - 1;
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
