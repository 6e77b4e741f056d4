//! Replacing workers whose code has changed: new ones start before the old ones end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::{All, Fitness, Pool, Worker, life};
use crate::worker::SharedState;

/// What came of the replacement of a pool's workers.
#[derive(Debug)]
pub(crate) enum Renewal {
    /// There was nothing to replace.
    Unchanged,
    /// Workers of these scripts run the new code.
    Replaced(String),
    /// The new code does not start, for this reason; the old workers go on.
    Failed(String, String),
}

/// How long a new worker may take until it is ready.
const START: Duration = Duration::from_secs(60);
/// How often the state of a worker that tells nothing of itself is looked at.
const GLANCE: Duration = Duration::from_millis(10);

impl All {
    /// Has every pool start workers again that could not be started, and replaces the workers whose code has
    /// changed; all workers when `all`.
    pub(in super::super) async fn renew(
        &self,
        shared: &Arc<SharedState>,
        all: bool,
    ) -> Vec<Renewal> {
        let pools: Vec<_> = {
            let pools = self.pools.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            pools.values().map(Arc::clone).collect()
        };
        let mut renewals = Vec::new();
        let started: Vec<_> = pools
            .into_iter()
            .map(|pool| {
                pool.resume();
                let (supervisor, shared) = (pool.supervisor.clone(), Arc::clone(shared));
                supervisor.spawn(async move { pool.renew(&shared, all).await })
            })
            .collect();
        for renewal in started {
            // An error says that the server is stopping.
            renewals.extend(renewal.await);
        }
        renewals
    }
}

impl Pool {
    /// Ends the pause after failed starts.
    fn resume(&self) {
        let mut state = self.lock();
        state.failures = 0;
        state.not_before = std::time::Instant::now();
        state.down = None;
        drop(state);
        self.resumed.notify_waiters();
    }

    async fn renew(self: Arc<Self>, shared: &Arc<SharedState>, all: bool) -> Renewal {
        let _one_at_a_time = self.renewing.lock().await;
        let workers: Vec<Arc<Worker>> = {
            let state = self.lock();
            let fit = state.slots.iter().filter(|slot| slot.fitness == Fitness::Fit);
            fit.map(|slot| Arc::clone(&slot.worker)).collect()
        };
        let mut old = Vec::new();
        for worker in workers {
            match self.changed(&worker) {
                Some(file) => {
                    tracing::debug!(
                        scripts = self.label,
                        pid = worker.pid,
                        ?file,
                        "its code has changed"
                    );
                    old.push(worker);
                }
                None if all => old.push(worker),
                None => {}
            }
        }
        if old.is_empty() {
            return Renewal::Unchanged;
        }
        for worker in old {
            // Whether a program that reads from streams is ready, its first response tells.
            if !self.rules.kind.is_by_streams()
                && let Err(reason) = self.start_successor(shared).await
            {
                return Renewal::Failed(self.label.clone(), reason);
            }
            self.retire_worker(&worker);
        }
        Renewal::Replaced(self.label.clone())
    }

    fn changed(&self, worker: &Worker) -> Option<PathBuf> {
        worker.code.changed(self, worker.pid, &worker.loaded())
    }

    /// Starts a worker that gets requests once it is ready.
    async fn start_successor(self: &Arc<Self>, shared: &Arc<SharedState>) -> Result<(), String> {
        let worker = life::begin_worker(self, shared, Fitness::Starting).await?;
        let ready = timeout(START, self.readiness(&worker)).await;
        let mut state = self.lock();
        let slot = state.slot(worker.number).filter(|slot| slot.fitness == Fitness::Starting);
        match (ready, slot) {
            (Ok(true), Some(slot)) => {
                slot.fitness = Fitness::Fit;
                drop(state);
                self.serve_waiting();
                Ok(())
            }
            (Err(_), Some(slot)) => {
                slot.end();
                Err(format!("a new worker was not ready within {START:?}"))
            }
            _ => Err("a new worker ended while it started".into()),
        }
    }

    /// Waits until the worker is ready for requests; false when it has ended before.
    async fn readiness(&self, worker: &Worker) -> bool {
        let is_there = || self.lock().slot(worker.number).is_some();
        if self.rules.kind.has_host() {
            let mut ready = worker.ready.subscribe();
            loop {
                match timeout(GLANCE, ready.wait_for(|ready| *ready)).await {
                    Ok(result) => return result.is_ok() && is_there(),
                    Err(_) if is_there() => {}
                    Err(_) => return false,
                }
            }
        }
        let accepted = async {
            let Ok(mut stream) = UnixStream::connect(&worker.socket).await else { return };
            // It has nothing to read, so that any end of the connection says that it was accepted.
            if rustix::net::shutdown(&stream, rustix::net::Shutdown::Write).is_ok() {
                let _ = stream.read(&mut [0; 64]).await;
            }
        };
        tokio::select! {
            () = accepted => {}
            () = async { while is_there() { sleep(GLANCE).await } } => {}
        }
        is_there()
    }

    /// Ends a worker once its requests are done.
    fn retire_worker(&self, worker: &Worker) {
        if let Some(slot) = self.lock().slot(worker.number)
            && slot.fitness == Fitness::Fit
        {
            match slot.holders.is_empty() {
                true => slot.end(),
                false => slot.fitness = Fitness::Due,
            }
        }
    }
}
