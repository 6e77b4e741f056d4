//! Figures of the interval between two reports.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;

pub(crate) use dunlin_load::units::count as grouped;
use dunlin_status::{Report, fresh, percentile};
use serde_json::Value;

use super::lines;
use crate::watch::{size, took};

/// Figures of the interval between two reports.
pub(crate) struct Figures {
    pub(crate) report: Report,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Bytes of bodies per second.
    pub(crate) sent: f64,
    /// Nanoseconds.
    pub(crate) latency: Latency,
    /// Share of one processor.
    pub(crate) cpu: f64,
    /// New connections per second.
    pub(crate) accepted: f64,
    /// Share of responses from the file cache.
    pub(crate) hits: Option<f64>,
    /// Share of the bytes of files that came from the file cache.
    pub(crate) hit_bytes: Option<f64>,
    /// Share of requests on routes that cache responses which needed none from upstream.
    pub(crate) response_hits: Option<f64>,
    pub(crate) routes: Vec<Row>,
    pub(crate) clients: Vec<Row>,
}

/// A route or a client.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) rate: f64,
    pub(crate) sent: f64,
    pub(crate) latency: Latency,
    pub(crate) requests: u64,
    /// Responses with a status of 500 or more. Not counted for clients.
    pub(crate) failed: Option<u64>,
    /// Those of the last interval.
    pub(crate) new_failures: u64,
}

/// Latencies in nanoseconds; `None` without requests.
#[derive(Clone, Copy, Default)]
pub(crate) struct Latency {
    /// Median; mean for clients.
    pub(crate) low: Option<u64>,
    /// 99th percentile; slowest for clients.
    pub(crate) high: Option<u64>,
}

/// Names of the two latencies of routes and of the server.
pub(crate) const PERCENTILES: [&str; 2] = ["p50", "p99"];
/// Names of the two latencies of clients.
pub(crate) const OF_CLIENT: [&str; 2] = ["mean", "slowest"];

/// Figures of the last minutes, newest last.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) rate: VecDeque<u64>,
    pub(crate) sent: VecDeque<u64>,
    pub(crate) latency: VecDeque<u64>,
    pub(crate) cpu: VecDeque<u64>,
}

const KEEP: usize = 300;

impl Figures {
    /// Creates the figures between the reports `then` and `now`.
    pub(crate) fn new(now: &Report, then: &Report) -> Self {
        let seconds = (now.server.time - then.server.time).max(1e-3);
        // A restarted server counts from 0.
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let share = |hits: fn(&Report) -> (u64, u64)| {
            let (now, then) = (hits(now), hits(then));
            let lookups = now.1.saturating_sub(then.1);
            (lookups > 0).then(|| now.0.saturating_sub(then.0) as f64 / lookups as f64)
        };
        let old: HashMap<_, _> =
            then.routes.iter().map(|route| ((&route.site, &route.route), route)).collect();
        let routes = now.routes.iter().map(|route| {
            let old = old.get(&(&route.site, &route.route));
            let latency = fresh(&route.latency, old.map_or(&[], |old| &old.latency));
            Row {
                name: match &*route.site {
                    // Rejected before a site was found.
                    "" => "(no site)".to_owned(),
                    // No route matched.
                    site if route.route.is_empty() => format!("{site} (site)"),
                    site => format!("{site} {}", route.route),
                },
                rate: rate(route.requests, old.map_or(0, |old| old.requests)),
                sent: rate(route.sent, old.map_or(0, |old| old.sent)),
                latency: Latency::of(&latency),
                requests: route.requests,
                failed: Some(route.failed),
                new_failures: route.failed.saturating_sub(old.map_or(0, |old| old.failed)),
            }
        });
        let old: HashMap<_, _> =
            then.clients.iter().map(|client| (&client.address, client)).collect();
        let clients = now.clients.iter().map(|client| {
            let old = old.get(&client.address);
            Row {
                name: client.address.clone(),
                rate: rate(client.requests, old.map_or(0, |old| old.requests)),
                sent: rate(client.sent, old.map_or(0, |old| old.sent)),
                latency: Latency {
                    low: client.took.checked_div(client.requests),
                    high: Some(client.slowest),
                },
                requests: client.requests,
                failed: None,
                new_failures: 0,
            }
        });
        Self {
            rate: rate(now.requests.total, then.requests.total),
            sent: rate(now.requests.sent, then.requests.sent),
            latency: Latency::of(&fresh(&now.requests.latency, &then.requests.latency)),
            cpu: (now.process.cpu - then.process.cpu).max(0.0) / seconds,
            accepted: rate(now.connections.accepted, then.connections.accepted),
            hits: share(|report| (report.cache.hits, report.cache.hits + report.cache.misses)),
            hit_bytes: share(|report| {
                (report.cache.hit_bytes, report.cache.hit_bytes + report.cache.miss_bytes)
            }),
            response_hits: share(|report| report.responses.hits()),
            routes: routes.collect(),
            clients: clients.collect(),
            report: now.clone(),
        }
    }

    /// Open connections.
    pub(crate) fn open(&self) -> u64 {
        self.report.connections.open.iter().map(|(_, count)| count).sum()
    }

    /// Formats all figures as text.
    pub(crate) fn text(&self) -> String {
        let report = &self.report;
        let mut text = format!(
            "requests     {:.1}/s, {}/s\nlatency      {}\nCPU          {:.1} % of one core, {} of memory\n\
             connections  {} open, {} accepted\n",
            self.rate,
            size(self.sent as u64),
            self.latency.text(PERCENTILES),
            self.cpu * 100.0,
            size(report.process.resident),
            self.open(),
            report.connections.accepted,
        );
        // Writing to a String cannot fail.
        for (state, count) in lines::nonzero(&report.connections.open) {
            let _ = writeln!(text, "  {state:<10} {count}");
        }
        let tunnels = &report.tunnels;
        if tunnels.opened > 0 {
            let _ = writeln!(
                text,
                "tunnels      {} open, {} opened, {} received, {} sent",
                tunnels.open,
                tunnels.opened,
                size(tunnels.received),
                size(tunnels.sent)
            );
        }
        let cache = &report.cache;
        let _ = writeln!(
            text,
            "cache        {} hits, {}, {} misses, {}, {} files, {}",
            cache.hits,
            size(cache.hit_bytes),
            cache.misses,
            size(cache.miss_bytes),
            cache.files,
            size(cache.bytes)
        );
        let evicted: Vec<String> = lines::nonzero(&cache.eviction)
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        if !evicted.is_empty() {
            let _ = writeln!(text, "evicted      {}", evicted.join(", "));
        }
        let stored = &report.responses;
        if stored.max_bytes > 0 {
            let (hits, lookups) = stored.hits();
            let (urls, bytes) = (stored.urls, size(stored.bytes));
            let misses = lookups - hits;
            let _ = write!(text, "stored       {hits} hits, {misses} misses, {urls} URLs, {bytes}");
            if stored.disk.max_bytes > 0 {
                let (urls, bytes) = (stored.disk.urls, size(stored.disk.bytes));
                let _ = write!(text, ", {urls} URLs on disk, {bytes}");
            }
            text.push('\n');
        }
        for row in &self.routes {
            let _ = writeln!(text, "route        {}", row.text(PERCENTILES));
        }
        for row in &self.clients {
            let _ = writeln!(text, "client       {}", row.text(OF_CLIENT));
        }
        for (kind, lines) in [
            ("scripts", lines::scripts(report)),
            ("upstream", lines::upstreams(report)),
            ("store", lines::object_stores(report)),
            ("limit", lines::limits(report)),
            ("certificate", lines::certificates(report)),
        ] {
            for line in lines {
                let _ = writeln!(text, "{kind:<12} {}", line.text);
            }
        }
        text
    }
}

impl Row {
    fn text(&self, times: [&str; 2]) -> String {
        let failed = self.failed.map_or_else(String::new, |failed| format!(", {failed} failed"));
        let plural = if self.requests == 1 { "" } else { "s" };
        format!(
            "{}: {:.1}/s, {}/s, {}, {} request{plural}{failed}",
            self.name,
            self.rate,
            size(self.sent as u64),
            self.latency.text(times),
            self.requests
        )
    }
}

impl Latency {
    fn of(buckets: &[(u64, u64)]) -> Self {
        Self { low: percentile(buckets, 0.5), high: percentile(buckets, 0.99) }
    }

    fn text(self, names: [&str; 2]) -> String {
        format!("{} {}, {} {}", nanos(self.low), names[0], nanos(self.high), names[1])
    }
}

/// Formats nanoseconds, or a dash.
pub(crate) fn nanos(nanos: Option<u64>) -> String {
    nanos.map_or_else(|| "–".into(), |nanos| took(nanos / 1_000))
}

impl History {
    /// Returns the figures that the status page of a server has kept, of one second in `step`. What is malformed is left out.
    pub(crate) fn kept(text: &str, step: usize) -> Self {
        let kept: Value = serde_json::from_str(text).unwrap_or_default();
        let keys: Vec<&Value> = kept["keys"].as_array().into_iter().flatten().collect();
        let samples: Vec<&Value> = kept["samples"].as_array().into_iter().flatten().collect();
        let values = |key: &str, factor: f64| -> VecDeque<u64> {
            let at = keys.iter().position(|name| *name == key);
            let value = |sample: &Value| at.and_then(|at| sample[at].as_f64()).unwrap_or(0.0);
            let newest = samples.iter().rev().step_by(step.max(1)).take(KEEP);
            let values = newest.map(|sample| (value(sample) * factor).round() as u64);
            values.collect::<Vec<_>>().into_iter().rev().collect()
        };
        Self {
            rate: values("rate", 1.0),
            sent: values("bytes", 1.0),
            latency: values("p99", 1e-3),
            cpu: values("cpu", 10.0),
        }
    }

    pub(crate) fn add(&mut self, figures: &Figures) {
        let keep = |values: &mut VecDeque<u64>, value: u64| {
            values.push_back(value);
            if values.len() > KEEP {
                values.pop_front();
            }
        };
        keep(&mut self.rate, figures.rate.round() as u64);
        keep(&mut self.sent, figures.sent.round() as u64);
        keep(&mut self.latency, figures.latency.high.unwrap_or(0) / 1_000);
        keep(&mut self.cpu, (figures.cpu * 1_000.0).round() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_begin_with_what_the_server_has_kept() {
        let text = r#"{"keys":["time","rate","p99","bytes","cpu"],"samples":[[1,5,null,6,0],[2,7.6,2000000,8,1.5],[3,9,3000,10,2]]}"#;
        let history = History::kept(text, 1);
        assert_eq!(history.rate, [5, 8, 9]);
        assert_eq!(history.sent, [6, 8, 10]);
        assert_eq!(history.latency, [0, 2_000, 3]);
        assert_eq!(history.cpu, [0, 15, 20]);
        assert_eq!(History::kept(text, 2).rate, [5, 9], "of every other second");
        for malformed in ["", "[]", r#"{"keys":["rate"],"samples":[[]]}"#] {
            assert!(History::kept(malformed, 1).rate.iter().all(|&rate| rate == 0), "{malformed}");
        }
    }

    #[test]
    fn latencies_of_clients_have_their_own_names() {
        let mut now = report(2.0, &[]);
        now.clients = vec![dunlin_status::Client {
            address: "192.0.2.7".into(),
            requests: 10,
            took: 400_000,
            slowest: 90_000,
            ..Default::default()
        }];
        let text = Figures::new(&now, &report(1.0, &[])).text();
        let line = text.lines().find(|line| line.starts_with("client")).unwrap_or_default();
        assert!(line.contains("40 µs mean, 90 µs slowest") && !line.contains("p50"), "{line}");
    }

    #[test]
    fn the_response_cache_is_there_if_it_is_in_use() {
        let counted = |hits, misses| {
            let mut report = report(hits as f64, &[]);
            let counts =
                [("hit", hits), ("stale", 1), ("revalidated", 2), ("miss", misses), ("bypass", 50)];
            report.responses.requests = counts.map(|(name, count)| (name.to_owned(), count)).into();
            report
        };
        let (then, mut now) = (counted(5, 2), counted(8, 3));
        assert_eq!(Figures::new(&now, &then).response_hits, Some(0.75));
        assert!(!Figures::new(&now, &then).text().contains("stored"));
        now.responses.max_bytes = 1000;
        now.responses.urls = 4;
        let text = Figures::new(&now, &then).text();
        assert!(text.contains("stored       9 hits, 5 misses, 4 URLs, 0 B\n"), "{text}");
        now.responses.disk.max_bytes = 1000;
        let text = Figures::new(&now, &then).text();
        assert!(text.contains("4 URLs, 0 B, 0 URLs on disk, 0 B\n"), "{text}");
    }

    #[test]
    fn the_file_cache_has_its_hits_by_bytes_and_its_evictions_by_reason() {
        let counted = |hit_bytes, miss_bytes| {
            let mut report = report(1.0, &[]);
            (report.cache.hit_bytes, report.cache.miss_bytes) = (hit_bytes, miss_bytes);
            report
        };
        let (then, mut now) = (counted(1_000, 1_000), counted(4_000, 2_000));
        assert_eq!(Figures::new(&now, &then).hit_bytes, Some(0.75));
        assert!(!Figures::new(&now, &then).text().contains("evicted"));
        now.cache.eviction = vec![("room".into(), 3), ("changed".into(), 0), ("cleared".into(), 1)];
        let text = Figures::new(&now, &then).text();
        assert!(text.contains("evicted      3 room, 1 cleared\n"), "{text}");
    }

    fn report(time: f64, latency: &[(u64, u64)]) -> Report {
        let mut report = Report::default();
        report.server.time = time;
        report.requests.latency = latency.to_vec();
        report.requests.total = latency.iter().map(|(_, count)| count).sum();
        report
    }

    #[test]
    fn figures_are_those_between_two_reports() {
        let then = report(10.0, &[(1_000, 1_000), (9_000, 5)]);
        let now = report(12.0, &[(1_000, 1_000), (5_000, 98), (9_000, 7)]);
        let figures = Figures::new(&now, &then);
        assert_eq!(figures.rate, 50.0);
        assert_eq!(figures.latency.low, Some(5_000));
        assert_eq!(figures.latency.high, Some(9_000));
        // Restarted in between.
        let figures = Figures::new(&report(13.0, &[(1_000, 1)]), &now);
        assert_eq!((figures.rate, figures.latency.low), (0.0, None));
    }
}
