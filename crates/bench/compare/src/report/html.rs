//! The report as a self-contained HTML page.

use std::fmt::{Result, Write};

use dunlin_http::html::escape;

use super::chart::DrawnChart;
use super::experiments::experiments;
use super::format;
use super::html_table::table;
use super::svg::COLOURS;
use super::table::{columns, curves, verdict};
use super::warnings::warnings;
use crate::results::{Cell, Results, ScenarioResults};

pub(super) fn render(results: &Results, charts: &[DrawnChart]) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut page, results, charts);
    page
}

fn write(page: &mut String, results: &Results, charts: &[DrawnChart]) -> Result {
    let titles: Vec<&str> =
        results.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Servers compared: {}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(&titles.join(", ")),
        include_str!("page.css")
    )?;
    head(page, results)?;
    writeln!(page, "<main>")?;
    for scenario in &results.scenarios {
        one(page, results, scenario, charts)?;
    }
    writeln!(page, "</main>")?;
    foot(page, results)?;
    write!(page, "<script>\n{}</script>\n</body>\n</html>\n", include_str!("page.js"))
}

fn head(page: &mut String, results: &Results) -> Result {
    writeln!(
        page,
        "<header>\n<h1>Servers compared</h1>\n<button id=\"theme\" type=\"button\" hidden>Switch between light and dark</button>"
    )?;
    if results.interrupted {
        writeln!(page, "<p><strong>Interrupted: not all rounds were run.</strong></p>")?;
    }
    for warning in warnings(results) {
        writeln!(page, "<p class=\"warning\"><strong>Warning:</strong> {}</p>", escape(&warning))?;
    }
    servers(page, results)?;
    writeln!(
        page,
        "<p class=\"soft\">Shaded figures with a ★ are the best tier: these rounds cannot distinguish the servers within one tier. Hatched figures are not valid; each has the reason.</p>\n</header>"
    )
}

/// Returns the servers with their colours and versions, and those that are not installed.
fn servers(page: &mut String, results: &Results) -> Result {
    writeln!(page, "<ul class=\"key\">")?;
    // A server that can run no row has no colour to explain.
    let runs = |index: usize| {
        results.scenarios.iter().any(|scenario| columns(results, scenario).contains(&index))
    };
    for (index, server) in results.servers.iter().enumerate().filter(|(index, _)| runs(*index)) {
        writeln!(
            page,
            "<li><span style=\"background:var(--c{})\"></span>{} <small title=\"{}\">{}</small></li>",
            index % COLOURS.len(),
            escape(&server.name),
            escape(server.version.as_deref().unwrap_or_default()),
            escape(version_number(server.version.as_deref().unwrap_or_default()))
        )?;
    }
    writeln!(page, "</ul>")?;
    if let Some(missing) = results.missing_servers() {
        writeln!(page, "<p class=\"soft\">Not installed: {}</p>", escape(&missing))?;
    }
    Ok(())
}

/// Returns the number in what a program prints as its version, or all of it.
fn version_number(text: &str) -> &str {
    let is_number =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let mut words = text.split([' ', '/']).map(|word| word.trim_start_matches('v'));
    words.find(is_number).unwrap_or(text)
}

fn one(
    page: &mut String,
    results: &Results,
    scenario: &ScenarioResults,
    charts: &[DrawnChart],
) -> Result {
    writeln!(
        page,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n<p class=\"soft\">{}</p>",
        escape(&scenario.name),
        escape(&scenario.title),
        escape(&scenario.summary),
        escape(&scenario.document)
    )?;
    let verdicts =
        scenario.rows.iter().filter_map(|row| Some((row, verdict(results, scenario, row)?)));
    writeln!(page, "<ul class=\"verdicts\">")?;
    for (row, verdict) in verdicts {
        writeln!(
            page,
            "<li><strong>{}</strong>: {}</li>",
            escape(&row.full_title()),
            escape(&verdict)
        )?;
    }
    writeln!(page, "</ul>")?;
    let of_scenario = || charts.iter().filter(|chart| chart.scenario == scenario.name);
    for (index, metric) in scenario.metrics.iter().enumerate() {
        let heading = format!("{}{}", metric.title, format::unit(&metric.unit));
        let open = if index == 0 { " open" } else { "" };
        writeln!(page, "<details{open}><summary><h3>{}</h3></summary>", escape(&heading))?;
        table(page, results, scenario, metric)?;
        for chart in of_scenario().filter(|chart| chart.metric.as_ref() == Some(&metric.key)) {
            figure(page, chart)?;
        }
        writeln!(page, "</details>")?;
    }
    for experiments in experiments(scenario) {
        experiments.html(page)?;
    }
    for chart in of_scenario().filter(|chart| chart.metric.is_none()) {
        figure(page, chart)?;
    }
    let curves = curves(results, scenario);
    if !curves.is_empty() {
        writeln!(page, "<h3>Curves</h3>\n<ul>")?;
        for curve in curves {
            writeln!(page, "<li>{}</li>", escape(&curve))?;
        }
        writeln!(page, "</ul>")?;
    }
    if !scenario.notes.is_empty() {
        writeln!(page, "<h3>Notes</h3>\n<ul>")?;
        for note in &scenario.notes {
            writeln!(page, "<li>{}</li>", escape(note))?;
        }
        writeln!(page, "</ul>")?;
    }
    commands(page, scenario)?;
    writeln!(page, "</section>")
}

fn figure(page: &mut String, chart: &DrawnChart) -> Result {
    let title = escape(&chart.title);
    writeln!(page, "<figure>")?;
    // The chart of a metric has its heading, which is also that of the section.
    if chart.metric.is_none() {
        writeln!(page, "<figcaption>{title}</figcaption>")?;
    }
    writeln!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Chart: {title}\">{}</div>\n</figure>",
        themed(&chart.svg)
    )
}

/// Returns the commands of the first round of each row, of one server as an example.
fn commands(page: &mut String, scenario: &ScenarioResults) -> Result {
    writeln!(page, "<details><summary>Commands</summary><pre>")?;
    for row in &scenario.rows {
        let rounds = row.cells.values().find_map(|cell| match cell {
            Cell::Measured { rounds, .. } => rounds.first(),
            _ => None,
        });
        if let Some(round) = rounds {
            writeln!(
                page,
                "{}:\n  {}",
                escape(&row.full_title()),
                escape(&round.command.join(" "))
            )?;
        }
    }
    writeln!(page, "</pre></details>")
}

/// Writes on which machine and by which command the results were measured.
fn machine(page: &mut String, results: &Results) -> Result {
    let machine = &results.machine;
    writeln!(page, "<details><summary>Machine and method</summary>\n<dl>")?;
    let mut fact = |name: &str, value: &str| {
        writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value))
    };
    fact("when", &format!("{} to {}", results.started, results.finished))?;
    fact(
        "machine",
        &format!(
            "{} × {}, {:.0} GB",
            machine.processors,
            machine.processor,
            machine.memory_bytes as f64 / 1e9
        ),
    )?;
    fact("system", &format!("Linux {}, {}", machine.kernel, machine.distribution))?;
    fact(
        "processors",
        &format!("servers on {}, load on {}", machine.server_processors, machine.load_processors),
    )?;
    for (name, value) in &machine.facts {
        fact(name, value)?;
    }
    if let Some(load) = machine.load_before {
        fact("load before", &format!("{load:.2} (average of one minute)"))?;
    }
    if let Some(share) = machine.others_share {
        fact("other programs", &format!("{:.0} % of all CPUs", share * 100.0))?;
    }
    fact(
        "method",
        &format!(
            "{} rounds in a random order, seed {}; medians, with 95 % intervals by bootstrap; every body verified",
            results.rounds, results.seed
        ),
    )?;
    fact("generator", &results.generator)?;
    fact("command", &results.command.join(" "))?;
    writeln!(page, "</dl></details>")
}

fn foot(page: &mut String, results: &Results) -> Result {
    writeln!(page, "<footer>")?;
    machine(page, results)?;
    let mut configurations =
        results.servers.iter().flat_map(|server| &server.configurations).peekable();
    if configurations.peek().is_some() {
        writeln!(page, "<p>Configurations of the servers:</p><ul class=\"files\">")?;
        for (name, path) in configurations {
            writeln!(page, "<li><a href=\"{}\">{}</a></li>", escape(path), escape(name))?;
        }
        writeln!(page, "</ul>")?;
    }
    writeln!(page, "</footer>")
}

/// Adapts a chart to the colours of the page.
fn themed(svg: &str) -> String {
    let themed = svg.to_owned();
    COLOURS.iter().enumerate().fold(themed, |themed, (index, colour)| {
        themed.replace(&format!("\"{colour}\""), &format!("\"var(--c{index})\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_version_is_found() {
        for (text, number) in [
            ("dunlin 0.1.0", "0.1.0"),
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("lighttpd/1.4.69 (ssl) - a light and fast webserver", "1.4.69"),
            (
                "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/",
                "2.6.12-1+deb12u4",
            ),
            ("v2.10.0 h1:abc=", "2.10.0"),
            ("unknown", "unknown"),
        ] {
            assert_eq!(version_number(text), number);
        }
    }
}
