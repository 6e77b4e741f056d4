//! The processes of all scripts.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hashbrown::{HashMap, HashSet};

use super::context::Shared;
use super::process_groups::ProcessGroups;
use super::process_limit::ProcessLimit;
use super::report::PoolReport;
use super::warm::ForkServers;
use super::workers::Renewal;
use super::{remote, workers};
use dunlin_config::Script;

/// The processes of all scripts: limits, pools of workers, fork servers and process groups.
#[derive(Debug, Default)]
pub struct Pools {
    pools: RwLock<HashMap<usize, Arc<ProcessLimit>>>,
    /// Workers that outlive a request.
    pub(super) workers: workers::Registry,
    pub(super) remotes: remote::RemoteRegistry,
    /// The process groups of all of them.
    pub groups: Arc<ProcessGroups>,
    /// Fork servers of scripts of kind `warm`.
    pub(super) warm: Arc<ForkServers>,
    /// Routes for which the log has reported a request for a WebSocket.
    websockets: Mutex<HashSet<usize>>,
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

    /// Removes the pools of scripts for which `has` is false, and those of single programs for which `has_moved` is true.
    /// Their requests are finished before their processes end. Other workers whose directory has moved stay until
    /// [`Pools::renew`] has started new ones.
    pub fn retain(&self, has: impl Fn(usize) -> bool, has_moved: impl Fn(usize) -> bool) {
        self.pools.write().unwrap_or_else(PoisonError::into_inner).retain(|&id, _| has(id));
        self.workers.retain(&has, &has_moved);
        self.remotes.retain(&has);
        self.warm.retain(&|id| has(id) && !has_moved(id));
    }

    /// Retries what could not be started or reached, and replaces the workers whose code has changed; all workers if
    /// `all`.
    pub async fn renew(&self, shared: &Arc<Shared>, all: bool) -> Vec<Renewal> {
        self.remotes.resume();
        self.warm.renew(all);
        self.workers.renew(shared, all).await
    }

    /// Ends every process, for the end of the server.
    pub fn kill_all(&self) {
        self.groups.stop();
        self.workers.stop();
        self.groups.kill_all();
    }

    /// Returns the state of each pool.
    pub fn report(&self) -> Vec<PoolReport> {
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

    /// Reports, once for each route, that a client wanted a WebSocket, which only ASGI applications support.
    pub(super) fn report_websocket(&self, script: &Script) {
        let mut reported = self.websockets.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.insert(script.id) {
            tracing::warn!(
                scripts = &*script.label,
                "a client requested a WebSocket, which only ASGI applications support; the script gets a plain HTTP request"
            );
        }
    }
}
