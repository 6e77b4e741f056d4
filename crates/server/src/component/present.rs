//! Components in a build that has them.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;

use dunlin_component::Launcher;
pub(crate) use dunlin_component::{Components, WorkerComponents, check, compile, respond};

use dunlin_process::start_program::{Starter, start_program};
use dunlin_status::Component;

/// Creates the components of a server, which are compiled by `program`, its own. `starter` is what may start programs.
pub(crate) fn new(program: Option<PathBuf>, starter: Option<Starter>) -> Arc<Components> {
    let start = move |command: Command| -> io::Result<Child> {
        let started = start_program(command, starter.as_ref())?;
        started.blocking_recv().map_err(|_| io::Error::other("no thread could start it"))?
    };
    Components::new(Launcher { program, start: Box::new(start) })
}

/// Describes all components.
pub(crate) fn describe(components: &Components) -> Vec<Component> {
    let describe = |report: dunlin_component::ComponentReport| Component {
        name: report.name,
        kind: report.kind.into(),
        live: report.live,
        fresh: report.fresh,
        reused: report.reused,
        rejected: report.rejected,
        stops: report.stops.into_iter().map(|(kind, count)| (kind.into(), count)).collect(),
        memory_peak: report.memory_peak,
        compile_seconds: report.compile_seconds,
        swaps: report.swaps,
        error: report.error,
    };
    components.report().into_iter().map(describe).collect()
}
