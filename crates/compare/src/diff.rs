//! Differences between two comparisons.

use std::fmt::Write;
use std::path::Path;

use crate::results::{Better, Cell, Results};
use crate::statistics::{Estimate, estimate, paired_ratio, pairs};

/// A figure that both comparisons have.
#[derive(Clone, Debug)]
pub struct Change {
    /// Scenario, row, server and metric.
    pub what: String,
    /// The medians of the first and of the second comparison.
    pub medians: (f64, f64),
    /// Ratio of the second to the first.
    pub ratio: Estimate,
    /// Which way is better.
    pub better: Better,
}

/// The differences between two comparisons.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// Figures that both have, the largest change first.
    pub changes: Vec<Change>,
    /// Figures that only one of them has.
    pub alone: Vec<String>,
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

/// Compares `b` with `a`, the earlier one.
#[must_use]
pub fn diff(a: &Results, b: &Results) -> Diff {
    let (before, after) = (figures(a), figures(b));
    let mut diff = Diff::default();
    for (what, better, earlier) in &before {
        match after.iter().find(|(other, ..)| other == what) {
            Some((_, _, later)) => {
                let values = |rounds: &[(u32, f64)]| {
                    rounds.iter().map(|(_, value)| *value).collect::<Vec<_>>()
                };
                let medians = (estimate(&values(earlier)).median, estimate(&values(later)).median);
                let ratio = paired_ratio(&pairs(later, earlier));
                diff.changes.push(Change { what: what.clone(), medians, ratio, better: *better });
            }
            None => diff.alone.push(format!("only in the first: {what}")),
        }
    }
    for (what, ..) in &after {
        if !before.iter().any(|(other, ..)| other == what) {
            diff.alone.push(format!("only in the second: {what}"));
        }
    }
    diff.changes.sort_by(|x, y| {
        let size = |change: &Change| change.ratio.median.max(1e-9).ln().abs();
        size(y).total_cmp(&size(x))
    });
    diff
}

type Figure = (String, Better, Vec<(u32, f64)>);

fn figures(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scenario in &results.scenarios {
        for row in &scenario.rows {
            for (server, cell) in &row.cells {
                let Cell::Measured { rounds, .. } = cell else { continue };
                for metric in &scenario.metrics {
                    let values: Vec<(u32, f64)> = rounds
                        .iter()
                        .filter_map(|round| Some((round.round, *round.values.get(&metric.key)?)))
                        .collect();
                    if !values.is_empty() {
                        let what = format!(
                            "{} / {} / {server} / {}",
                            scenario.name, row.title, metric.title
                        );
                        figures.push((what, metric.better, values));
                    }
                }
            }
        }
    }
    figures
}

/// Formats the differences as text.
#[must_use]
pub fn text(diff: &Diff) -> String {
    let mut text = String::new();
    for change in &diff.changes {
        let ratio = change.ratio;
        let sure = ratio.low > 1.0 || ratio.high < 1.0;
        let grew = ratio.median > 1.0;
        let word = match (sure, change.better, grew) {
            (false, ..) => "same",
            (true, Better::Neither, _) => "other",
            (true, Better::Higher, true) | (true, Better::Lower, false) => "better",
            (true, ..) => "worse",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{word:<7} × {:.3} [{:.3}, {:.3}]  {:.6} → {:.6}  {}",
            ratio.median, ratio.low, ratio.high, change.medians.0, change.medians.1, change.what
        );
    }
    for alone in &diff.alone {
        let _ = writeln!(text, "{alone}");
    }
    text
}
