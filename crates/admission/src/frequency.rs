//! An estimate of how often keys were used: the count-min sketch of TinyLFU.
//!
//! G. Einziger, R. Friedman, B. Manes: "TinyLFU: A Highly Efficient Cache Admission Policy", ACM Transactions on Storage
//! 13(4), 2017. Each key increments four counters of four bits; its estimate is the smallest of them. All counters are
//! halved from time to time, so that the estimate follows a popularity that changes.

/// Counters per key.
const ROWS: u64 = 4;
/// Counters of four bits in a word.
const PER_WORD: u64 = 16;
/// The largest value of a counter.
const MAX: u64 = 15;
/// The lowest three bits of each counter of a word.
const HALVES: u64 = 0x7777_7777_7777_7777;
/// Uses for each entry of the cache until the counters are halved.
const USES_PER_ENTRY: usize = 10;
/// The smallest number of uses until the counters are halved.
const MIN_PERIOD: usize = 1024;

/// Estimated frequencies of keys, by their hashes.
#[derive(Debug)]
pub(crate) struct Frequencies {
    words: Box<[u64]>,
    /// Uses since the counters were halved.
    uses: usize,
}

impl Frequencies {
    /// No key was used. `entries` is the number of keys whose estimates should rarely mix.
    pub(crate) fn new(entries: usize) -> Self {
        let counters = (entries.clamp(1024, 1 << 20) * 8).next_power_of_two();
        Self { words: vec![0; counters / PER_WORD as usize].into(), uses: 0 }
    }

    /// Counts a use of a key. `entries` is the number of entries of the cache.
    pub(crate) fn add(&mut self, hash: u64, entries: usize) {
        for row in 0..ROWS {
            let (word, shift) = self.place(hash, row);
            if self.words[word] >> shift & MAX < MAX {
                self.words[word] += 1 << shift;
            }
        }
        self.uses += 1;
        if self.uses >= (entries * USES_PER_ENTRY).max(MIN_PERIOD) {
            self.halve();
        }
    }

    /// Returns the estimated number of uses, at most 15. It is never lower than the number since the counters were halved.
    pub(crate) fn of(&self, hash: u64) -> u64 {
        let counter = |row| {
            let (word, shift) = self.place(hash, row);
            self.words[word] >> shift & MAX
        };
        (0..ROWS).map(counter).min().unwrap_or_default()
    }

    fn halve(&mut self) {
        for word in &mut self.words {
            *word = *word >> 1 & HALVES;
        }
        self.uses = 0;
    }

    /// Returns the word of a counter, and its first bit there.
    fn place(&self, hash: u64, row: u64) -> (usize, u64) {
        // Double hashing: the second half of the hash is the step.
        let position = hash.wrapping_add(row.wrapping_mul(hash >> 32 | 1));
        let mixed = position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let counter = mixed % (self.words.len() as u64 * PER_WORD);
        ((counter / PER_WORD) as usize, counter % PER_WORD * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::hash;

    #[test]
    fn estimates_are_never_too_low_and_seldom_too_high() {
        let mut frequencies = Frequencies::new(1000);
        for key in 0..1000 {
            for _ in 0..key % 10 {
                frequencies.add(hash(key), 1_000_000);
            }
        }
        let estimate = |key| frequencies.of(hash(key));
        assert!((0..1000).all(|key| estimate(key) >= key % 10));
        let wrong = (0..1000).filter(|&key| estimate(key) > key % 10).count();
        assert!(wrong < 50, "{wrong} of 1,000 estimates are too high");
    }

    #[test]
    fn old_uses_count_half() {
        let mut frequencies = Frequencies::new(1000);
        (0..12).for_each(|_| frequencies.add(hash(1), 100));
        for key in 0..MIN_PERIOD as u64 - 12 {
            frequencies.add(hash(key + 1000), 100);
        }
        assert_eq!(frequencies.of(hash(1)), 6);
    }

    #[test]
    fn counters_stop_at_their_largest_value() {
        let mut frequencies = Frequencies::new(1000);
        (0..100).for_each(|_| frequencies.add(hash(1), 1000));
        assert_eq!(frequencies.of(hash(1)), MAX);
    }
}
