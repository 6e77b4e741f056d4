//! Conversion of a measurement to an outcome.

use std::collections::BTreeMap;

use crate::engine::{Job, Measured, Tally};
use crate::outcome::{
    Connections, ErrorKind, HeldRate, Latency, Outcome, ReplyRate, Second, SentAgain, Unfinished,
};
use crate::plan::{Model, Protocol, Reuse};
use crate::processes::use_between;
use crate::silence::Silence;
use crate::verdict::{self, Evidence};
use crate::{detect, time};

/// Returns the outcome of a measurement of `job`.
#[must_use]
pub fn conclude(job: &Job, measured: &Measured) -> Outcome {
    let Measured { tally, seconds, started, server, client, .. } = measured;
    let (errors_by_kind, first_errors) = errors(tally);
    let errors: u64 = errors_by_kind.values().sum();
    let lost = tally.lost.count();
    let plan = job.plan.clone();
    let open = !matches!(plan.model, Model::Closed { .. });
    let series = tally.series.seconds((seconds * 1e9) as u64);
    let reply_rate = reply_rate(&series);
    let server = server.as_ref().map(|(before, after)| use_between(before, after, tally.requests));
    let client = use_between(&client.0, &client.1, tally.requests);
    let some = |samples: &hdrhistogram::Histogram<u64>| {
        (!samples.is_empty()).then(|| Latency::from_histogram(samples))
    };
    let connections = connections(job, tally);
    let mut outcome = Outcome {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: time::rfc3339_millis(*started),
        duration_seconds: *seconds,
        requests: tally.requests,
        requests_per_second: tally.requests as f64 / seconds,
        bytes_per_second: tally.bytes as f64 / seconds,
        bytes: tally.bytes,
        errors,
        failed_requests: errors - tally.failed_connections,
        failed_connections: tally.failed_connections,
        errors_by_kind,
        first_errors,
        unfinished: Unfinished {
            in_flight: tally.unfinished,
            oldest_ms: tally.oldest as f64 / 1e6,
            slowest_ms: tally.slowest as f64 / 1e6,
            waiting: tally.waiting,
        },
        sent_again: SentAgain { lost, refused: tally.refused_streams },
        rate: open.then_some(HeldRate { due: tally.due, held: 1.0, ..HeldRate::default() }),
        warmup: tally.warmup,
        address: Some(job.address.to_string()),
        silence: None,
        status: tally.status.clone(),
        verdict: crate::outcome::Verdict::Valid,
        reasons: Vec::new(),
        latency_ms: some(&tally.latency),
        service_ms: some(&tally.service),
        connect_ms: some(&tally.connect),
        tls_ms: some(&tally.tls),
        connection_ms: some(&tally.lifetime),
        first_byte_ms: some(&tally.first_byte),
        lag_ms: if open { some(&tally.lag) } else { None },
        connections,
        series,
        reply_rate,
        server,
        client,
        findings: Vec::new(),
        search: None,
        generators: None,
        plan,
    };
    let median = outcome.service_ms.as_ref().map_or(0.0, |service| service.p50);
    // At a modem's pace, the client causes the pauses.
    if outcome.plan.modem_bits_per_second.is_none() {
        outcome.silence = Silence::of(tally.series.pauses(), *seconds, median);
    }
    let evidence = Evidence::of(&outcome, tally);
    (outcome.verdict, outcome.reasons) = verdict::judge(&evidence);
    if let Some(rate) = &mut outcome.rate {
        rate.limit = evidence.limit_of_rate();
        rate.held = evidence.held();
        rate.reason = evidence.why_rate_not_held();
    }
    outcome.findings = detect::findings(&outcome, tally);
    outcome
}

/// Share of the responses from which on requests that are lost with their connections are failures of the server. A reload
/// loses a few of a connection's last ones.
const LOST_SHARE: f64 = 0.01;

/// Returns the failures, and the first of each kind.
fn errors(tally: &Tally) -> (BTreeMap<ErrorKind, u64>, BTreeMap<ErrorKind, String>) {
    let (mut errors, mut first) = (tally.errors.clone(), tally.first_errors.clone());
    if tally.lost.count() as f64 > LOST_SHARE * tally.requests as f64 {
        for (kind, count) in &tally.lost.by_kind {
            *errors.entry(*kind).or_default() += count;
            first.entry(*kind).or_insert_with(|| tally.lost.first.clone().unwrap_or_default());
        }
    }
    (errors, first)
}

fn connections(job: &Job, tally: &Tally) -> Connections {
    let plan = &job.plan;
    let responses: u64 = tally.status.values().sum();
    let kept = plan.reuse == Reuse::Kept && tally.each.len() > 1;
    Connections {
        opened: tally.opened,
        closed_by_server: tally.closed_by_server,
        closed_by_generator: tally.closed_by_generator,
        requests_each: responses as f64 / tally.opened.max(1) as f64,
        depth_mean: tally.depth.1 as f64 / tally.depth.0.max(1) as f64,
        depth_max: tally.depth_max,
        tls_resumed: tally.tls_resumed,
        quic: (plan.protocol == Protocol::Http3).then(|| tally.quic.clone()),
        receive_window: tally.windows.largest,
        protocol: plan.protocol.name(job.is_tls()).to_owned(),
        fairness: kept.then(|| jain(&tally.each)),
    }
}

/// Jain's fairness index: 1 if all values are equal, 1/n if one has everything.
fn jain(each: &[u64]) -> f64 {
    let sum: f64 = each.iter().map(|&count| count as f64).sum();
    let squares: f64 = each.iter().map(|&count| (count as f64).powi(2)).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (each.len() as f64 * squares) }
}

/// Samples of the rate, as httperf takes them: one per five seconds, or per second in shorter runs.
pub(crate) fn reply_rate(series: &[Second]) -> Option<ReplyRate> {
    let whole: Vec<&Second> = series.iter().filter(|second| second.length >= 0.999).collect();
    let step = if whole.len() >= 10 { 5 } else { 1 };
    let samples: Vec<f64> = whole
        .chunks_exact(step)
        .map(|chunk| {
            let requests: u64 = chunk.iter().map(|second| second.requests).sum();
            requests as f64 / chunk.iter().map(|second| second.length).sum::<f64>()
        })
        .collect();
    let count = samples.len() as f64;
    let length = whole.first()?.length;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
    Some(ReplyRate {
        sample_seconds: step as f64 * length,
        samples: samples.len() as u32,
        min: samples.iter().copied().fold(f64::INFINITY, f64::min),
        mean,
        max: samples.iter().copied().fold(0.0, f64::max),
        stddev: if count > 1.0 { (variance / (count - 1.0)).sqrt() } else { 0.0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equal_values_and_falls_with_starvation() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-12);
        assert!((jain(&[8, 0, 0, 0]) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn the_reply_rate_is_sampled_every_five_seconds() {
        let second = |requests| Second { length: 1.0, requests, ..Second::default() };
        let series: Vec<Second> = (0..12).map(|n| second(if n < 5 { 100 } else { 200 })).collect();
        let rate = reply_rate(&series).unwrap();
        assert_eq!((rate.samples, rate.min, rate.mean, rate.max), (2, 100.0, 150.0, 200.0));
        assert!((rate.stddev - 70.71).abs() < 0.01);
        assert!(reply_rate(&[]).is_none());
    }
}
