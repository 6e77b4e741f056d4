//! Upgrades: a new process of the program takes over while this one goes on serving, and taking commands.

use std::future::pending;
use std::pin::Pin;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::new_process::Start;
use super::{Running, report};
use crate::control::Answer;

type Attempt = Pin<Box<dyn Future<Output = Result<u32, String>>>>;

/// An upgrade under way. When it is dropped, the new process is killed.
pub(super) struct Upgrade {
    attempt: Attempt,
    began: Instant,
    /// Who gets the result; `None` when the command came by a signal.
    answer: Answer,
    /// The configuration was read again since, so that the new process may have an older one.
    pub(super) has_old_configuration: bool,
}

/// The result of the upgrade under way: the number of the new process, or why it does not serve.
pub(super) async fn end_of(upgrade: &mut Option<Upgrade>) -> Result<u32, String> {
    match upgrade {
        Some(upgrade) => upgrade.attempt.as_mut().await,
        None => pending().await,
    }
}

fn unchanged(why: impl std::fmt::Display) -> String {
    format!("not handed over, this process goes on: {why}")
}

impl Running {
    /// Begins an upgrade, whose result goes to `answer`.
    pub(super) fn begin_upgrade(&mut self, answer: Answer) {
        match self.attempt() {
            Ok(attempt) => {
                let began = Instant::now();
                self.upgrade =
                    Some(Upgrade { attempt, began, answer, has_old_configuration: false });
            }
            Err(why) => report(Err(unchanged(why)), answer),
        }
    }

    /// What starts a new process of the program and has it take over the listeners. As long as it does not
    /// serve, nothing changes.
    fn attempt(&self) -> Result<Attempt, String> {
        if let Some(other) = &self.upgrade {
            let since = other.began.elapsed().as_secs_f64();
            return Err(format!(
                "another upgrade is under way, for {since:.1} s; wait for its result"
            ));
        }
        let program = self.program.clone();
        let program =
            program.ok_or("the program is outside of what the server can reach (chroot)")?;
        let shared = &self.generation.shared;
        let start = Start {
            program,
            confinement: shared.startup.confinement.clone(),
            starter: self.starter.clone(),
            listeners: self.listeners.iter().collect(),
            limit: shared.config.server.upgrade_timeout,
        };
        Ok(Box::pin(start.run()))
    }

    /// Reports the result of the upgrade: the number of the new process when that serves from now on.
    pub(super) fn upgraded(&mut self, result: Result<u32, String>) -> Option<u32> {
        let Upgrade { answer, has_old_configuration, .. } = self.upgrade.take()?;
        match result {
            Ok(pid) => {
                self.manager.handed_over(pid);
                let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let Some(process) = process.filter(|_| has_old_configuration)
                    && let Err(error) = kill_process(process, Signal::HUP)
                {
                    tracing::error!("process {pid} may have an older configuration: {error}");
                }
                let text = format!("handed over to process {pid}; answers under way are finished");
                report(Ok(text), answer);
                Some(pid)
            }
            Err(why) => {
                // The new process may have written its own number.
                self.write_pid_file();
                report(Err(unchanged(why)), answer);
                None
            }
        }
    }
}
