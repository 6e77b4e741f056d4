//! The metrics of a run.

use std::collections::BTreeMap;

use dunlin_load::outcome::{Latency, Outcome};

/// Returns the values of a run by metric key. `memory` is the server's memory, in bytes.
pub(super) fn values(outcome: &Outcome, memory: u64) -> BTreeMap<String, f64> {
    let mut values = BTreeMap::from([
        ("requests_per_second", outcome.requests_per_second),
        ("bytes_per_second", outcome.bytes_per_second),
        ("memory_bytes", memory as f64),
        ("errors", outcome.errors as f64),
        ("depth", outcome.connections.depth_mean),
        ("requests_per_connection", outcome.connections.requests_each),
    ]);
    if outcome.requests_per_second > 0.0 {
        values.insert("seconds_for_200", 200.0 / outcome.requests_per_second);
    }
    values.extend(cpu(outcome));
    values.extend(latencies(outcome));
    if let Some(search) = &outcome.search {
        values.insert("found", search.found);
    }
    values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn cpu(outcome: &Outcome) -> Vec<(&'static str, f64)> {
    let Some(server) = &outcome.server else { return Vec::new() };
    let Some(per_request) = server.cpu_us_per_request else { return Vec::new() };
    let mut values = vec![("cpu_us_per_request", per_request)];
    if server.cpu_seconds > 0.0 {
        values.push(("requests_per_cpu_second", outcome.requests as f64 / server.cpu_seconds));
    }
    values
}

fn latencies(outcome: &Outcome) -> Vec<(&'static str, f64)> {
    let mut values = Vec::new();
    if let Some(latency) = &outcome.latency_ms {
        values.extend([
            ("mean_ms", latency.mean),
            ("p50_ms", latency.p50),
            ("p99_ms", latency.p99),
            ("max_ms", latency.max),
        ]);
    }
    let mean = |latency: &Option<Latency>| latency.as_ref().map(|latency| latency.mean);
    let first_byte = mean(&outcome.first_byte_ms);
    values.extend(mean(&outcome.connect_ms).map(|connect| ("connect_ms", connect)));
    values.extend(mean(&outcome.connection_ms).map(|lifetime| ("connection_ms", lifetime)));
    values.extend(first_byte.map(|first| ("first_byte_ms", first)));
    if let (Some(first), Some(service)) = (first_byte, mean(&outcome.service_ms)) {
        values.push(("transfer_ms", (service - first).max(0.0)));
    }
    values
}
