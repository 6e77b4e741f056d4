//! The rounds of one scenario.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dunlin_load::outcome::Outcome;

use super::progress::Progress;
use super::schedule::{self, Run};
use super::servers::{Configuration, Servers, Setup};
use super::{Options, command, generator, metrics, phases, probe};
use crate::adapter::{self, BASELINE, HAS_COMPONENTS};
use crate::resolver::SlowResolver;
use crate::results::{Cell, Round, Row};
use crate::scenario::{Fixture, RowPlan, Scenario, Variant};
use crate::server::Failure;
use crate::{certificate, fixture};

/// Delay of the resolver's responses.
const RESOLVER_DELAY: Duration = Duration::from_millis(30);
/// Rows that `--quick` runs of a scenario that marks none.
const QUICK_ROWS: usize = 3;

/// A scenario with its rows and servers.
pub(super) struct ScenarioRun<'a> {
    options: &'a Options,
    scenario: &'a Scenario,
    plans: Vec<&'a RowPlan>,
    servers: Servers,
}

/// The result of one run.
enum Measured {
    /// A row with load.
    Round(Round),
    /// A row that probes features.
    Features(BTreeMap<String, String>),
}

impl<'a> ScenarioRun<'a> {
    /// Creates the scenario's files, certificate and resolver in a directory beneath `scratch`.
    pub(super) fn new(
        options: &'a Options,
        scenario: &'a Scenario,
        scratch: &Path,
    ) -> Result<Self, String> {
        let folder = scratch.join(&scenario.name);
        let root = folder.join("site");
        fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
        eprintln!("{}: {}", scenario.name, scenario.title);
        let is_used = |file: &&Fixture| HAS_COMPONENTS || !file.content.is_component();
        let files: Vec<_> = scenario.files.iter().filter(is_used).cloned().collect();
        fixture::make(&root, &files, options.seed)?;
        let plans = plans(scenario, options.quick);
        let needs = |what: fn(&Variant) -> bool| plans.iter().any(|plan| what(&plan.server));
        let certificate =
            if needs(|variant| variant.tls) { certificate::create(&folder).ok() } else { None };
        let resolver = if needs(|variant| variant.dns) {
            let resolver = SlowResolver::start(RESOLVER_DELAY);
            Some(resolver.map_err(|error| format!("the resolver: {error}"))?)
        } else {
            None
        };
        let setup = Setup {
            scenario: scenario.name.clone(),
            folder,
            root,
            processor: options.server_processor,
            load_processor: options.load_processor,
            address: options.machines.address,
            certificate,
            resolver,
        };
        Ok(Self { options, scenario, plans, servers: Servers::new(setup) })
    }

    /// Runs all rounds. `save` receives the rows after each round.
    pub(super) fn run(&mut self, save: impl Fn(&[Row])) -> Vec<Row> {
        let mut rows: Vec<Row> = self.plans.iter().map(|plan| empty_row(plan)).collect();
        let cells = self.available_cells(&mut rows);
        let rounds: Vec<u32> = self.plans.iter().map(|plan| self.rounds_of(plan)).collect();
        let runs = schedule::interleave(&cells, &rounds, self.options.seed);
        let progress = Progress::new(runs.len());
        let mut last = 0;
        for (order, run) in runs.iter().enumerate() {
            if run.round != std::mem::replace(&mut last, run.round) {
                save(&rows);
            }
            if self.is_stopped() {
                break;
            }
            let name = &self.options.servers[run.server];
            if matches!(rows[run.row].cells.get(name), Some(Cell::Failed { .. })) {
                continue;
            }
            progress.run(order, &rows[run.row].title, name);
            let measured = self.measure(run, order as u32);
            // A run that the stop interrupted is not a failure of the server.
            if measured.is_err() && self.is_stopped() {
                break;
            }
            record(&mut rows[run.row], name, measured);
        }
        progress.done(&self.scenario.name);
        rows
    }

    /// Stops the servers and returns the configurations that they ran with.
    pub(super) fn configurations(&mut self) -> Vec<Configuration> {
        self.servers.stop()
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// Returns the cells (row, server) that can be measured. The others get their reason.
    fn available_cells(&self, rows: &mut [Row]) -> Vec<(usize, usize)> {
        let mut cells = Vec::new();
        for (index, row) in rows.iter_mut().enumerate() {
            for (server, name) in self.options.servers.iter().enumerate() {
                match self.unavailable(self.plans[index], name) {
                    Some(reason) => {
                        let reason = reason.to_owned();
                        row.cells.insert(name.clone(), Cell::NotAvailable { reason });
                    }
                    None => cells.push((index, server)),
                }
            }
        }
        cells
    }

    /// Returns why a server cannot run a row; `None` if it can.
    fn unavailable(&self, plan: &RowPlan, name: &str) -> Option<&'static str> {
        let adapter = adapter::by_name(name).ok()?;
        let variant = &plan.server;
        if adapter.find().is_none() {
            return Some("it is not installed");
        }
        if let Some(reason) = (adapter.lacks)(variant) {
            return Some(reason);
        }
        let setup = &self.servers.setup;
        if plan.connections() < self.options.machines.from.len() as u64 {
            return Some("it has fewer connections than there are generators");
        }
        if variant.tls && setup.certificate.is_none() {
            return Some("no certificate could be made: openssl is not installed");
        }
        let is_needed = |file: &&Fixture| {
            variant
                .script
                .is_some_and(|script| file.content.is_for(script, name == adapter::DUNLIN))
        };
        let mut programs = self.scenario.files.iter().filter(is_needed);
        if programs.any(|file| !setup.root.join(&file.path).is_file()) {
            return Some("its program could not be compiled");
        }
        let has_one_file = plan.paths.len() == 1 && plan.many.is_none();
        if adapter.name == BASELINE && (!has_one_file || plan.is_probe()) {
            return Some("it has one response only");
        }
        None
    }

    fn rounds_of(&self, plan: &RowPlan) -> u32 {
        if plan.is_probe() {
            return 1;
        }
        plan.rounds.unwrap_or(self.options.rounds).min(self.options.rounds)
    }

    fn measure(&mut self, run: &Run, order: u32) -> Result<Measured, Failure> {
        let plan = self.plans[run.row];
        let options = self.options;
        let name = &options.servers[run.server];
        let key = Servers::key(name, plan);
        let running = self.servers.get(&key, plan)?;
        if plan.facts {
            let features = probe::features(name, running.address, &running.server);
            return Ok(Measured::Features(features));
        }
        let address = running.address;
        if plan.server.phases {
            return phases::measure(plan, address)
                .map(Measured::Features)
                .map_err(|reason| Failure { reason, log_tail: running.server.log_tail() });
        }
        let setup = &self.servers.setup;
        let command = command::load(options, plan, address, &setup.folder, &setup.root)?;
        let limit = command::time_limit(options, plan);
        let outcome = generator::run(&command, options.load_processor, limit, &options.stop);
        let running = self.servers.get(&key, plan)?;
        if !running.server.is_alive() {
            let log_tail = running.server.log_tail();
            self.servers.remove(&key);
            let reason = "it died while it was being measured".to_owned();
            return Err(Failure { reason, log_tail });
        }
        let outcome = outcome.map_err(|error| Failure {
            reason: format!("the generator failed: {error}"),
            log_tail: running.server.log_tail(),
        })?;
        let memory = running.server.memory();
        Ok(Measured::Round(round(outcome, run.round, order, command, memory)))
    }
}

/// Returns the rows to run: with `quick` those that are marked, or the first where none is.
fn plans(scenario: &Scenario, quick: bool) -> Vec<&RowPlan> {
    let marks = scenario.rows.iter().any(|plan| plan.quick);
    let is_quick =
        |index: usize, plan: &RowPlan| if marks { plan.quick } else { index < QUICK_ROWS };
    let plans = scenario.rows.iter().enumerate();
    plans.filter(|(index, plan)| !quick || is_quick(*index, plan)).map(|(_, plan)| plan).collect()
}

fn empty_row(plan: &RowPlan) -> Row {
    Row {
        id: plan.id.clone(),
        title: plan.title.clone(),
        group: plan.group.clone(),
        x: plan.x,
        then: plan.then.clone(),
        notes: plan.notes.clone(),
        cells: BTreeMap::new(),
    }
}

fn round(outcome: Outcome, round: u32, order: u32, command: Vec<String>, memory: u64) -> Round {
    let values = metrics::values(&outcome, memory);
    let mut reasons = outcome.reasons;
    let findings = outcome.findings.iter();
    reasons.extend(findings.map(|finding| format!("{}: {}", finding.kind, finding.text)));
    let histogram = outcome.latency_ms.map(|latency| latency.histogram);
    Round { round, order, command, verdict: outcome.verdict, reasons, values, histogram }
}

/// Stores a run in its cell. A failure replaces the rounds before it.
fn record(row: &mut Row, server: &str, measured: Result<Measured, Failure>) {
    let cell = row.cells.entry(server.to_owned());
    let cell =
        cell.or_insert_with(|| Cell::Measured { rounds: Vec::new(), facts: BTreeMap::new() });
    match measured {
        Ok(Measured::Round(round)) => {
            if let Cell::Measured { rounds, .. } = cell {
                rounds.push(round);
            }
        }
        Ok(Measured::Features(facts)) => *cell = Cell::Measured { rounds: Vec::new(), facts },
        Err(Failure { reason, log_tail }) => *cell = Cell::Failed { reason, log_tail },
    }
}
