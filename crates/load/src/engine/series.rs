//! The run in equal intervals. Memory is bounded: when there are too many, two become one.

use std::ops::Range;

use hdrhistogram::Histogram;

use crate::outcome::Second;

/// Figures by interval.
pub struct Series {
    /// Nanoseconds of an interval.
    interval: u64,
    points: Vec<Point>,
    /// When the last answer came, in nanoseconds.
    last: u64,
    /// Times in which none came.
    pauses: Vec<Range<u64>>,
}

struct Point {
    requests: u64,
    bytes: u64,
    errors: u64,
    times: Histogram<u32>,
}

const MOST: usize = 600;
/// Shortest time without an answer that is kept, in nanoseconds.
const PAUSE: u64 = 200_000_000;
/// Most of them.
const PAUSES: usize = 1000;

impl Default for Series {
    fn default() -> Self {
        Self { interval: 1_000_000_000, points: Vec::new(), last: 0, pauses: Vec::new() }
    }
}

impl Series {
    /// An answer that was right, `at` nanoseconds after counting began.
    #[inline]
    pub(super) fn answer(&mut self, at: u64, latency: u64) {
        if at.saturating_sub(self.last) >= PAUSE && self.pauses.len() < PAUSES {
            self.pauses.push(self.last..at);
        }
        self.last = at;
        let point = self.point(at);
        point.requests += 1;
        point.times.saturating_record(latency / 1000);
    }

    /// Bytes that arrived.
    #[inline]
    pub(super) fn bytes(&mut self, at: u64, count: u64) {
        self.point(at).bytes += count;
    }

    /// A failure.
    pub(super) fn error(&mut self, at: u64) {
        self.point(at).errors += 1;
    }

    #[inline]
    fn point(&mut self, at: u64) -> &mut Point {
        let mut index = (at / self.interval) as usize;
        if index >= self.points.len() {
            while index >= MOST {
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

    /// Times between two answers that were long, in nanoseconds since counting began.
    #[must_use]
    pub fn pauses(&self) -> &[Range<u64>] {
        &self.pauses
    }

    /// Adds what another loop counted.
    pub(super) fn add(&mut self, mut other: Self) {
        if self.points.is_empty() {
            *self = other;
            return;
        }
        // The server has paused when no loop had an answer.
        let pairs = self.pauses.iter().flat_map(|a| other.pauses.iter().map(move |b| (a, b)));
        let both = pairs.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end));
        self.pauses = both.filter(|both| both.end >= both.start + PAUSE).collect();
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

    /// As the outcome tells it; `end` is the length of the run in nanoseconds.
    pub fn seconds(&self, end: u64) -> Vec<Second> {
        let interval = self.interval as f64 / 1e9;
        let told = self.points.iter().enumerate().map(|(index, point)| {
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
        told.filter(|second| second.length > 0.0).collect()
    }
}

impl Point {
    fn new() -> Self {
        // Two digits of microseconds up to an hour: some 6 KB.
        let times = Histogram::new_with_bounds(1, 3_600_000_000, 2);
        let times = times.unwrap_or_else(|_| unreachable!("the bounds are constants"));
        Self { requests: 0, bytes: 0, errors: 0, times }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.errors += other.errors;
        // Both have the same bounds, so that nothing can be out of range.
        let _ = self.times.add(&other.times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_when_there_are_too_many_and_nothing_is_lost() {
        let mut series = Series::default();
        for second in 0..2_000_u64 {
            series.answer(second * 1_000_000_000, 1_000_000);
        }
        let told = series.seconds(2_000_000_000_000);
        assert_eq!(told.len(), 500);
        assert_eq!(told.iter().map(|second| second.requests).sum::<u64>(), 2_000);
        assert!(told.iter().all(|second| second.length == 4.0 && second.p50_ms > 0.9));
    }
}
