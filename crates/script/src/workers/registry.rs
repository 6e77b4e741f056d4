//! The pools of all routes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hashbrown::{Equivalent, HashMap};

use super::super::failure::Failure;
use super::maintain;
use super::pool::Pool;
use super::schedule::Capacity;
use super::settings::PoolSettings;
use super::supervisor::Supervisor;
use crate::context::Shared;
use crate::report::PoolReport;
use dunlin_config::{Local, Script};

/// The time that the workers may take to end when the server stops.
const STOP: Duration = Duration::from_millis(2500);

/// The pools of all routes.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// By the route's scripts and, where each program has a pool of its own, the program.
    pools: RwLock<HashMap<(usize, PathBuf), Arc<Pool>>>,
    supervisor: Supervisor,
    /// The number of the next pool.
    next: AtomicUsize,
}

/// The key of a pool, borrowed.
#[derive(Debug, Hash)]
struct Key<'a>(usize, &'a Path);

impl Equivalent<(usize, PathBuf)> for Key<'_> {
    fn equivalent(&self, (id, program): &(usize, PathBuf)) -> bool {
        self.0 == *id && self.1 == program
    }
}

impl Registry {
    /// Returns the pool of `rules`, which is created at its first use. `capacity` is the maximum of concurrent requests per
    /// worker.
    ///
    /// # Errors
    /// [`Failure::Broken`] when the supervisor cannot be started.
    pub(in super::super) fn pool(
        &self,
        shared: &Arc<Shared>,
        rules: &Arc<Script>,
        local: &Local,
        capacity: Capacity,
    ) -> Result<Arc<Pool>, Failure> {
        self.program_pool(shared, rules, local, capacity, Path::new(""))
    }

    /// Returns the same for one of the programs of `rules`.
    pub(in super::super) fn program_pool(
        &self,
        shared: &Arc<Shared>,
        rules: &Arc<Script>,
        local: &Local,
        capacity: Capacity,
        program: &Path,
    ) -> Result<Arc<Pool>, Failure> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&Key(rules.id, program)) {
            return Ok(Arc::clone(pool));
        }
        drop(pools);
        let (supervisor, directory) = self
            .supervisor
            .handle()
            .map_err(|error| Failure::Broken(format!("workers cannot be started: {error}")))?;
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        let pool = pools.entry((rules.id, program.to_owned())).or_insert_with(|| {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let settings = PoolSettings {
                number,
                rules: Arc::clone(rules),
                local: local.clone(),
                label: match program.as_os_str().is_empty() {
                    true => rules.label.to_string(),
                    false => program.display().to_string(),
                },
                program: program.into(),
                directory,
            };
            let pool = Arc::new(Pool::new(settings, capacity, supervisor));
            pool.supervisor.spawn(maintain::run(Arc::clone(&pool), Arc::clone(shared)));
            pool
        });
        Ok(Arc::clone(pool))
    }

    /// Returns all pools, for work that must not hold the lock.
    pub(super) fn pools(&self) -> Vec<Arc<Pool>> {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        pools.values().map(Arc::clone).collect()
    }

    /// Adds the state of each pool.
    pub(in super::super) fn report(&self, all: &mut Vec<PoolReport>) {
        let pools = self.pools.read().unwrap_or_else(PoisonError::into_inner);
        all.extend(pools.values().map(|pool| pool.report()));
    }

    /// Removes the pools of scripts for which `has` is false, and those of single programs, which are at another path now,
    /// for which `has_moved` is true. Requests that have one of their workers, or wait for one, are finished first.
    pub(in super::super) fn retain(
        &self,
        has: &impl Fn(usize) -> bool,
        has_moved: &impl Fn(usize) -> bool,
    ) {
        let is_gone = |id, program: &Path| !has(id) || has_moved(id) && program != Path::new("");
        let mut pools = self.pools.write().unwrap_or_else(PoisonError::into_inner);
        for (_, pool) in pools.extract_if(|(id, program), _| is_gone(*id, program)) {
            pool.retire();
        }
    }

    /// Ends all workers and waits until they have ended, up to a limit. Blocks.
    pub(crate) fn stop(&self) {
        let pools = self.pools();
        pools.iter().for_each(|pool| pool.stop());
        let deadline = Instant::now() + STOP;
        pools.iter().for_each(|pool| pool.wait_until_empty(deadline));
        self.supervisor.stop();
    }
}
