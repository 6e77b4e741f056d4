//! Upgrades: a new process takes over the listeners, while this one continues to serve and to accept commands.

use std::future::pending;
use std::pin::Pin;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::quic_sockets::Succession;
use super::{Running, report};
use crate::control::ResultSender;
use crate::listen::quic;
use dunlin_process::new_process::Start;

type Attempt = Pin<Box<dyn Future<Output = Result<u32, String>>>>;

/// A running upgrade. Dropping it kills the new process.
pub(super) struct Upgrade {
    attempt: Attempt,
    began: Instant,
    /// Receives the result; `None` when the command came by a signal.
    result_sender: ResultSender,
    /// What follows for QUIC connections.
    successions: Vec<Succession>,
    /// The configuration was reloaded since, so the new process may have read an older one.
    pub(super) has_old_configuration: bool,
}

/// Waits for the result of the running upgrade, if any: the PID of the new process, or why it does not serve.
pub(super) async fn end_of(upgrade: &mut Option<Upgrade>) -> Result<u32, String> {
    match upgrade {
        Some(upgrade) => upgrade.attempt.as_mut().await,
        None => pending().await,
    }
}

fn unchanged(why: impl std::fmt::Display) -> String {
    format!("not upgraded, this process keeps serving: {why}")
}

impl Running {
    /// Starts an upgrade. `result_sender` receives the result.
    pub(super) fn begin_upgrade(&mut self, result_sender: ResultSender) {
        match self.attempt() {
            Ok((attempt, successions)) => {
                self.upgrade = Some(Upgrade {
                    attempt,
                    began: Instant::now(),
                    result_sender,
                    successions,
                    has_old_configuration: false,
                });
            }
            Err(why) => report(Err(unchanged(why)), result_sender),
        }
    }

    /// Returns a future that starts a new process and passes the listeners to it. Nothing changes until the new process
    /// serves.
    fn attempt(&self) -> Result<(Attempt, Vec<Succession>), String> {
        if let Some(other) = &self.upgrade {
            let since = other.began.elapsed().as_secs_f64();
            return Err(format!(
                "another upgrade is under way since {since:.1} s; wait for its result"
            ));
        }
        let program = self.program.clone();
        let program = program.ok_or("the program is outside the chroot")?;
        let shared = &self.generation.shared;
        let passed = self.listeners.pass();
        let (listeners, successions) = passed.map_err(|error| error.to_string())?;
        let start = Start {
            program,
            confinement: shared.startup.confinement.clone(),
            starter: self.starter.clone(),
            listeners,
            secrets: quic::secrets(),
            limit: shared.config.server.upgrade_timeout,
        };
        Ok((Box::pin(start.run()), successions))
    }

    /// Reports the result of the upgrade. Returns the PID of the new process if it serves, and what follows for QUIC
    /// connections.
    pub(super) fn upgraded(
        &mut self,
        result: Result<u32, String>,
    ) -> Option<(u32, Vec<Succession>)> {
        let Upgrade { result_sender, has_old_configuration, successions, .. } =
            self.upgrade.take()?;
        match result {
            Ok(pid) => {
                self.manager.replaced_by(pid);
                let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
                if let Some(process) = process.filter(|_| has_old_configuration)
                    && let Err(error) = kill_process(process, Signal::HUP)
                {
                    tracing::error!(
                        "process {pid} may have an older configuration, and reloading it failed: {error}"
                    );
                }
                let text = format!("replaced by process {pid}; responses in progress are finished");
                report(Ok(text), result_sender);
                Some((pid, successions))
            }
            Err(why) => {
                // The new process may have written its own PID.
                self.write_pid_file();
                report(Err(unchanged(why)), result_sender);
                None
            }
        }
    }
}
