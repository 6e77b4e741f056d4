//! Runs scenarios: starts the servers, interleaves the rounds, and writes the reports.
//!
//! The servers share one processor and the load generator has another. Each run is a `dunlin load` process of its own.

mod command;
mod generator;
mod metrics;
mod phases;
mod probe;
mod progress;
mod rounds;
mod schedule;
mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use dunlin_load::time::rfc3339;

use crate::machine::Usage;
use crate::results::{Results, Row, ScenarioResults, ServerColumn};
use crate::scenario::Scenario;
use crate::{adapter, machine, report};

/// Options of a comparison.
pub struct Options {
    /// The scenarios, in the order in which they run.
    pub scenarios: Vec<Scenario>,
    /// Names of the servers, in the order of the columns.
    pub servers: Vec<String>,
    /// Rounds of each row.
    pub rounds: u32,
    /// Duration of each run, in seconds.
    pub seconds: f64,
    /// Directory of the reports.
    pub out: PathBuf,
    /// Seed of the order of runs and of all random choices.
    pub seed: u64,
    /// Processor that the servers are bound to.
    pub server_processor: u32,
    /// Processor that the load generator is bound to.
    pub load_processor: u32,
    /// The machines that send the load.
    pub machines: Machines,
    /// Runs only the rows that are marked `quick`, with shorter runs.
    pub quick: bool,
    /// The command line, as recorded in the results.
    pub command: Vec<String>,
    /// Interrupts the comparison when set. The results so far are kept.
    pub stop: Arc<AtomicBool>,
}

/// Generators on other machines, and the address at which they reach the servers.
#[derive(Clone, Debug)]
pub struct Machines {
    /// Values of `--from` of `dunlin load`. Empty for a generator on this machine.
    pub from: Vec<String>,
    /// Other options of `dunlin load` for them.
    pub options: Vec<String>,
    /// The address that servers listen on.
    pub address: Ipv4Addr,
}

/// Runs all scenarios. The reports are written after each round and after each scenario.
///
/// # Errors
/// An error that prevents the whole comparison, such as a directory that cannot be written. A server that fails is a
/// cell of the results and no error.
pub fn run(options: &Options) -> Result<Results, String> {
    fs::create_dir_all(options.out.join("configurations"))
        .map_err(|error| at(&options.out, &error))?;
    let scratch =
        Scratch::new().map_err(|error| at(Path::new("the temporary directory"), &error))?;
    let mut results = Results {
        format: 1,
        generator: concat!("dunlin ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: options.command.clone(),
        seed: options.seed,
        started: rfc3339(SystemTime::now()),
        finished: String::new(),
        interrupted: false,
        rounds: options.rounds,
        machine: machine::describe(options.server_processor, options.load_processor),
        servers: columns(&options.servers)?,
        scenarios: Vec::new(),
    };
    let usage = Usage::now();
    for scenario in &options.scenarios {
        let mut run = rounds::ScenarioRun::new(options, scenario, &scratch.0)?;
        let rows = run.run(|rows| write_partial(options, &results, scenario, rows));
        for (server, file, text) in run.configurations() {
            let path = options.out.join("configurations").join(&file);
            fs::write(&path, text).map_err(|error| at(&path, &error))?;
            if let Some(column) = results.servers.iter_mut().find(|column| column.name == server) {
                column.configurations.insert(file.clone(), format!("configurations/{file}"));
            }
        }
        results.scenarios.push(scenario_results(scenario, rows));
        results.finished = rfc3339(SystemTime::now());
        results.machine.others_share =
            usage.as_ref().and_then(|usage| usage.others_since(results.machine.processors));
        results.interrupted = options.stop.load(Ordering::Relaxed);
        report::write(&results, &options.out).map_err(|error| at(&options.out, &error))?;
        if results.interrupted {
            break;
        }
    }
    Ok(results)
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn columns(servers: &[String]) -> Result<Vec<ServerColumn>, String> {
    let column = |name: &String| {
        let adapter = adapter::by_name(name)?;
        let program = adapter.find();
        Ok(ServerColumn {
            name: name.clone(),
            version: program.as_ref().map(|program| adapter.version(program)),
            missing: program
                .is_none()
                .then(|| format!("it is not installed ({})", adapter.install)),
            configurations: BTreeMap::new(),
        })
    };
    servers.iter().map(column).collect()
}

/// Writes the reports of an unfinished scenario, so that a comparison that is killed keeps its rounds.
fn write_partial(options: &Options, results: &Results, scenario: &Scenario, rows: &[Row]) {
    let mut partial = results.clone();
    partial.scenarios.push(scenario_results(scenario, rows.to_vec()));
    partial.finished = rfc3339(SystemTime::now());
    partial.interrupted = true;
    if let Err(error) = report::write(&partial, &options.out) {
        eprintln!("  {}", at(&options.out, &error));
    }
}

fn scenario_results(scenario: &Scenario, rows: Vec<Row>) -> ScenarioResults {
    ScenarioResults {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        summary: scenario.summary.clone(),
        document: scenario.document.clone(),
        notes: scenario.notes.clone(),
        metrics: scenario.metrics.clone(),
        charts: scenario.charts.clone(),
        rows,
    }
}

/// A temporary directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        let name = format!("dunlin-compare-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder)?;
        // Servers that drop their privileges must be able to read it.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The system cleans the directory for temporary files later.
        let _ = fs::remove_dir_all(&self.0);
    }
}
