//! Scenarios: the files, loads and metrics of a comparison, as TOML.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use crate::results::{Chart, Metric, Then};

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the file without `.toml`.
    #[serde(skip)]
    pub name: String,
    /// One line.
    pub title: String,
    /// Description.
    pub summary: String,
    /// The document whose measurements it repeats.
    pub document: String,
    /// Notes on the interpretation of the figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The files to serve.
    #[serde(default, rename = "file")]
    pub files: Vec<Fixture>,
    /// The metrics, the main one first.
    #[serde(rename = "metric")]
    pub metrics: Vec<Metric>,
    /// Charts in addition to the bars.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Chart>,
    /// The rows.
    #[serde(rename = "row")]
    pub rows: Vec<RowPlan>,
}

/// Files of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// Path beneath the root; `{n}` is the number of the file.
    pub path: String,
    /// Size of each in bytes.
    pub size: u64,
    /// Number of files.
    #[serde(default = "one")]
    pub count: u32,
    /// Their content.
    #[serde(default)]
    pub content: Content,
}

fn one() -> u32 {
    1
}

/// Content of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Pseudo-random bytes.
    #[default]
    Random,
    /// Lines like those of an access log.
    Text,
    /// Those lines as records of OpenVMS's VARIABLE format.
    VariableRecords,
    /// A CGI program in C that responds with as many bytes as its query states.
    CgiProgram,
    /// That program for CGIplus.
    CgiplusProgram,
    /// That program for FastCGI. It needs libfcgi.
    FastcgiProgram,
    /// A program with its behaviour, in Rust, as a WebAssembly component.
    CgiComponent,
    /// The operation of `scripting/component`, in Rust, as a CGI program.
    Operation,
    /// The operation for CGIplus.
    CgiplusOperation,
    /// The operation for FastCGI.
    FastcgiOperation,
    /// The CGI program of the operation as a WebAssembly component.
    OperationComponent,
    /// The operation as a WebAssembly component with typed calls.
    TypedOperation,
}

impl Content {
    /// Returns `true` if it is a program that a server needs for scripts of this kind. `has_components` is for a server whose
    /// scripts within its own process are components.
    pub(crate) fn is_for(self, script: Script, has_components: bool) -> bool {
        match script {
            Script::Cgi | Script::Warm => matches!(self, Self::CgiProgram | Self::Operation),
            Script::Fastcgi => matches!(self, Self::FastcgiProgram | Self::FastcgiOperation),
            Script::Cgiplus => matches!(self, Self::CgiplusProgram | Self::CgiplusOperation),
            Script::InProcess if has_components => self == Self::CgiComponent,
            Script::InProcess => self == Self::CgiProgram,
            Script::Component => matches!(self, Self::OperationComponent | Self::TypedOperation),
        }
    }

    /// Returns `true` if it is a component.
    pub(crate) fn is_component(self) -> bool {
        matches!(self, Self::CgiComponent | Self::OperationComponent | Self::TypedOperation)
    }
}

/// A row: a load that is the same for all servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowPlan {
    /// Unique within the scenario.
    pub id: String,
    /// Title.
    pub title: String,
    /// Heading of a group of rows.
    pub group: Option<String>,
    /// Position on the horizontal axis of a curve.
    pub x: Option<f64>,
    /// Paths to request.
    #[serde(default)]
    pub paths: Vec<String>,
    /// Numbered paths to request.
    pub many: Option<Many>,
    /// Options of `dunlin load`.
    #[serde(default)]
    pub load: Vec<String>,
    /// Required features of the server.
    #[serde(default)]
    pub server: Variant,
    /// Figures of the document.
    #[serde(default)]
    pub then: Vec<Then>,
    /// Footnotes.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The row is part of `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// An option with several values, each of which makes a row.
    pub sweep: Option<Sweep>,
    /// Probe features instead of sending load.
    #[serde(default)]
    pub facts: bool,
    /// Bodies are generated rather than files of the root.
    #[serde(default)]
    pub generated: bool,
    /// Bodies of the same URL differ. Only status and length are verified.
    #[serde(default)]
    pub varies: bool,
    /// Duration of a run in seconds, if it differs from the option.
    pub seconds: Option<f64>,
    /// Largest number of rounds.
    pub rounds: Option<u32>,
}

/// Connections of `dunlin load` without an option.
const DEFAULT_CONNECTIONS: u64 = 10;

impl RowPlan {
    /// Connections of the load.
    pub(crate) fn connections(&self) -> u64 {
        let is_option = |word: &&[String]| matches!(word[0].as_str(), "-c" | "--connections");
        let value = self.load.windows(2).find(is_option).and_then(|pair| pair[1].parse().ok());
        value.unwrap_or(DEFAULT_CONNECTIONS)
    }

    /// Returns `true` if the server is probed instead of sending load.
    pub(crate) fn is_probe(&self) -> bool {
        self.facts || self.server.phases
    }

    /// Returns `true` if its first path is that of a file, with which the response is compared.
    pub(crate) fn has_file(&self) -> bool {
        !self.generated && !self.varies && !self.server.phases
    }
}

/// Numbered paths.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Many {
    /// The path with `{n}`.
    pub path: String,
    /// Number of paths, counted from 0.
    pub count: u32,
}

/// An option that takes several values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The option, such as `-c`.
    pub option: String,
    /// The values of the option.
    pub values: Vec<u32>,
}

/// Required features of a server.
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
    /// With HTTP/3, on the UDP port of the same number.
    pub http3: bool,
    /// With scripts of this kind at `/cgi-bin/`.
    pub script: Option<Script>,
    /// Files that end in `.var` are VARIABLE records.
    pub records: bool,
    /// With reverse look-ups of clients, at a resolver with a delay of 30 ms.
    pub dns: bool,
    /// Connections are closed after each response.
    pub no_keepalive: bool,
    /// As a reverse proxy: the files are those of an upstream, which is Dunlin for all.
    pub proxy: bool,
    /// Responses have the phases of their requests, which are probed instead of sending load.
    pub phases: bool,
}

/// A kind of script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Script {
    /// A process for each request.
    Cgi,
    /// A process for each request, forked from one that has started.
    Warm,
    /// A persistent FastCGI process.
    Fastcgi,
    /// A persistent CGIplus process.
    Cgiplus,
    /// Within the server's own process.
    InProcess,
    /// A WebAssembly component within the server's own process.
    Component,
}

impl Variant {
    /// Name of the variant, for directories and configurations.
    #[must_use]
    pub fn name(&self) -> String {
        let script = self.script.map(|script| format!("{script:?}").to_ascii_lowercase());
        let parts = [
            (self.no_cache, "no-cache"),
            (self.log, "log"),
            (self.tls, "tls"),
            (self.http2, "http2"),
            (self.http3, "http3"),
            (self.records, "records"),
            (self.dns, "dns"),
            (self.no_keepalive, "no-keepalive"),
            (self.proxy, "proxy"),
            (self.phases, "phases"),
            (script.is_some(), script.as_deref().unwrap_or_default()),
        ];
        let named: Vec<&str> = parts.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        if named.is_empty() { "plain".to_owned() } else { named.join("-") }
    }
}

/// The built-in scenarios: names and texts.
pub const BUILT_IN: [(&str, &str); 14] = [
    ("wasd-files", include_str!("../../../../scenarios/wasd-files.toml")),
    ("wasd-transfer", include_str!("../../../../scenarios/wasd-transfer.toml")),
    ("wasd-secure", include_str!("../../../../scenarios/wasd-secure.toml")),
    ("wasd-scripting", include_str!("../../../../scenarios/wasd-scripting.toml")),
    ("wasd-dns", include_str!("../../../../scenarios/wasd-dns.toml")),
    ("wasd-records", include_str!("../../../../scenarios/wasd-records.toml")),
    ("thttpd-small", include_str!("../../../../scenarios/thttpd-small.toml")),
    ("thttpd-cgi", include_str!("../../../../scenarios/thttpd-cgi.toml")),
    ("thttpd-users", include_str!("../../../../scenarios/thttpd-users.toml")),
    ("thttpd-table", include_str!("../../../../scenarios/thttpd-table.toml")),
    ("student-connections", include_str!("../../../../scenarios/student-connections.toml")),
    ("proxy-small", include_str!("../../../../scenarios/proxy-small.toml")),
    ("proxy-large", include_str!("../../../../scenarios/proxy-large.toml")),
    ("cgi-phases", include_str!("../../../../scenarios/cgi-phases.toml")),
];

/// Reads a built-in scenario by name, or a scenario file.
///
/// # Errors
/// `FILE:LINE:COLUMN: message`, or a similar name if there is no such scenario.
pub fn load(name: &str) -> Result<Scenario, String> {
    if let Some((known, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return parse(known, &format!("{known}.toml"), text);
    }
    if !name.ends_with(".toml") {
        let near = did_you_mean(name, BUILT_IN.iter().map(|(known, _)| *known));
        return Err(format!("there is no scenario {name}{near} (--list shows all)"));
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("{name}: {error}"))?;
    let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
    parse(stem, name, &text)
}

/// Parses a scenario. `file` is its name in errors.
///
/// # Errors
/// `FILE:LINE:COLUMN: message`.
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
            return Err(format!("{place}: {} leads out of the root", fixture.path));
        }
    }
    let mut seen = BTreeMap::new();
    for row in &scenario.rows {
        if seen.insert(&row.id, ()).is_some() {
            return Err(format!("{}: there are two rows with the id {}", row_at(&row.id), row.id));
        }
        if row.seconds.is_some_and(|seconds| !seconds.is_finite() || seconds <= 0.0) {
            return Err(format!("{}: seconds must be above 0", row_at(&row.id)));
        }
        if row.paths.is_empty() && row.many.is_none() && !row.facts {
            return Err(format!("{}: the row has no paths", row_at(&row.id)));
        }
    }
    scenario.rows = scenario.rows.into_iter().flat_map(swept).collect();
    let named = |word: &str| at(text.rfind(&format!("\"{word}\"")).map(|start| start..start));
    for metric in metrics_named(&scenario) {
        if !scenario.metrics.iter().any(|known| known.key == metric) {
            let known = scenario.metrics.iter().map(|metric| metric.key.as_str());
            let place = named(metric);
            return Err(format!(
                "{place}: there is no metric {metric}{}",
                did_you_mean(metric, known)
            ));
        }
    }
    for chart in &scenario.charts {
        if let Chart::Latency { row, .. } = chart
            && !scenario.rows.iter().any(|known| known.id == *row)
        {
            let known = scenario.rows.iter().map(|row| row.id.as_str());
            return Err(format!(
                "{}: there is no row {row}{}",
                named(row),
                did_you_mean(row, known)
            ));
        }
    }
    Ok(scenario)
}

/// Returns all metrics that rows and charts refer to.
fn metrics_named(scenario: &Scenario) -> impl Iterator<Item = &str> {
    let then = scenario.rows.iter().flat_map(|row| &row.then).map(|then| then.metric.as_str());
    let charts = scenario.charts.iter().filter_map(|chart| match chart {
        Chart::Curve { metric, .. } => Some(metric.as_str()),
        Chart::Latency { .. } => None,
    });
    then.chain(charts)
}

/// `; did you mean NAME?` if a known name is similar.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = known.map(|known| (strsim::damerau_levenshtein(known, word), known));
    match near.min().filter(|(distance, known)| *distance <= known.len().max(3) / 3) {
        Some((_, known)) => format!("; did you mean {known}?"),
        None => String::new(),
    }
}

/// Shortens the parser's message about an unknown key, which lists all keys, to the nearest one.
fn in_words(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match quoted.next().filter(|_| unknown) {
        Some(word) => match did_you_mean(word, quoted) {
            near if near.is_empty() => message.to_owned(),
            near => format!("there is no {word}{near}"),
        },
        None => message.to_owned(),
    }
}

/// Expands a row to one for each value of its sweep.
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
    fn built_in_scenarios_are_valid() {
        for (name, _) in BUILT_IN {
            let scenario = load(name).unwrap();
            assert!(!scenario.metrics.is_empty() && !scenario.rows.is_empty(), "{name}");
        }
    }

    #[test]
    fn errors_have_a_position() {
        let text = "title = \"x\"\nsummary = \"\"\ndocument = \"\"\n[[metric]]\nkey = \"a\"\ntitel = \"b\"\n";
        let error = parse("x", "x.toml", text).unwrap_err();
        assert_eq!(error, "x.toml:6:1: there is no titel; did you mean title?");
        let twice = include_str!("../../../../scenarios/wasd-records.toml");
        let first = twice.find("[[row]]").unwrap();
        let doubled = format!("{twice}\n{}", &twice[first..]);
        assert!(parse("x", "x.toml", &doubled).unwrap_err().contains("two rows"));
        let out = twice.replace("\"log.var\"", "\"../log.var\"");
        assert!(parse("x", "x.toml", &out).unwrap_err().contains("leads out"));
        let files = include_str!("../../../../scenarios/wasd-files.toml");
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
