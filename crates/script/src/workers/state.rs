//! The state of a pool: its workers and the requests that wait for one. The lock of the pool protects all of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::checkout::Checkout;
use super::connection::PooledConnection;
use super::schedule;
use super::worker::{Command, Worker};

#[derive(Debug)]
pub(super) struct PoolState {
    /// Moving average of the duration of requests.
    pub(super) average: Duration,
    pub(super) slots: Vec<Slot>,
    pub(super) queue: VecDeque<Waiter>,
    /// Workers that are being started.
    pub(super) starting: usize,
    /// Workers in a row that ended before they had responded, and when the next may be started.
    pub(super) failures: u32,
    pub(super) not_before: Instant,
    /// Why no worker can be started. A request after `not_before` starts another attempt.
    pub(super) down: Option<Arc<str>>,
    /// A worker has been ready since the last one that could not be started.
    pub(super) is_proven: bool,
    pub(super) is_stopping: bool,
    /// The log has reported that requests are rejected; cleared when none waits.
    pub(super) has_reported: bool,
    /// Numbers of the last worker and of the last request.
    pub(super) workers: u64,
    pub(super) requests: u64,
}

/// A worker and its requests.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) worker: Arc<Worker>,
    pub(super) status: WorkerStatus,
    pub(super) active: Vec<ActiveRequest>,
    /// Requests that it has received.
    pub(super) given: u64,
    /// Requests that it has finished.
    pub(super) served: u64,
    pub(super) idle_since: Instant,
    /// An open connection to it.
    pub(super) connection: Option<PooledConnection>,
}

/// The status of a worker, which determines if it gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerStatus {
    /// It replaces another one, and gets requests once it is ready.
    Starting,
    /// It is an additional one, and gets requests once its application is loaded.
    Loading,
    Available,
    /// It gets no more requests and ends after those that it has.
    Draining,
    /// It is being ended, or it may still work on a request that was abandoned.
    Unusable,
}

/// A request that a worker has.
#[derive(Debug)]
pub(super) struct ActiveRequest {
    pub(super) id: u64,
    pub(super) script: Arc<str>,
    pub(super) since: Instant,
}

/// A request that waits for a worker.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) script: Arc<str>,
    pub(super) owner: ThreadId,
    pub(super) reply: oneshot::Sender<Result<Checkout, String>>,
}

/// The requests of a pool, for reports.
#[derive(Debug)]
pub(super) struct Usage {
    /// Requests that have a worker: its process, the script, and since when.
    pub(super) active: Vec<(i32, Arc<str>, Instant)>,
    pub(super) waiting: usize,
}

impl Usage {
    /// Returns the request that has had its worker for longest.
    pub(super) fn longest(&self) -> Option<&(i32, Arc<str>, Instant)> {
        self.active.iter().min_by_key(|(_, _, since)| *since)
    }
}

impl PoolState {
    pub(super) fn new() -> Self {
        Self {
            average: schedule::UNKNOWN,
            slots: Vec::new(),
            queue: VecDeque::new(),
            starting: 0,
            failures: 0,
            not_before: Instant::now(),
            down: None,
            is_proven: false,
            is_stopping: false,
            has_reported: false,
            workers: 0,
            requests: 0,
        }
    }

    pub(super) fn slot(&mut self, worker: &Worker) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.worker.number == worker.number)
    }

    /// Workers that are loading the application while others serve it.
    pub(super) fn loading(&self) -> usize {
        self.slots.iter().filter(|slot| slot.status == WorkerStatus::Loading).count()
    }

    /// Returns `true` if a worker that has loaded the application gets requests.
    pub(super) fn has_ready_worker(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.status == WorkerStatus::Available && slot.worker.is_ready())
    }

    /// Removes requests from the queue whose clients have left.
    pub(super) fn drop_abandoned(&mut self) {
        self.queue.retain(|waiter| !waiter.reply.is_closed());
    }

    pub(super) fn has_processes(&self) -> bool {
        !self.slots.is_empty() || self.starting > 0
    }

    pub(super) fn usage(&self) -> Usage {
        let of = |slot: &Slot| {
            let pid = slot.worker.pid;
            let entry =
                move |request: &ActiveRequest| (pid, Arc::clone(&request.script), request.since);
            slot.active.iter().map(entry).collect::<Vec<_>>()
        };
        Usage { active: self.slots.iter().flat_map(of).collect(), waiting: self.queue.len() }
    }
}

impl Slot {
    pub(super) fn new(
        worker: Arc<Worker>,
        status: WorkerStatus,
        connection: Option<PooledConnection>,
    ) -> Self {
        let idle_since = worker.started;
        Self { worker, status, active: Vec::new(), given: 0, served: 0, idle_since, connection }
    }

    /// Returns `true` if it gets requests, now or when its application is loaded.
    pub(super) fn serves(&self) -> bool {
        matches!(self.status, WorkerStatus::Available | WorkerStatus::Loading)
    }

    /// Ends the worker.
    pub(super) fn end(&mut self) {
        self.status = WorkerStatus::Unusable;
        self.connection = None;
        self.worker.command(Command::End);
    }

    /// Ends the worker after the requests that it has.
    pub(super) fn drain(&mut self) {
        match self.active.is_empty() {
            true => self.end(),
            false => self.begin_drain(),
        }
    }

    /// Gives the worker no more requests, and has it end after those that it has. Its WebSockets are closed.
    pub(super) fn begin_drain(&mut self) {
        self.status = WorkerStatus::Draining;
        self.worker.note_leaving();
    }

    /// Returns the worker as the scheduler sees it, for a request on the thread `owner`.
    pub(super) fn candidate(&self, owner: ThreadId) -> schedule::Candidate {
        schedule::Candidate {
            active: self.active.len(),
            oldest: self.active.first().map(|request| request.since),
            is_near: self.connection.as_ref().is_some_and(|connection| connection.owner == owner),
            idle_since: self.idle_since,
        }
    }
}
