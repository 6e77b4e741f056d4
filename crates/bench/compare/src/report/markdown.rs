//! The report as Markdown.

use std::fmt::Write;

use super::experiments::experiments;
use super::format;
use super::table::{Entry, absent, columns, curves, entries, rows, verdict};
use super::warnings::warnings;
use crate::results::{Metric, Results, Row, ScenarioResults};

pub(super) fn render(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, results);
    text
}

fn write(text: &mut String, results: &Results) -> std::fmt::Result {
    let machine = &results.machine;
    writeln!(text, "# Servers compared\n")?;
    writeln!(
        text,
        "- {} × {}, Linux {}, {}",
        machine.processors, machine.processor, machine.kernel, machine.distribution
    )?;
    writeln!(
        text,
        "- servers on CPU {}, load on CPU {}",
        machine.server_processors, machine.load_processors
    )?;
    writeln!(
        text,
        "- {} to {}, {} rounds, seed {}, {}",
        results.started, results.finished, results.rounds, results.seed, results.generator
    )?;
    writeln!(text, "- `{}`", results.command.join(" "))?;
    if results.interrupted {
        writeln!(text, "- interrupted: not all rounds were run")?;
    }
    writeln!(text)?;
    for warning in warnings(results) {
        writeln!(text, "**Warning:** {warning}\n")?;
    }
    for server in &results.servers {
        let version = server.version.as_deref().or(server.missing.as_deref()).unwrap_or_default();
        writeln!(text, "- {}: {version}", server.name)?;
    }
    for scenario in &results.scenarios {
        one(text, results, scenario)?;
    }
    Ok(())
}

fn one(text: &mut String, results: &Results, scenario: &ScenarioResults) -> std::fmt::Result {
    writeln!(
        text,
        "\n## {}\n\n{}\n\nDocument: {}\n",
        scenario.title, scenario.summary, scenario.document
    )?;
    for row in &scenario.rows {
        if let Some(verdict) = verdict(results, scenario, row) {
            writeln!(text, "- {}: {verdict}", row.full_title())?;
        }
    }
    for metric in &scenario.metrics {
        table(text, results, scenario, metric)?;
    }
    for experiments in experiments(scenario) {
        experiments.markdown(text)?;
    }
    if !scenario.notes.is_empty() {
        writeln!(text)?;
    }
    for curve in curves(results, scenario) {
        writeln!(text, "- {curve}")?;
    }
    for note in &scenario.notes {
        writeln!(text, "- {note}")?;
    }
    Ok(())
}

fn table(
    text: &mut String,
    results: &Results,
    scenario: &ScenarioResults,
    metric: &Metric,
) -> std::fmt::Result {
    writeln!(text, "\n### {}{}\n", metric.title, format::unit(&metric.unit))?;
    let columns = columns(results, scenario);
    let names: Vec<&str> =
        columns.iter().map(|index| results.servers[*index].name.as_str()).collect();
    let of_metric = |row: &Row| -> Vec<String> {
        let then = row.then.iter().filter(|then| then.metric == metric.key);
        then.map(|t| format!("{}: {}", t.server, format::value(t.value, &metric.unit))).collect()
    };
    let has_original = scenario.rows.iter().any(|row| !of_metric(row).is_empty());
    let (heading, rule) = if has_original { (" Original |", " --- |") } else { ("", "") };
    writeln!(
        text,
        "| Row | {} |{heading}\n| --- |{}{rule}",
        names.join(" | "),
        " ---: |".repeat(names.len())
    )?;
    let mut notes = Vec::new();
    for row in rows(scenario, metric) {
        let entries = entries(results, row, metric);
        let cells: Vec<String> =
            columns.iter().map(|index| cell(&entries[*index], metric, &mut notes)).collect();
        let original =
            if has_original { format!(" {} |", of_metric(row).join(", ")) } else { String::new() };
        writeln!(text, "| {} | {} |{original}", row.full_title(), cells.join(" | "))?;
    }
    for (name, reason) in absent(results, scenario) {
        notes.push(format!("{name} is not available: {reason}"));
    }
    if !notes.is_empty() {
        writeln!(text)?;
    }
    for (number, note) in notes.iter().enumerate() {
        writeln!(text, "{}. {note}", number + 1)?;
    }
    Ok(())
}

fn cell(entry: &Entry<'_>, metric: &Metric, notes: &mut Vec<String>) -> String {
    let mut note = |text: String| {
        let at = notes.iter().position(|known| *known == text).unwrap_or_else(|| {
            notes.push(text);
            notes.len() - 1
        });
        at + 1
    };
    match entry {
        Entry::Figure { estimate, tier, doubts, .. } => {
            let value = format::value(estimate.median, &metric.unit);
            match (tier, doubts.is_empty()) {
                (_, false) => format!("~~{value}~~ ({})", note(doubts.join("; "))),
                (Some(0), true) => format!("**{value}**"),
                _ => value,
            }
        }
        Entry::Facts(facts) => facts
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect::<Vec<_>>()
            .join("<br>"),
        Entry::Absent(reason) => format!("– ({})", note((*reason).to_owned())),
        Entry::Failed(reason, _) => format!("failed ({})", note((*reason).to_owned())),
        Entry::Nothing => String::new(),
    }
}
