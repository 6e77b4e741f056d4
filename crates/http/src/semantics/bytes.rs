//! Sets of bytes as tables, and searches of short texts: of eight bytes at a time, which is done before `memchr` has begun.

/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGHEST: u64 = 0x8080_8080_8080_8080;
/// Bytes after which a text is no longer a short one.
const SHORT: usize = 64;

/// Returns the offset of the first such byte in a text that is probably short, such as the lines of a head.
#[inline]
pub(crate) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) {
        if at >= SHORT {
            return memchr::memchr(byte, &text[at..]).map(|offset| at + offset);
        }
        let found = zeros(u64::from_le_bytes(*word) ^ (ONES * u64::from(byte)));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let offset = text[at..].iter().position(|&other| other == byte);
    offset.map(|offset| at + offset)
}

/// Returns the offset of the first control character but tab.
#[inline]
pub(crate) fn find_control(text: &[u8]) -> Option<usize> {
    let is_control = |byte: u8| (byte < 0x20) & (byte != b'\t') | (byte == 0x7f);
    let mut at = 0;
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*word);
        let below_space = word.wrapping_sub(ONES * 0x20) & !word & HIGHEST;
        // Each may name bytes above the first one that is meant.
        let found = below_space | zeros(word ^ (ONES * 0x7f));
        if found == 0 {
            at += 8;
            continue;
        }
        let first = at + found.trailing_zeros() as usize / 8;
        if text[first] != b'\t' {
            return Some(first);
        }
        at = first + 1;
    }
    let offset = text[at..].iter().position(|&byte| is_control(byte));
    offset.map(|offset| at + offset)
}

/// Returns `true` if a text has no control character but tab.
#[inline]
pub(super) fn has_no_controls(text: &[u8]) -> bool {
    find_control(text).is_none()
}

/// Returns a word whose lowest bit is in the first byte of `word` that is zero; 0 if none is.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHEST
}

/// Returns the set of letters, digits and `others`.
pub(super) const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts in which the bytes that matter, and those beside them, are frequent.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            any::<u8>(),
            prop::sample::select(&b"\0\x01\x08\t\n\x1f !:\x7e\x7f\x80\xff"[..]),
            32_u8..127,
        ];
        prop::collection::vec(byte, 0..200)
    }

    proptest! {
        #[test]
        fn the_first_byte_is_found(text in text(), byte in any::<u8>()) {
            for byte in [byte, b'\n', b':', 0, 0x80, 0xff] {
                prop_assert_eq!(find(byte, &text), text.iter().position(|&other| other == byte));
            }
        }

        #[test]
        fn controls_are_found(text in text()) {
            let is_control = |byte: &u8| matches!(byte, 0..=8 | 10..=31 | 127);
            prop_assert_eq!(find_control(&text), text.iter().position(is_control));
            let good: Vec<u8> = text.into_iter().filter(|byte| !is_control(byte)).collect();
            prop_assert!(has_no_controls(&good));
        }
    }
}
