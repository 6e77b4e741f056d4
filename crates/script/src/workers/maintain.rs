//! Regular checks of a pool's workers: their age, their memory, and how long they have been idle.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::pool::Pool;
use super::replace::START;
use super::schedule;
use super::state::{Slot, WorkerStatus};
use super::worker::Worker;
use crate::context::Shared;

/// Checks the workers from time to time until the pool is stopped.
pub(super) async fn run(pool: Arc<Pool>, shared: Arc<Shared>) {
    let local = &pool.local;
    let shortest = local.max_age.map_or(local.retire_idle, |age| age.min(local.retire_idle));
    let pause = (shortest / 2).clamp(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        sleep(pause).await;
        let mut state = pool.lock();
        if state.is_stopping {
            return;
        }
        let mut spare = state.slots.len().saturating_sub(local.min_processes);
        for slot in &mut state.slots {
            if slot.status == WorkerStatus::Loading && slot.worker.started.elapsed() >= START {
                tracing::error!(
                    scripts = pool.label,
                    pid = slot.worker.pid,
                    "a worker was not ready within {START:?}"
                );
                slot.end();
            }
            if slot.status == WorkerStatus::Available && is_due(&pool, slot) {
                slot.begin_drain();
            }
            let is_draining = slot.status == WorkerStatus::Draining;
            if !(is_draining || slot.status == WorkerStatus::Available) || !slot.active.is_empty() {
                continue;
            }
            let idle = slot.idle_since.elapsed();
            if schedule::ends(is_draining, idle, local.retire_idle, &mut spare) {
                slot.end();
            }
        }
        if state.down.is_none() {
            pool.grow(&mut state, &shared);
        }
    }
}

/// Returns `true` if a worker is to be replaced because of its age or its memory.
fn is_due(pool: &Pool, slot: &Slot) -> bool {
    let Worker { pid, started, .. } = &*slot.worker;
    let old = pool.local.max_age.is_some_and(|age| started.elapsed() >= age);
    let resident =
        pool.local.max_resident.and_then(|limit| resident(*pid).filter(|bytes| *bytes >= limit));
    if old || resident.is_some() {
        tracing::debug!(scripts = pool.label, pid, old, resident, "a worker is replaced");
    }
    old || resident.is_some()
}

/// Resident memory of a process, in bytes.
fn resident(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
