//! Names of upstreams in the cookies of clients, which do not reveal addresses.

use std::fmt::Write;

use dunlin_config::Sticky;
use sha2::{Digest, Sha256};

/// Returns the value of the sticky cookie that stands for the upstream `name`: a hash of the name, keyed by the secret
/// (HMAC-SHA-256, RFC 2104) if there is one. Every process with the same secret computes the same value.
pub(crate) fn upstream_token(sticky: Option<&Sticky>, name: &str) -> Box<str> {
    let Some(sticky) = sticky else { return Box::default() };
    let digest = match &sticky.secret {
        Some(secret) => hmac(secret.as_bytes(), name.as_bytes()),
        None => Sha256::digest(name).into(),
    };
    let text = digest.iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    text.into()
}

fn hmac(secret: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let hashed;
    let secret = match secret.len() > BLOCK {
        true => {
            hashed = Sha256::digest(secret);
            &hashed[..]
        }
        false => secret,
    };
    let padded = |pad: u8| {
        let mut key = [pad; BLOCK];
        key.iter_mut().zip(secret).for_each(|(byte, secret)| *byte ^= secret);
        Sha256::new_with_prefix(key)
    };
    let inner = padded(0x36).chain_update(message).finalize();
    padded(0x5c).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_hash_is_that_of_rfc_4231() {
        let short = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
}
