//! Plans and outcomes for tests.

use hdrhistogram::Histogram;

use crate::engine::Extras;
use crate::generators::protocol::Task;
use crate::outcome::{Connections, Latency, Outcome, ProcessUse, Second, Unfinished, Verdict};
use crate::plan::{Choice, End, Model, Plan, Protocol, RequestShape, Reuse, Verify};
use crate::verify::Reference;

/// Returns a plan of that many seconds.
pub(crate) fn plan(seconds: f64) -> Plan {
    Plan {
        urls: vec!["http://127.0.0.1:1/".to_owned()],
        choice: Choice::InOrder,
        seed: 1,
        protocol: Protocol::Http11,
        connections: 12,
        threads: 1,
        end: End::Seconds(seconds),
        limit_seconds: None,
        warmup_seconds: 0.0,
        model: Model::Closed { think_seconds: 0.0 },
        reuse: Reuse::Kept,
        pipeline: 1,
        streams: 1,
        request: RequestShape {
            method: "GET".to_owned(),
            fields: Vec::new(),
            body_bytes: 0,
            body_sha256: None,
            split_body: false,
            no_delay: true,
        },
        timeout_seconds: 1.0,
        verify: Verify::Status,
        modem_bits_per_second: None,
        source_addresses: Vec::new(),
        insecure: false,
        early_data: false,
        server_name: None,
        segment: None,
    }
}

/// Returns a task with that plan.
pub(crate) fn task(seconds: f64) -> Task {
    Task {
        plan: plan(seconds),
        extras: Extras::default(),
        reference: Reference::default(),
        permitted: false,
    }
}

/// Returns a valid outcome with that many responses of one millisecond each.
pub(crate) fn outcome(requests: u64, seconds: f64) -> Outcome {
    let mut samples = histogram();
    samples.saturating_record_n(1_000_000, requests);
    Outcome {
        version: String::new(),
        plan: plan(seconds),
        started: "2026-11-25T12:00:00.000Z".to_owned(),
        duration_seconds: seconds,
        requests,
        requests_per_second: requests as f64 / seconds,
        bytes_per_second: 0.0,
        bytes: 0,
        errors: 0,
        failed_requests: 0,
        failed_connections: 0,
        errors_by_kind: Default::default(),
        status: [(200, requests)].into(),
        first_errors: Default::default(),
        unfinished: Unfinished::default(),
        sent_again: Default::default(),
        rate: None,
        warmup: Default::default(),
        address: None,
        silence: None,
        verdict: Verdict::Valid,
        reasons: Vec::new(),
        latency_ms: Some(Latency::from_histogram(&samples)),
        service_ms: None,
        connect_ms: None,
        tls_ms: None,
        connection_ms: None,
        first_byte_ms: None,
        lag_ms: None,
        connections: Connections::default(),
        series: Vec::<Second>::new(),
        reply_rate: None,
        server: None,
        client: ProcessUse::default(),
        findings: Vec::new(),
        search: None,
        generators: None,
    }
}

/// Returns an empty histogram as outcomes have them.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap()
}
