//! The operation, which all forms have in common: it returns what it was sent, and two times.

use std::time::{SystemTime, UNIX_EPOCH};

/// The result.
pub struct Reply {
    /// When the work began, in microseconds since 1970.
    pub start: u64,
    /// When the work ended.
    pub stop: u64,
    pub payload: String,
}

/// Returns the operation itself. `decode` gives what was sent.
pub fn echo(decode: impl FnOnce() -> String) -> Reply {
    let start = now();
    let payload = decode();
    Reply { start, stop: now(), payload }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
