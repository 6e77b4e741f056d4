//! Writing what clients sent so that it can neither end a line nor a field.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// For the text formats: quotes, backslashes, control characters and everything beyond ASCII
/// become `\xHH`.
pub(super) fn text(value: &[u8], out: &mut Vec<u8>) {
    let mut clean = 0;
    for (at, &byte) in value.iter().enumerate() {
        if matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&value[clean..at]);
        out.extend_from_slice(&[b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        clean = at + 1;
    }
    out.extend_from_slice(&value[clean..]);
}

/// The inside of a JSON string. Bytes that are not UTF-8 become `\u00HH`.
pub(super) fn json(value: &[u8], out: &mut Vec<u8>) {
    for chunk in value.utf8_chunks() {
        let valid = chunk.valid().as_bytes();
        let mut clean = 0;
        for (at, &byte) in valid.iter().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' && byte != 0x7f {
                continue;
            }
            out.extend_from_slice(&valid[clean..at]);
            json_byte(byte, out);
            clean = at + 1;
        }
        out.extend_from_slice(&valid[clean..]);
        for &byte in chunk.invalid() {
            json_byte(byte, out);
        }
    }
}

fn json_byte(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        byte => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}
