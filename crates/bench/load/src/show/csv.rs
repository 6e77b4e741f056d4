//! The outcome as CSV.

use std::fmt::Write;

use crate::outcome::{Latency, Outcome};

/// Formats the outcome as a header line and a line of values.
#[must_use]
pub fn csv(o: &Outcome) -> String {
    let url = o.plan.urls.first().map_or("", String::as_str).replace('"', "\"\"");
    let time = |of: fn(&Latency) -> f64| {
        o.latency_ms.as_ref().map_or(String::new(), |latency| format!("{:.6}", of(latency)))
    };
    let columns: [(&str, String); 16] = [
        ("started", o.started.clone()),
        ("url", format!("\"{url}\"")),
        ("connections", o.plan.connections.to_string()),
        ("seconds", format!("{:.3}", o.duration_seconds)),
        ("requests", o.requests.to_string()),
        ("errors", o.errors.to_string()),
        ("requests_per_second", format!("{:.1}", o.requests_per_second)),
        ("bytes_per_second", format!("{:.0}", o.bytes_per_second)),
        ("mean_ms", time(|l| l.mean)),
        ("p50_ms", time(|l| l.p50)),
        ("p90_ms", time(|l| l.p90)),
        ("p99_ms", time(|l| l.p99)),
        ("p999_ms", time(|l| l.p999)),
        ("max_ms", time(|l| l.max)),
        (
            "server_cpu_us_per_request",
            o.server
                .as_ref()
                .and_then(|server| server.cpu_us_per_request)
                .map_or(String::new(), |cpu| format!("{cpu:.3}")),
        ),
        ("verdict", o.verdict.to_string()),
    ];
    let line = |pick: fn(&(&'static str, String)) -> String| {
        columns.iter().map(pick).collect::<Vec<_>>().join(",")
    };
    format!("{}\n{}\n", line(|(name, _)| (*name).to_owned()), line(|(_, value)| value.clone()))
}

/// Formats the series: a line for each second.
#[must_use]
pub fn csv_series(o: &Outcome) -> String {
    let mut text = "at_seconds,length_seconds,requests,bytes,errors,p50_ms,p99_ms\n".to_owned();
    for s in &o.series {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:.3},{:.3},{},{},{},{:.6},{:.6}",
            s.at, s.length, s.requests, s.bytes, s.errors, s.p50_ms, s.p99_ms
        );
    }
    text
}
