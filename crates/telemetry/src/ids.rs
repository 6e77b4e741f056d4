//! Random ids of requests, traces and spans.

use std::hash::{BuildHasher, RandomState};

/// Returns the id of a client, if it is short and fits into a log line and a field.
pub fn acceptable_id(id: &[u8]) -> Option<&str> {
    let plain = |&b: &u8| b.is_ascii_alphanumeric() || b"-_.:+/=@".contains(&b);
    let good = (1..=128).contains(&id.len()) && id.iter().all(plain);
    std::str::from_utf8(id).ok().filter(|_| good)
}

/// Returns 32 random hexadecimal digits.
pub fn random_id() -> String {
    let mut id = String::with_capacity(32);
    push_hex(random(), &mut id);
    push_hex(random(), &mut id);
    id
}

/// Appends the 16 hexadecimal digits of a number.
pub fn push_hex(number: u64, text: &mut String) {
    let digits: [u8; 16] =
        std::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at) & 15) as usize]);
    text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
}

/// Returns 64 unpredictable bits: SipHash with random keys of the system.
pub fn random() -> u64 {
    // 0 is not a valid id of a trace.
    RandomState::new().hash_one(0_u8).max(1)
}
