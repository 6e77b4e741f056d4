//! The report as a self-contained HTML page.

use std::fmt::{Result, Write};

use super::chart::{COLOURS, Chart};
use super::format::{self, escape};
use super::table::{Entry, curves, entries, verdict};
use crate::adapter::BASELINE;
use crate::results::{Better, Metric, Results, Row, ScenarioResults};

pub(super) fn render(results: &Results, charts: &[Chart]) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut page, results, charts);
    page
}

fn write(page: &mut String, results: &Results, charts: &[Chart]) -> Result {
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
    let machine = &results.machine;
    writeln!(
        page,
        "<header>\n<h1>Servers compared</h1>\n<button id=\"theme\" hidden>Dark or light</button>\n<dl>"
    )?;
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
    fact(
        "method",
        &format!(
            "{} rounds in a random order, seed {}; medians, with 95 % intervals by bootstrap; every body verified",
            results.rounds, results.seed
        ),
    )?;
    fact("generator", &results.generator)?;
    fact("command", &results.command.join(" "))?;
    writeln!(page, "</dl>")?;
    if results.interrupted {
        writeln!(page, "<p><strong>Interrupted: not all rounds were run.</strong></p>")?;
    }
    writeln!(page, "<ul class=\"key\">")?;
    for (index, server) in results.servers.iter().enumerate() {
        let version = server.version.as_deref().or(server.missing.as_deref()).unwrap_or_default();
        writeln!(
            page,
            "<li><span style=\"background:var(--c{})\"></span>{} <small>{}</small></li>",
            index % COLOURS.len(),
            escape(&server.name),
            escape(version)
        )?;
    }
    writeln!(
        page,
        "</ul>\n<p class=\"soft\">Shaded figures are the best tier: these rounds cannot distinguish the servers within one tier. Hatched figures may not be used; each shows the reason.</p>\n</header>"
    )
}

fn one(
    page: &mut String,
    results: &Results,
    scenario: &ScenarioResults,
    charts: &[Chart],
) -> Result {
    writeln!(
        page,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n<p class=\"soft\">{}</p>",
        escape(&scenario.name),
        escape(&scenario.title),
        escape(&scenario.summary),
        escape(&scenario.document)
    )?;
    let says = scenario.rows.iter().filter_map(|row| Some((row, verdict(results, scenario, row)?)));
    writeln!(page, "<ul class=\"says\">")?;
    for (row, verdict) in says {
        writeln!(page, "<li>{}: {}</li>", escape(&row.title), escape(&verdict))?;
    }
    writeln!(page, "</ul>")?;
    for (index, metric) in scenario.metrics.iter().enumerate() {
        let heading = format!("{}{}", metric.title, format::unit(&metric.unit));
        let open = if index == 0 { " open" } else { "" };
        writeln!(page, "<details{open}><summary><strong>{}</strong></summary>", escape(&heading))?;
        table(page, results, scenario, metric)?;
        writeln!(page, "</details>")?;
    }
    for chart in charts.iter().filter(|chart| chart.scenario == scenario.name) {
        writeln!(page, "<figure><figcaption>{}</figcaption>", escape(&chart.title))?;
        writeln!(page, "<div class=\"scroll\">{}</div>\n</figure>", themed(&chart.svg))?;
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
        writeln!(page, "<h3>To know</h3>\n<ul>")?;
        for note in &scenario.notes {
            writeln!(page, "<li>{}</li>", escape(note))?;
        }
        writeln!(page, "</ul>")?;
    }
    commands(page, scenario)?;
    writeln!(page, "</section>")
}

fn table(
    page: &mut String,
    results: &Results,
    scenario: &ScenarioResults,
    metric: &Metric,
) -> Result {
    let has_then =
        scenario.rows.iter().any(|row| row.then.iter().any(|then| then.metric == metric.key));
    write!(page, "<div class=\"scroll\"><table>\n<thead><tr><th></th>")?;
    for server in &results.servers {
        let note = if server.name == BASELINE { " <small>not ranked</small>" } else { "" };
        write!(page, "<th>{}{note}</th>", escape(&server.name))?;
    }
    writeln!(page, "{}</tr></thead>\n<tbody>", if has_then { "<th>then</th>" } else { "" })?;
    let mut group = None;
    for row in &scenario.rows {
        if row.group != group {
            group.clone_from(&row.group);
            let columns = results.servers.len() + 1 + usize::from(has_then);
            writeln!(
                page,
                "<tr class=\"group\"><th colspan=\"{columns}\">{}</th></tr>",
                escape(group.as_deref().unwrap_or_default())
            )?;
        }
        line(page, results, row, metric, has_then)?;
    }
    writeln!(page, "</tbody></table></div>")
}

fn line(
    page: &mut String,
    results: &Results,
    row: &Row,
    metric: &Metric,
    has_then: bool,
) -> Result {
    let entries = entries(results, row, metric);
    let figures = entries.iter().filter_map(|entry| match entry {
        Entry::Figure { estimate, .. } => Some(estimate.median),
        _ => None,
    });
    let max = figures.fold(f64::MIN_POSITIVE, f64::max);
    write!(page, "<tr><td>{}", escape(&row.title))?;
    for note in &row.notes {
        write!(page, "<small>{}</small>", escape(note))?;
    }
    write!(page, "</td>")?;
    for entry in &entries {
        cell(page, entry, metric, max)?;
    }
    if has_then {
        let then = row.then.iter().filter(|then| then.metric == metric.key);
        let earlier: Vec<String> = then
            .map(|then| {
                let note = if then.note.is_empty() {
                    String::new()
                } else {
                    format!(" <small>{}</small>", escape(&then.note))
                };
                format!(
                    "{}: {}{note}",
                    escape(&then.server),
                    format::value(then.value, &metric.unit)
                )
            })
            .collect();
        write!(page, "<td class=\"then\">{}</td>", earlier.join("<br>"))?;
    }
    writeln!(page, "</tr>")
}

fn cell(page: &mut String, entry: &Entry<'_>, metric: &Metric, max: f64) -> Result {
    match entry {
        Entry::Figure { estimate, tier, doubts } => {
            let best = *tier == Some(0) && metric.better != Better::Neither;
            let class = if !doubts.is_empty() {
                "doubt"
            } else if best {
                "best"
            } else {
                ""
            };
            let mark = if best { "<span aria-label=\"best tier\">★ </span>" } else { "" };
            let reason = if doubts.is_empty() {
                String::new()
            } else {
                format!("<small>{}</small>", escape(&doubts.join("; ")))
            };
            write!(
                page,
                "<td class=\"{class}\">{mark}{}<small>{}</small>{reason}<span class=\"bar\" style=\"width:{:.0}%\"></span></td>",
                format::value(estimate.median, &metric.unit),
                format::interval(estimate, &metric.unit),
                (estimate.median / max * 100.0).clamp(0.0, 100.0)
            )
        }
        Entry::Facts(facts) => {
            write!(page, "<td class=\"facts\">")?;
            for (name, value) in facts {
                write!(page, "{}: <strong>{}</strong><br>", escape(name), escape(value))?;
            }
            write!(page, "</td>")
        }
        Entry::Absent(reason) => {
            write!(page, "<td class=\"absent\">not available: {}</td>", escape(reason))
        }
        Entry::Failed(reason, log) => {
            write!(page, "<td class=\"failed\">failed: {}", escape(reason))?;
            if !log.is_empty() {
                write!(
                    page,
                    "<details><summary>log</summary><pre>{}</pre></details>",
                    escape(log)
                )?;
            }
            write!(page, "</td>")
        }
        Entry::Nothing => write!(page, "<td class=\"absent\">not run</td>"),
    }
}

/// The commands of the first round of each row, of one server as an example.
fn commands(page: &mut String, scenario: &ScenarioResults) -> Result {
    writeln!(page, "<details><summary>Commands</summary><pre>")?;
    for row in &scenario.rows {
        let rounds = row.cells.values().find_map(|cell| match cell {
            crate::results::Cell::Measured { rounds, .. } => rounds.first(),
            _ => None,
        });
        if let Some(round) = rounds {
            writeln!(page, "{}:\n  {}", escape(&row.title), escape(&round.command.join(" ")))?;
        }
    }
    writeln!(page, "</pre></details>")
}

fn foot(page: &mut String, results: &Results) -> Result {
    writeln!(page, "<footer><p>Configurations, so that their makers can object:</p><ul>")?;
    for server in &results.servers {
        for (name, path) in &server.configurations {
            writeln!(page, "<li><a href=\"{}\">{}</a></li>", escape(path), escape(name))?;
        }
    }
    writeln!(page, "</ul></footer>")
}

/// Adapts a chart to the colours of the page.
fn themed(svg: &str) -> String {
    let mut themed = svg.to_owned();
    for (index, colour) in COLOURS.iter().enumerate() {
        let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        themed = themed.replace(&format!("\"{hex}\""), &format!("\"var(--c{index})\""));
    }
    themed = themed.replace("\"#000000\"", "\"currentColor\"");
    // Remove the size, so that the chart follows the width of the page.
    themed.replacen("<svg width=\"860\" height=\"420\"", "<svg role=\"img\"", 1)
}
