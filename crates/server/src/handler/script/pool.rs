//! How many processes of a route's scripts run at once, and who waits for one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hashbrown::{HashMap, HashSet};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::warm::Hosts;
use super::workers::Renewal;
use super::{Failure, remote, workers};
use crate::config::Script;
use crate::handler::status::Scripts;
use crate::worker::SharedState;

/// The pools of all routes, and every process group that runs.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: RwLock<HashMap<usize, Arc<Pool>>>,
    /// Processes that stay.
    pub(super) workers: workers::Registry,
    pub(super) remotes: remote::All,
    groups: Mutex<HashSet<Pid>>,
    /// What keeps scripts of kind `warm` warm.
    pub(super) warm: Hosts,
    /// The server ends all processes.
    is_stopping: AtomicBool,
    /// Routes of which the log has reported that a client wanted a WebSocket.
    websockets: Mutex<HashSet<usize>>,
}

/// The processes of one route's scripts, over all loops.
#[derive(Debug)]
pub(super) struct Pool {
    places: Arc<Semaphore>,
    name: String,
    kind: &'static str,
    most: usize,
    waiting: AtomicUsize,
    queue: usize,
    /// The log has told that requests are refused, and there was no room since.
    told: AtomicBool,
}

/// The right to run one process.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Pools {
    pub(super) fn of(&self, script: &Script) -> Arc<Pool> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&script.id) {
            return Arc::clone(pool);
        }
        drop(pools);
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let pool = pools.entry(script.id).or_insert_with(|| Arc::new(Pool::new(script)));
        Arc::clone(pool)
    }

    /// Lets go of the pools of scripts that there are no longer (`has` says of which there are):
    /// what they work on is finished, and then their processes end.
    pub(crate) fn retain(&self, has: impl Fn(usize) -> bool) {
        self.pools.write().unwrap_or_else(PoisonError::into_inner).retain(|&id, _| has(id));
        self.workers.retain(&has);
        self.remotes.retain(&has);
        self.warm.retain(&has);
    }

    /// Has what could not be started or reached tried again, and replaces the workers whose code has changed; all
    /// workers when `all`.
    pub(crate) async fn renew(&self, shared: &Arc<SharedState>, all: bool) -> Vec<Renewal> {
        self.remotes.resume();
        self.warm.renew(all);
        self.workers.renew(shared, all).await
    }

    /// Ends every process that still runs, as when the server ends.
    pub(crate) fn kill_all(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.workers.stop();
        for &group in &*self.groups.lock().unwrap_or_else(PoisonError::into_inner) {
            // An error means that the group has ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// What each pool is doing.
    pub(crate) fn report(&self) -> Vec<Scripts> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = pools.values().map(|pool| pool.report()).collect();
        drop(pools);
        self.workers.report(&mut all);
        all.sort_by(|a, b| (&a.name, &a.kind).cmp(&(&b.name, &b.kind)));
        // Two routes may run the same scripts in pools of their own.
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

    /// Whether the server ends all processes.
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

impl Pool {
    fn new(script: &Script) -> Self {
        Self {
            places: Arc::new(Semaphore::new(script.processes)),
            name: script.label.to_string(),
            kind: script.kind.as_str(),
            most: script.processes,
            waiting: AtomicUsize::new(0),
            queue: script.queue,
            told: AtomicBool::new(false),
        }
    }

    fn report(&self) -> Scripts {
        let busy = (self.most - self.places.available_permits().min(self.most)) as u64;
        Scripts {
            name: self.name.clone(),
            kind: self.kind.into(),
            most: self.most as u64,
            processes: busy,
            busy,
            waiting: self.waiting.load(Ordering::Relaxed) as u64,
            ..Scripts::default()
        }
    }

    /// A place, in the order of asking.
    ///
    /// # Errors
    /// [`Failure::Busy`] when too many wait, or when it took too long.
    pub(super) async fn place(&self, script: &Script) -> Result<Place, Failure> {
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            if self.told.load(Ordering::Relaxed) {
                self.told.store(false, Ordering::Relaxed);
            }
            return Ok(Place { _permit: permit });
        }
        self.wait(script).await.inspect_err(|_| {
            if !self.told.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    scripts = &*script.label,
                    processes = script.processes,
                    queue = script.queue,
                    "scripts are asked for faster than they run; requests are refused until there \
                     is room"
                );
            }
        })
    }

    async fn wait(&self, script: &Script) -> Result<Place, Failure> {
        let _waiting = Waiting::enter(self).ok_or(Failure::Busy)?;
        let acquire = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout(script.queue_timeout, acquire).await {
            Ok(Ok(permit)) => Ok(Place { _permit: permit }),
            _ => Err(Failure::Busy),
        }
    }
}

/// One who waits in the queue, however the wait ends.
struct Waiting<'a>(&'a Pool);

impl<'a> Waiting<'a> {
    fn enter(pool: &'a Pool) -> Option<Self> {
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
