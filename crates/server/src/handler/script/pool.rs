//! The shared state of all scripts, and the limit of processes for each route.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hashbrown::{HashMap, HashSet};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::warm::ForkServers;
use super::workers::Renewal;
use super::{Failure, remote, workers};
use crate::config::Script;
use crate::handler::status::Scripts;
use crate::worker::SharedState;

/// The shared state of all scripts: limits, pools of workers, fork servers and running process groups.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: RwLock<HashMap<usize, Arc<ProcessLimit>>>,
    /// Workers that outlive a request.
    pub(super) workers: workers::Registry,
    pub(super) remotes: remote::RemoteRegistry,
    groups: Mutex<HashSet<Pid>>,
    /// Fork servers of scripts of kind `warm`.
    pub(super) warm: ForkServers,
    /// The server is stopping.
    is_stopping: AtomicBool,
    /// Routes for which the log has reported a request for a WebSocket.
    websockets: Mutex<HashSet<usize>>,
}

/// The limit of processes for one route's scripts, over all worker threads.
#[derive(Debug)]
pub(super) struct ProcessLimit {
    permits: Arc<Semaphore>,
    name: String,
    kind: &'static str,
    max: usize,
    waiting: AtomicUsize,
    queue: usize,
    /// The log has reported that requests are rejected; cleared when a process is free.
    has_reported: AtomicBool,
}

/// A permit to run one process.
#[derive(Debug)]
pub(super) struct ProcessPermit {
    _permit: OwnedSemaphorePermit,
}

impl Pools {
    pub(super) fn of(&self, script: &Script) -> Arc<ProcessLimit> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&script.id) {
            return Arc::clone(pool);
        }
        drop(pools);
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let pool = pools.entry(script.id).or_insert_with(|| Arc::new(ProcessLimit::new(script)));
        Arc::clone(pool)
    }

    /// Removes the pools of scripts for which `has` is false. Their requests are finished before their processes end.
    pub(crate) fn retain(&self, has: impl Fn(usize) -> bool) {
        self.pools.write().unwrap_or_else(PoisonError::into_inner).retain(|&id, _| has(id));
        self.workers.retain(&has);
        self.remotes.retain(&has);
        self.warm.retain(&has);
    }

    /// Retries what could not be started or reached, and replaces the workers whose code has changed; all workers if
    /// `all`.
    pub(crate) async fn renew(&self, shared: &Arc<SharedState>, all: bool) -> Vec<Renewal> {
        self.remotes.resume();
        self.warm.renew(all);
        self.workers.renew(shared, all).await
    }

    /// Ends every process, for the end of the server.
    pub(crate) fn kill_all(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.workers.stop();
        for &group in &*self.groups.lock().unwrap_or_else(PoisonError::into_inner) {
            // An error means that the group has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// The state of each pool.
    pub(crate) fn report(&self) -> Vec<Scripts> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = pools.values().map(|pool| pool.report()).collect();
        drop(pools);
        self.workers.report(&mut all);
        all.sort_by(|a, b| (&a.name, &a.kind).cmp(&(&b.name, &b.kind)));
        // Two routes may run the same scripts in separate pools.
        all.dedup_by(|next, first| {
            let same = (&first.name, &first.kind) == (&next.name, &next.kind);
            if same {
                first.add(next);
            }
            same
        });
        all
    }

    /// Reports, once for each route, that a client wanted a WebSocket, which no kind of script supports.
    pub(super) fn report_websocket(&self, script: &Script) {
        let mut reported = self.websockets.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(script.id) {
            tracing::warn!(
                scripts = &*script.label,
                "a client asked for a WebSocket, which is not supported; the application gets a plain HTTP request"
            );
        }
    }

    /// Whether the server is stopping.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub(super) fn add_group(&self, group: Pid) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).insert(group);
    }

    pub(super) fn remove_group(&self, group: Pid) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(&group);
    }
}

impl ProcessLimit {
    fn new(script: &Script) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(script.processes)),
            name: script.label.to_string(),
            kind: script.kind.as_str(),
            max: script.processes,
            waiting: AtomicUsize::new(0),
            queue: script.queue,
            has_reported: AtomicBool::new(false),
        }
    }

    fn report(&self) -> Scripts {
        let busy = (self.max - self.permits.available_permits().min(self.max)) as u64;
        Scripts {
            name: self.name.clone(),
            kind: self.kind.into(),
            most: self.max as u64,
            processes: busy,
            busy,
            waiting: self.waiting.load(Ordering::Relaxed) as u64,
            ..Scripts::default()
        }
    }

    /// Waits for a permit, first come, first served.
    ///
    /// # Errors
    /// [`Failure::Busy`] when too many requests wait, or when this one has waited too long.
    pub(super) async fn acquire(&self, script: &Script) -> Result<ProcessPermit, Failure> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            if self.has_reported.load(Ordering::Relaxed) {
                self.has_reported.store(false, Ordering::Relaxed);
            }
            return Ok(ProcessPermit { _permit: permit });
        }
        self.wait(script).await.inspect_err(|_| {
            if !self.has_reported.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    scripts = &*script.label,
                    processes = script.processes,
                    queue = script.queue,
                    "all processes are busy and the queue is full; requests are refused until there \
                     is room"
                );
            }
        })
    }

    async fn wait(&self, script: &Script) -> Result<ProcessPermit, Failure> {
        let _waiting = Waiting::enter(self).ok_or(Failure::Busy)?;
        let acquire = Arc::clone(&self.permits).acquire_owned();
        match tokio::time::timeout(script.queue_timeout, acquire).await {
            Ok(Ok(permit)) => Ok(ProcessPermit { _permit: permit }),
            _ => Err(Failure::Busy),
        }
    }
}

/// A request in the queue. Dropping it leaves the queue.
struct Waiting<'a>(&'a ProcessLimit);

impl<'a> Waiting<'a> {
    fn enter(pool: &'a ProcessLimit) -> Option<Self> {
        let before = pool.waiting.fetch_add(1, Ordering::AcqRel);
        let waiting = Self(pool);
        (before < pool.queue).then_some(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
