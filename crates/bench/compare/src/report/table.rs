//! Content of the tables, before it is formatted as HTML or Markdown.

use super::experiments::is_experiment;
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
        /// Rounds that were run.
        run: usize,
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

/// Returns the values of a metric by round: those that can be used if `valid`, else all.
pub(crate) fn rounds_of(cell: &Cell, key: &str, valid: bool) -> Vec<(u32, f64)> {
    let Cell::Measured { rounds, .. } = cell else { return Vec::new() };
    let usable = rounds.iter().filter(|round| !valid || is_usable(round.verdict, key));
    usable.filter_map(|round| Some((round.round, *round.values.get(key)?))).collect()
}

/// Returns the values of a metric by round that its figure is made of, in tables and charts alike: those of the valid rounds,
/// or of all if none is valid. Returns whether they are valid.
pub(super) fn figure_rounds(cell: &Cell, key: &str) -> (Vec<(u32, f64)>, bool) {
    let valid = rounds_of(cell, key, true);
    match valid.len() >= MIN_ROUNDS {
        true => (valid, true),
        false => (rounds_of(cell, key, false), false),
    }
}

/// Returns `true` if the figure of a run can be used. Costs of the server are valid even if the generator was the limit.
pub(super) fn is_usable(verdict: Verdict, key: &str) -> bool {
    const OF_THE_SERVER: [&str; 3] =
        ["cpu_us_per_request", "requests_per_cpu_second", "memory_bytes"];
    match verdict {
        Verdict::Valid => true,
        Verdict::ClientBound | Verdict::Noisy | Verdict::RateNotHeld => {
            OF_THE_SERVER.contains(&key)
        }
        Verdict::LinkBound | Verdict::Incomplete | Verdict::Stalled | Verdict::WrongResponses => {
            false
        }
    }
}

/// Returns the rows with figures of a metric. Rows of probed features, which have none, stand with the main metric, and those
/// of experiments in their own table.
pub(super) fn rows<'a>(
    scenario: &'a ScenarioResults,
    metric: &Metric,
) -> impl Iterator<Item = &'a Row> {
    let is_main = scenario.metrics.first().is_some_and(|main| main.key == metric.key);
    let is_probe = |row: &Row| {
        let mut cells = row.cells.values();
        cells.any(|cell| matches!(cell, Cell::Measured { facts, .. } if !facts.is_empty()))
    };
    let stands_here = move |row: &&Row| !is_experiment(row) && (is_main || !is_probe(row));
    scenario.rows.iter().filter(stands_here)
}

/// Returns the entries of a row, in the order of the servers.
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
                let (values, usable) = figure_rounds(cell, &metric.key);
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
                    run: rounds.len(),
                }
            }
        })
        .collect()
}

/// Returns the servers of a scenario: those that are installed and can run at least one of its rows.
pub(super) fn columns(results: &Results, scenario: &ScenarioResults) -> Vec<usize> {
    let shown = |index: &usize| why_absent(results, scenario, *index).is_none();
    (0..results.servers.len()).filter(shown).collect()
}

/// Returns the servers without a column, and the reasons.
pub(super) fn absent<'a>(
    results: &'a Results,
    scenario: &'a ScenarioResults,
) -> Vec<(&'a str, &'a str)> {
    let absent = |index: usize| {
        let reason = why_absent(results, scenario, index)?;
        Some((results.servers[index].name.as_str(), reason))
    };
    (0..results.servers.len()).filter_map(absent).collect()
}

fn why_absent<'a>(
    results: &'a Results,
    scenario: &'a ScenarioResults,
    index: usize,
) -> Option<&'a str> {
    let server = &results.servers[index];
    if let Some(missing) = &server.missing {
        return Some(missing);
    }
    let mut reason = None;
    for row in &scenario.rows {
        match row.cells.get(&server.name) {
            Some(Cell::NotAvailable { reason: given }) => reason = Some(given.as_str()),
            _ => return None,
        }
    }
    reason
}

/// The servers of a row in relation to the best one.
pub(super) struct Ranking {
    /// For each ranked server except the best one: how many times the best one is better.
    pub(super) factors: Vec<Option<Estimate>>,
    /// The tiers, 0 for the best.
    pub(super) tiers: Vec<Option<usize>>,
}

/// Ranks the servers of a row; `None` if none is ranked.
pub(super) fn ranking(
    results: &Results,
    row: &Row,
    metric: &Metric,
    entries: &[Entry<'_>],
) -> Option<Ranking> {
    let tiers: Vec<Option<usize>> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Figure { tier, .. } => *tier,
            _ => None,
        })
        .collect();
    let rounds = |index: usize| {
        let cell = row.cells.get(&results.servers[index].name);
        cell.map_or(Vec::new(), |cell| rounds_of(cell, &metric.key, true))
    };
    let best = leader(&tiers, 0, entries, metric.better)?;
    let of_best = rounds(best);
    let factor = |index: usize| {
        (index != best && tiers[index].is_some()).then(|| match metric.better {
            Better::Lower => paired_ratio(&pairs(&rounds(index), &of_best)),
            _ => paired_ratio(&pairs(&of_best, &rounds(index))),
        })
    };
    let factors = (0..entries.len()).map(factor).collect();
    Some(Ranking { factors, tiers })
}

/// Returns the best server of a tier by median.
fn leader(
    tiers: &[Option<usize>],
    tier: usize,
    entries: &[Entry<'_>],
    better: Better,
) -> Option<usize> {
    let of: Vec<usize> = (0..tiers.len()).filter(|&index| tiers[index] == Some(tier)).collect();
    let median = |index: &usize| match &entries[*index] {
        Entry::Figure { estimate, .. } => estimate.median,
        _ => 0.0,
    };
    let order = |a: &&usize, b: &&usize| median(a).total_cmp(&median(b));
    if better == Better::Lower { of.iter().min_by(order) } else { of.iter().max_by(order) }.copied()
}

/// Formats a factor: "1.31× slower, 95 % interval 1.05–1.65".
pub(super) fn factor_text(factor: &Estimate, metric: &Metric) -> String {
    match factor.count {
        0 => interval_text(factor),
        _ => format!("{:.2}× {}, {}", factor.median, worse(metric), interval_text(factor)),
    }
}

/// Formats the interval of a factor, which servers without a common round do not have.
pub(super) fn interval_text(factor: &Estimate) -> String {
    match factor.count {
        0 => "no valid round in common".to_owned(),
        _ => format!("95 % interval {:.2}–{:.2}", factor.low, factor.high),
    }
}

/// Returns what a server is that is worse by a metric.
fn worse(metric: &Metric) -> &'static str {
    let is_time = metric.unit == "s" || metric.unit == "ms" || metric.unit == "/s";
    match metric.better {
        _ if is_time || metric.unit == "bytes/s" => "slower",
        Better::Lower => "more",
        Better::Higher | Better::Neither => "less",
    }
}

/// Describes the first tier of a row, its lead over the next tier, and the servers whose figures are not valid.
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
    let doubtful = (!doubtful.is_empty()).then(|| format!("not valid: {}", doubtful.join(", ")));
    match (first, doubtful) {
        (Some(first), Some(doubtful)) => Some(format!("{first}; {doubtful}")),
        (None, Some(_)) => Some("no figure is valid".to_owned()),
        (first, None) => first,
    }
}

fn first(results: &Results, row: &Row, metric: &Metric, entries: &[Entry<'_>]) -> Option<String> {
    let ranking = ranking(results, row, metric, entries)?;
    let name = |index: usize| results.servers[index].name.as_str();
    let tied = (0..entries.len()).filter(|&index| ranking.tiers[index] == Some(0));
    let names: Vec<&str> = tied.map(name).collect();
    let next = leader(&ranking.tiers, 1, entries, metric.better);
    let next = next.and_then(|next| Some((next, ranking.factors[next].as_ref()?)));
    Some(match (&names[..], next) {
        ([only], None) => format!("only {only} was measured"),
        (_, None) => format!("{} cannot be distinguished", names.join(", ")),
        (names, Some((next, factor))) => {
            let tied = if names.len() > 1 { "tied first" } else { "first" };
            let (names, next) = (names.join(", "), name(next));
            format!("{tied}: {names}; next: {next}, {}", factor_text(factor, metric))
        }
    })
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
                    let (rounds, _) = figure_rounds(row.cells.get(&server.name)?, metric);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_a_common_round_have_no_interval() {
        assert_eq!(interval_text(&paired_ratio(&[])), "no valid round in common");
        assert_eq!(interval_text(&paired_ratio(&[(2.0, 1.0)])), "95 % interval 2.00–2.00");
    }
}
