//! Escapes text from clients, so that it cannot end a line or field of the log.

/// Appends `bytes` as a field between double quotes.
///
/// `"`, `\`, control bytes and everything from 0x7F up become `\xHH`, as in nginx and Apache.
pub(super) fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    if is_clean(bytes) {
        out.extend_from_slice(bytes);
    } else {
        escape_text(bytes, out, is_plain);
    }
}

/// Appends `bytes` as a field that ends at a space: like [`quoted`], and spaces become `\x20`.
pub(super) fn bare(bytes: &[u8], out: &mut Vec<u8>) {
    if is_clean_and_unspaced(bytes) {
        out.extend_from_slice(bytes);
    } else {
        escape_text(bytes, out, |byte| is_plain(byte) && byte != b' ');
    }
}

/// Appends the content of a JSON string (RFC 8259 §7), without its quotes.
///
/// UTF-8 is unchanged, except for characters that some readers treat as a line end or that control
/// terminals: control characters, U+2028 and U+2029 are written as `\uHHHH`, which parses to the
/// same text. A byte that is not UTF-8 becomes `\u00HH`, its Latin-1 character, so that the line is
/// always valid JSON.
pub(super) fn json(bytes: &[u8], out: &mut Vec<u8>) {
    if is_clean(bytes) {
        out.extend_from_slice(bytes);
        return;
    }
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            json_character(character, out);
        }
        for &byte in chunk.invalid() {
            json_unit(u16::from(byte), out);
        }
    }
}

fn json_character(character: char, out: &mut Vec<u8>) {
    match character {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
            // All of these are in the Basic Multilingual Plane: one UTF-16 unit each.
            json_unit(character as u32 as u16, out);
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn json_unit(unit: u16, out: &mut Vec<u8>) {
    let digit = |shift: u16| HEX[usize::from((unit >> shift) & 0xf)];
    out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

fn escape_text(bytes: &[u8], out: &mut Vec<u8>, plain: impl Fn(u8) -> bool) {
    for &byte in bytes {
        if plain(byte) {
            out.push(byte);
        } else {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]);
            out.extend_from_slice(&[b'\\', b'x', high, low]);
        }
    }
}

/// Returns `true` if no byte needs an escape, between quotes or in JSON.
fn is_clean(bytes: &[u8]) -> bool {
    all(bytes, is_plain)
}

fn is_clean_and_unspaced(bytes: &[u8]) -> bool {
    all(bytes, |byte| is_plain(byte) & (byte != b' '))
}

/// Returns `true` if `fit` holds for all bytes. Tests a chunk at a time.
///
/// The last chunk overlaps the one before it, so that only very short text is tested byte by byte. A
/// simple loop costs half of the time of a line.
#[inline(always)]
fn all(bytes: &[u8], fit: impl Fn(u8) -> bool) -> bool {
    if let Some(last) = bytes.last_chunk::<16>() {
        let (chunks, _) = bytes.as_chunks::<16>();
        chunks.iter().all(|chunk| all_of_chunk(chunk, &fit)) && all_of_chunk(last, &fit)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        all_of_chunk(first, &fit) & all_of_chunk(last, &fit)
    } else {
        bytes.iter().all(|&byte| fit(byte))
    }
}

/// Tests all bytes without early return, so that the compiler can vectorize the loop.
#[inline(always)]
fn all_of_chunk<const N: usize>(chunk: &[u8; N], fit: impl Fn(u8) -> bool) -> bool {
    chunk.iter().fold(0, |unfit, &byte| unfit | u8::from(!fit(byte))) == 0
}

#[inline(always)]
fn is_plain(byte: u8) -> bool {
    (byte.wrapping_sub(0x20) < 0x5f) & (byte != b'"') & (byte != b'\\')
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn escaped(escape: fn(&[u8], &mut Vec<u8>), bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        escape(bytes, &mut out);
        out
    }

    #[test]
    fn quotes_backslashes_controls_and_high_bytes_are_escaped() {
        assert_eq!(escaped(quoted, b"a \"\\\n\x1b\x7f\xe9~"), b"a \\x22\\x5C\\x0A\\x1B\\x7F\\xE9~");
        assert_eq!(escaped(bare, b"a b"), b"a\\x20b");
        assert_eq!(escaped(json, b"\"\\\n\x01\xe9"), b"\\\"\\\\\\n\\u0001\\u00E9");
        assert_eq!(escaped(json, "é\u{85}\u{2028}".as_bytes()), "é\\u0085\\u2028".as_bytes());
    }

    proptest! {
        #[test]
        fn escaped_text_is_printable_and_decodes_to_the_input(bytes: Vec<u8>) {
            for (escape, spaces) in [(quoted as fn(&[u8], &mut Vec<u8>), true), (bare, false)] {
                let text = escaped(escape, &bytes);
                prop_assert!(text.iter().all(|b| b.is_ascii_graphic() || (spaces && *b == b' ')));
                prop_assert!(!text.contains(&b'"'));
                prop_assert_eq!(unescape(&text), bytes.clone());
            }
        }

        #[test]
        fn json_text_parses_back_to_the_same_text(text: String) {
            let line = [b"\"".as_slice(), &escaped(json, text.as_bytes()), b"\""].concat();
            prop_assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), text);
        }

        #[test]
        fn json_text_of_any_bytes_is_valid(bytes: Vec<u8>) {
            let line = [b"\"".as_slice(), &escaped(json, &bytes), b"\""].concat();
            prop_assert!(serde_json::from_slice::<String>(&line).is_ok());
        }
    }

    fn unescape(text: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), text);
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte == b'\\' {
                let digits = std::str::from_utf8(&tail[1..3]).unwrap();
                out.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &tail[3..];
            } else {
                out.push(byte);
            }
        }
        out
    }
}
