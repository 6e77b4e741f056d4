//! Segments: the parts of a run that several generators, or the threads of one, send.
//!
//! Segment `index` of `of` has every `of`-th connection, arrival and request, starting with number `index`. All segments
//! together have each of them exactly once, so that they send what one generator would send.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of a run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Segment {
    /// Number of the part, from 0.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
}

impl Segment {
    /// The only part of a run.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// This part of a count.
    #[must_use]
    pub fn share(self, whole: u64) -> u64 {
        let (index, of) = (u64::from(self.index), u64::from(self.of.max(1)));
        whole / of + u64::from(index < whole % of)
    }

    /// Converts an index in this segment to an index in the run.
    #[must_use]
    pub fn number(self, nth: u64) -> u64 {
        nth * u64::from(self.of) + u64::from(self.index)
    }

    /// Part `index` of the `of` parts of this part.
    #[must_use]
    pub fn part(self, index: u32, of: u32) -> Self {
        // The threads of all generators in turn, so that the shares of generators differ by one at most.
        Self { index: index * self.of + self.index, of: of * self.of }
    }
}

impl FromStr for Segment {
    type Err = String;

    /// Parses `i/n`, with `i` from 0 to `n - 1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (index, of) = text.split_once('/')?;
            Some((index.trim().parse::<u32>().ok()?, of.trim().parse::<u32>().ok()?))
        };
        match parse() {
            Some((index, of)) if index < of && of <= MAX_SEGMENTS => Ok(Self { index, of }),
            Some((_, of)) if of > MAX_SEGMENTS => {
                Err(format!("there are at most {MAX_SEGMENTS} segments"))
            }
            Some((_, of)) if of > 0 => {
                Err(format!("the segments of {of} are numbered from 0 to {}", of - 1))
            }
            _ => Err("is not a segment such as 0/3".to_owned()),
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Largest number of segments.
pub const MAX_SEGMENTS: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Schedule;
    use crate::plan::Arrivals;

    /// Returns the parts of all threads of all generators.
    fn parts(generators: u32, threads: u32) -> Vec<Segment> {
        let segments = (0..generators).map(|index| Segment { index, of: generators });
        segments.flat_map(|own| (0..threads).map(move |thread| own.part(thread, threads))).collect()
    }

    #[test]
    fn counts_of_all_segments_add_up_and_differ_by_one_at_most() {
        for whole in [0, 1, 2, 7, 10, 1003, u64::from(u32::MAX)] {
            for generators in [1, 2, 3, 7, 64] {
                let of_generator = |index| Segment { index, of: generators }.share(whole);
                let shares: Vec<u64> = (0..generators).map(of_generator).collect();
                assert_eq!(shares.iter().sum::<u64>(), whole);
                assert!(shares[0] - shares[shares.len() - 1] <= 1, "{shares:?}");
                for threads in [1, 2, 5] {
                    for (index, share) in (0..).zip(&shares) {
                        let own = Segment { index, of: generators };
                        let threads = (0..threads).map(|t| own.part(t, threads).share(whole));
                        assert_eq!(threads.sum::<u64>(), *share);
                    }
                }
            }
        }
    }

    #[test]
    fn each_connection_belongs_to_one_segment_and_keeps_its_number() {
        for (generators, threads) in [(3, 1), (3, 2), (5, 4)] {
            let mut numbers: Vec<u64> = parts(generators, threads)
                .iter()
                .flat_map(|part| (0..part.share(1000)).map(|nth| part.number(nth)))
                .collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..1000));
        }
    }

    #[test]
    fn the_schedules_of_all_segments_are_the_schedule_of_the_run() {
        let poisson = Arrivals::Poisson { rate: 500.0 };
        let ramp = Arrivals::Ramp { from: 10.0, to: 900.0 };
        for arrivals in [Arrivals::Constant { rate: 333.0 }, poisson, ramp] {
            let whole: Vec<u64> = Schedule::new(&arrivals, 7, 3.0).collect();
            for (generators, threads) in [(3, 1), (4, 3)] {
                let of_part = |part: &Segment| Schedule::new(&arrivals, 7, 3.0).segment(*part);
                let mut all: Vec<u64> =
                    parts(generators, threads).iter().flat_map(of_part).collect();
                all.sort_unstable();
                assert_eq!(all, whole);
            }
        }
        let log: Vec<u64> = (0..100).map(|n| n * n).collect();
        let of_part = |part: &Segment| Schedule::of_list(log.clone()).segment(*part);
        let mut all: Vec<u64> = parts(3, 2).iter().flat_map(of_part).collect();
        all.sort_unstable();
        assert_eq!(all, log);
    }

    #[test]
    fn segments_are_numbered_from_zero() {
        assert_eq!("0/3".parse(), Ok(Segment { index: 0, of: 3 }));
        assert_eq!(Segment { index: 2, of: 3 }.to_string(), "2/3");
        assert_eq!(
            "3/3".parse::<Segment>(),
            Err("the segments of 3 are numbered from 0 to 2".to_owned())
        );
        for wrong in ["", "1", "0/0", "-1/3", "a/b", "1/2/3", "0/10001"] {
            assert!(wrong.parse::<Segment>().is_err(), "{wrong}");
        }
    }
}
