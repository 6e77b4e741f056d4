//! The results on a terminal: for each row of a scenario, the servers by the main metric, the best one first.

use dunlin_load::show::{Color, Paint, fill};

use super::experiments::experiments;
use super::format;
use super::table::{Entry, Ranking, entries, factor_text, interval_text, ranking, rows};
use super::warnings::warnings;
use crate::results::{Better, Metric, Results, Row, ScenarioResults};
use crate::statistics::Estimate;

/// Formats all scenarios in lines of at most 80 columns.
pub(super) fn render(results: &Results, paint: Paint) -> String {
    let mut text = String::new();
    for scenario in &results.scenarios {
        table(&mut text, results, scenario, paint);
    }
    if let Some(missing) = results.missing_servers() {
        text.push('\n');
        text.push_str(&fill("", &format!("Not installed: {missing}"), 2));
    }
    for warning in warnings(results) {
        text.push('\n');
        let line = fill("", &format!("Warning: {warning}"), 2);
        text.push_str(&line.replacen("Warning", &paint.apply(Color::Yellow, "Warning"), 1));
    }
    text
}

/// A server's line: its order, its value, and its relation to the best one.
struct Line<'a> {
    name: &'a str,
    order: (usize, f64),
    value: String,
    relation: String,
    color: Option<Color>,
}

fn table(text: &mut String, results: &Results, scenario: &ScenarioResults, paint: Paint) {
    let Some(metric) = scenario.metrics.first() else { return };
    let better = match metric.better {
        Better::Higher => ", more is better",
        Better::Lower => ", less is better",
        Better::Neither => "",
    };
    let heading = format!("{}: {}{better}", scenario.title, metric.title);
    text.push('\n');
    text.push_str(&fill("", &heading, 2));
    let rows: Vec<(&Row, Vec<Line<'_>>)> =
        rows(scenario, metric).map(|row| (row, lines(results, row, metric))).collect();
    let all = || rows.iter().flat_map(|(_, lines)| lines);
    let names = all().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let values = all().map(|line| line.value.chars().count()).max().unwrap_or(0);
    for (row, lines) in &rows {
        text.push('\n');
        text.push_str(&paint.apply(Color::Bold, &row.full_title()));
        text.push('\n');
        for line in lines {
            let gap = " ".repeat(names - line.name.chars().count());
            let prefix = format!("  {}{gap}  {:>values$}  ", line.name, line.value);
            let filled = fill(&prefix, &line.relation, names + values + 6);
            let colored = line.color.map(|color| paint.apply(color, line.name));
            text.push_str(&match colored {
                Some(colored) => filled.replacen(line.name, &colored, 1),
                None => filled,
            });
        }
    }
    for experiments in experiments(scenario) {
        experiments.terminal(text, paint);
    }
    let doubts = doubts(results, scenario, metric);
    if !doubts.is_empty() {
        text.push('\n');
    }
    for doubt in doubts {
        text.push_str(&fill("", &doubt, 2));
    }
}

/// Returns the reason of the first figure of each server that is not valid. Those of its others are similar, and in the
/// report.
fn doubts(results: &Results, scenario: &ScenarioResults, metric: &Metric) -> Vec<String> {
    let of = |index: usize| {
        scenario.rows.iter().find_map(|row| {
            let entries = entries(results, row, metric);
            let Some(Entry::Figure { doubts, .. }) = entries.get(index) else { return None };
            let (title, name) = (row.full_title(), &results.servers[index].name);
            doubts.first().map(|doubt| format!("{title}, {name} is not valid: {doubt}"))
        })
    };
    (0..results.servers.len()).filter_map(of).collect()
}

/// Returns the servers of a row, the best one first. Servers that are not installed have no line.
fn lines<'a>(results: &'a Results, row: &Row, metric: &Metric) -> Vec<Line<'a>> {
    let entries = entries(results, row, metric);
    let ranking = ranking(results, row, metric, &entries);
    let mut lines: Vec<Line<'a>> = results
        .servers
        .iter()
        .zip(&entries)
        .enumerate()
        .filter(|(_, (server, _))| server.missing.is_none())
        .filter_map(|(index, (server, entry))| {
            line(&server.name, entry, metric, ranking.as_ref(), index)
        })
        .collect();
    lines.sort_by(|a, b| a.order.0.cmp(&b.order.0).then(a.order.1.total_cmp(&b.order.1)));
    lines
}

/// The last place, for servers without a valid figure.
const LAST: usize = usize::MAX;

fn line<'a>(
    name: &'a str,
    entry: &Entry<'_>,
    metric: &Metric,
    ranking: Option<&Ranking>,
    index: usize,
) -> Option<Line<'a>> {
    let line = |order, value: &str, relation: String, color| {
        Some(Line { name, order, value: value.to_owned(), relation, color })
    };
    match entry {
        Entry::Figure { estimate, tier, doubts, .. } => {
            let value = figure(estimate, metric);
            let directed = if metric.better == Better::Lower { 1.0 } else { -1.0 };
            let order = (tier.unwrap_or(LAST - 1), estimate.median * directed);
            if !doubts.is_empty() {
                return line((LAST, 0.0), &value, "not valid".to_owned(), Some(Color::Dim));
            }
            let Some((tier, ranking)) = tier.zip(ranking) else {
                return line(order, &value, "not ranked".to_owned(), None);
            };
            let relation = match (&ranking.factors[index], tier) {
                (None, _) if is_alone(ranking) => format!("only {name} was measured"),
                (None, _) => "first".to_owned(),
                (Some(factor), 0) => format!("tied with the first, {}", interval_text(factor)),
                (Some(factor), _) => factor_text(factor, metric),
            };
            line(order, &value, relation, (tier == 0).then_some(Color::Green))
        }
        Entry::Failed(reason, _) => {
            line((LAST, 1.0), "–", format!("failed: {reason}"), Some(Color::Red))
        }
        Entry::Facts(facts) => {
            let facts: Vec<String> =
                facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
            line((LAST, 0.0), "–", facts.join(", "), None)
        }
        Entry::Absent(reason) => line((LAST, 2.0), "–", format!("not available: {reason}"), None),
        Entry::Nothing => None,
    }
}

/// Returns `true` if one server alone has a valid figure, so that it is first of nothing.
fn is_alone(ranking: &Ranking) -> bool {
    ranking.tiers.iter().flatten().count() == 1
}

/// Returns a value with the larger half of its 95 % interval, in percent.
fn figure(estimate: &Estimate, metric: &Metric) -> String {
    let unit = format::unit_after(&metric.unit);
    let value = format::value(estimate.median, &metric.unit);
    match estimate.spread() {
        Some(spread) => format!("{value}{unit} ± {:>2.0} %", spread * 100.0),
        None => format!("{value}{unit}"),
    }
}
