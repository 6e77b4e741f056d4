//! Digests of representations (RFC 9530).

use super::list::{members, split};

/// Returns `true` if Want-Repr-Digest requests SHA-256: a preference of 1 to 10.
pub fn wants_sha256(values: &[&[u8]]) -> bool {
    members(values).any(|member| {
        let item = split(member, b';').next().unwrap_or_default();
        match item.strip_prefix(b"sha-256=") {
            Some([digit @ b'1'..=b'9']) => digit.is_ascii_digit(),
            Some(weight) => weight == b"10",
            None => false,
        }
    })
}

/// Returns the value of Repr-Digest for a SHA-256 hash.
pub fn repr_digest(sha256: &[u8; 32]) -> String {
    format!("sha-256=:{}:", base64(sha256))
}

/// Encodes in Base64 (RFC 4648 §4).
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, &b| word << 8 | u32::from(b))
            << (8 * (3 - chunk.len()));
        for at in 0..4 {
            if at <= chunk.len() {
                text.push(ALPHABET[(word >> (18 - 6 * at)) as usize & 63] as char);
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_sent_to_those_who_want_it() {
        for (value, expected) in [
            ("sha-256=1", true),
            ("sha-512=3, sha-256=10, unixsum=0", true),
            ("sha-256=0", false),
            ("sha-256=11", false),
            ("sha-256", false),
            ("sha-512=1", false),
            ("", false),
        ] {
            assert_eq!(wants_sha256(&[value.as_bytes()]), expected, "{value}");
        }
    }

    #[test]
    fn base64_as_in_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
