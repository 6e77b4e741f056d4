//! Scenarios: what to run against each server, as TOML.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use crate::results::{Chart, Metric, Then};

/// A scenario, whole.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the file without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// One line.
    pub title: String,
    /// What it does and asks.
    pub summary: String,
    /// The document that it measures again.
    pub document: String,
    /// What to know in order to read the figures rightly.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What is served.
    #[serde(default, rename = "file")]
    pub files: Vec<Fixture>,
    /// What is shown.
    #[serde(rename = "metric")]
    pub metrics: Vec<Metric>,
    /// Charts beside the bars.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Chart>,
    /// What is run.
    #[serde(rename = "row")]
    pub rows: Vec<RowPlan>,
}

/// Files that are made for a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// Path beneath the root; `{n}` is the number of the file.
    pub path: String,
    /// Bytes of each.
    pub size: u64,
    /// How many there are.
    #[serde(default = "one")]
    pub count: u32,
    /// What is in them.
    #[serde(default)]
    pub content: Content,
}

fn one() -> u32 {
    1
}

/// What is in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Pseudo-random bytes.
    #[default]
    Random,
    /// Lines like those of an access log.
    Text,
    /// The same lines as records of OpenVMS's VARIABLE format.
    VariableRecords,
    /// A C program that answers by CGI with as many bytes as its query says.
    CgiProgram,
    /// The same by CGIplus.
    CgiplusProgram,
    /// The same program in a process that stays, by FastCGI; it needs libfcgi.
    FastcgiProgram,
}

/// A row: one load, the same for every server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowPlan {
    /// Unique within the scenario.
    pub id: String,
    /// What is shown at its left.
    pub title: String,
    /// Rows with the same group stand together.
    pub group: Option<String>,
    /// Place on the horizontal axis of a curve.
    pub x: Option<f64>,
    /// Paths that are asked for.
    #[serde(default)]
    pub paths: Vec<String>,
    /// A path with `{n}`, for so many numbers from 0 on.
    pub many: Option<Many>,
    /// Options of `dunlin load`.
    #[serde(default)]
    pub load: Vec<String>,
    /// How the server has to be set up.
    #[serde(default)]
    pub server: Variant,
    /// Figures of the document.
    #[serde(default)]
    pub then: Vec<Then>,
    /// Footnotes.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Part of `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// Run with each of these values of an option: a row for each.
    pub sweep: Option<Sweep>,
    /// Probe what the server can do, instead of loading it.
    #[serde(default)]
    pub facts: bool,
    /// Bodies are not files of the root.
    #[serde(default)]
    pub generated: bool,
    /// Seconds that a run takes, when the usual length does not do.
    pub seconds: Option<f64>,
    /// Rounds, when the usual number would take too long.
    pub rounds: Option<u32>,
}

/// Numbered paths.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Many {
    /// The path with `{n}`.
    pub path: String,
    /// How many.
    pub count: u32,
}

/// An option that takes several values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The option, such as `-c`.
    pub option: String,
    /// Its values.
    pub values: Vec<u32>,
}

/// How a server has to be set up.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Variant {
    /// Without its cache of files or descriptors.
    pub no_cache: bool,
    /// With an access log in combined format.
    pub log: bool,
    /// With TLS.
    pub tls: bool,
    /// With HTTP/2.
    pub http2: bool,
    /// With scripts of this kind at `/cgi-bin/`.
    pub script: Option<Script>,
    /// Files that end in `.var` are VARIABLE records.
    pub records: bool,
    /// Names of clients are looked up, at a resolver that takes 30 ms.
    pub dns: bool,
    /// Connections are closed after each answer.
    pub no_keepalive: bool,
}

/// A kind of script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Script {
    /// A process for each request.
    Cgi,
    /// The same program, forked from one that has started.
    Warm,
    /// A process that stays, by FastCGI.
    Fastcgi,
    /// A process that stays, by CGIplus.
    Cgiplus,
    /// Within the server's own process.
    InProcess,
}

impl Variant {
    /// A name for it, for folders and configurations.
    #[must_use]
    pub fn name(&self) -> String {
        let script = self.script.map(|script| format!("{script:?}").to_ascii_lowercase());
        let parts = [
            (self.no_cache, "no-cache"),
            (self.log, "log"),
            (self.tls, "tls"),
            (self.http2, "http2"),
            (self.records, "records"),
            (self.dns, "dns"),
            (self.no_keepalive, "no-keepalive"),
            (script.is_some(), script.as_deref().unwrap_or_default()),
        ];
        let named: Vec<&str> = parts.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        if named.is_empty() { "plain".to_owned() } else { named.join("-") }
    }
}

/// The scenarios that come with the program, by name.
pub const BUILT_IN: [(&str, &str); 12] = [
    ("wasd-files", include_str!("../../../scenarios/wasd-files.toml")),
    ("wasd-transfer", include_str!("../../../scenarios/wasd-transfer.toml")),
    ("wasd-secure", include_str!("../../../scenarios/wasd-secure.toml")),
    ("wasd-scripting", include_str!("../../../scenarios/wasd-scripting.toml")),
    ("wasd-dns", include_str!("../../../scenarios/wasd-dns.toml")),
    ("wasd-records", include_str!("../../../scenarios/wasd-records.toml")),
    ("thttpd-small", include_str!("../../../scenarios/thttpd-small.toml")),
    ("thttpd-cgi", include_str!("../../../scenarios/thttpd-cgi.toml")),
    ("thttpd-users", include_str!("../../../scenarios/thttpd-users.toml")),
    ("thttpd-table", include_str!("../../../scenarios/thttpd-table.toml")),
    ("student-connections", include_str!("../../../scenarios/student-connections.toml")),
    ("cgi-phases", include_str!("../../../scenarios/cgi-phases.toml")),
];

/// Reads the scenario of that name, or of that file.
///
/// # Errors
/// `FILE:LINE:COLUMN: what is wrong`, or the nearest name when there is none such.
pub fn load(name: &str) -> Result<Scenario, String> {
    if let Some((known, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return parse(known, &format!("{known}.toml"), text);
    }
    if !name.ends_with(".toml") {
        let nearest = BUILT_IN.iter().map(|(known, _)| (strsim::jaro_winkler(known, name), *known));
        let nearest = nearest.max_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |(_, known)| known);
        return Err(format!(
            "there is no scenario {name}; the nearest is {nearest} (--list shows all)"
        ));
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"))?;
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
    parse(stem, name, &text)
}

/// Reads a scenario from `text`; `file` is what errors call it.
///
/// # Errors
/// `FILE:LINE:COLUMN: what is wrong`.
pub fn parse(name: &str, file: &str, text: &str) -> Result<Scenario, String> {
    let at = |span: Option<Range<usize>>| {
        let before = &text[..span.map_or(0, |span| span.start).min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{file}:{line}:{column}")
    };
    let mut scenario: Scenario = toml::from_str(text)
        .map_err(|error| format!("{}: {}", at(error.span()), in_words(error.message())))?;
    name.clone_into(&mut scenario.name);
    let row_at = |id: &str| at(text.find(&format!("id = \"{id}\"")).map(|start| start..start));
    for fixture in &scenario.files {
        if fixture.path.starts_with('/') || fixture.path.split('/').any(|part| part == "..") {
            let start = text.find(&format!("\"{}\"", fixture.path));
            let place = at(start.map(|start| start..start));
            return Err(format!(
                "{place}: {} leads out of the folder that is served",
                fixture.path
            ));
        }
    }
    let mut seen = BTreeMap::new();
    for row in &scenario.rows {
        if seen.insert(&row.id, ()).is_some() {
            return Err(format!("{}: there are two rows with the id {}", row_at(&row.id), row.id));
        }
        if row.seconds.is_some_and(|seconds| !seconds.is_finite() || seconds <= 0.0) {
            return Err(format!("{}: seconds is above 0", row_at(&row.id)));
        }
        if row.paths.is_empty() && row.many.is_none() && !row.facts {
            return Err(format!("{}: the row asks for nothing: it has no paths", row_at(&row.id)));
        }
    }
    scenario.rows = scenario.rows.into_iter().flat_map(swept).collect();
    let named = |word: &str| at(text.rfind(&format!("\"{word}\"")).map(|start| start..start));
    for metric in metrics_named(&scenario) {
        if !scenario.metrics.iter().any(|known| known.key == metric) {
            let known = scenario.metrics.iter().map(|metric| metric.key.as_str());
            let place = named(metric);
            return Err(format!("{place}: there is no metric {metric}{}", or_else(metric, known)));
        }
    }
    for chart in &scenario.charts {
        if let Chart::Latency { row, .. } = chart
            && !scenario.rows.iter().any(|known| known.id == *row)
        {
            let known = scenario.rows.iter().map(|row| row.id.as_str());
            return Err(format!("{}: there is no row {row}{}", named(row), or_else(row, known)));
        }
    }
    Ok(scenario)
}

/// Every metric that a row or a chart names.
fn metrics_named(scenario: &Scenario) -> impl Iterator<Item = &str> {
    let then = scenario.rows.iter().flat_map(|row| &row.then).map(|then| then.metric.as_str());
    let charts = scenario.charts.iter().filter_map(|chart| match chart {
        Chart::Curve { metric, .. } => Some(metric.as_str()),
        Chart::Latency { .. } => None,
    });
    then.chain(charts)
}

/// `; did you mean that?`, when something is near.
fn or_else<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = known.map(|known| (strsim::damerau_levenshtein(known, word), known));
    match near.min().filter(|(distance, known)| *distance <= known.len().max(3) / 3 + 1) {
        Some((_, known)) => format!("; did you mean {known}?"),
        None => String::new(),
    }
}

/// The reader's message about an unknown key, which lists every key there is, with the nearest instead.
fn in_words(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match quoted.next().filter(|_| unknown) {
        Some(word) => match or_else(word, quoted) {
            near if near.is_empty() => message.to_owned(),
            near => format!("there is no {word}{near}"),
        },
        None => message.to_owned(),
    }
}

/// A row for each value of its sweep.
fn swept(mut row: RowPlan) -> Vec<RowPlan> {
    let Some(sweep) = row.sweep.take() else { return vec![row] };
    sweep
        .values
        .iter()
        .map(|value| {
            let mut one = row.clone();
            one.id = format!("{}-{value}", row.id);
            one.title = row.title.replace("{x}", &value.to_string());
            one.x = Some(f64::from(*value));
            one.load.extend([sweep.option.clone(), value.to_string()]);
            one
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_comes_with_the_program_is_valid() {
        for (name, _) in BUILT_IN {
            let scenario = load(name).unwrap();
            assert!(!scenario.metrics.is_empty() && !scenario.rows.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        let text = "title = \"x\"\nsummary = \"\"\ndocument = \"\"\n[[metric]]\nkey = \"a\"\ntitel = \"b\"\n";
        let error = parse("x", "x.toml", text).unwrap_err();
        assert_eq!(error, "x.toml:6:1: there is no titel; did you mean title?");
        let twice = include_str!("../../../scenarios/wasd-records.toml");
        let first = twice.find("[[row]]").unwrap();
        let doubled = format!("{twice}\n{}", &twice[first..]);
        assert!(parse("x", "x.toml", &doubled).unwrap_err().contains("two rows"));
        let out = twice.replace("\"log.var\"", "\"../log.var\"");
        assert!(parse("x", "x.toml", &out).unwrap_err().contains("leads out"));
        let files = include_str!("../../../scenarios/wasd-files.toml");
        let metric = files.replacen(
            "metric = \"requests_per_second\"",
            "metric = \"request_per_second\"",
            1,
        );
        let error = parse("x", "x.toml", &metric).unwrap_err();
        assert!(error.ends_with("; did you mean requests_per_second?"), "{error}");
        assert!(load("wasd-file").unwrap_err().contains("wasd-files"));
    }
}
