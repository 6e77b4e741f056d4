//! The last fifteen minutes in seconds, for the charts of a page that is opened later.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::report::Requests;

/// Samples that are kept: one a second, for 15 minutes.
const KEEP: usize = 900;
/// The names of the values of a sample.
const KEYS: [&str; 10] =
    ["time", "open", "rate", "server", "client", "rejected", "p50", "p99", "bytes", "cpu"];

/// What a server has counted up to a time.
#[derive(Debug)]
pub struct Totals {
    /// Seconds since 1970.
    pub time: f64,
    /// Open connections.
    pub open: u64,
    /// The requests.
    pub requests: Requests,
    /// Requests and connections that limits have rejected.
    pub rejected: u64,
    /// CPU time in seconds.
    pub cpu: f64,
}

/// The samples of the last fifteen minutes.
#[derive(Debug, Default)]
pub struct History(Mutex<Samples>);

#[derive(Debug, Default)]
struct Samples {
    before: Option<Totals>,
    /// The values of [`KEYS`]; `None` for percentiles without requests.
    values: VecDeque<[Option<f64>; KEYS.len()]>,
}

impl History {
    /// Adds the sample of the time since the call before.
    pub fn add(&self, now: Totals) {
        let samples = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(then) = &samples.before {
            samples.values.push_back(sample(&now, then));
            if samples.values.len() > KEEP {
                samples.values.pop_front();
            }
        }
        samples.before = Some(now);
    }

    /// Returns the samples as JSON: `keys` has the names of the values, `samples` an array for each second.
    pub fn json(&self) -> String {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rounded = |value: Option<f64>| match value {
            Some(value) if value.fract() == 0.0 => Value::from(value as u64),
            Some(value) => Value::from((value * 1000.0).round() / 1000.0),
            None => Value::Null,
        };
        let values: Vec<Vec<Value>> =
            samples.values.iter().map(|values| values.map(rounded).into()).collect();
        json!({ "keys": KEYS, "samples": values }).to_string()
    }
}

fn sample(now: &Totals, then: &Totals) -> [Option<f64>; KEYS.len()] {
    let seconds = (now.time - then.time).max(1e-3);
    let rate = |now: u64, then: u64| Some(now.saturating_sub(then) as f64 / seconds);
    let of_kind = |totals: &Totals, kind: &str| {
        totals.requests.status.iter().find(|(name, _)| name == kind).map_or(0, |(_, count)| *count)
    };
    let kind = |name| rate(of_kind(now, name), of_kind(then, name));
    let latency = fresh(&now.requests.latency, &then.requests.latency);
    [
        Some(now.time),
        Some(now.open as f64),
        rate(now.requests.total, then.requests.total),
        kind("5xx"),
        kind("4xx"),
        rate(now.rejected, then.rejected),
        percentile(&latency, 0.5).map(|nanos| nanos as f64),
        percentile(&latency, 0.99).map(|nanos| nanos as f64),
        rate(now.requests.sent, then.requests.sent),
        Some((now.cpu - then.cpu).max(0.0) / seconds * 100.0),
    ]
}

/// Returns the counts of buckets since `then`, without those that have none.
pub fn fresh(now: &[(u64, u64)], then: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let then: HashMap<u64, u64> = then.iter().copied().collect();
    let since = |&(bound, count): &(u64, u64)| {
        (bound, count.saturating_sub(then.get(&bound).copied().unwrap_or(0)))
    };
    now.iter().map(since).filter(|(_, count)| *count > 0).collect()
}

/// Returns the bound of the bucket up to which that share of all counts lies; `None` if there are no buckets.
pub fn percentile(buckets: &[(u64, u64)], share: f64) -> Option<u64> {
    let all: u64 = buckets.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let found = buckets.iter().find(|(_, count)| {
        below += count;
        below as f64 >= all as f64 * share
    });
    found.map(|(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(time: f64, requests: u64, failed: u64) -> Totals {
        let status = vec![("2xx".to_owned(), requests - failed), ("5xx".to_owned(), failed)];
        let requests = Requests {
            total: requests,
            sent: requests * 100,
            status,
            latency: vec![(1_000, requests - failed), (9_000, failed)],
            ..Requests::default()
        };
        Totals { time, open: 3, requests, rejected: 0, cpu: time / 10.0 }
    }

    #[test]
    fn a_sample_has_the_rates_of_its_second() {
        let history = History::default();
        history.add(totals(1.0, 100, 0));
        assert_eq!(history.json().matches('[').count(), 2, "one report alone has no rate");
        history.add(totals(2.0, 150, 10));
        let json: Value = serde_json::from_str(&history.json()).unwrap_or_default();
        let sample = json["samples"][0].clone();
        let expected = json!([2, 3, 50, 10, 0, 0, 1000, 9000, 5000, 10]);
        assert_eq!(sample, expected);
        history.add(totals(3.0, 150, 10));
        let json: Value = serde_json::from_str(&history.json()).unwrap_or_default();
        assert_eq!(json["samples"][1][6], Value::Null, "no request, no percentile");
    }

    #[test]
    fn fifteen_minutes_are_kept() {
        let history = History::default();
        for second in 0..1_000 {
            history.add(totals(f64::from(second), 0, 0));
        }
        let json: Value = serde_json::from_str(&history.json()).unwrap_or_default();
        assert_eq!(json["samples"].as_array().map(Vec::len), Some(KEEP));
        assert_eq!(json["samples"][KEEP - 1][0], 999);
    }
}
