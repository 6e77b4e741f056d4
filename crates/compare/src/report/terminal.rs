//! The results on a terminal: a table of the main metric for each scenario.

use std::fmt::Write;

use super::format;
use super::table::{Entry, entries};
use crate::results::{Machine, Results, ScenarioResults};

/// Formats all scenarios. Servers that are not installed have no column.
pub(super) fn render(results: &Results) -> String {
    let mut text = String::new();
    for scenario in &results.scenarios {
        table(&mut text, results, scenario);
    }
    if let Some(warning) = busy(&results.machine) {
        text.push_str(&warning);
    }
    text
}

fn table(text: &mut String, results: &Results, scenario: &ScenarioResults) {
    let Some(metric) = scenario.metrics.first() else { return };
    let installed = |index: &usize| results.servers[*index].missing.is_none();
    let columns: Vec<usize> = (0..results.servers.len()).filter(installed).collect();
    let heading = format!("{}{}", metric.title, format::unit(&metric.unit));
    let mut lines = vec![vec![heading]];
    lines[0].extend(columns.iter().map(|index| results.servers[*index].name.clone()));
    let mut doubtful = false;
    for row in &scenario.rows {
        let entries = entries(results, row, metric);
        let mut cell = |index: &usize| match &entries[*index] {
            Entry::Figure { estimate, tier, doubts } => {
                let first = if *tier == Some(0) { "*" } else { "" };
                let doubt = if doubts.is_empty() { "" } else { "?" };
                doubtful |= !doubts.is_empty();
                format!("{first}{}{doubt}", format::value(estimate.median, &metric.unit))
            }
            Entry::Failed(..) => "failed".to_owned(),
            Entry::Facts(_) => "see report".to_owned(),
            Entry::Absent(_) | Entry::Nothing => "–".to_owned(),
        };
        let mut line = vec![row.title.clone()];
        line.extend(columns.iter().map(&mut cell));
        lines.push(line);
    }
    let widths: Vec<usize> = (0..=columns.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{}", scenario.title);
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let gap = " ".repeat(width - cell.chars().count());
            if column == 0 { format!("{cell}{gap}") } else { format!("{gap}{cell}") }
        });
        let _ = writeln!(text, "  {}", cells.collect::<Vec<_>>().join("  "));
    }
    let _ = writeln!(text, "  * first, or not significantly different from the first");
    if doubtful {
        let _ = writeln!(text, "  ? no valid round; the report has the reason");
    }
}

/// A warning if other programs used much of the machine before the comparison.
fn busy(machine: &Machine) -> Option<String> {
    let load: f64 = machine.facts.get("load before")?.split_whitespace().next()?.parse().ok()?;
    (load > f64::from(machine.processors) * 0.5).then(|| {
        format!(
            "\nThe machine was busy before the comparison began (load {load:.2} on {} processors): run it again on a quiet one.\n",
            machine.processors
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_reported() {
        let machine = |load: &str| {
            let mut machine = crate::machine::describe(0, 0);
            machine.processors = 2;
            machine.facts.insert("load before".to_owned(), load.to_owned());
            machine
        };
        assert!(busy(&machine("1.43 1.75 1.68 2/170 1345")).is_some());
        assert!(busy(&machine("0.12 0.75 0.68 2/170 1345")).is_none());
    }
}
