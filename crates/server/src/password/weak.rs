//! Passwords as nginx and old versions of Apache accept them: in clear text, and hashed without a cost that would protect them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::{apr1, des_crypt};

/// How a password is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weak {
    /// `{PLAIN}password`
    Plain,
    /// `{SHA}` and the SHA-1 of the password, in Base64.
    Sha1,
    /// `{SSHA}` and the SHA-1 of the password and a salt, with that salt, in Base64.
    SaltedSha1,
    /// `$1$`: the MD5 of crypt.
    Md5,
    /// The DES of crypt.
    Des,
}

/// The length of a SHA-1.
const SHA1: usize = 20;

/// Returns how the password is written; `None` if it is none of these.
pub(super) fn kind(text: &str) -> Option<Weak> {
    if text.starts_with("{PLAIN}") {
        return Some(Weak::Plain);
    }
    if let Some(digest) = text.strip_prefix("{SHA}") {
        return STANDARD
            .decode(digest)
            .is_ok_and(|bytes| bytes.len() == SHA1)
            .then_some(Weak::Sha1);
    }
    if let Some(digest) = text.strip_prefix("{SSHA}") {
        let is_whole = STANDARD.decode(digest).is_ok_and(|bytes| bytes.len() >= SHA1);
        return is_whole.then_some(Weak::SaltedSha1);
    }
    if text.starts_with(apr1::CRYPT) {
        return apr1::salt(apr1::CRYPT, text).map(|_| Weak::Md5);
    }
    des_crypt::is_hash(text).then_some(Weak::Des)
}

/// Returns `true` if `password` is that of the text.
pub(super) fn verify(kind: Weak, password: &[u8], text: &str) -> bool {
    let after = text.split_once('}').map_or("", |(_, after)| after);
    let decoded = || STANDARD.decode(after).unwrap_or_default();
    match kind {
        // Hashes of the same length are compared, whatever the length of the password is.
        Weak::Plain => is_equal(&Sha1::digest(password), &Sha1::digest(after)),
        Weak::Sha1 => is_equal(&Sha1::digest(password), &decoded()),
        Weak::SaltedSha1 => {
            let bytes = decoded();
            let Some((digest, salt)) = bytes.split_at_checked(SHA1) else { return false };
            is_equal(&Sha1::new().chain_update(password).chain_update(salt).finalize(), digest)
        }
        Weak::Md5 => apr1::verify(apr1::CRYPT, password, text),
        Weak::Des => des_crypt::verify(password, text),
    }
}

/// Compares in constant time.
fn is_equal(made: &[u8], wanted: &[u8]) -> bool {
    made.len() == wanted.len()
        && made.iter().zip(wanted).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}
