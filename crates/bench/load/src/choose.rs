//! Choice of URLs. Each connection has a sequence of its own, so that the requests do not depend on timing.

use std::sync::Arc;

use crate::plan::Choice;
use crate::rng::SplitMix64;

/// The sequence of a connection.
pub struct Chooser {
    urls: usize,
    kind: Kind,
}

enum Kind {
    InOrder { next: usize, step: usize },
    Random(SplitMix64),
    Zipf(SplitMix64, Arc<[f64]>),
}

impl Chooser {
    /// Creates the sequence of connection `number` of `connections` over `urls` URLs, which must not be 0. `table` is the
    /// result of [`table`].
    #[must_use]
    pub fn new(
        choice: &Choice,
        table: &Arc<[f64]>,
        urls: usize,
        seed: u64,
        number: u64,
        connections: u32,
    ) -> Self {
        let kind = match choice {
            // Together, the connections go through the list once before any URL repeats.
            Choice::InOrder | Choice::Replay { .. } => Kind::InOrder {
                next: (number % urls.max(1) as u64) as usize,
                step: connections as usize % urls.max(1),
            },
            Choice::Random => Kind::Random(SplitMix64::stream(seed, number)),
            Choice::Zipf { .. } => Kind::Zipf(SplitMix64::stream(seed, number), Arc::clone(table)),
        };
        Self { urls, kind }
    }

    /// Index of the next URL.
    #[inline]
    pub fn draw(&mut self) -> usize {
        if self.urls <= 1 {
            return 0;
        }
        match &mut self.kind {
            Kind::InOrder { next, step } => {
                let chosen = *next;
                // A step that is a multiple of the length would repeat a single URL.
                *next = (chosen + if *step == 0 { 1 } else { *step }) % self.urls;
                chosen
            }
            Kind::Random(rng) => rng.below(self.urls),
            Kind::Zipf(rng, cumulative) => {
                let at = rng.next_f64();
                cumulative.partition_point(|&edge| edge <= at).min(self.urls - 1)
            }
        }
    }
}

/// Returns the cumulative probabilities of the URLs for Zipf's law, empty for other choices. All connections share them.
#[must_use]
pub fn table(choice: &Choice, urls: usize) -> Arc<[f64]> {
    let Choice::Zipf { exponent } = *choice else { return Arc::default() };
    let weights = (1..=urls).map(|rank| (rank as f64).powf(-exponent));
    let sum: f64 = weights.clone().sum();
    weights
        .scan(0.0, |so_far, weight| {
            *so_far += weight / sum;
            Some(*so_far)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(choice: &Choice, urls: usize, draws: usize) -> Vec<usize> {
        let mut chooser = Chooser::new(choice, &table(choice, urls), urls, 7, 3, 10);
        let mut counts = vec![0; urls];
        (0..draws).for_each(|_| counts[chooser.draw()] += 1);
        counts
    }

    #[test]
    fn random_is_uniform_and_zipf_prefers_the_first() {
        let random = counts(&Choice::Random, 10, 100_000);
        assert!(random.iter().all(|count| (9_500..10_500).contains(count)), "{random:?}");
        let zipf = counts(&Choice::Zipf { exponent: 1.0 }, 10, 100_000);
        let ratio = zipf[0] as f64 / zipf[9] as f64;
        assert!((9.0..11.0).contains(&ratio), "{zipf:?}");
    }

    #[test]
    fn in_order_repeats_the_list() {
        let mut seen = vec![0; 25];
        for number in 0..10 {
            let mut chooser = Chooser::new(&Choice::InOrder, &Arc::default(), 25, 1, number, 10);
            (0..5).for_each(|_| seen[chooser.draw()] += 1);
        }
        assert!(seen.iter().all(|count| *count == 2), "{seen:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence_and_connections_differ() {
        let draw = |number| {
            let mut chooser = Chooser::new(&Choice::Random, &Arc::default(), 1000, 5, number, 2);
            (0..50).map(|_| chooser.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
    }
}
