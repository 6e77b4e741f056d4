//! The workers of one route's scripts.

use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::checkout::Checkout;
use super::connection::PooledConnection;
use super::schedule::{self, Capacity};
use super::settings::PoolSettings;
use super::state::{ActiveRequest, PoolState, Slot, WorkerStatus};
use super::worker::{Command, Worker};
use crate::report::PoolReport;

/// The time for which a pool that was removed has to be without requests before its workers end.
const RETIRE_QUIET: Duration = Duration::from_secs(1);

/// The workers of one route's scripts, for all workers of the server.
#[derive(Debug)]
pub(in super::super) struct Pool {
    settings: PoolSettings,
    pub(super) capacity: Capacity,
    state: Mutex<PoolState>,
    /// Notified when the last process has ended.
    empty: Condvar,
    /// The runtime of the supervisor thread.
    pub(super) supervisor: Handle,
    /// Notified when the pause after failed starts ends early.
    pub(super) resumed: Notify,
    /// Held while workers are replaced.
    pub(super) replacing: tokio::sync::Mutex<()>,
}

impl Deref for Pool {
    type Target = PoolSettings;

    fn deref(&self) -> &PoolSettings {
        &self.settings
    }
}

impl Pool {
    pub(super) fn new(settings: PoolSettings, capacity: Capacity, supervisor: Handle) -> Self {
        Self {
            settings,
            capacity,
            state: Mutex::new(PoolState::new()),
            empty: Condvar::new(),
            supervisor,
            resumed: Notify::new(),
            replacing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        // The state is consistent after every statement, so a panic of another thread does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(
        self: &Arc<Self>,
        state: &mut PoolState,
        script: &Arc<str>,
        owner: ThreadId,
    ) -> Option<Checkout> {
        let limit = self.local.requests.unwrap_or(u64::MAX);
        let now = Instant::now();
        let candidates = state
            .slots
            .iter_mut()
            .filter(|slot| slot.status == WorkerStatus::Available && slot.given < limit)
            .map(|slot| {
                let candidate = slot.candidate(owner);
                (slot, candidate)
            });
        let slot = schedule::choose(candidates, self.capacity, state.average, now)?;
        state.requests += 1;
        let id = state.requests;
        slot.active.push(ActiveRequest { id, script: Arc::clone(script), since: now });
        slot.given += 1;
        if slot.given >= limit {
            slot.begin_drain();
        }
        let connection = slot.connection.take();
        Some(Checkout::new(Arc::clone(self), Arc::clone(&slot.worker), id, connection))
    }

    /// Gives free workers to the requests that wait.
    pub(super) fn serve_queue(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some(waiter) = state.queue.pop_front() else {
                state.has_reported = false;
                return;
            };
            if waiter.reply.is_closed() {
                continue;
            }
            let Some(checkout) = self.take(&mut state, &waiter.script, waiter.owner) else {
                state.queue.push_front(waiter);
                return;
            };
            drop(state);
            // If the client has just left, the checkout is dropped unused, and the next request has the worker.
            drop(waiter.reply.send(Ok(checkout)));
        }
    }

    /// Returns a worker that has finished a request.
    pub(super) fn give_back(
        self: &Arc<Self>,
        worker: &Worker,
        request: u64,
        connection: Option<PooledConnection>,
    ) {
        let mut state = self.lock();
        let Some(slot) = state.slot(worker) else { return };
        let now = Instant::now();
        let at = slot.active.iter().position(|active| active.id == request);
        let took = at.map(|at| {
            let share = u32::try_from(slot.active.len()).unwrap_or(u32::MAX);
            (now - slot.active.remove(at).since) / share
        });
        slot.served += 1;
        slot.idle_since = now;
        match slot.status {
            WorkerStatus::Available => {
                slot.connection = connection.or_else(|| slot.connection.take());
            }
            WorkerStatus::Draining if slot.active.is_empty() => slot.end(),
            _ => {}
        }
        if let Some(took) = took {
            state.average = schedule::average(state.average, took);
        }
        if !state.queue.is_empty() {
            drop(state);
            self.serve_queue();
        }
    }

    /// A worker may still work on a request that was abandoned: it gets no other until it has finished that.
    pub(super) fn probe(&self, worker: &Worker, request: u64) {
        if let Some(slot) = self.lock().slot(worker) {
            slot.status = WorkerStatus::Unusable;
            slot.worker.command(Command::Probe(request));
        }
    }

    /// A worker has finished a request that was abandoned.
    pub(super) fn note_finished(self: &Arc<Self>, worker: &Worker, request: u64) {
        let mut state = self.lock();
        if let Some(slot) = state.slot(worker) {
            slot.active.retain(|active| active.id != request);
            if slot.active.is_empty() {
                match self.local.requests.is_some_and(|limit| slot.given >= limit) {
                    true => slot.end(),
                    false => slot.status = WorkerStatus::Available,
                }
                slot.idle_since = Instant::now();
            }
        }
        drop(state);
        self.serve_queue();
    }

    /// Ends a worker at once.
    pub(super) fn end(&self, worker: &Worker) {
        if let Some(slot) = self.lock().slot(worker) {
            slot.end();
        }
    }

    /// A worker has closed its connection: it is ended unless it ends soon by itself.
    pub(super) fn lose(&self, worker: &Worker) {
        if let Some(slot) = self.lock().slot(worker) {
            slot.status = WorkerStatus::Unusable;
            slot.worker.command(Command::Lost);
        }
    }

    /// Drains workers whose program's file has changed.
    pub(in super::super) fn refresh(&self) {
        if self.program.as_os_str().is_empty() {
            return;
        }
        for slot in &mut self.lock().slots {
            if slot.status == WorkerStatus::Available && slot.worker.code.has_other_files() {
                slot.drain();
            }
        }
    }

    /// Ends the workers once no request has or wants one.
    pub(super) fn retire(self: &Arc<Self>) {
        let pool = Arc::clone(self);
        self.supervisor.spawn(async move {
            // A request may have found the pool just before it was removed, and come a little later.
            let mut quiet = 0;
            while quiet < 10 {
                // WebSockets, which could stay for any time, are closed.
                pool.lock().slots.iter().for_each(|slot| slot.worker.note_leaving());
                tokio::time::sleep(RETIRE_QUIET / 10).await;
                quiet = if pool.is_busy() { 0 } else { quiet + 1 };
            }
            pool.stop();
        });
    }

    /// Returns `true` if requests have a worker or wait for one.
    fn is_busy(&self) -> bool {
        let mut state = self.lock();
        state.drop_abandoned();
        !state.queue.is_empty() || state.slots.iter().any(|slot| !slot.active.is_empty())
    }

    /// Ends all workers and fails the requests that wait.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        state.queue.clear();
        state.slots.iter_mut().for_each(Slot::end);
    }

    /// Reports to [`Pool::wait_until_empty`] when there is no process left.
    pub(super) fn note_end(&self, state: &PoolState) {
        if !state.has_processes() {
            self.empty.notify_all();
        }
    }

    /// Blocks until no process is left, up to `deadline`.
    pub(super) fn wait_until_empty(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let has_processes = |state: &mut PoolState| state.has_processes();
        drop(self.empty.wait_timeout_while(self.lock(), left, has_processes));
    }

    pub(super) fn report_rejection(&self, state: &mut PoolState) {
        if std::mem::replace(&mut state.has_reported, true) {
            return;
        }
        let usage = state.usage();
        let longest = usage.longest();
        tracing::warn!(
            scripts = self.label,
            processes = self.rules.processes,
            waiting = usage.waiting,
            longest = longest.map(|(_, script, _)| &**script),
            longest_pid = longest.map(|(pid, ..)| pid),
            longest_ms = longest.map(|(_, _, since)| since.elapsed().as_millis() as u64),
            "all processes are busy and the queue is full; requests get 503 until a process is free"
        );
    }

    /// Returns the state of the pool, for the status page and metrics.
    pub(super) fn report(&self) -> PoolReport {
        let state = self.lock();
        let processes = state.slots.len() as u64;
        let usage = state.usage();
        drop(state);
        let longest = usage.longest();
        PoolReport {
            name: self.label.clone(),
            kind: self.rules.kind.as_str().into(),
            max: self.rules.processes as u64,
            processes,
            busy: usage.active.len() as u64,
            waiting: usage.waiting as u64,
            longest: longest.map_or(0, |(_, _, since)| since.elapsed().as_millis() as u64),
            longest_script: longest.map_or_else(String::new, |(_, script, _)| (**script).into()),
        }
    }
}
