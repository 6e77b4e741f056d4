//! Differences between two comparisons.

use std::collections::BTreeMap;
use std::path::Path;

use dunlin_load::show::{Color, Paint, fill};

use crate::report::format;
use crate::report::table::rounds_of;
use crate::report::warnings::busy;
use crate::results::{Better, Cell, Metric, Results};
use crate::statistics::{Estimate, median, ratio};

/// A figure that both comparisons have.
#[derive(Clone, Debug)]
pub struct Change {
    /// The identity of the figure.
    pub what: What,
    /// The medians of the first and of the second comparison.
    pub medians: (f64, f64),
    /// Ratio of the second to the first.
    pub ratio: Estimate,
    /// The metric of the figure.
    pub metric: Metric,
}

/// Identity of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct What {
    /// Name of the scenario.
    pub scenario: String,
    /// Title of the row, with its group.
    pub row: String,
    /// Name of the server.
    pub server: String,
    /// Title of the metric.
    pub metric: String,
}

/// The differences between two comparisons.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Figures that both have, the largest change first.
    pub changes: Vec<Change>,
    /// Figures that both have and that cannot be compared, with the reason.
    pub incomparable: Vec<(What, &'static str)>,
    /// The differences that make the comparison less certain.
    pub warnings: Vec<String>,
    /// Figures that only the first has.
    pub only_first: Vec<What>,
    /// Figures that only the second has.
    pub only_second: Vec<What>,
}

/// Reads the results of a comparison from its directory, or from its `results.json`.
///
/// # Errors
/// The file cannot be read or is malformed.
pub fn read(path: &Path) -> Result<Results, String> {
    let file = if path.is_dir() { path.join("results.json") } else { path.to_owned() };
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text)
        .map_err(|error| format!("{}:{}:{}: {error}", file.display(), error.line(), error.column()))
}

/// Smallest number of valid rounds on each side: the interval of fewer is their range, or nothing.
const MIN_ROUNDS: usize = 3;

/// Compares `b` with `a`, the earlier one. Rounds that are not valid do not count.
#[must_use]
pub fn diff(a: &Results, b: &Results) -> Diff {
    let (before, after) = (figures(a), figures(b));
    let mut diff = Diff::default();
    for (which, results) in [("first", a), ("second", b)] {
        let warning = busy(&results.machine);
        diff.warnings.extend(warning.map(|text| format!("the {which} comparison: {text}")));
    }
    for (what, metric, earlier) in &before {
        match after.iter().find(|(other, ..)| other == what) {
            Some((_, _, later)) => match obstacle(earlier, later) {
                Some(reason) => diff.incomparable.push((what.clone(), reason)),
                None => diff.changes.push(Change {
                    what: what.clone(),
                    medians: (median(earlier), median(later)),
                    ratio: ratio(later, earlier),
                    metric: metric.clone(),
                }),
            },
            None => diff.only_first.push(what.clone()),
        }
    }
    let known = |what: &What| before.iter().any(|(other, ..)| other == what);
    diff.only_second = after.into_iter().map(|(what, ..)| what).filter(|w| !known(w)).collect();
    diff.changes.sort_by(|x, y| {
        let size = |change: &Change| change.ratio.median.max(1e-9).ln().abs();
        size(y).total_cmp(&size(x))
    });
    diff
}

/// Returns why the valid rounds of a figure cannot be compared, if they cannot.
fn obstacle(earlier: &[f64], later: &[f64]) -> Option<&'static str> {
    match (earlier.len(), later.len()) {
        (0, 0) => Some("no round of either comparison is valid"),
        (0, _) => Some("no round of the first comparison is valid"),
        (_, 0) => Some("no round of the second comparison is valid"),
        (first, second) if first.min(second) < MIN_ROUNDS => {
            Some("fewer than three rounds are valid")
        }
        _ if median(earlier) <= 0.0 => Some("the first is 0"),
        _ => None,
    }
}

/// A figure and the values of its valid rounds.
type Figure = (What, Metric, Vec<f64>);

fn figures(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scenario in &results.scenarios {
        for row in &scenario.rows {
            for (server, cell) in &row.cells {
                if !matches!(cell, Cell::Measured { .. }) {
                    continue;
                }
                for metric in &scenario.metrics {
                    if rounds_of(cell, &metric.key, false).is_empty() {
                        continue;
                    }
                    let values = rounds_of(cell, &metric.key, true);
                    let values = values.into_iter().map(|(_, value)| value).collect();
                    let what = What {
                        scenario: scenario.name.clone(),
                        row: row.full_title(),
                        server: server.clone(),
                        metric: metric.title.clone(),
                    };
                    figures.push((what, metric.clone(), values));
                }
            }
        }
    }
    figures
}

impl Diff {
    /// Returns the figures that are worse by more than `share`, 0.05 for 5 %.
    pub fn worse(&self, share: f64) -> impl Iterator<Item = &Change> {
        let is_worse = move |change: &&Change| {
            let ratio = change.ratio.median;
            change.direction() == Some("worse") && (ratio > 1.0 + share || ratio < 1.0 - share)
        };
        self.changes.iter().filter(is_worse)
    }
}

impl Change {
    /// Returns whether it is `better`, `worse` or, if neither is better, `changed`; `None` if its interval includes 1.
    #[must_use]
    pub fn direction(&self) -> Option<&'static str> {
        let grew = self.ratio.low > 1.0;
        let shrank = self.ratio.high < 1.0;
        (grew || shrank).then_some(match self.metric.better {
            Better::Neither => "changed",
            Better::Higher if grew => "better",
            Better::Lower if shrank => "better",
            _ => "worse",
        })
    }
}

/// Formats the differences as text of at most 80 columns. Figures that are the same are counted.
#[must_use]
pub fn text(diff: &Diff, paint: Paint) -> String {
    let mut text = fill("", "The second comparison relative to the first, by scenario:", 0);
    text.push_str(
        "ratio of the medians, its 95 % interval from the rounds of both, both medians\n",
    );
    let mut scenarios: Vec<&str> = Vec::new();
    let incomparable = diff.incomparable.iter().map(|(what, _)| what);
    for what in diff.changes.iter().map(|change| &change.what).chain(incomparable) {
        if !scenarios.contains(&what.scenario.as_str()) {
            scenarios.push(&what.scenario);
        }
    }
    for scenario in scenarios {
        text.push('\n');
        text.push_str(&paint.apply(Color::Bold, scenario));
        text.push('\n');
        let changes = || diff.changes.iter().filter(|change| change.what.scenario == scenario);
        for (change, direction) in changes().filter_map(|c| Some((c, c.direction()?))) {
            text.push_str(&line(change, direction, paint));
        }
        let same = changes().filter(|change| change.direction().is_none()).count();
        if same > 0 {
            let s = if same == 1 { "" } else { "s" };
            text.push_str(&format!("  same     {same} figure{s}: the interval includes 1\n"));
        }
        for (reason, count) in reasons(diff, scenario) {
            let s = if count == 1 { "" } else { "s" };
            let line = format!("{count} figure{s}: {reason}");
            text.push_str(&fill("  not comparable  ", &line, 18));
        }
    }
    for warning in &diff.warnings {
        text.push('\n');
        let line = fill("", &format!("Warning: {warning}"), 2);
        text.push_str(&line.replacen("Warning", &paint.apply(Color::Yellow, "Warning"), 1));
    }
    for (name, alone) in [("first", &diff.only_first), ("second", &diff.only_second)] {
        if !alone.is_empty() {
            text.push_str(&format!("\nOnly in the {name} comparison:\n"));
        }
        for What { scenario, row, server, metric } in alone {
            text.push_str(&fill("  ", &format!("{scenario}: {server}, {row}, {metric}"), 4));
        }
    }
    text
}

/// Returns why figures of a scenario cannot be compared, and how many there are of each reason.
fn reasons(diff: &Diff, scenario: &str) -> BTreeMap<&'static str, usize> {
    let mut reasons = BTreeMap::new();
    for (_, reason) in diff.incomparable.iter().filter(|(what, _)| what.scenario == scenario) {
        *reasons.entry(*reason).or_default() += 1;
    }
    reasons
}

fn line(change: &Change, direction: &str, paint: Paint) -> String {
    let Change { what, medians, ratio, metric } = change;
    let prefix = format!(
        "  {direction:<7}  {:>6.3}×  {:.3}–{:.3}  {} → {}{}  ",
        ratio.median,
        ratio.low,
        ratio.high,
        format::value(medians.0, &metric.unit),
        format::value(medians.1, &metric.unit),
        format::unit_after(&metric.unit),
    );
    let filled = fill(&prefix, &format!("{}, {}, {}", what.server, what.row, what.metric), 11);
    let color = match direction {
        "better" => Color::Green,
        "worse" => Color::Red,
        _ => Color::Yellow,
    };
    filled.replacen(direction, &paint.apply(color, direction), 1)
}
