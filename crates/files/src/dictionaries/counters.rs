//! Counters of responses with dictionaries.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start.
#[derive(Debug, Default)]
pub struct DictionaryCounters {
    /// Responses that were compressed with a dictionary.
    pub responses: AtomicU64,
    /// Bytes of the files of these responses.
    pub plain_bytes: AtomicU64,
    /// Bytes of their bodies.
    pub coded_bytes: AtomicU64,
}

impl DictionaryCounters {
    /// Counts a response.
    pub fn count(&self, plain: u64, coded: u64) {
        self.responses.fetch_add(1, Ordering::Relaxed);
        self.plain_bytes.fetch_add(plain, Ordering::Relaxed);
        self.coded_bytes.fetch_add(coded, Ordering::Relaxed);
    }
}
