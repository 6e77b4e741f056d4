//! What a comparison found: the schema of `results.json`. The reports are made from this alone.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dunlin_load::outcome::Verdict;

/// A comparison, whole.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// Version of this schema: 1.
    pub format: u32,
    /// Name and version of the generator.
    pub generator: String,
    /// The command that was given.
    pub command: Vec<String>,
    /// Seed of the order of runs and of all random choices.
    pub seed: u64,
    /// Start and end, RFC 3339, UTC.
    pub started: String,
    /// End, RFC 3339, UTC.
    pub finished: String,
    /// Whether it was stopped before all rounds were done.
    pub interrupted: bool,
    /// Rounds that were asked for.
    pub rounds: u32,
    /// Where it ran.
    pub machine: Machine,
    /// The servers, in the order of the columns.
    pub servers: Vec<ServerColumn>,
    /// The scenarios, in the order in which they were named.
    pub scenarios: Vec<ScenarioResults>,
}

/// Where a comparison ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Processor's name.
    pub processor: String,
    /// Processors of the machine.
    pub processors: u32,
    /// Processor that the servers were bound to.
    pub server_processors: String,
    /// Processor that the load was bound to.
    pub load_processors: String,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Kernel's release.
    pub kernel: String,
    /// Name of the distribution.
    pub distribution: String,
    /// What else matters, such as the frequency governor or the hypervisor; a name and a value each.
    pub facts: BTreeMap<String, String>,
}

/// A server that was compared.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServerColumn {
    /// Its name as used in `--servers` and as key of the cells.
    pub name: String,
    /// What its `--version` says, one line; absent when it is missing.
    pub version: Option<String>,
    /// Why it could not be run at all.
    pub missing: Option<String>,
    /// The configurations it was run with, by file name beneath the output directory.
    pub configurations: BTreeMap<String, String>,
}

/// What came of one scenario.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioResults {
    /// Name of its file without `.toml`.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it does and asks, a paragraph.
    pub summary: String,
    /// The document that it re-measures.
    pub document: String,
    /// What to know in order to read the figures rightly: the traps of the document.
    pub notes: Vec<String>,
    /// What is shown of each run, the first being the main one.
    pub metrics: Vec<Metric>,
    /// Charts, beside the bars of each metric.
    pub charts: Vec<Chart>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A figure that is shown.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Key of [`Round::values`].
    pub key: String,
    /// Heading.
    pub title: String,
    /// Unit, such as `/s`, `µs`, `bytes`, `ms`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it is a description.
    Neither,
}

/// A chart of one scenario, beside the bars.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Chart {
    /// A metric over the rows' [`Row::x`], a line for each server.
    Curve {
        /// Heading.
        title: String,
        /// The metric's key.
        metric: String,
        /// Name of the horizontal axis.
        x: String,
        /// Whether the horizontal axis is logarithmic.
        logarithmic: bool,
        /// Only the rows of this [`Row::group`]; absent: all that have an `x`.
        group: Option<String>,
    },
    /// Distribution of response times in one row, a line for each server.
    Latency {
        /// Heading.
        title: String,
        /// The row's id.
        row: String,
    },
}

/// A row of a scenario's table.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Unique within the scenario.
    pub id: String,
    /// What is shown at its left.
    pub title: String,
    /// Rows with the same group stand together beneath its name.
    pub group: Option<String>,
    /// Place on the horizontal axis of a curve.
    pub x: Option<f64>,
    /// The figures of the document.
    pub then: Vec<Then>,
    /// Footnotes.
    pub notes: Vec<String>,
    /// A cell for each server, by name.
    pub cells: BTreeMap<String, Cell>,
}

/// A figure of a document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Then {
    /// The server of then, with its version.
    pub server: String,
    /// Key of the metric.
    pub metric: String,
    /// The figure, in the metric's unit.
    pub value: f64,
    /// A footnote; may be empty.
    #[serde(default)]
    pub note: String,
}

/// What one server did in one row.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Cell {
    /// It ran.
    Measured {
        /// Every round that was run, valid or not.
        rounds: Vec<Round>,
        /// Descriptive values in words, such as features; shown instead of figures where there are no rounds.
        #[serde(default)]
        facts: BTreeMap<String, String>,
    },
    /// It does not have what the row asks for, or is not installed.
    NotAvailable {
        /// Why.
        reason: String,
    },
    /// It died, did not start, or could not be measured.
    Failed {
        /// What happened.
        reason: String,
        /// The last lines that it said.
        log_tail: String,
    },
}

/// One run of one server in one row.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Its round: runs of the same round are pairs.
    pub round: u32,
    /// Its place in the order of all runs.
    pub order: u32,
    /// The generator's command.
    pub command: Vec<String>,
    /// Whether the figures may be used.
    pub verdict: Verdict,
    /// Why not, or what stands out.
    pub reasons: Vec<String>,
    /// Figures by the metric's key.
    pub values: BTreeMap<String, f64>,
    /// Response times: an HdrHistogram in nanoseconds, V2 with deflate, Base64.
    pub histogram: Option<String>,
}
