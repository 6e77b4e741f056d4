//! The offset between two clocks, estimated from round trips: the shorter a round trip, the less can the two ways differ.

/// One exchange. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The time when it was made, by the own clock.
    at: u64,
    /// Own clock minus the other's, half-way through the round trip.
    offset: i128,
    /// Duration of the round trip.
    round_trip: u64,
}

/// The offset of another machine's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Offset {
    samples: Vec<Sample>,
}

/// Clocks of computers drift by up to about this many nanoseconds per second relative to each other.
const DRIFT: u64 = 50_000;
/// Samples that are kept.
const MAX_SAMPLES: usize = 512;

impl Offset {
    /// Adds an exchange: sent and received by the own clock, and the other's clock in between.
    pub(super) fn add(&mut self, sent: u64, other: u64, received: u64) {
        let round_trip = received.saturating_sub(sent);
        let middle = i128::from(sent) + i128::from(round_trip / 2);
        if self.samples.len() == MAX_SAMPLES {
            let worst = self.samples.iter().enumerate().max_by_key(|(_, sample)| sample.round_trip);
            if let Some((worst, _)) = worst {
                self.samples.swap_remove(worst);
            }
        }
        let offset = middle - i128::from(other);
        self.samples.push(Sample { at: received, offset, round_trip });
    }

    /// Converts a time of the own clock to the other's. `None` without samples, or for a time before the other's start.
    pub(super) fn to_other(&self, own: u64) -> Option<u64> {
        let best = self.best(own)?;
        u64::try_from(i128::from(own) - best.offset).ok()
    }

    /// Converts a time of the other clock to the own, with its uncertainty: nanoseconds, which can be negative for times before
    /// the own start.
    pub(super) fn to_own(&self, other: u64) -> Option<(i128, u64)> {
        let near = self.best(u64::MAX)?.offset + i128::from(other);
        let best = self.best(u64::try_from(near).unwrap_or(0))?;
        let own = best.offset + i128::from(other);
        Some((own, best.uncertainty(u64::try_from(own).unwrap_or(0))))
    }

    /// Returns the shortest round trip, in nanoseconds.
    pub(super) fn round_trip(&self) -> u64 {
        self.samples.iter().map(|sample| sample.round_trip).min().unwrap_or(0)
    }

    /// Returns the sample that determines the offset at a time with the least uncertainty.
    fn best(&self, at: u64) -> Option<&Sample> {
        self.samples.iter().min_by_key(|sample| sample.uncertainty(at))
    }
}

impl Sample {
    /// Returns the largest error at a time, in nanoseconds: both ways of the round trip may have had any share of it.
    fn uncertainty(&self, at: u64) -> u64 {
        let drift = u128::from(self.at.abs_diff(at)) * u128::from(DRIFT) / 1_000_000_000;
        self.round_trip / 2 + u64::try_from(drift).unwrap_or(u64::MAX / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Exchanges with a clock that is `behind` nanoseconds behind, with the given delays of both ways.
    fn exchanges(behind: u64, delays: &[(u64, u64)]) -> Offset {
        let mut offset = Offset::default();
        for (number, (there, back)) in (1..).zip(delays) {
            let sent = behind + number * 10 * MS;
            offset.add(sent, sent + there - behind, sent + there + back);
        }
        offset
    }

    #[test]
    fn the_shortest_round_trip_determines_the_offset() {
        // The delays differ by up to 90 ms, but the shortest round trip is 400 µs.
        let delays = [(50 * MS, MS), (MS, 91 * MS), (MS / 5, MS / 5), (30 * MS, 2 * MS)];
        let offset = exchanges(5_000 * MS, &delays);
        assert_eq!(offset.to_other(5_100 * MS), Some(100 * MS));
        let (own, uncertainty) = offset.to_own(100 * MS).unwrap();
        assert_eq!(own, i128::from(5_100 * MS));
        assert!((MS / 5..MS / 5 + 10_000).contains(&uncertainty), "{uncertainty}");
        assert_eq!(offset.round_trip(), 2 * MS / 5);
    }

    #[test]
    fn the_true_offset_is_within_the_uncertainty_however_asymmetric_the_ways_are() {
        for (there, back) in [(0, 8 * MS), (8 * MS, 0), (3 * MS, 5 * MS)] {
            let offset = exchanges(777 * MS, &[(there, back); 5]);
            let (own, uncertainty) = offset.to_own(50 * MS).unwrap();
            let error = (own - i128::from(827 * MS)).unsigned_abs();
            assert!(error <= u128::from(uncertainty), "{error} {uncertainty}");
        }
    }

    #[test]
    fn an_old_sample_becomes_less_certain_than_a_new_one_with_a_longer_round_trip() {
        let mut offset = Offset::default();
        offset.add(0, 1_000, 200_000);
        let minute = 60_000 * MS;
        offset.add(minute, 500_000 + minute, minute + MS);
        let (_, uncertainty) = offset.to_own(500_000 + minute).unwrap();
        assert!(uncertainty < MS, "{uncertainty}");
        assert_eq!(Offset::default().to_other(5), None);
    }

    #[test]
    fn the_number_of_samples_is_bounded_and_the_best_are_kept() {
        let mut offset = Offset::default();
        offset.add(0, 7, 10);
        (1..2_000).for_each(|n| offset.add(n * 1_000, n * 1_000, n * 1_000 + 500));
        assert_eq!((offset.samples.len(), offset.round_trip()), (MAX_SAMPLES, 10));
    }
}
