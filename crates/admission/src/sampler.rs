//! Samples the requests of one worker, from which a shared cache learns what is used often.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of which one, chosen at random, counts as a use of its entry.
pub(crate) const SAMPLE: u32 = 8;

/// A sampler that threads share.
#[derive(Debug, Default)]
pub struct SharedSampler(AtomicU64);

/// Hits that are reported together.
const BATCH: usize = 64;

/// The sampler of one worker.
#[derive(Debug)]
pub struct Sampler {
    /// Requests until the next one that is sampled.
    left: Cell<u32>,
    /// The state of the generator of gaps (xorshift).
    random: Cell<u32>,
    /// Hashes of sampled hits.
    hits: RefCell<Vec<u64>>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { left: Cell::new(0), random: Cell::new(0x2545_f491), hits: RefCell::default() }
    }
}

impl Sampler {
    /// Returns `true` if this request is sampled: one of `SAMPLE`, at random distances, so that a periodic sequence of
    /// requests is sampled evenly.
    #[inline]
    pub fn is_due(&self) -> bool {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            return false;
        }
        self.draw();
        true
    }

    /// Notes a sampled hit, and passes the hashes of several at a time to `report`.
    #[cold]
    pub fn hit(&self, hash: u64, report: impl FnOnce(&[u64])) {
        let mut hits = self.hits.borrow_mut();
        hits.push(hash);
        if hits.len() >= BATCH {
            report(&hits);
            hits.clear();
        }
    }

    #[cold]
    fn draw(&self) {
        let mut bits = self.random.get();
        bits ^= bits << 13;
        bits ^= bits >> 17;
        bits ^= bits << 5;
        self.random.set(bits);
        // Distances from 1 to 2 × SAMPLE - 1.
        self.left.set(bits % (2 * SAMPLE - 1));
    }
}

impl SharedSampler {
    /// Returns `true` if this request is sampled: one of `SAMPLE`, at random distances.
    pub fn is_due(&self) -> bool {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        // The high bits of a product with an odd number depend on all bits of the count.
        let mixed = (count ^ count >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40).is_multiple_of(u64::from(SAMPLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sample_one_of_eight_requests_at_varying_distances() {
        let sampler = SharedSampler::default();
        let sampled: Vec<usize> = (0..80_000).filter(|_| sampler.is_due()).collect();
        assert!((9_000..11_000).contains(&sampled.len()), "{}", sampled.len());
        for period in [2, 3, 8, 10, 64] {
            let mut phases = vec![0; period];
            sampled.iter().for_each(|at| phases[at % period] += 1);
            let even = sampled.len() / period;
            assert!(phases.iter().all(|&count| count > even / 2), "{period}: {phases:?}");
        }
    }

    #[test]
    fn one_of_eight_requests_is_sampled_at_varying_distances() {
        let sampler = Sampler::default();
        let sampled: Vec<usize> = (0..80_000).filter(|_| sampler.is_due()).collect();
        assert!((9_500..10_500).contains(&sampled.len()), "{}", sampled.len());
        let mut phases = [0; 8];
        sampled.iter().for_each(|at| phases[at % 8] += 1);
        assert!(phases.iter().all(|&count| count > 1_000), "{phases:?}");
    }
}
