//! Medians, confidence intervals, and ranking.
//!
//! Runs of the same round form pairs, since disturbances of the machine affect both. Ratios are therefore computed within
//! rounds and summarized by their median with a 95 % bootstrap interval (Efron, 1979: 2,000 resamples, percentile method,
//! fixed seed). Two servers differ if that interval excludes 1. With few rounds, the interval is almost the range of the
//! ratios, so that all rounds have to agree.

use dunlin_load::rng::SplitMix64;

/// A value with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Number of values.
    pub count: usize,
}

impl Estimate {
    /// Returns the larger half of the interval as a share of the median; `None` for a median of 0 and for a single value.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let half = (self.high - self.median).max(self.median - self.low);
        (self.median != 0.0 && self.count > 1).then(|| half / self.median.abs())
    }
}

const RESAMPLES: usize = 2_000;
const SEED: u64 = 358;

/// Returns the median; 0 without values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Returns the quantile of sorted values with linear interpolation, as in numpy and scipy.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return 0.0;
    }
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    below + (above - below) * at.fract()
}

/// Returns the median of `values` with its interval.
#[must_use]
pub fn estimate(values: &[f64]) -> Estimate {
    let mut rng = SplitMix64::new(SEED);
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let resample: Vec<f64> =
                values.iter().map(|_| values[rng.below(values.len())]).collect();
            median(&resample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    Estimate {
        median: median(values),
        low: quantile(&medians, 0.025),
        high: quantile(&medians, 0.975),
        count: values.len(),
    }
}

/// Returns the median ratio of `a` to `b` over the pairs, with its interval.
#[must_use]
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Estimate {
    let logs: Vec<f64> =
        pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (a / b).ln()).collect();
    if logs.is_empty() {
        return Estimate::default();
    }
    let estimated = estimate(&logs);
    Estimate {
        median: estimated.median.exp(),
        low: estimated.low.exp(),
        high: estimated.high.exp(),
        ..estimated
    }
}

/// Returns the ratio of the median of `a` to that of `b`, with its interval, for values that are not from the same rounds:
/// both are resampled on their own.
#[must_use]
pub fn ratio(a: &[f64], b: &[f64]) -> Estimate {
    let middle = median(b);
    if a.is_empty() || b.is_empty() || middle <= 0.0 {
        return Estimate::default();
    }
    let mut rng = SplitMix64::new(SEED);
    let mut resampled = |values: &[f64]| {
        let resample: Vec<f64> = values.iter().map(|_| values[rng.below(values.len())]).collect();
        median(&resample)
    };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| resampled(a) / resampled(b).max(f64::MIN_POSITIVE)).collect();
    ratios.sort_by(f64::total_cmp);
    Estimate {
        median: median(a) / middle,
        low: quantile(&ratios, 0.025),
        high: quantile(&ratios, 0.975),
        count: a.len().min(b.len()),
    }
}

/// Smallest number of pairs for a comparison by pairs.
const MIN_PAIRS: usize = 3;
/// Smallest number of values of both servers for a comparison without pairs, in which two servers differ if all values of
/// one are beyond all values of the other.
const MIN_VALUES: usize = 6;

/// Returns the tier of each server from its values in each round; 0 is the best, `None` is for servers without values. A
/// server starts a new tier if it differs from the first one of the previous tier.
#[must_use]
pub fn tiers(servers: &[Vec<(u32, f64)>], higher_is_better: bool) -> Vec<Option<usize>> {
    let medians: Vec<f64> = servers
        .iter()
        .map(|rounds| median(&rounds.iter().map(|(_, value)| *value).collect::<Vec<_>>()))
        .collect();
    let mut order: Vec<usize> =
        (0..servers.len()).filter(|&index| !servers[index].is_empty()).collect();
    order.sort_by(|&a, &b| {
        let ascending = medians[a].total_cmp(&medians[b]);
        if higher_is_better { ascending.reverse() } else { ascending }
    });
    let mut tiers = vec![None; servers.len()];
    let (mut tier, mut leader) = (0, None);
    for index in order {
        match leader {
            None => leader = Some(index),
            Some(first) if differs(&servers[index], &servers[first]) => {
                tier += 1;
                leader = Some(index);
            }
            Some(_) => {}
        }
        tiers[index] = Some(tier);
    }
    tiers
}

/// Returns `true` if two servers differ significantly.
#[must_use]
pub fn differs(a: &[(u32, f64)], b: &[(u32, f64)]) -> bool {
    let pairs = pairs(a, b);
    if pairs.len() < MIN_PAIRS {
        return a.len() + b.len() >= MIN_VALUES && (below(a, b) || below(b, a));
    }
    let ratio = paired_ratio(&pairs);
    ratio.low > 1.0 || ratio.high < 1.0
}

/// Returns `true` if every value of `a` is less than every value of `b`.
fn below(a: &[(u32, f64)], b: &[(u32, f64)]) -> bool {
    let max = a.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
    let least = b.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    max < least
}

/// Returns the values of both in the same rounds.
#[must_use]
pub fn pairs(a: &[(u32, f64)], b: &[(u32, f64)]) -> Vec<(f64, f64)> {
    let partner = |round: u32| b.iter().find(|(other, _)| *other == round).map(|(_, value)| *value);
    a.iter().filter_map(|(round, value)| Some((*value, partner(*round)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 0.02 * b.abs()
    }

    /// tests/test_compare.py compares the results for the same values with those of scipy.
    #[test]
    fn medians_and_intervals_are_those_of_scipy() {
        let values = [12.1, 11.8, 12.6, 12.0, 13.9, 11.5, 12.2, 12.4, 11.9, 12.3, 12.8];
        let estimated = estimate(&values);
        assert_eq!(estimated.median, 12.2);
        assert!(near(estimated.low, 11.9) && near(estimated.high, 12.6), "{estimated:?}");
        let pairs: Vec<(f64, f64)> = values
            .iter()
            .zip([10.0, 10.2, 10.1, 9.9, 10.4, 9.8, 10.3, 10.0, 10.1, 9.9, 10.2])
            .map(|(a, b)| (*a, b))
            .collect();
        let ratio = paired_ratio(&pairs);
        assert!(near(ratio.median, 1.212_121), "{ratio:?}");
        assert!(near(ratio.low, 1.178_218) && near(ratio.high, 1.247_525), "{ratio:?}");
        assert!(near(quantile(&[1.0, 2.0, 4.0, 8.0], 0.4), 2.4));
    }

    #[test]
    fn a_ratio_without_pairs_has_the_uncertainty_of_both() {
        let slow = [10.0, 13.0, 8.0, 11.0, 9.0];
        let fast: Vec<f64> = slow.iter().map(|value| value * 1.2).collect();
        let paired: Vec<(f64, f64)> = fast.iter().copied().zip(slow).collect();
        let paired = paired_ratio(&paired);
        assert!(near(paired.low, 1.2) && near(paired.high, 1.2), "{paired:?}");
        let alone = ratio(&fast, &slow);
        assert!(near(alone.median, 1.2) && alone.low < 1.0 && alone.high > 1.4, "{alone:?}");
        let steady = ratio(&[20.0, 20.1, 19.9], &[10.0, 10.1, 9.9]);
        assert!(steady.low > 1.95 && steady.high < 2.05, "{steady:?}");
        assert_eq!(ratio(&[], &[1.0]).count, 0);
    }

    #[test]
    fn the_spread_is_the_larger_half_of_the_interval() {
        let estimate = |count| Estimate { median: 10.0, low: 8.0, high: 11.0, count };
        assert_eq!((estimate(5).spread(), estimate(1).spread()), (Some(0.2), None));
        assert_eq!(Estimate { median: 0.0, ..estimate(5) }.spread(), None);
    }

    #[test]
    fn servers_that_overlap_share_a_tier_and_others_do_not() {
        let rounds = |values: [f64; 5]| {
            values.iter().enumerate().map(|(n, v)| (n as u32, *v)).collect::<Vec<_>>()
        };
        let servers = [
            rounds([100.0, 104.0, 98.0, 101.0, 102.0]),
            rounds([101.0, 103.0, 99.0, 100.0, 103.0]),
            rounds([50.0, 52.0, 49.0, 51.0, 50.0]),
            Vec::new(),
        ];
        assert_eq!(tiers(&servers, true), [Some(0), Some(0), Some(1), None]);
        assert_eq!(tiers(&servers, false), [Some(1), Some(1), Some(0), None]);
    }

    #[test]
    fn two_rounds_are_no_evidence() {
        assert!(!differs(&[(0, 1.0), (1, 1.0)], &[(0, 9.0), (1, 9.0)]));
        let five = [(0, 9.0), (1, 9.5), (2, 9.1), (3, 9.2), (4, 9.3)];
        assert!(differs(&[(7, 1.0)], &five), "rounds without pairs, but far apart");
        assert!(!differs(&[(7, 9.2)], &five));
    }
}
