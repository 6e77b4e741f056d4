//! Verification of the traditional `crypt` of Unix, which is DES with a salt of twelve bits. It occurs in old password files; the
//! server does not create it.

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

#[rustfmt::skip]
const INITIAL: [u8; 64] = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6, 64, 56, 48, 40, 32, 24, 16, 8,
    57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61, 53, 45, 37, 29, 21, 13, 5, 63, 55, 47, 39, 31, 23, 15, 7,
];
#[rustfmt::skip]
const FINAL: [u8; 64] = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31, 38, 6, 46, 14, 54, 22, 62, 30, 37, 5, 45, 13, 53, 21, 61, 29,
    36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27, 34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41, 9, 49, 17, 57, 25,
];
#[rustfmt::skip]
const EXPANSION: [u8; 48] = [
    32, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9, 8, 9, 10, 11, 12, 13, 12, 13, 14, 15, 16, 17,
    16, 17, 18, 19, 20, 21, 20, 21, 22, 23, 24, 25, 24, 25, 26, 27, 28, 29, 28, 29, 30, 31, 32, 1,
];
#[rustfmt::skip]
const PERMUTATION: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
];
#[rustfmt::skip]
const KEY: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];
#[rustfmt::skip]
const ROUND_KEY: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];
const SHIFTS: [usize; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];
#[rustfmt::skip]
const BOXES: [[u8; 64]; 8] = [
    [14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
     4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13],
    [15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
     0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9],
    [10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
     13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12],
    [7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
     10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14],
    [2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
     4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3],
    [12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
     9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13],
    [4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
     1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12],
    [13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
     7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11],
];

/// Returns `true` if the text has the form of such a hash.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == 13 && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

/// Returns `true` if `password` has that hash. Only its first eight characters count.
pub(super) fn verify(password: &[u8], hash: &str) -> bool {
    let salt = hash.as_bytes().get(..2).unwrap_or_default();
    let made = encode(password, salt);
    let wanted = hash.as_bytes().get(2..).unwrap_or_default();
    // Compare in constant time.
    wanted.len() == made.len()
        && made.iter().zip(wanted).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

fn permuted<const N: usize>(bits: &[bool], table: &[u8; N]) -> [bool; N] {
    table.map(|at| bits[usize::from(at) - 1])
}

fn encode(password: &[u8], salt: &[u8]) -> Vec<u8> {
    let mut key = [false; 64];
    for (at, byte) in password.iter().take(8).enumerate() {
        (0..7).for_each(|bit| key[at * 8 + bit] = byte >> (6 - bit) & 1 == 1);
    }
    let keys = round_keys(&key);
    // Each bit of the salt swaps two entries of the expansion.
    let mut expansion = EXPANSION;
    for (at, letter) in salt.iter().enumerate() {
        let value = ALPHABET.iter().position(|other| other == letter).unwrap_or_default();
        for bit in (0..6).filter(|bit| value >> bit & 1 == 1) {
            expansion.swap(at * 6 + bit, at * 6 + bit + 24);
        }
    }
    let mut block = [false; 64];
    for _ in 0..25 {
        block = encrypted(&block, &keys, &expansion);
    }
    // Eleven groups of six bits, the last one with two zeros.
    let bit = |at: usize| block.get(at).copied().unwrap_or_default();
    let letter = |group: usize| {
        let value = (0..6).fold(0, |value, at| value << 1 | usize::from(bit(group * 6 + at)));
        ALPHABET[value]
    };
    (0..11).map(letter).collect()
}

fn round_keys(key: &[bool; 64]) -> [[bool; 48]; 16] {
    let mut halves = permuted(key, &KEY);
    SHIFTS.map(|shift| {
        halves[..28].rotate_left(shift);
        halves[28..].rotate_left(shift);
        permuted(&halves, &ROUND_KEY)
    })
}

fn encrypted(block: &[bool; 64], keys: &[[bool; 48]; 16], expansion: &[u8; 48]) -> [bool; 64] {
    let block = permuted(block, &INITIAL);
    let (mut left, mut right) = ([false; 32], [false; 32]);
    left.copy_from_slice(&block[..32]);
    right.copy_from_slice(&block[32..]);
    for key in keys {
        let mut mixed = permuted(&right, expansion);
        mixed.iter_mut().zip(key).for_each(|(bit, key)| *bit ^= key);
        let mut next = permuted(&substituted(&mixed), &PERMUTATION);
        next.iter_mut().zip(left).for_each(|(bit, left)| *bit ^= left);
        (left, right) = (right, next);
    }
    let mut swapped = [false; 64];
    swapped[..32].copy_from_slice(&right);
    swapped[32..].copy_from_slice(&left);
    permuted(&swapped, &FINAL)
}

fn substituted(bits: &[bool; 48]) -> [bool; 32] {
    let mut result = [false; 32];
    for (at, (six, table)) in bits.chunks_exact(6).zip(&BOXES).enumerate() {
        let value = |places: &[usize]| {
            places.iter().fold(0, |value, place| value << 1 | usize::from(six[*place]))
        };
        let found = table[value(&[0, 5]) * 16 + value(&[1, 2, 3, 4])];
        (0..4).for_each(|bit| result[at * 4 + bit] = found >> (3 - bit) & 1 == 1);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_the_c_library_are_verified() {
        for (hash, password) in [
            ("sa3tHJ3/KuYvI", "password"),
            ("rqkgm0IXRZd2Y", "secret"),
            ("abmF1QH4PEr.E", ""),
            ("./55U6dQC81Cw", "longer password"),
        ] {
            assert!(is_hash(hash) && verify(password.as_bytes(), hash), "{hash}");
            assert!(!verify(b"wrong", hash), "{hash}");
        }
        assert!(!is_hash("secret") && !verify(b"x", "a"));
    }
}
