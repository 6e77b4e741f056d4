//! Verification of Apache's MD5 hash (`$apr1$`, `apr_md5_encode` of the Apache Portable Runtime), and of FreeBSD's MD5-crypt
//! (`$1$`), of which it is a variant. They occur in old files; the server does not create them.

use md5::{Digest, Md5};

/// The beginning of Apache's hashes.
pub(super) const APACHE: &str = "$apr1$";
/// The beginning of the hashes of crypt.
pub(super) const CRYPT: &str = "$1$";
const ROUNDS: usize = 1000;
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns the salt of a hash; `None` if the hash is malformed.
pub(super) fn salt<'a>(magic: &str, hash: &'a str) -> Option<&'a str> {
    let (salt, digest) = hash.strip_prefix(magic)?.split_once('$')?;
    let is_digest = digest.len() == 22 && digest.bytes().all(|byte| ALPHABET.contains(&byte));
    (is_digest && salt.len() <= 8).then_some(salt)
}

/// Returns `true` if `password` has that hash.
pub(super) fn verify(magic: &str, password: &[u8], hash: &str) -> bool {
    let Some(salt) = salt(magic, hash) else { return false };
    let made = encode(magic, password, salt.as_bytes());
    let wanted = &hash.as_bytes()[magic.len() + salt.len() + 1..];
    // Compare in constant time.
    made.iter().zip(wanted).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

fn encode(magic: &str, password: &[u8], salt: &[u8]) -> Vec<u8> {
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password);
    let inner = inner.finalize();
    let mut outer = Md5::new();
    outer.update(password);
    outer.update(magic);
    outer.update(salt);
    for piece in password.chunks(16) {
        outer.update(&inner[..piece.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        outer.update(if bits & 1 == 1 { [0] } else { [password[0]] });
        bits >>= 1;
    }
    let mut digest = outer.finalize();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        if round % 2 == 1 {
            next.update(password);
        } else {
            next.update(digest);
        }
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        if round % 2 == 1 {
            next.update(digest);
        } else {
            next.update(password);
        }
        digest = next.finalize();
    }
    let mut text = Vec::with_capacity(22);
    for (a, b, c) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        let group = u32::from(digest[a]) << 16 | u32::from(digest[b]) << 8 | u32::from(digest[c]);
        append(group, 4, &mut text);
    }
    append(u32::from(digest[11]), 2, &mut text);
    text
}

/// Encodes six bits per character, lowest first.
fn append(mut group: u32, letters: usize, text: &mut Vec<u8>) {
    for _ in 0..letters {
        text.push(ALPHABET[(group & 63) as usize]);
        group >>= 6;
    }
}
