//! URLs whose responses proved of no use to other requests, for a while: requests for them do not wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};

/// For how long a mark holds, in milliseconds.
const LIFETIME: u64 = 10_000;
/// The number of marks. A mark replaces another one whose hash is the same modulo this number.
const SLOTS: usize = 4096;
/// The low bits of a slot have the time, the others those of the hash.
const TIME_BITS: u32 = 32;

/// Marked URLs, by their hashes.
#[derive(Debug)]
pub struct UncacheableMarks {
    slots: Box<[AtomicU64]>,
}

impl Default for UncacheableMarks {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl UncacheableMarks {
    /// Marks the URL with that hash at `now`, in milliseconds.
    pub fn set(&self, hash: u64, now: u64) {
        self.slot(hash).store(tag(hash) | end(now), Ordering::Relaxed);
    }

    /// Returns `true` if the URL with that hash is marked at `now`, in milliseconds.
    pub fn has(&self, hash: u64, now: u64) -> bool {
        let found = self.slot(hash).load(Ordering::Relaxed);
        let left = (found as u32).wrapping_sub(now as u32);
        found != 0 && found >> TIME_BITS << TIME_BITS == tag(hash) && u64::from(left) <= LIFETIME
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[hash as usize % SLOTS]
    }
}

fn tag(hash: u64) -> u64 {
    hash >> TIME_BITS << TIME_BITS
}

/// Returns the end of a mark that is set at `now`, in the bits for the time.
fn end(now: u64) -> u64 {
    u64::from((now as u32).wrapping_add(LIFETIME as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_end() {
        let marks = UncacheableMarks::default();
        let hash = 0x1234_5678_9abc_def0;
        for now in [0, 5_000, u64::from(u32::MAX) - 5_000] {
            assert!(!marks.has(hash, now), "{now}");
            marks.set(hash, now);
            assert!(marks.has(hash, now) && marks.has(hash, now + LIFETIME));
            assert!(!marks.has(hash, now + LIFETIME + 1) && !marks.has(hash ^ 1 << 40, now));
            marks.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
        }
    }
}
