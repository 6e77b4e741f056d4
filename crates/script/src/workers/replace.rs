//! Replacing workers whose code has changed: the new ones start before the old ones end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::pool::Pool;
use super::registry::Registry;
use super::state::WorkerStatus;
use super::worker::Worker;
use super::{lifecycle, start};
use crate::context::Shared;
use dunlin_config::Interface;

/// The result of replacing the workers of a pool.
#[derive(Debug)]
pub enum Renewal {
    /// There was nothing to replace.
    Unchanged,
    /// Workers of these scripts run the new code.
    Replaced(String),
    /// The new code of these scripts does not start, for this reason; the old workers go on.
    Failed(String, String),
}

/// The time that a new worker may take until it is ready.
pub(super) const START: Duration = Duration::from_secs(60);

impl Registry {
    /// Makes every pool try again to start workers that could not be started, and replaces the workers whose code has
    /// changed; all workers when `all`.
    pub(in super::super) async fn renew(&self, shared: &Arc<Shared>, all: bool) -> Vec<Renewal> {
        let mut renewals = Vec::new();
        let started: Vec<_> = self
            .pools()
            .into_iter()
            .map(|pool| {
                pool.resume();
                let (supervisor, shared) = (pool.supervisor.clone(), Arc::clone(shared));
                supervisor.spawn(async move { pool.renew(&shared, all).await })
            })
            .collect();
        for renewal in started {
            // The error means that the server is stopping.
            renewals.extend(renewal.await);
        }
        renewals
    }
}

impl Pool {
    /// Ends the pause after failed starts.
    fn resume(&self) {
        self.lock().clear_failures();
        self.resumed.notify_waiters();
    }

    async fn renew(self: Arc<Self>, shared: &Arc<Shared>, all: bool) -> Renewal {
        let _one_at_a_time = self.replacing.lock().await;
        let old = self.outdated(all);
        if old.is_empty() {
            return Renewal::Unchanged;
        }
        for worker in old {
            // Whether a program that reads from streams is ready, only its first response shows.
            if self.rules.kind.interface() != Interface::Streams
                && let Err(reason) = self.start_replacement(shared).await
            {
                return Renewal::Failed(self.label.clone(), reason);
            }
            self.drain(&worker);
        }
        Renewal::Replaced(self.label.clone())
    }

    /// Returns the workers whose code has changed; all that get requests, or will, when `all`.
    fn outdated(&self, all: bool) -> Vec<Arc<Worker>> {
        let workers: Vec<Arc<Worker>> = {
            let state = self.lock();
            let in_use = state.slots.iter().filter(|slot| slot.serves());
            in_use.map(|slot| Arc::clone(&slot.worker)).collect()
        };
        let is_outdated = |worker: &Arc<Worker>| match self.changed_file(worker) {
            Some(file) => {
                tracing::debug!(
                    scripts = self.label,
                    pid = worker.pid,
                    ?file,
                    "the code of a worker has changed"
                );
                true
            }
            None => all,
        };
        workers.into_iter().filter(is_outdated).collect()
    }

    fn changed_file(&self, worker: &Worker) -> Option<PathBuf> {
        worker.code.changed(self, worker.pid, &worker.loaded())
    }

    /// Starts a worker that gets requests once it is ready.
    async fn start_replacement(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<(), String> {
        let worker = start::start(self, shared, WorkerStatus::Starting).await?;
        let ready = timeout(START, self.wait_until_ready(&worker)).await;
        let mut state = self.lock();
        let slot = state.slot(&worker).filter(|slot| slot.status == WorkerStatus::Starting);
        match (ready, slot) {
            (Ok(()), Some(slot)) => {
                slot.status = WorkerStatus::Available;
                drop(state);
                self.serve_queue();
                Ok(())
            }
            (Err(_), Some(slot)) => {
                slot.end();
                Err(format!("a new worker was not ready within {START:?}"))
            }
            _ => Err("a new worker ended while it started".into()),
        }
    }

    /// Waits until a worker is ready for requests or has ended. An application server reports that it is ready; another worker shows it by
    /// accepting a connection.
    async fn wait_until_ready(&self, worker: &Worker) {
        if self.is_application() {
            return worker.wait(|phase| phase.is_ready || phase.has_ended).await;
        }
        tokio::select! {
            // If it cannot be connected to, it has ended or is about to.
            Ok(()) = lifecycle::accepts(worker) => {}
            () = worker.wait(|phase| phase.has_ended) => {}
        }
    }

    /// Ends a worker after the requests that it has.
    fn drain(&self, worker: &Worker) {
        if let Some(slot) = self.lock().slot(worker)
            && slot.serves()
        {
            slot.drain();
        }
    }
}
