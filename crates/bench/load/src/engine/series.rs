//! Time series of a run in equal intervals. Memory is bounded: intervals double in length when there are too many.

use std::ops::Range;

use hdrhistogram::Histogram;

use crate::outcome::Second;

/// Counts by interval.
pub struct Series {
    /// Length of an interval in nanoseconds.
    interval: u64,
    points: Vec<Point>,
    /// Valid responses in the first [`SLICES`] intervals of [`SLICE`].
    slices: Vec<u32>,
    /// Time of the last received byte, or of the first request after idleness, in nanoseconds.
    last: u64,
    /// Times without received bytes while requests were in flight.
    pauses: Vec<Range<u64>>,
    /// No request was sent.
    unused: bool,
}

struct Point {
    requests: u64,
    bytes: u64,
    errors: u64,
    times: Histogram<u32>,
}

/// Largest number of intervals.
const MAX_POINTS: usize = 600;
/// Shortest pause that is recorded, in nanoseconds.
const PAUSE: u64 = 20_000_000;
/// Length of a slice in nanoseconds. Slices show how steady a short run is.
const SLICE: u64 = 50_000_000;
/// Number of slices: four seconds.
const SLICES: usize = 80;
/// Largest number of recorded pauses.
const PAUSES: usize = 1000;

impl Default for Series {
    fn default() -> Self {
        Self {
            interval: 1_000_000_000,
            points: Vec::new(),
            slices: Vec::new(),
            last: 0,
            pauses: Vec::new(),
            unused: true,
        }
    }
}

impl Series {
    /// Counts a valid response, `at` nanoseconds after the start of the measurement.
    #[inline]
    pub(super) fn response(&mut self, at: u64, latency: u64) {
        self.end_pause(at);
        let slice = (at / SLICE) as usize;
        if slice < SLICES {
            if slice >= self.slices.len() {
                self.slices.resize(slice + 1, 0);
            }
            self.slices[slice] += 1;
        }
        let point = self.point(at);
        point.requests += 1;
        point.times.saturating_record(latency / 1000);
    }

    /// Records that requests are in flight after a time without any.
    #[inline]
    pub(super) fn resume(&mut self, at: u64) {
        self.unused = false;
        self.last = at;
    }

    /// Records that the run ends with requests in flight.
    pub(super) fn end(&mut self, at: u64) {
        self.end_pause(at);
    }

    #[inline]
    fn end_pause(&mut self, at: u64) {
        if at.saturating_sub(self.last) >= PAUSE && self.pauses.len() < PAUSES {
            self.pauses.push(self.last..at);
        }
        self.last = at;
    }

    /// Counts received bytes.
    #[inline]
    pub(super) fn bytes(&mut self, at: u64, count: u64) {
        self.end_pause(at);
        self.point(at).bytes += count;
    }

    /// Counts a failure.
    pub(super) fn error(&mut self, at: u64) {
        self.point(at).errors += 1;
    }

    #[inline]
    fn point(&mut self, at: u64) -> &mut Point {
        let mut index = (at / self.interval) as usize;
        if index >= self.points.len() {
            while index >= MAX_POINTS {
                self.coarsen();
                index = (at / self.interval) as usize;
            }
            self.points.resize_with(index + 1, Point::new);
        }
        &mut self.points[index]
    }

    fn coarsen(&mut self) {
        self.interval *= 2;
        let mut old = std::mem::take(&mut self.points).into_iter();
        while let Some(mut first) = old.next() {
            if let Some(second) = old.next() {
                first.add(&second);
            }
            self.points.push(first);
        }
    }

    /// Times without received bytes while requests were in flight, in nanoseconds since the start of the measurement. Short
    /// ones are omitted.
    #[must_use]
    pub fn pauses(&self) -> &[Range<u64>] {
        &self.pauses
    }

    /// Adds the series of another worker.
    pub(super) fn add(&mut self, mut other: Self) {
        if self.unused && self.points.is_empty() {
            *self = other;
            return;
        }
        // A pause of the server is one of all workers.
        if !other.unused {
            let pairs = self.pauses.iter().flat_map(|a| other.pauses.iter().map(move |b| (a, b)));
            let both = pairs.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end));
            self.pauses = both.filter(|both| both.end >= both.start + PAUSE).collect();
        }
        let slices = self.slices.len().max(other.slices.len());
        self.slices.resize(slices, 0);
        self.slices.iter_mut().zip(&other.slices).for_each(|(own, others)| *own += others);
        while self.interval < other.interval {
            self.coarsen();
        }
        while other.interval < self.interval {
            other.coarsen();
        }
        for (index, point) in other.points.into_iter().enumerate() {
            match self.points.get_mut(index) {
                Some(own) => own.add(&point),
                None => self.points.push(point),
            }
        }
    }

    /// Responses per second in equal intervals of the first four seconds, for a run of `end` nanoseconds: about ten
    /// intervals for a run of a second. Empty for runs too short to be divided.
    #[must_use]
    pub fn rates(&self, end: u64) -> Vec<f64> {
        let whole = (end / SLICE).min(SLICES as u64) as usize;
        let group = (whole / 10).max(1);
        let length = (group as u64 * SLICE) as f64 / 1e9;
        let count = |index: usize| f64::from(self.slices.get(index).copied().unwrap_or(0));
        let groups = (0..whole / group).map(|number| number * group..(number + 1) * group);
        groups.map(|group| group.map(count).sum::<f64>() / length).collect()
    }

    /// Returns the intervals as in the outcome. `end` is the duration of the run in nanoseconds.
    pub fn seconds(&self, end: u64) -> Vec<Second> {
        let interval = self.interval as f64 / 1e9;
        let seconds = self.points.iter().enumerate().map(|(index, point)| {
            let from = index as u64 * self.interval;
            Second {
                at: index as f64 * interval,
                length: (end.saturating_sub(from).min(self.interval)) as f64 / 1e9,
                requests: point.requests,
                bytes: point.bytes,
                errors: point.errors,
                p50_ms: point.times.value_at_quantile(0.50) as f64 / 1e3,
                p99_ms: point.times.value_at_quantile(0.99) as f64 / 1e3,
            }
        });
        seconds.filter(|second| second.length > 0.0).collect()
    }
}

impl Point {
    fn new() -> Self {
        // Two significant digits of microseconds up to an hour: about 6 KB.
        let times = Histogram::new_with_bounds(1, 3_600_000_000, 2);
        let times = times.unwrap_or_else(|_| unreachable!("the bounds are constants"));
        Self { requests: 0, bytes: 0, errors: 0, times }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        // Cannot fail: both histograms have the same bounds.
        let _ = self.times.add(&other.times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_in_length_when_there_are_too_many() {
        let mut series = Series::default();
        series.resume(0);
        for second in 0..2_000_u64 {
            series.response(second * 1_000_000_000, 1_000_000);
        }
        let seconds = series.seconds(2_000_000_000_000);
        assert_eq!(seconds.len(), 500);
        assert_eq!(seconds.iter().map(|second| second.requests).sum::<u64>(), 2_000);
        assert!(seconds.iter().all(|second| second.length == 4.0 && second.p50_ms > 0.9));
    }

    /// Returns a series of responses every millisecond from `from` to `to`.
    fn steady(from: u64, to: u64) -> Series {
        let mut series = Series::default();
        series.resume(from * 1_000_000);
        (from..to).for_each(|ms| series.response(ms * 1_000_000, 1_000));
        series
    }

    #[test]
    fn a_pause_is_common_to_all_workers() {
        let mut one = steady(0, 100);
        one.response(400_000_000, 1_000);
        let mut other = steady(0, 200);
        other.end(500_000_000);
        let pauses = |series: &Series| -> Vec<(u64, u64)> {
            let in_ms = |pause: &Range<u64>| (pause.start / 1_000_000, pause.end / 1_000_000);
            series.pauses().iter().map(in_ms).collect()
        };
        assert_eq!(pauses(&one), [(99, 400)]);
        one.add(Series::default());
        assert_eq!(pauses(&one), [(99, 400)], "an unused worker is not a response");
        one.add(other);
        assert_eq!(pauses(&one), [(199, 400)]);
    }

    #[test]
    fn a_long_body_causes_no_pause() {
        let mut series = steady(0, 10);
        (10..500).for_each(|ms| series.bytes(ms * 1_000_000, 1_000));
        series.end(500_000_000);
        assert!(series.pauses().is_empty());
    }

    #[test]
    fn idle_time_is_no_pause() {
        let mut series = steady(0, 10);
        series.resume(900_000_000);
        series.response(901_000_000, 1_000);
        assert!(series.pauses().is_empty());
    }

    #[test]
    fn short_runs_have_rates_in_fractions_of_a_second() {
        let rates = steady(0, 1000).rates(1_000_000_000);
        assert_eq!(rates, [1000.0; 10]);
        assert_eq!(steady(0, 90).rates(90_000_000), [1000.0]);
        assert!(steady(0, 10).rates(10_000_000).is_empty());
    }
}
