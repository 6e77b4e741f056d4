//! Rates that scatter from second to second.

use super::evidence::{Evidence, LEAST_INTERVALS, whole_seconds};
use crate::outcome::Second;

/// Scatter of rates, as a share of their median, from which on they are noise.
const SCATTER: f64 = 0.15;
/// Scatter of the rates of intervals below a second, in which a server's batches are visible.
const SCATTER_OF_PARTS: f64 = 0.30;
pub(super) fn noisy(e: &Evidence) -> Option<String> {
    if e.rates.len() < LEAST_INTERVALS {
        return None;
    }
    let middle = median(&e.rates);
    let (limit, of) = match e.interval >= 0.999 {
        true => (SCATTER, "from second to second".to_owned()),
        false => (SCATTER_OF_PARTS, format!("from one {:.0} ms to the next", e.interval * 1e3)),
    };
    // Counts of independent events scatter with the square root of their number.
    let chance = 2.0 / (middle * e.interval).max(1.0).sqrt();
    let distances: Vec<f64> = e.rates.iter().map(|rate| (rate - middle).abs()).collect();
    // 1.4826 converts the median absolute deviation to the standard deviation of a normal distribution.
    let scatter = 1.4826 * median(&distances) / middle.max(f64::MIN_POSITIVE);
    (scatter > limit + chance)
        .then(|| format!("requests/s scatter by {:.0} % {of}", scatter * 100.0))
}

/// Returns whether the rates of whole seconds are noisy, with the reason. `None` if there are too few of them.
pub(crate) fn noise(series: &[Second]) -> Option<Option<String>> {
    let rates = whole_seconds(series);
    let enough = rates.len() >= LEAST_INTERVALS;
    enough.then(|| noisy(&Evidence { rates, interval: 1.0, ..Evidence::default() }))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Verdict;
    use crate::verdict::judge;
    use crate::verdict::tests::closed;

    #[test]
    fn scatter_is_noise_but_one_slow_second_is_not() {
        let with = |rates: &[f64], interval| {
            let rates = rates.to_vec();
            judge(&Evidence { rates, interval, ..closed(0.1, None) }).0
        };
        let scattered = [1e4, 1.6e4, 0.9e4, 1.5e4, 0.7e4, 1.3e4];
        assert_eq!(with(&scattered, 1.0), Verdict::Noisy);
        assert_eq!(with(&scattered, 0.1), Verdict::Noisy);
        assert_eq!(with(&scattered, 0.001), Verdict::Valid, "ten responses scatter by chance");
        assert_eq!(with(&[1e4, 1.01e4, 0.99e4, 1e3, 1e4, 1.02e4], 1.0), Verdict::Valid);
        assert_eq!(with(&[1e4, 2e4, 0.5e4], 1.0), Verdict::Valid);
    }
}
