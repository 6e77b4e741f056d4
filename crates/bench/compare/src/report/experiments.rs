//! The experiments of a document, repeated with the phases of one server's requests: a line for each experiment, a column for
//! each form of the program, and the document's figure beside them.

use std::fmt::{Result, Write};

use dunlin_http::html::escape;
use dunlin_load::show::{Color, Paint, fill};

use crate::results::{Cell, Row, ScenarioResults};

/// Before the document's figure in the value of an experiment: `0.412 ms (1996: 202 ms)`.
const THEN: &str = " (1996: ";
/// Year of the document, the heading of its figures.
const YEAR: &str = "1996";
/// Unit of the figures.
const UNIT: &str = " ms";

/// The experiments of a group of rows.
pub(super) struct Experiments<'a> {
    /// Heading of the group.
    group: &'a str,
    /// The server whose requests they are.
    server: &'a str,
    /// Titles of the rows: the forms.
    forms: Vec<&'a str>,
    /// The experiments, in order.
    lines: Vec<Line<'a>>,
}

/// An experiment.
struct Line<'a> {
    name: &'a str,
    /// A figure for each form, without its unit; empty if the form was not measured.
    figures: Vec<&'a str>,
    /// The document's figure.
    then: &'a str,
}

/// Returns `true` if the row has experiments, which have their own table.
pub(super) fn is_experiment(row: &Row) -> bool {
    measured(row).is_some()
}

/// Returns the experiments of a scenario, by group.
pub(super) fn experiments(scenario: &ScenarioResults) -> Vec<Experiments<'_>> {
    let mut all: Vec<Experiments<'_>> = Vec::new();
    for row in &scenario.rows {
        let Some((server, figures)) = measured(row) else { continue };
        let group = row.group.as_deref().unwrap_or_default();
        let at = all.iter().position(|found| found.group == group && found.server == server);
        let at = at.unwrap_or_else(|| {
            all.push(Experiments { group, server, forms: Vec::new(), lines: Vec::new() });
            all.len() - 1
        });
        all[at].add(&row.title, &figures);
    }
    all
}

/// The figures of a row by experiment: its name, today's figure and that of the document.
type Figures<'a> = Vec<(&'a str, &'a str, &'a str)>;

/// Returns the server that was measured and its figures; `None` if they are not experiments.
fn measured(row: &Row) -> Option<(&str, Figures<'_>)> {
    row.cells.iter().find_map(|(server, cell)| {
        let Cell::Measured { facts, .. } = cell else { return None };
        let figures: Option<Figures<'_>> = facts
            .iter()
            .map(|(name, value)| {
                let (now, then) = value.strip_suffix(')')?.split_once(THEN)?;
                Some((&**name, without_unit(now), without_unit(then)))
            })
            .collect();
        Some((&**server, figures.filter(|figures| !figures.is_empty())?))
    })
}

fn without_unit(figure: &str) -> &str {
    figure.strip_suffix(UNIT).unwrap_or(figure)
}

impl<'a> Experiments<'a> {
    fn add(&mut self, form: &'a str, figures: &Figures<'a>) {
        let before = self.forms.len();
        self.forms.push(form);
        for &(name, now, then) in figures {
            match self.lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.figures.push(now),
                None => {
                    let mut figures = vec![""; before];
                    figures.push(now);
                    self.lines.push(Line { name, figures, then });
                }
            }
        }
        for line in &mut self.lines {
            line.figures.resize(self.forms.len(), "");
        }
    }

    fn heading(&self) -> String {
        format!("{}, {} ({})", self.group, self.server, UNIT.trim())
    }

    /// The cells of a line: its figures and that of the document.
    fn cells<'b>(&'b self, line: &'b Line<'a>) -> impl Iterator<Item = &'b str> {
        line.figures.iter().copied().chain([line.then])
    }

    fn titles(&self) -> impl Iterator<Item = &str> {
        self.forms.iter().copied().chain([YEAR])
    }

    /// Writes the table in lines of at most 80 columns: titles have a word per line.
    pub(super) fn terminal(&self, text: &mut String, paint: Paint) {
        let heading = self.heading();
        let filled = fill("", &heading, 2);
        text.push('\n');
        text.push_str(&filled.replacen(&heading, &paint.apply(Color::Bold, &heading), 1));
        let titles: Vec<Vec<&str>> =
            self.titles().map(|title| title.split(' ').collect()).collect();
        let count = |text: &str| text.chars().count();
        let widths: Vec<usize> = titles
            .iter()
            .enumerate()
            .map(|(index, words)| {
                let cells = self.lines.iter().filter_map(|line| self.cells(line).nth(index));
                cells.chain(words.iter().copied()).map(count).max().unwrap_or(0)
            })
            .collect();
        let names = self.lines.iter().map(|line| count(line.name)).max().unwrap_or(0);
        let mut put = |name: &str, cells: &[&str]| {
            let gap = " ".repeat(names - count(name));
            let cells = cells.iter().zip(&widths).map(|(cell, &width)| format!("  {cell:>width$}"));
            let line = format!("  {name}{gap}{}", cells.collect::<String>());
            text.push_str(line.trim_end());
            text.push('\n');
        };
        let height = titles.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..height {
            // Titles of fewer words stand at the bottom.
            let words: Vec<&str> = titles
                .iter()
                .map(|words| {
                    let at = (at + words.len()).checked_sub(height);
                    at.and_then(|at| words.get(at)).copied().unwrap_or_default()
                })
                .collect();
            put("", &words);
        }
        for line in &self.lines {
            put(line.name, &self.cells(line).collect::<Vec<&str>>());
        }
    }

    /// Writes the table as Markdown.
    pub(super) fn markdown(&self, text: &mut String) -> Result {
        let titles: Vec<&str> = self.titles().collect();
        writeln!(text, "\n### {}\n", self.heading())?;
        writeln!(
            text,
            "| Experiment | {} |\n| --- |{}",
            titles.join(" | "),
            " ---: |".repeat(titles.len())
        )?;
        for line in &self.lines {
            let cells: Vec<&str> = self.cells(line).collect();
            writeln!(text, "| {} | {} |", line.name, cells.join(" | "))?;
        }
        Ok(())
    }

    /// Writes the table as HTML.
    pub(super) fn html(&self, page: &mut String) -> Result {
        let heading = escape(&self.heading());
        writeln!(
            page,
            "<h3>{heading}</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{heading}\"><table>\n<thead><tr><th scope=\"col\">Experiment</th>"
        )?;
        for title in &self.forms {
            write!(page, "<th scope=\"col\">{}</th>", escape(title))?;
        }
        writeln!(page, "<th scope=\"col\" class=\"original\">{YEAR}</th></tr></thead>\n<tbody>")?;
        for line in &self.lines {
            write!(page, "<tr><th scope=\"row\">{}</th>", escape(line.name))?;
            for figure in &line.figures {
                write!(page, "<td>{}</td>", escape(figure))?;
            }
            writeln!(page, "<td class=\"original\">{}</td></tr>", escape(line.then))?;
        }
        writeln!(page, "</tbody></table></div>")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn row(title: &str, server: &str, facts: &[(&str, &str)]) -> Row {
        let facts = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let measured = Cell::Measured { rounds: Vec::new(), facts: facts.collect() };
        let absent = Cell::NotAvailable { reason: "it does not report phases".to_owned() };
        Row {
            id: title.to_owned(),
            title: title.to_owned(),
            group: Some("experiments".to_owned()),
            x: None,
            then: Vec::new(),
            notes: Vec::new(),
            cells: BTreeMap::from([(server.to_owned(), measured), ("nginx".to_owned(), absent)]),
        }
    }

    fn scenario(rows: Vec<Row>) -> ScenarioResults {
        ScenarioResults {
            name: "forms".to_owned(),
            title: String::new(),
            summary: String::new(),
            document: String::new(),
            notes: Vec::new(),
            metrics: Vec::new(),
            charts: Vec::new(),
            rows,
        }
    }

    #[test]
    fn experiments_are_lines_and_forms_are_columns() {
        let cgi =
            [("1: at the client", "1.250 ms (1996: 202 ms)"), ("7: read()", "– (1996: 110 ms)")];
        let warm =
            [("1: at the client", "0.4 ms (1996: 202 ms)"), ("7: read()", "– (1996: 110 ms)")];
        let scenario = scenario(vec![row("CGI", "dunlin", &cgi), row("warm CGI", "dunlin", &warm)]);
        let all = experiments(&scenario);
        let [found] = &all[..] else { panic!("{} tables", all.len()) };
        let mut text = String::new();
        found.terminal(&mut text, Paint::new(false));
        assert_eq!(
            text,
            "\nexperiments, dunlin (ms)\n                           warm\n                      CGI   CGI  1996\n  1: at the client  1.250   0.4   202\n  7: read()             –     –   110\n"
        );
        let mut text = String::new();
        found.markdown(&mut text).unwrap();
        assert!(text.contains("| Experiment | CGI | warm CGI | 1996 |\n"), "{text}");
        assert!(text.contains("| 1: at the client | 1.250 | 0.4 | 202 |\n"), "{text}");
        let mut page = String::new();
        found.html(&mut page).unwrap();
        assert!(
            page.contains("<td>1.250</td><td>0.4</td><td class=\"original\">202</td>"),
            "{page}"
        );
    }

    #[test]
    fn features_of_servers_are_no_experiments() {
        let features = row("features", "dunlin", &[("ranges", "yes"), ("chunked", "yes")]);
        assert!(!is_experiment(&features));
        assert!(experiments(&scenario(vec![features, row("none", "dunlin", &[])])).is_empty());
    }
}
