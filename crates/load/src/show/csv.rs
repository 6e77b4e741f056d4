//! Figures for a spreadsheet.

use std::fmt::Write;

use crate::outcome::Outcome;

/// The run in one line, and the line above it that names the columns.
#[must_use]
pub fn csv(o: &Outcome) -> String {
    let url = o.plan.urls.first().map_or("", String::as_str).replace('"', "\"\"");
    let l = &o.latency_ms;
    let columns: [(&str, String); 16] = [
        ("started", o.started.clone()),
        ("url", format!("\"{url}\"")),
        ("connections", o.plan.connections.to_string()),
        ("seconds", format!("{:.3}", o.duration_seconds)),
        ("requests", o.requests.to_string()),
        ("errors", o.errors.to_string()),
        ("requests_per_second", format!("{:.1}", o.requests_per_second)),
        ("bytes_per_second", format!("{:.0}", o.bytes_per_second)),
        ("mean_ms", format!("{:.6}", l.mean)),
        ("p50_ms", format!("{:.6}", l.p50)),
        ("p90_ms", format!("{:.6}", l.p90)),
        ("p99_ms", format!("{:.6}", l.p99)),
        ("p999_ms", format!("{:.6}", l.p999)),
        ("max_ms", format!("{:.6}", l.max)),
        (
            "server_cpu_us_per_request",
            o.server.as_ref().map_or(String::new(), |s| format!("{:.3}", s.cpu_us_per_request)),
        ),
        ("verdict", o.verdict.to_string()),
    ];
    let line = |pick: fn(&(&'static str, String)) -> String| {
        columns.iter().map(pick).collect::<Vec<_>>().join(",")
    };
    format!("{}\n{}\n", line(|(name, _)| (*name).to_owned()), line(|(_, value)| value.clone()))
}

/// The run second by second.
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
