//! The generators of a merged outcome: their starts, their verdicts, the sum of their series.

use std::collections::BTreeMap;

use super::Part;
use crate::outcome::{Generator, Generators, Outcome, Second, Verdict};
use crate::plan::{Arrivals, End, Model};
use crate::segment::Segment;
use crate::verdict;

/// Distance between starts in milliseconds that never matters.
const LEAST_SKEW: f64 = 10.0;
/// Share of the duration from which on the distance between starts matters.
const SKEW_SHARE: f64 = 0.01;
/// Multiple of that distance from which on the generators did not run at the same time.
const APART: f64 = 10.0;
/// Share of the planned duration that a generator may lack at its end.
const SHORT_SHARE: f64 = 0.02;

/// Returns `true` if all parts are segments of one run.
pub(super) fn are_segments(outcomes: &[&Outcome]) -> bool {
    let of = |outcome: &&Outcome| outcome.plan.segment.map(|segment| segment.of);
    let first = outcomes.first().and_then(of);
    first.is_some() && outcomes.iter().all(|outcome| of(outcome) == first)
}

/// Returns the generators of a run, and the reasons against its results, with their verdict.
pub(super) fn describe(parts: &[Part], interrupted: bool) -> (Generators, Vec<(Verdict, String)>) {
    let each: Vec<Generator> = parts.iter().map(generator).collect();
    let starts = || each.iter().filter_map(|one| one.start_ms);
    let first = starts().fold(f64::INFINITY, f64::min);
    let skew_ms = starts().fold(0.0, |skew: f64, start| skew.max(start - first));
    let uncertainties = each.iter().filter_map(|one| one.uncertainty_ms);
    let uncertainty_ms = uncertainties.reduce(f64::max);
    let mut reasons = Vec::new();
    for one in &each {
        if let Some(reason) = &one.lost {
            reasons.push((Verdict::Incomplete, format!("{}: {reason}", one.name)));
        }
    }
    reasons.extend(missing(parts).map(|reason| (Verdict::Incomplete, reason)));
    reasons.extend(late(parts, &each, first));
    if !interrupted {
        reasons.extend(short(parts));
    }
    (Generators { skew_ms, uncertainty_ms, each }, reasons)
}

fn generator(part: &Part) -> Generator {
    let outcome = part.result.as_ref().ok();
    Generator {
        name: part.name.clone(),
        segment: outcome.and_then(|outcome| outcome.plan.segment).or(part.segment),
        verdict: outcome.map(|outcome| outcome.verdict),
        requests: outcome.map_or(0, |outcome| outcome.requests),
        requests_per_second: outcome.map_or(0.0, |outcome| outcome.requests_per_second),
        errors: outcome.map_or(0, |outcome| outcome.errors),
        p99_ms: outcome.and_then(|o| o.latency_ms.as_ref()).map(|latency| latency.p99),
        cpus_busy: outcome.map_or(0.0, |outcome| outcome.client.cpus_busy),
        start_ms: part.start.map(|start| start.at_ms),
        uncertainty_ms: part.start.and_then(|start| start.uncertainty_ms),
        lost: part.result.as_ref().err().cloned(),
    }
}

/// Segments that occur less often than others.
fn missing(parts: &[Part]) -> impl Iterator<Item = String> {
    let segment = |part: &Part| {
        part.result.as_ref().ok().and_then(|outcome| outcome.plan.segment).or(part.segment)
    };
    let mut found = BTreeMap::<Segment, u32>::new();
    for segment in parts.iter().filter_map(segment) {
        *found.entry(segment).or_default() += 1;
        for index in 0..segment.of {
            found.entry(Segment { index, of: segment.of }).or_default();
        }
    }
    let most = found.values().copied().max().unwrap_or_default();
    found
        .into_iter()
        .filter(move |(_, count)| *count < most)
        .map(|(segment, _)| format!("the results of segment {segment} are missing"))
}

/// Generators that did not start with the others.
fn late(parts: &[Part], each: &[Generator], first: f64) -> Vec<(Verdict, String)> {
    let outcomes = parts.iter().filter_map(|part| part.result.as_ref().ok());
    let seconds = outcomes.map(|outcome| outcome.duration_seconds).fold(f64::INFINITY, f64::min);
    let limit = LEAST_SKEW.max(seconds * 1e3 * SKEW_SHARE);
    let of = |one: &Generator| {
        let late = one.start_ms? - first;
        (late > limit).then(|| {
            let verdict =
                if late > limit * APART { Verdict::Incomplete } else { Verdict::ClientBound };
            (verdict, format!("{} started {late:.0} ms after the first generator", one.name))
        })
    };
    each.iter().filter_map(of).collect()
}

/// Generators that ended before the planned duration.
fn short(parts: &[Part]) -> Vec<(Verdict, String)> {
    let of = |part: &Part| {
        let outcome = part.result.as_ref().ok()?;
        let End::Seconds(planned) = outcome.plan.end else { return None };
        let lacks = planned - outcome.duration_seconds;
        (lacks > planned * SHORT_SHARE).then(|| {
            let (name, ran) = (&part.name, outcome.duration_seconds);
            (Verdict::Incomplete, format!("{name} ended after {ran:.2} s of {planned} s"))
        })
    };
    parts.iter().filter_map(of).collect()
}

/// Returns the seconds of concurrent generators added up. Percentiles are the highest of any generator.
pub(super) fn add_up(seconds: Vec<Second>) -> Vec<Second> {
    let mut sum: Vec<Second> = Vec::new();
    for second in seconds {
        match sum.last_mut() {
            // The seconds are in order. Those of one point in time differ by the skew.
            Some(last) if (second.at - last.at) < second.length.min(last.length) / 2.0 => {
                last.requests += second.requests;
                last.bytes += second.bytes;
                last.errors += second.errors;
                last.length = last.length.max(second.length);
                last.p50_ms = last.p50_ms.max(second.p50_ms);
                last.p99_ms = last.p99_ms.max(second.p99_ms);
            }
            _ => sum.push(second),
        }
    }
    sum
}

/// Replaces verdicts on the noise of single generators by one on their sum, if the run is long enough for it.
pub(super) fn judge_noise(outcome: &Outcome, reasons: &mut Vec<(Verdict, String)>) {
    let ramps = matches!(
        outcome.plan.model,
        Model::OpenRequests(Arrivals::Ramp { .. }) | Model::OpenConnections(Arrivals::Ramp { .. })
    );
    if ramps {
        return;
    }
    if let Some(noise) = verdict::noise(&outcome.series) {
        reasons.retain(|(verdict, _)| *verdict != Verdict::Noisy);
        reasons.extend(noise.map(|reason| (Verdict::Noisy, reason)));
    }
}
