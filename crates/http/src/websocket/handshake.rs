//! The opening handshake (RFC 6455 §4). Over HTTP/2 it has no key (RFC 8441 §5).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// The only version of the protocol, the value of `Sec-WebSocket-Version`.
pub const VERSION: &str = "13";

/// The text that is hashed together with the key (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a decoded key.
const KEY: usize = 16;

/// Returns the value of `Sec-WebSocket-Key` for 16 bytes, which are random for each handshake.
pub fn key(nonce: [u8; KEY]) -> String {
    STANDARD.encode(nonce)
}

/// Returns `true` if a value of `Sec-WebSocket-Key` is well-formed: 16 bytes in base64.
pub fn is_key(value: &[u8]) -> bool {
    STANDARD.decode(value).is_ok_and(|bytes| bytes.len() == KEY)
}

/// Returns the value of `Sec-WebSocket-Accept` in the response to a request with this key.
pub fn accept(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_met() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(key(*b"the sample nonce"), "dGhlIHNhbXBsZSBub25jZQ==");
    }

    #[test]
    fn a_key_has_16_bytes() {
        assert!(is_key(b"dGhlIHNhbXBsZSBub25jZQ=="));
        for value in [&b""[..], b"x", b"dGhlIHNhbXBsZSBub25j", b"dGhlIHNhbXBsZSBub25jZQ"] {
            assert!(!is_key(value));
        }
    }
}
