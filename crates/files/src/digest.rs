//! Digests of content.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of content.
pub(crate) fn sha256(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}
