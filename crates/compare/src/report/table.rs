//! Content of the tables, before it is formatted as HTML or Markdown.

use crate::adapter::BASELINE;
use crate::results::{Better, Cell, Chart, Metric, Results, Row, ScenarioResults};
use crate::statistics::{Estimate, estimate, paired_ratio, pairs, tiers};
use dunlin_load::detect;
use dunlin_load::outcome::Verdict;

/// The entry of a server in a row for a metric.
pub(super) enum Entry<'a> {
    /// A measured figure.
    Figure {
        /// The figure.
        estimate: Estimate,
        /// Tier, 0 for the best; absent if not ranked.
        tier: Option<usize>,
        /// Reasons why the figure cannot be used; empty if it can.
        doubts: Vec<&'a str>,
    },
    /// Probed features.
    Facts(Vec<(&'a str, &'a str)>),
    /// Not available, with the reason.
    Absent(&'a str),
    /// Failed, with the reason and the last lines of output.
    Failed(&'a str, &'a str),
    /// Not run.
    Nothing,
}

/// Smallest number of valid rounds of a figure.
const MIN_ROUNDS: usize = 1;

/// The values of a metric by round: those that can be used if `valid`, else all.
pub(super) fn rounds_of(cell: &Cell, key: &str, valid: bool) -> Vec<(u32, f64)> {
    let Cell::Measured { rounds, .. } = cell else { return Vec::new() };
    let usable = rounds.iter().filter(|round| !valid || is_usable(round.verdict, key));
    usable.filter_map(|round| Some((round.round, *round.values.get(key)?))).collect()
}

/// Whether the figure of a run can be used. Costs of the server are valid even if the generator was the limit.
fn is_usable(verdict: Verdict, key: &str) -> bool {
    const OF_THE_SERVER: [&str; 3] =
        ["cpu_us_per_request", "requests_per_cpu_second", "memory_bytes"];
    match verdict {
        Verdict::Valid => true,
        Verdict::ClientBound | Verdict::Noisy => OF_THE_SERVER.contains(&key),
        Verdict::LinkBound | Verdict::Stalled | Verdict::WrongAnswers => false,
    }
}

/// The entries of a row, in the order of the servers.
pub(super) fn entries<'a>(results: &'a Results, row: &'a Row, metric: &Metric) -> Vec<Entry<'a>> {
    let valid: Vec<Vec<(u32, f64)>> = results
        .servers
        .iter()
        .map(|server| {
            row.cells
                .get(&server.name)
                .map_or(Vec::new(), |cell| rounds_of(cell, &metric.key, true))
        })
        .collect();
    let ranked: Vec<Vec<(u32, f64)>> = results
        .servers
        .iter()
        .zip(&valid)
        .map(|(server, rounds)| if server.name == BASELINE { Vec::new() } else { rounds.clone() })
        .collect();
    let tiers = match metric.better {
        Better::Neither => vec![None; ranked.len()],
        better => tiers(&ranked, better == Better::Higher),
    };
    results
        .servers
        .iter()
        .enumerate()
        .map(|(index, server)| match row.cells.get(&server.name) {
            None => Entry::Nothing,
            Some(Cell::NotAvailable { reason }) => Entry::Absent(reason),
            Some(Cell::Failed { reason, log_tail }) => Entry::Failed(reason, log_tail),
            Some(cell @ Cell::Measured { rounds, facts }) => {
                if rounds.is_empty() {
                    return Entry::Facts(
                        facts.iter().map(|(name, value)| (&**name, &**value)).collect(),
                    );
                }
                let usable = valid[index].len() >= MIN_ROUNDS;
                let values =
                    if usable { valid[index].clone() } else { rounds_of(cell, &metric.key, false) };
                if values.is_empty() {
                    return Entry::Absent("it was not reported");
                }
                let figures: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
                // Report the first reason only: the others differ in their figures.
                let doubtful = rounds.iter().filter(|round| round.verdict != Verdict::Valid);
                let mut doubts: Vec<&str> = doubtful
                    .filter_map(|round| round.reasons.first())
                    .map(String::as_str)
                    .take(1)
                    .collect();
                if usable {
                    doubts.clear();
                } else if doubts.is_empty() {
                    doubts.push("no round is valid");
                }
                Entry::Figure {
                    estimate: estimate(&figures),
                    tier: tiers[index].filter(|_| usable),
                    doubts,
                }
            }
        })
        .collect()
}

/// Describes the first tier of a row, its lead over the next tier, and the servers whose figures cannot be used.
pub(super) fn verdict(results: &Results, scenario: &ScenarioResults, row: &Row) -> Option<String> {
    let metric = scenario.metrics.first()?;
    let entries = entries(results, row, metric);
    let doubtful: Vec<&str> = results
        .servers
        .iter()
        .zip(&entries)
        .filter(|(server, entry)| {
            server.name != BASELINE
                && matches!(entry, Entry::Figure { doubts, .. } if !doubts.is_empty())
        })
        .map(|(server, _)| server.name.as_str())
        .collect();
    let first = first(results, row, metric, &entries);
    match (first, doubtful.is_empty()) {
        (first, true) => first,
        (Some(first), false) => Some(format!("{first}; not judged: {}", doubtful.join(", "))),
        (None, false) => Some(format!("not judged: {}", doubtful.join(", "))),
    }
}

fn first(results: &Results, row: &Row, metric: &Metric, entries: &[Entry<'_>]) -> Option<String> {
    let of_tier = |wanted: usize| -> Vec<usize> {
        let is = |entry: &Entry<'_>| matches!(entry, Entry::Figure { tier: Some(tier), .. } if *tier == wanted);
        (0..entries.len()).filter(|&index| is(&entries[index])).collect()
    };
    let (first, second) = (of_tier(0), of_tier(1));
    let name = |index: usize| results.servers[index].name.as_str();
    let names: Vec<&str> = first.iter().map(|&index| name(index)).collect();
    if names.is_empty() {
        return None;
    }
    if let ([only], true) = (&first[..], second.is_empty()) {
        return Some(format!("only {} was measured", name(*only)));
    }
    let Some(next) = second.first() else {
        return Some(format!("{} cannot be distinguished", names.join(", ")));
    };
    let rounds = |index: usize| {
        row.cells.get(name(index)).map_or(Vec::new(), |cell| rounds_of(cell, &metric.key, true))
    };
    let best = leader(&first, entries, metric.better)?;
    let next = leader(&second, entries, metric.better).unwrap_or(*next);
    let ratio = paired_ratio(&pairs(&rounds(best), &rounds(next)));
    Some(format!(
        "{} first: {:.2} times {} [{:.2}, {:.2}]",
        names.join(", "),
        ratio.median,
        name(next),
        ratio.low,
        ratio.high
    ))
}

/// The best one by median.
fn leader(of: &[usize], entries: &[Entry<'_>], better: Better) -> Option<usize> {
    let median = |index: &usize| match &entries[*index] {
        Entry::Figure { estimate, .. } => estimate.median,
        _ => 0.0,
    };
    let order = |a: &&usize, b: &&usize| median(a).total_cmp(&median(b));
    if better == Better::Lower { of.iter().min_by(order) } else { of.iter().max_by(order) }.copied()
}

/// Knees and cliffs in the curves of a scenario, by server.
pub(super) fn curves(results: &Results, scenario: &ScenarioResults) -> Vec<String> {
    let mut findings = Vec::new();
    for chart in &scenario.charts {
        let Chart::Curve { metric, x, group, .. } = chart else { continue };
        for server in &results.servers {
            let points: Vec<(f64, f64)> = scenario
                .rows
                .iter()
                .filter(|row| group.is_none() || row.group == *group)
                .filter_map(|row| {
                    let rounds = rounds_of(row.cells.get(&server.name)?, metric, false);
                    let values: Vec<f64> = rounds.into_iter().map(|(_, value)| value).collect();
                    Some((row.x?, estimate(&values).median)).filter(|_| !values.is_empty())
                })
                .collect();
            for finding in detect::curve(&points) {
                findings
                    .push(format!("{}, {} over {x}: {}", server.name, finding.kind, finding.text));
            }
        }
    }
    findings
}
