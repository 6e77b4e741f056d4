//! The results of a comparison: the schema of `results.json`. The reports are computed from them alone.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use dunlin_load::outcome::Verdict;

/// The results of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// Version of this schema: 1.
    pub format: u32,
    /// Name and version of the generator.
    pub generator: String,
    /// The command line.
    pub command: Vec<String>,
    /// Seed of the order of runs and of all random choices.
    pub seed: u64,
    /// Start, RFC 3339, UTC.
    pub started: String,
    /// End, RFC 3339, UTC.
    pub finished: String,
    /// `true` if the comparison was stopped before all rounds were complete.
    pub interrupted: bool,
    /// Requested rounds.
    pub rounds: u32,
    /// The machine.
    pub machine: Machine,
    /// The servers, in the order of the columns.
    pub servers: Vec<ServerColumn>,
    /// The scenarios, in the requested order.
    pub scenarios: Vec<ScenarioResults>,
}

impl Results {
    /// The names of the servers that did not run, separated by commas; `None` if all did.
    pub(crate) fn missing_servers(&self) -> Option<String> {
        let missing = self.servers.iter().filter(|server| server.missing.is_some());
        let names: Vec<&str> = missing.map(|server| server.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// The machine of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Processor's name.
    pub processor: String,
    /// Processors of the machine.
    pub processors: u32,
    /// Processor of the servers.
    pub server_processors: String,
    /// Processor of the load generator.
    pub load_processors: String,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Kernel's release.
    pub kernel: String,
    /// Name of the distribution.
    pub distribution: String,
    /// Load average of one minute before the comparison; absent if unknown.
    #[serde(default)]
    pub load_before: Option<f64>,
    /// Share of all processors that programs outside of the comparison used while it ran, 0 to 1; absent if unknown.
    #[serde(default)]
    pub others_share: Option<f64>,
    /// Other properties, such as the frequency governor, by name.
    pub facts: BTreeMap<String, String>,
}

/// A server of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServerColumn {
    /// Name in `--servers` and key of the cells.
    pub name: String,
    /// Version as printed by the server, one line; absent if it is not installed.
    pub version: Option<String>,
    /// Reason why it could not run at all.
    pub missing: Option<String>,
    /// The configurations: paths beneath the output directory, by file name.
    pub configurations: BTreeMap<String, String>,
}

/// The results of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioResults {
    /// Name of its file without `.toml`.
    pub name: String,
    /// One line.
    pub title: String,
    /// Description, a paragraph.
    pub summary: String,
    /// The document whose measurements it repeats.
    pub document: String,
    /// Notes on the interpretation of the figures.
    pub notes: Vec<String>,
    /// The metrics, the main one first.
    pub metrics: Vec<Metric>,
    /// Charts in addition to the bars of each metric.
    pub charts: Vec<Chart>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A metric.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Key of [`Round::values`].
    pub key: String,
    /// Heading.
    pub title: String,
    /// Unit, such as `/s`, `µs`, `bytes`, `ms`.
    pub unit: String,
    /// The better direction.
    pub better: Better,
}

/// The better direction of a metric.
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

/// A chart of a scenario in addition to the bars.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Chart {
    /// A metric over [`Row::x`], with a line for each server.
    Curve {
        /// Heading.
        title: String,
        /// The metric's key.
        metric: String,
        /// Name of the horizontal axis.
        x: String,
        /// `true` if the horizontal axis is logarithmic.
        logarithmic: bool,
        /// Only rows with this [`Row::group`]; absent for all rows with an `x`.
        group: Option<String>,
    },
    /// Distribution of response times of a row, with a line for each server.
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
    /// Title.
    pub title: String,
    /// Heading of a group of rows.
    pub group: Option<String>,
    /// Position on the horizontal axis of a curve.
    pub x: Option<f64>,
    /// The figures of the document.
    pub then: Vec<Then>,
    /// Footnotes.
    pub notes: Vec<String>,
    /// A cell for each server, by name.
    pub cells: BTreeMap<String, Cell>,
}

impl Row {
    /// The title with the group, which is unique within the scenario.
    #[must_use]
    pub fn full_title(&self) -> String {
        match &self.group {
            Some(group) => format!("{}, {group}", self.title),
            None => self.title.clone(),
        }
    }
}

/// A figure of a document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Then {
    /// The server in the document, with its version.
    pub server: String,
    /// Key of the metric.
    pub metric: String,
    /// The figure, in the metric's unit.
    pub value: f64,
    /// A footnote; may be empty.
    #[serde(default)]
    pub note: String,
}

/// The result of a server in a row.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Cell {
    /// The server was measured.
    Measured {
        /// Every round that was run, valid or not.
        rounds: Vec<Round>,
        /// Features by name, shown if there are no rounds.
        #[serde(default)]
        facts: BTreeMap<String, String>,
    },
    /// The server lacks a feature, or is not installed.
    NotAvailable {
        /// Reason.
        reason: String,
    },
    /// The server died, did not start, or could not be measured.
    Failed {
        /// Reason.
        reason: String,
        /// The last lines of the server's output.
        log_tail: String,
    },
}

/// A run of a server in a row.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Round. Runs of the same round form pairs.
    pub round: u32,
    /// Position in the order of all runs.
    pub order: u32,
    /// The generator's command.
    pub command: Vec<String>,
    /// The verdict on the figures.
    pub verdict: Verdict,
    /// Reasons of the verdict, and anomalies.
    pub reasons: Vec<String>,
    /// Figures by the metric's key.
    pub values: BTreeMap<String, f64>,
    /// Response times: an HdrHistogram in nanoseconds, V2 with deflate, Base64.
    pub histogram: Option<String>,
}
