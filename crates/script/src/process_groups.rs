//! The process groups of scripts that run, so that none outlives the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use hashbrown::HashSet;
use rustix::process::{Pid, Signal, kill_process_group};

/// The process groups of scripts that run.
#[derive(Debug, Default)]
pub struct ProcessGroups {
    groups: Mutex<HashSet<Pid>>,
    is_stopping: AtomicBool,
}

impl ProcessGroups {
    /// Returns `true` if the server is stopping.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Records that the server is stopping, so that the end of a process is expected.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub(super) fn add(&self, group: Pid) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).insert(group);
    }

    pub(super) fn remove(&self, group: Pid) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(&group);
    }

    /// Kills all processes.
    pub(super) fn kill_all(&self) {
        for &group in &*self.groups.lock().unwrap_or_else(PoisonError::into_inner) {
            // An error means that the group has ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
