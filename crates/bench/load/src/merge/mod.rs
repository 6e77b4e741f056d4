//! Merging of outcomes: runs of the same plan, one after the other or by several generators at a time.

mod concurrent;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter::repeat;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use crate::conclude::reply_rate;
use crate::outcome::{
    Connections, HeldRate, Latency, Outcome, ProcessUse, Quic, Second, SentAgain, Unfinished,
    Verdict, Warmup,
};
use crate::plan::Plan;
use crate::segment::Segment;
use crate::time;

/// Keys of the plan that may differ between merged runs.
const MAY_DIFFER: [&str; 4] = ["seed", "end", "source_addresses", "connections"];
/// Those of segments, which are parts of one plan.
const MAY_DIFFER_IN_SEGMENTS: [&str; 2] = ["source_addresses", "segment"];

/// A run that is merged with others.
pub struct Part {
    /// Name of its generator, or of the file of its results.
    pub name: String,
    /// The outcome, or the reason why there is none.
    pub result: Result<Outcome, String>,
    /// The part of the plan, if the generator has no outcome, which has it as well.
    pub segment: Option<Segment>,
    /// The start of its load, if that was measured.
    pub start: Option<Start>,
}

/// The start of a generator's load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// Relative to the start of the others, in milliseconds.
    pub at_ms: f64,
    /// Largest error, in milliseconds; `None` if the clocks were not compared.
    pub uncertainty_ms: Option<f64>,
}

/// Merges outcomes of one plan: of runs in sequence, or of the segments of concurrent generators. Rates refer to the time in
/// which at least one of the runs was measuring, so that those of concurrent runs add up.
///
/// # Errors
/// The plans differ, an outcome is invalid, or there is none.
pub fn merge(parts: &[Part], interrupted: bool) -> Result<Outcome, String> {
    let outcomes: Vec<&Outcome> =
        parts.iter().filter_map(|part| part.result.as_ref().ok()).collect();
    let [first, rest @ ..] = &outcomes[..] else { return Err(no_outcome(parts)) };
    for other in rest {
        same_plan(&first.plan, &other.plan)?;
    }
    let spans = outcomes.iter().map(|outcome| span(outcome)).collect::<Result<Vec<_>, _>>()?;
    let mut merged = add_up(&outcomes, &spans)?;
    let (mut generators, mut reasons) = (None, Vec::new());
    if concurrent::are_segments(&outcomes) {
        let (described, against) = concurrent::describe(parts, interrupted);
        generators = Some(described);
        reasons = against;
        merged.series = concurrent::add_up(merged.series);
        merged.reply_rate = reply_rate(&merged.series);
    }
    let names = generators.is_some();
    for part in parts {
        let Ok(outcome) = &part.result else { continue };
        let name = |reason: &String| match names {
            true => format!("{}: {reason}", part.name),
            false => reason.clone(),
        };
        let not_held = outcome.rate.as_ref().and_then(|rate| rate.reason.as_ref());
        if let (Some(rate), Some(reason)) = (&mut merged.rate, not_held) {
            rate.reason.get_or_insert_with(|| name(reason));
        }
        // The first reason is that of the verdict.
        let verdicts = std::iter::once(outcome.verdict).chain(repeat(Verdict::Valid));
        reasons.extend(verdicts.zip(outcome.reasons.iter().map(name)));
    }
    if names {
        concurrent::judge_noise(&merged, &mut reasons);
    }
    reasons.sort_by_key(|(verdict, _)| Reverse(gravity(verdict)));
    merged.verdict = reasons.first().map_or(Verdict::Valid, |(verdict, _)| *verdict);
    merged.reasons = distinct(reasons.into_iter().map(|(_, reason)| reason));
    merged.generators = generators;
    Ok(merged)
}

fn no_outcome(parts: &[Part]) -> String {
    let lost = |part: &Part| Some(format!("{}: {}", part.name, part.result.as_ref().err()?));
    let reasons: Vec<String> = parts.iter().filter_map(lost).collect();
    match reasons.is_empty() {
        true => "there is nothing to merge".to_owned(),
        false => reasons.join("; "),
    }
}

/// Returns the sums of outcomes, which has no verdict yet.
fn add_up(outcomes: &[&Outcome], spans: &[(SystemTime, Duration)]) -> Result<Outcome, String> {
    let first = outcomes[0];
    let (start, seconds) = union(spans);
    let overlap =
        spans.iter().map(|(_, length)| length.as_secs_f64()).sum::<f64>() > seconds + 0.01;
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(|outcome| of(outcome)).sum::<u64>();
    let max = |of: fn(&Outcome) -> f64| outcomes.iter().map(|o| of(o)).fold(0.0, f64::max);
    let (requests, bytes) = (sum(|o| o.requests), sum(|o| o.bytes));
    let processes = |of: fn(&Outcome) -> Option<&ProcessUse>| {
        let each: Option<Vec<&ProcessUse>> = outcomes.iter().map(|outcome| of(outcome)).collect();
        each.map(|each| together(&each, requests))
    };
    let client = processes(|o| Some(&o.client)).unwrap_or_default();
    Ok(Outcome {
        version: first.version.clone(),
        plan: Plan {
            connections: outcomes.iter().map(|o| o.plan.connections).max().unwrap_or_default(),
            segment: None,
            ..first.plan.clone()
        },
        started: time::rfc3339_millis(start),
        duration_seconds: seconds,
        requests,
        requests_per_second: requests as f64 / seconds.max(1e-9),
        bytes_per_second: bytes as f64 / seconds.max(1e-9),
        bytes,
        errors: sum(|o| o.errors),
        failed_requests: sum(|o| o.failed_requests),
        failed_connections: sum(|o| o.failed_connections),
        errors_by_kind: counts(outcomes, |o| &o.errors_by_kind),
        first_errors: outcomes.iter().rev().flat_map(|o| o.first_errors.clone()).collect(),
        unfinished: Unfinished {
            in_flight: sum(|o| o.unfinished.in_flight),
            oldest_ms: max(|o| o.unfinished.oldest_ms),
            slowest_ms: max(|o| o.unfinished.slowest_ms),
            waiting: sum(|o| o.unfinished.waiting),
        },
        sent_again: SentAgain {
            lost: sum(|o| o.sent_again.lost),
            refused: sum(|o| o.sent_again.refused),
        },
        rate: first.rate.as_ref().map(|_| {
            let due = sum(|o| o.rate.as_ref().map_or(0, |rate| rate.due));
            let each = outcomes.iter().filter_map(|outcome| outcome.rate.as_ref());
            let held: f64 = each.map(|rate| rate.held * rate.due as f64).sum();
            HeldRate {
                due,
                held: held / due.max(1) as f64,
                limit: outcomes.iter().find_map(|outcome| outcome.rate.as_ref()?.limit),
                reason: None,
            }
        }),
        warmup: Warmup { requests: sum(|o| o.warmup.requests), errors: sum(|o| o.warmup.errors) },
        address: first
            .address
            .clone()
            .filter(|_| outcomes.iter().all(|outcome| outcome.address == first.address)),
        // Unknown: one run may have had responses while another was silent.
        silence: None,
        status: counts(outcomes, |o| &o.status),
        verdict: Verdict::Valid,
        reasons: Vec::new(),
        latency_ms: samples(outcomes, |o| o.latency_ms.as_ref())?,
        service_ms: samples(outcomes, |o| o.service_ms.as_ref())?,
        connect_ms: samples(outcomes, |o| o.connect_ms.as_ref())?,
        tls_ms: samples(outcomes, |o| o.tls_ms.as_ref())?,
        connection_ms: samples(outcomes, |o| o.connection_ms.as_ref())?,
        first_byte_ms: samples(outcomes, |o| o.first_byte_ms.as_ref())?,
        lag_ms: samples(outcomes, |o| o.lag_ms.as_ref())?,
        connections: connections(outcomes),
        series: series(outcomes, spans, start),
        reply_rate: None,
        // Two generators see the same processor time, which must not count twice.
        server: if overlap { None } else { processes(|o| o.server.as_ref()) },
        client,
        findings: distinct(outcomes.iter().flat_map(|o| o.findings.iter().cloned())),
        search: None,
        generators: None,
    })
}

/// Reads the outcomes that `--json` has written.
///
/// # Errors
/// A file cannot be read or is invalid.
pub fn read_all(files: &[PathBuf]) -> Result<Vec<Part>, String> {
    let mut outcomes = Vec::new();
    for file in files {
        let outcome = read(file)?;
        outcomes.push((file, span(&outcome)?.0, outcome));
    }
    let first = outcomes.iter().map(|(_, start, _)| *start).min();
    let part = |(file, start, outcome): (&PathBuf, SystemTime, Outcome)| {
        let after = first.and_then(|first| start.duration_since(first).ok()).unwrap_or_default();
        Part {
            name: file.display().to_string(),
            segment: outcome.plan.segment,
            result: Ok(outcome),
            start: Some(Start { at_ms: after.as_secs_f64() * 1e3, uncertainty_ms: None }),
        }
    };
    Ok(outcomes.into_iter().map(part).collect())
}

/// Reads an outcome that `--json` has written.
///
/// # Errors
/// The file cannot be read or is invalid.
fn read(file: &Path) -> Result<Outcome, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()))
        .map_err(|error| format!("{}: {error}", file.display()))
}

fn same_plan(plan: &Plan, other_plan: &Plan) -> Result<(), String> {
    let keys = |plan: &Plan| {
        serde_json::to_value(plan)
            .ok()
            .and_then(|value| value.as_object().cloned())
            .unwrap_or_default()
    };
    let (one, other) = (keys(plan), keys(other_plan));
    let of = |plan: &Plan| plan.segment.map(|segment| segment.of);
    if of(plan) != of(other_plan) {
        return Err("these are not the segments of one run: `--segment` differs".to_owned());
    }
    let may_differ: &[&str] = match plan.segment {
        Some(_) => &MAY_DIFFER_IN_SEGMENTS,
        None => &MAY_DIFFER,
    };
    let differs = one.iter().find(|(key, value)| {
        !may_differ.contains(&key.as_str()) && other.get(*key) != Some(*value)
    });
    match differs {
        Some((key, _)) => Err(format!("these are runs of different plans: `{key}` differs")),
        None => Ok(()),
    }
}

fn span(outcome: &Outcome) -> Result<(SystemTime, Duration), String> {
    let wrong = || format!("started {:?}, for {} s", outcome.started, outcome.duration_seconds);
    let start = time::from_rfc3339(&outcome.started).ok_or_else(wrong)?;
    let length = Duration::try_from_secs_f64(outcome.duration_seconds).map_err(|_| wrong())?;
    Ok((start, length))
}

/// Returns the earliest start, and the seconds covered by at least one span.
fn union(spans: &[(SystemTime, Duration)]) -> (SystemTime, f64) {
    let mut sorted = spans.to_vec();
    sorted.sort();
    let start = sorted.first().map_or(SystemTime::UNIX_EPOCH, |(start, _)| *start);
    let mut covered = Duration::ZERO;
    let mut until = start;
    for (from, length) in sorted {
        let end = from + length;
        covered += end.duration_since(from.max(until)).unwrap_or_default();
        until = until.max(end);
    }
    (start, covered.as_secs_f64())
}

fn gravity(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Valid => 0,
        Verdict::Noisy => 1,
        Verdict::LinkBound => 2,
        Verdict::ClientBound => 3,
        Verdict::RateNotHeld => 4,
        Verdict::Incomplete => 5,
        Verdict::Stalled => 6,
        Verdict::WrongResponses => 7,
    }
}

fn counts<K: Ord + Copy>(
    outcomes: &[&Outcome],
    of: fn(&Outcome) -> &BTreeMap<K, u64>,
) -> BTreeMap<K, u64> {
    let mut sum = BTreeMap::new();
    for (key, count) in outcomes.iter().flat_map(|outcome| of(outcome)) {
        *sum.entry(*key).or_default() += count;
    }
    sum
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn samples(
    outcomes: &[&Outcome],
    of: fn(&Outcome) -> Option<&Latency>,
) -> Result<Option<Latency>, String> {
    let mut sum: Option<Histogram<u64>> = None;
    for latency in outcomes.iter().filter_map(|outcome| of(outcome)) {
        let histogram = latency.to_histogram().map_err(|error| format!("a histogram: {error}"))?;
        match &mut sum {
            Some(sum) => sum.add(histogram).map_err(|error| format!("a histogram: {error}"))?,
            None => sum = Some(histogram),
        }
    }
    Ok(sum.map(|sum| Latency::from_histogram(&sum)))
}

fn connections(outcomes: &[&Outcome]) -> Connections {
    let each = || outcomes.iter().map(|outcome| &outcome.connections);
    let opened: u64 = each().map(|c| c.opened).sum();
    let mean = |of: fn(&Connections) -> f64, weight: fn(&Outcome) -> f64| {
        let weights: f64 = outcomes.iter().map(|outcome| weight(outcome)).sum();
        let sum: f64 = outcomes.iter().map(|o| of(&o.connections) * weight(o)).sum();
        sum / weights.max(1e-9)
    };
    Connections {
        opened,
        closed_by_server: each().map(|c| c.closed_by_server).sum(),
        closed_by_generator: each().map(|c| c.closed_by_generator).sum(),
        requests_each: mean(|c| c.requests_each, |o| o.connections.opened as f64),
        depth_mean: mean(|c| c.depth_mean, |o| o.requests as f64),
        depth_max: each().map(|c| c.depth_max).max().unwrap_or_default(),
        tls_resumed: each().map(|c| c.tls_resumed).sum(),
        quic: each().filter_map(|c| c.quic.as_ref()).fold(None, |sum: Option<Quic>, quic| {
            let mut sum = sum.unwrap_or_default();
            sum.add(quic);
            Some(sum)
        }),
        receive_window: each().filter_map(|c| c.receive_window).max(),
        protocol: each().map(|c| c.protocol.clone()).next().unwrap_or_default(),
        fairness: None,
    }
}

/// Returns the seconds of all runs in order of time, relative to the start of the first run.
fn series(
    outcomes: &[&Outcome],
    spans: &[(SystemTime, Duration)],
    start: SystemTime,
) -> Vec<Second> {
    let mut all: Vec<Second> = Vec::new();
    for (outcome, (from, _)) in outcomes.iter().zip(spans) {
        let offset = from.duration_since(start).unwrap_or_default().as_secs_f64();
        all.extend(
            outcome.series.iter().map(|second| Second { at: second.at + offset, ..second.clone() }),
        );
    }
    all.sort_by(|a, b| a.at.total_cmp(&b.at));
    all
}

fn together(each: &[&ProcessUse], requests: u64) -> ProcessUse {
    let cpu_seconds: f64 = each.iter().map(|u| u.cpu_seconds).sum();
    let mean = |of: fn(&ProcessUse) -> f64| {
        each.iter().map(|used| of(used)).sum::<f64>() / each.len().max(1) as f64
    };
    ProcessUse {
        name: each.first().map(|u| u.name.clone()).unwrap_or_default(),
        processes: each.iter().map(|u| u.processes).max().unwrap_or_default(),
        cpu_seconds,
        cpu_us_per_request: (requests > 0).then(|| cpu_seconds * 1e6 / requests as f64),
        cpu_share: mean(|used| used.cpu_share),
        cpus_busy: mean(|used| used.cpus_busy),
        waited_seconds: each.iter().map(|used| used.waited_seconds).sum(),
        memory_bytes: each.iter().map(|u| u.memory_bytes).max().unwrap_or_default(),
        voluntary_switches: each.iter().map(|u| u.voluntary_switches).sum(),
        involuntary_switches: each.iter().map(|u| u.involuntary_switches).sum(),
    }
}

#[cfg(test)]
mod tests;
