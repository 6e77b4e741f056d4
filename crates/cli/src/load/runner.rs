//! The runner of plans: this process, or generators on other machines.

use std::sync::mpsc;
use std::time::Instant;

use dunlin_load::conclude::conclude;
use dunlin_load::engine::{self, Conformance, Job};
use dunlin_load::generators::protocol::Task;
use dunlin_load::generators::session::Session;
use dunlin_load::outcome::Outcome;
use dunlin_load::plan::Plan;
use dunlin_load::preflight;
use dunlin_load::progress::Progress;
use dunlin_load::show::Live;

use super::stop_on_signal;

/// The runner of plans.
pub(super) enum Runner {
    /// This process, from an instant on or at once.
    Local(Box<Job>, Option<Instant>),
    /// Generators.
    Remote(Box<Task>, Session),
}

/// The result of a run.
pub(super) struct Measurement {
    /// The outcome.
    pub(super) outcome: Outcome,
    /// With a modem pace: connections that were served at that pace.
    pub(super) conformance: Conformance,
    /// It was interrupted.
    pub(super) interrupted: bool,
}

impl Runner {
    /// Returns the plan.
    pub(super) fn plan(&self) -> &Plan {
        match self {
            Self::Local(job, _) => &job.plan,
            Self::Remote(task, _) => &task.plan,
        }
    }

    /// Changes the plan for the next run.
    ///
    /// # Errors
    /// This machine lacks what the plan needs.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Plan)) -> Result<(), String> {
        match self {
            Self::Local(job, _) => {
                change(&mut job.plan);
                preflight::prepare(&mut job.plan, job.address)
            }
            // Each generator checks its own machine.
            Self::Remote(task, _) => {
                change(&mut task.plan);
                Ok(())
            }
        }
    }

    /// Returns the number of connections for which this machine has descriptors, if that matters.
    pub(super) fn max_connections(&self) -> Option<u64> {
        match self {
            Self::Local(..) => preflight::max_connections(),
            Self::Remote(..) => None,
        }
    }

    /// Runs the plan, with a progress display if `shown`. A signal ends it early.
    ///
    /// # Errors
    /// It cannot be run.
    pub(super) fn run(&mut self, shown: bool) -> Result<Measurement, String> {
        match self {
            Self::Local(job, start) => {
                let progress = Progress::new(job.plan.threads as usize);
                stop_on_signal(&progress)?;
                let live = || Live::new(&job.plan, &progress, Some(job.address));
                let measured = display(shown, live, || engine::run(job, &progress, *start));
                let measured = measured.map_err(|error| error.to_string())?;
                Ok(Measurement {
                    outcome: conclude(job, &measured),
                    conformance: measured.tally.conformance,
                    interrupted: progress.is_stopped(),
                })
            }
            Self::Remote(task, session) => {
                let progress = Progress::new(session.generators());
                stop_on_signal(&progress)?;
                let live = || Live::new(&task.plan, &progress, None);
                let run = display(shown, live, || session.run(task, &progress))?;
                Ok(Measurement {
                    outcome: run.outcome,
                    conformance: run.conformance,
                    interrupted: progress.is_stopped(),
                })
            }
        }
    }
}

/// Calls `run`, and displays its progress if `shown`.
fn display<'a, T>(shown: bool, live: impl FnOnce() -> Live<'a>, run: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (ended, watch) = mpsc::channel::<()>();
        if shown {
            let mut live = live();
            scope.spawn(move || {
                while watch.recv_timeout(live.interval()) == Err(mpsc::RecvTimeoutError::Timeout) {
                    live.show();
                }
                live.clear();
            });
        }
        let result = run();
        drop(ended);
        result
    })
}
