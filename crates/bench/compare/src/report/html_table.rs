//! The table of a metric in the HTML report.

use std::fmt::{Result, Write};

use dunlin_http::html::{escape, escape_lines};

use super::format;
use super::table::{Entry, absent, columns, entries, rows};
use crate::adapter::BASELINE;
use crate::results::{Better, Metric, Results, Row, ScenarioResults};

/// Writes the table, and the servers that have no column.
pub(super) fn table(
    page: &mut String,
    results: &Results,
    scenario: &ScenarioResults,
    metric: &Metric,
) -> Result {
    let columns = columns(results, scenario);
    let has_original =
        scenario.rows.iter().any(|row| row.then.iter().any(|then| then.metric == metric.key));
    let caption = caption(results, metric);
    write!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\n<caption><span>{0}</span></caption>\n<thead><tr><th scope=\"col\">Row</th>",
        escape(&caption)
    )?;
    for index in &columns {
        let name = &results.servers[*index].name;
        let note = if name == BASELINE { " <small>not ranked</small>" } else { "" };
        write!(page, "<th scope=\"col\">{}{note}</th>", escape(name))?;
    }
    let original =
        if has_original { "<th scope=\"col\" class=\"original\">Original</th>" } else { "" };
    writeln!(page, "{original}</tr></thead>")?;
    let mut group = None;
    writeln!(page, "<tbody>")?;
    for row in rows(scenario, metric) {
        if row.group != group {
            group.clone_from(&row.group);
            let width = columns.len() + 1 + usize::from(has_original);
            writeln!(
                page,
                "</tbody><tbody>\n<tr class=\"group\"><th colspan=\"{width}\" scope=\"rowgroup\">{}</th></tr>",
                escape(group.as_deref().unwrap_or_default())
            )?;
        }
        line(page, results, row, metric, &columns, has_original)?;
    }
    writeln!(page, "</tbody></table></div>")?;
    let absent: Vec<String> = absent(results, scenario)
        .into_iter()
        .map(|(name, reason)| format!("{}: {}", escape(name), escape(reason)))
        .collect();
    if !absent.is_empty() {
        writeln!(page, "<p class=\"soft\">Not available: {}</p>", absent.join("; "))?;
    }
    Ok(())
}

fn caption(results: &Results, metric: &Metric) -> String {
    let better = match metric.better {
        Better::Higher => "; more is better",
        Better::Lower => "; less is better",
        Better::Neither => "",
    };
    format!(
        "{}{}: median of the valid rounds of {} and its 95 % interval{better}",
        metric.title,
        format::unit(&metric.unit),
        results.rounds
    )
}

fn line(
    page: &mut String,
    results: &Results,
    row: &Row,
    metric: &Metric,
    columns: &[usize],
    has_original: bool,
) -> Result {
    let entries = entries(results, row, metric);
    let figures = entries.iter().filter_map(|entry| match entry {
        Entry::Figure { estimate, .. } => Some(estimate.median),
        _ => None,
    });
    let max = figures.fold(f64::MIN_POSITIVE, f64::max);
    write!(page, "<tr><th scope=\"row\">{}", escape(&row.title))?;
    for note in &row.notes {
        write!(page, "<small>{}</small>", escape(note))?;
    }
    write!(page, "</th>")?;
    for index in columns {
        cell(page, &entries[*index], metric, max)?;
    }
    if has_original {
        original(page, row, metric)?;
    }
    writeln!(page, "</tr>")
}

/// Returns the figures of the original document.
fn original(page: &mut String, row: &Row, metric: &Metric) -> Result {
    write!(page, "<td class=\"original\">")?;
    for then in row.then.iter().filter(|then| then.metric == metric.key) {
        let value = format::value(then.value, &metric.unit);
        let note = if then.note.is_empty() { String::new() } else { format!(". {}", then.note) };
        let source = escape(&format!("{}{note}", then.server));
        write!(page, "<div>{value} <small>{source}</small></div>")?;
    }
    write!(page, "</td>")
}

fn cell(page: &mut String, entry: &Entry<'_>, metric: &Metric, max: f64) -> Result {
    match entry {
        Entry::Figure { estimate, tier, doubts, run } => {
            let best = *tier == Some(0) && metric.better != Better::Neither;
            let class = if !doubts.is_empty() {
                "doubt"
            } else if best {
                "best"
            } else {
                ""
            };
            let mark =
                if best { "<span role=\"img\" aria-label=\"best tier\">★ </span>" } else { "" };
            let reason = if doubts.is_empty() {
                String::new()
            } else {
                let reason = escape(&doubts.join("; "));
                format!("<details class=\"reason\"><summary>not valid</summary>{reason}</details>")
            };
            write!(
                page,
                "<td class=\"{class}\">{mark}{}<small>{}</small>{reason}<span class=\"bar\" style=\"width:{:.0}%\"></span></td>",
                format::value(estimate.median, &metric.unit),
                format::interval(estimate, *run, &metric.unit),
                (estimate.median / max * 100.0).clamp(0.0, 100.0)
            )
        }
        Entry::Facts(facts) => {
            write!(page, "<td class=\"properties\">")?;
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
                    escape_lines(log)
                )?;
            }
            write!(page, "</td>")
        }
        Entry::Nothing => write!(page, "<td class=\"absent\">not run</td>"),
    }
}
