//! Schedules of requests or connections. Due times are computed from the plan alone, never from the time when the generator
//! wakes up.

use crate::plan::Arrivals;
use crate::rng::SplitMix64;
use crate::segment::Segment;

/// Due times in nanoseconds from the start, in order.
pub struct Schedule {
    kind: Kind,
    /// Arrivals generated so far, those of other parts included.
    drawn: u64,
    /// Every `step`-th arrival from `first` on belongs to this schedule.
    first: u64,
    step: u64,
    end: u64,
    /// The time when the arrival after the last one of this schedule is due, whatever schedule it belongs to.
    following: Option<u64>,
}

enum Kind {
    Constant { rate: f64 },
    Poisson { rate: f64, rng: SplitMix64, at: f64 },
    Ramp { from: f64, to: f64, seconds: f64 },
    List(Vec<u64>),
}

impl Schedule {
    /// Creates the schedule of a run of that many seconds; infinite if the run ends by a number of requests.
    #[must_use]
    pub fn new(arrivals: &Arrivals, seed: u64, seconds: f64) -> Self {
        let kind = match *arrivals {
            Arrivals::Constant { rate } => Kind::Constant { rate },
            Arrivals::Poisson { rate } => {
                Kind::Poisson { rate, rng: SplitMix64::stream(seed, u64::MAX), at: 0.0 }
            }
            Arrivals::Ramp { from, to } => Kind::Ramp { from, to, seconds },
        };
        Self { kind, drawn: 0, first: 0, step: 1, end: (seconds * 1e9) as u64, following: None }
    }

    /// Returns a schedule of the given times, which must be in order.
    #[must_use]
    pub fn of_list(times: Vec<u64>) -> Self {
        Self {
            kind: Kind::List(times),
            drawn: 0,
            first: 0,
            step: 1,
            end: u64::MAX,
            following: None,
        }
    }

    /// Returns the arrivals of a segment.
    #[must_use]
    pub fn segment(self, segment: Segment) -> Self {
        Self { first: u64::from(segment.index), step: u64::from(segment.of), ..self }
    }

    /// Returns the next arrival of this schedule, and when the arrival after the previous one is due in the schedule of all parts.
    /// A run that ends with the previous one lasts until then, so that its rate is that of the plan.
    pub fn next_and_following(&mut self) -> (Option<u64>, Option<u64>) {
        self.following = None;
        let next = self.next();
        (next, self.following)
    }

    /// Returns the time when arrival `index` is due, in seconds; infinite if never.
    fn due(&mut self, index: u64) -> f64 {
        let nth = index as f64;
        match &mut self.kind {
            Kind::Constant { rate } => nth / *rate,
            Kind::Poisson { rate, rng, at } => {
                *at += -(1.0 - rng.next_f64()).ln() / *rate;
                *at
            }
            Kind::Ramp { from, to, seconds } => {
                // Arrivals until t: from·t + slope·t²/2, solved for t without cancellation.
                let slope = (*to - *from) / *seconds;
                let root = (*from * *from + 2.0 * slope * nth).sqrt();
                if root.is_nan() {
                    f64::INFINITY
                } else {
                    2.0 * nth / (*from + root).max(f64::MIN_POSITIVE)
                }
            }
            Kind::List(times) => {
                times.get(index as usize).map_or(f64::INFINITY, |&at| at as f64 / 1e9)
            }
        }
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let index = self.drawn;
            let due = self.due(index);
            if !due.is_finite() || due * 1e9 >= self.end as f64 {
                return None;
            }
            self.drawn += 1;
            let due = (due * 1e9).round() as u64;
            self.following.get_or_insert(due);
            if index % self.step == self.first {
                return Some(due);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arrivals: Arrivals, seconds: f64) -> Vec<u64> {
        Schedule::new(&arrivals, 42, seconds).collect()
    }

    #[test]
    fn a_constant_rate_is_evenly_spaced() {
        let times = all(Arrivals::Constant { rate: 1000.0 }, 2.0);
        assert_eq!(times.len(), 2000);
        assert!(times.iter().enumerate().all(|(n, &at)| at == n as u64 * 1_000_000));
    }

    #[test]
    fn the_arrival_that_follows_is_that_of_any_part() {
        let whole = all(Arrivals::Poisson { rate: 10.0 }, 10.0);
        for index in 0..3 {
            let schedule = Schedule::new(&Arrivals::Poisson { rate: 10.0 }, 42, 10.0);
            let mut part = schedule.segment(Segment { index, of: 3 });
            let (mut at, mut own) = (index as usize, part.next());
            while own.is_some() {
                assert_eq!(own, whole.get(at).copied());
                let (next, following) = part.next_and_following();
                assert_eq!(following, whole.get(at + 1).copied());
                (at, own) = (at + 3, next);
            }
            assert!(at >= whole.len());
        }
    }

    #[test]
    fn poisson_gaps_vary_as_much_as_their_mean() {
        let times = all(Arrivals::Poisson { rate: 1000.0 }, 50.0);
        assert!((49_000..51_000).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean;
        assert!((0.98..1.02).contains(&variation), "{variation}");
    }

    #[test]
    fn a_ramp_has_the_given_rates_at_both_ends() {
        for (from, to) in [(100.0, 1000.0), (1000.0, 100.0), (0.0, 1000.0)] {
            let times = all(Arrivals::Ramp { from, to }, 10.0);
            let expected = (from + to) / 2.0 * 10.0;
            assert!((times.len() as f64 - expected).abs() <= 1.0, "{} {expected}", times.len());
            let within =
                |from: u64, to: u64| times.iter().filter(|at| (from..to).contains(*at)).count();
            let first = within(0, 1_000_000_000) as f64;
            assert!((first - (from + (to - from) * 0.05)).abs() <= 2.0, "{first}");
            assert!(times.is_sorted());
        }
    }
}
