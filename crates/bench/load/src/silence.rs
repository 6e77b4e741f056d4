//! Times in which the server sent nothing on any connection although requests were in flight.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Summary of the silent times of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Silence {
    /// Number of silent times.
    pub times: u32,
    /// Their share of the run, 0 to 1.
    pub share: f64,
    /// The longest, in milliseconds.
    pub longest_ms: f64,
    /// Start of the first, in seconds since the start of the measurement.
    pub first_at: f64,
}

/// Shortest silence as a multiple of the median service time: a server that takes a second for each response is slow, not
/// silent.
const MEDIANS: f64 = 10.0;

impl Silence {
    /// Returns the summary of pauses, which are in nanoseconds, in a run of `seconds`; `None` if there were none.
    #[must_use]
    pub fn of(pauses: &[Range<u64>], seconds: f64, median_service_ms: f64) -> Option<Self> {
        let length = |pause: &Range<u64>| (pause.end - pause.start) as f64 / 1e6;
        let silent: Vec<&Range<u64>> =
            pauses.iter().filter(|pause| length(pause) >= MEDIANS * median_service_ms).collect();
        let first = silent.first()?;
        let total: f64 = silent.iter().map(|pause| length(pause)).sum();
        Some(Self {
            times: silent.len() as u32,
            share: (total / 1e3 / seconds.max(1e-9)).min(1.0),
            longest_ms: silent.iter().map(|pause| length(pause)).fold(0.0, f64::max),
            first_at: first.start as f64 / 1e9,
        })
    }

    /// Returns how often the server was silent: `once`, `3 times`.
    #[must_use]
    pub fn occurrences(&self) -> String {
        if self.times == 1 { "once".to_owned() } else { format!("{} times", self.times) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_much_longer_than_the_median_are_silence() {
        let pauses = [300_000_000..500_000_000, 1_300_000_000..1_600_000_000];
        let silence = Silence::of(&pauses, 5.0, 0.2).unwrap();
        assert_eq!((silence.times, silence.longest_ms, silence.first_at), (2, 300.0, 0.3));
        assert!((silence.share - 0.1).abs() < 1e-9);
        assert_eq!(silence.occurrences(), "2 times");
        assert_eq!(Silence::of(&pauses, 5.0, 25.0).unwrap().occurrences(), "once");
        assert_eq!(Silence::of(&pauses, 5.0, 200.0), None);
        assert_eq!(Silence::of(&[], 5.0, 0.2), None);
    }
}
