//! `--find-users` and `--find-rate`.

use std::convert::identity;
use std::io::IsTerminal;

use dunlin_load::engine;
use dunlin_load::outcome::{Outcome, RateLimit, Verdict};
use dunlin_load::plan::{Arrivals, Model, Plan};
use dunlin_load::search::{Bounds, Trial, find};
use dunlin_load::show::fill;

use super::runner::Runner;
use super::{LoadArguments, Search, plan};

/// Limit of users: more need more than one machine.
const MAX_USERS: f64 = 500_000.0;
/// Limit of requests per second.
const MAX_RATE: f64 = 10_000_000.0;
/// Lag of the generator, as a share of --p99, from which on it may be the cause of a response time above that limit.
const LAG_SHARE: f64 = 0.25;

/// Runs trials until the highest level that holds is known. The outcome is that of the last trial that held.
pub(super) fn run(arguments: &LoadArguments, mut runner: Runner) -> Result<Outcome, String> {
    let users = arguments.search.find_users;
    let limit = match &arguments.search.p99 {
        Some(text) => plan::limit("--p99", text)?,
        None => f64::INFINITY,
    };
    let first = if users { f64::from(runner.plan().connections) } else { 1000.0 };
    let Search { precision, most: max, .. } = arguments.search;
    let descriptors = runner.max_connections().map_or(f64::INFINITY, |max| max as f64);
    let bound = if users { MAX_USERS.min(descriptors) } else { MAX_RATE };
    let max = max.unwrap_or(bound).min(bound);
    // Each generator has a user.
    let least = if users { f64::from(arguments.machines.count()?) } else { 1e-3 };
    let bounds = Bounds { first, least, max, precision: precision.unwrap_or(0.02), whole: users };
    let (mut best, mut last) = (None, None);
    let of = if users { "users" } else { "requests per second" };
    // Trials are short. Without a terminal, their results suffice.
    let shown = std::io::stderr().is_terminal();
    let search = find(of, bounds, |level| {
        runner.change(|plan| shape(plan, users, level))?;
        let measured = runner.run(shown && !arguments.output.quiet)?;
        let outcome = measured.outcome;
        if let Some(lost) = lost(&outcome) {
            return Err(lost);
        }
        let trial = if users {
            judge_users(&outcome, measured.conformance)
        } else {
            judge_rate(&outcome, limit)
        };
        if !arguments.output.quiet {
            let result = trial.fault.as_deref().unwrap_or("held");
            eprint!("{}", fill(&format!("{level:>10.0} {of}: "), result, 12));
        }
        if measured.interrupted {
            return Err("interrupted".to_owned());
        }
        if trial.fault.is_none() {
            best = Some(outcome);
        } else {
            last = Some(outcome);
        }
        Ok::<_, String>(trial)
    })?;
    let mut outcome = best.or(last).ok_or("there was no trial")?;
    if !users && let Some(reason) = implausible(&search) {
        outcome.reasons.insert(0, reason);
        outcome.verdict = Verdict::RateNotHeld;
    }
    Ok(Outcome { search: Some(search), ..outcome })
}

/// Share of the rate that a server reached at a higher level, below which the result of a search cannot be its limit.
const PLAUSIBLE: f64 = 0.5;

/// Returns why the result of a search for a rate cannot be used, if it cannot.
fn implausible(search: &dunlin_load::outcome::Search) -> Option<String> {
    if search.found == 0.0 {
        return Some("no level held".to_owned());
    }
    let failed = search.levels.iter().filter(|level| !level.held && !level.why.starts_with(SLOW));
    let achieved = failed.map(|level| level.achieved).fold(0.0, f64::max);
    (search.found < PLAUSIBLE * achieved).then(|| {
        format!("no level held that is near the {achieved:.0}/s of responses at a higher one")
    })
}

/// Beginning of the reason of a level whose responses took too long.
const SLOW: &str = "p99 is";

/// Returns why a level cannot be judged: a generator has no results.
fn lost(outcome: &Outcome) -> Option<String> {
    let mut generators = outcome.generators.iter().flat_map(|generators| &generators.each);
    generators.find_map(|one| Some(format!("{}: {}", one.name, one.lost.as_ref()?)))
}

fn shape(plan: &mut Plan, users: bool, level: f64) {
    if users {
        plan.connections = level as u32;
    } else {
        plan.model = Model::OpenRequests(Arrivals::Constant { rate: level });
    }
}

fn judge_users(outcome: &Outcome, conformance: engine::Conformance) -> Trial {
    let engine::Conformance { users, conforming, late } = conformance;
    let wrong = failures(outcome);
    let stalled = outcome.verdict == Verdict::Stalled;
    let stalled = stalled.then(|| outcome.reasons.first().cloned().unwrap_or_default());
    let slow = (conforming < users).then(|| {
        format!(
            "{} of {users} users did not receive their pace ({late} waited for their first byte)",
            users - conforming
        )
    });
    Trial {
        achieved: f64::from(conforming),
        p99_ms: 0.0,
        server_memory_bytes: outcome.server.as_ref().map(|server| server.memory_bytes),
        fault: wrong.or(stalled).or(slow),
        client_bound: is_busy(outcome),
        limit: None,
    }
}

/// Returns `true` if the generator used all its processors.
fn is_busy(outcome: &Outcome) -> bool {
    outcome.client.cpu_seconds > 0.95 * outcome.duration_seconds * f64::from(outcome.plan.threads)
}

fn judge_rate(outcome: &Outcome, limit: f64) -> Trial {
    let p99 = outcome.latency_ms.as_ref().map_or(0.0, |latency| latency.p99);
    let lag = outcome.lag_ms.as_ref().map_or(0.0, |lag| lag.p99);
    let achieved = outcome.requests_per_second;
    let faults = rate_faults(outcome, limit, p99, lag);
    let met = outcome.rate.as_ref().and_then(|rate| rate.limit);
    // The response time includes the generator's lag, which matters only if the limit is exceeded.
    let client_bound = p99 >= limit && lag > limit * LAG_SHARE
        || is_busy(outcome) && met.is_none()
        || apart(outcome).is_some();
    Trial {
        achieved,
        p99_ms: p99,
        server_memory_bytes: outcome.server.as_ref().map(|server| server.memory_bytes),
        fault: faults.into_iter().find_map(identity),
        client_bound: client_bound || met == Some(RateLimit::Generator),
        limit: (met == Some(RateLimit::Connections))
            .then(|| format!("the {} connections (-c)", outcome.plan.connections)),
    }
}

fn failures(outcome: &Outcome) -> Option<String> {
    let count = outcome.failures();
    (count > 0).then(|| format!("{count} failures"))
}

/// Returns why the generators did not send a level at the same time, if they did not.
fn apart(outcome: &Outcome) -> Option<String> {
    let apart = outcome.verdict == Verdict::Incomplete;
    apart.then(|| outcome.reasons.first().cloned().unwrap_or_default())
}

/// Returns why a level does not hold, the most important reason first.
fn rate_faults(outcome: &Outcome, limit: f64, p99: f64, lag: f64) -> [Option<String>; 6] {
    let late = match lag > limit * LAG_SHARE {
        true => format!(", and the generator was late by {lag:.2} ms itself"),
        false => String::new(),
    };
    let stalled = outcome.verdict == Verdict::Stalled;
    [
        failures(outcome),
        apart(outcome),
        (outcome.requests == 0).then(|| "there was no response".to_owned()),
        stalled.then(|| outcome.reasons.first().cloned().unwrap_or_default()),
        // Responses take longer because they wait, so that this is the cause.
        outcome.rate.as_ref().and_then(|rate| rate.reason.clone()),
        (p99 >= limit).then(|| format!("{SLOW} {p99:.2} ms{late}")),
    ]
}
