//! What proves access without a file of users: JSON Web Tokens (RFC 7519), their keys (RFC 7517), and signatures of links.
//!
//! # Contract
//! Everything here is a function of its arguments: keys are read from bytes, and the time is passed. No error has a secret or a
//! token in it.

mod algorithm;
mod jwk;
mod key;
mod keys;
mod link;
mod pem;
mod token;

pub use keys::KeySet;
pub use link::{Link, LinkState};
pub use token::{Claims, TokenError, verify};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Decodes base64url without padding (RFC 7515 §2).
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
