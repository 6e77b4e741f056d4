//! Histograms of durations: one with conventional bounds for export, one that is fine enough to compute
//! percentiles.

/// Upper bounds in nanoseconds, as OpenTelemetry's conventions recommend them for
/// `http.server.request.duration`.
pub const BOUNDS: [u64; 14] = [
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    7_500_000_000,
    10_000_000_000,
];

/// Upper bounds of [`Sizes`] in bytes.
pub const SIZES: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Histogram of durations in nanoseconds with [`BOUNDS`].
pub type Seconds = Histogram<{ BOUNDS.len() + 1 }>;
/// Histogram of bytes with [`SIZES`].
pub type Sizes = Histogram<{ SIZES.len() + 1 }>;

/// A histogram with one bound less than buckets.
#[derive(Debug, Clone, Copy)]
pub struct Histogram<const BUCKETS: usize> {
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: u64,
    /// Count per bucket. The last bucket has no upper bound.
    pub buckets: [u64; BUCKETS],
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self { count: 0, sum: 0, buckets: [0; BUCKETS] }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    #[inline]
    pub(super) fn count(&mut self, value: u64, bounds: &[u64]) {
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        // Search linearly, as nearly all values are in the first bucket.
        let bucket = bounds.iter().position(|&bound| value <= bound).unwrap_or(BUCKETS - 1);
        self.buckets[bucket] += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        for (mine, count) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += count;
        }
    }
}

/// Histogram of durations from 128 ns to more than an hour. The relative width of a bucket is at most 1/16.
#[derive(Debug, Clone, Default)]
pub struct Fine {
    /// Sum in nanoseconds.
    pub sum: u64,
    /// Allocated for the first value.
    buckets: Option<Box<[u64; FINE]>>,
}

/// Bits of a duration that are below the resolution of the smallest bucket.
const UNIT: u32 = 7;
const FINE: usize = 544;

impl Fine {
    #[inline]
    pub(super) fn count(&mut self, nanos: u64) {
        self.sum = self.sum.saturating_add(nanos);
        self.buckets.get_or_insert_with(|| Box::new([0; FINE]))[bucket(nanos)] += 1;
    }

    /// Adds the values of another histogram.
    pub fn add(&mut self, other: &Self) {
        let Some(others) = &other.buckets else { return };
        self.sum = self.sum.saturating_add(other.sum);
        let buckets = self.buckets.get_or_insert_with(|| Box::new([0; FINE]));
        for (mine, count) in buckets.iter_mut().zip(&**others) {
            *mine += count;
        }
    }

    /// Returns the upper bound in nanoseconds and the count of each bucket that is not empty.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let numbered = self.buckets.iter().flat_map(|buckets| buckets.iter()).enumerate();
        numbered.filter(|&(_, &count)| count > 0).map(|(number, &count)| (upper(number), count))
    }
}

fn bucket(nanos: u64) -> usize {
    let value = nanos >> UNIT;
    if value < 16 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let sixteenth = (value >> (exponent - 4)) & 15;
    ((exponent as usize - 3) * 16 + sixteenth as usize).min(FINE - 1)
}

/// Returns the largest duration of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < 16 {
        return ((bucket as u64 + 1) << UNIT) - 1;
    }
    let (exponent, sixteenth) = (bucket / 16 + 3, (bucket % 16) as u64);
    ((17 + sixteenth) << (exponent - 4) << UNIT) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_a_bucket_exceeds_its_durations_by_a_sixteenth_at_most() {
        for nanos in (0..40).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3]) {
            let upper = upper(bucket(nanos));
            assert!(upper >= nanos, "{nanos} in {upper}");
            assert!(upper - nanos <= (nanos / 16).max(128), "{nanos} in {upper}");
        }
        assert_eq!(bucket(u64::MAX), FINE - 1);
    }

    #[test]
    fn bounds_are_inclusive() {
        let mut seconds = Seconds::default();
        for nanos in [0, 5_000_000, 5_000_001, 10_000_000_000, 10_000_000_001] {
            seconds.count(nanos, &BOUNDS);
        }
        assert_eq!(seconds.buckets[0], 2);
        assert_eq!(seconds.buckets[1], 1);
        assert_eq!(seconds.buckets[13], 1);
        assert_eq!(seconds.buckets[14], 1);
    }
}
