//! A worker process as its pool and its requests see it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{mpsc, watch};

use super::super::stderr::RecentStderr;
use super::code::Code;

/// A process of a pool.
#[derive(Debug)]
pub(in super::super) struct Worker {
    /// The number of the worker in its pool.
    pub(super) number: u64,
    /// The process of the worker.
    pub(in super::super) pid: i32,
    /// The socket that it listens on, or the FIFO that it reads its requests' variables from.
    pub(in super::super) socket: Box<Path>,
    pub(super) started: Instant,
    /// The recent lines of its standard error, where error pages show them.
    pub(in super::super) errors: Option<Arc<RecentStderr>>,
    /// The code that it was started from.
    pub(super) code: Code,
    commands: mpsc::UnboundedSender<Command>,
    phase: watch::Sender<Phase>,
    /// The files that its application has loaded, by all of its reports. Each connection carries reports of its own, and
    /// an early one may be read after a later one.
    loaded: Mutex<HashSet<PathBuf>>,
}

/// A command to the task that watches a worker.
#[derive(Debug)]
pub(super) enum Command {
    /// End it.
    End,
    /// The connection is gone: end the worker unless it ends soon by itself.
    Lost,
    /// Find out when it has finished the request of this number, which was abandoned.
    Probe(u64),
}

/// The progress of a worker.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Phase {
    /// The application has reported that it is loaded.
    pub(super) is_ready: bool,
    pub(super) has_ended: bool,
    /// It is replaced or was removed: what would keep it for long has to end.
    pub(super) is_leaving: bool,
}

impl Worker {
    /// Returns a worker that was just started, and what its watching task receives commands from.
    pub(super) fn new(
        number: u64,
        pid: i32,
        socket: Box<Path>,
        code: Code,
        errors: Option<Arc<RecentStderr>>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Command>) {
        let (commands, received) = mpsc::unbounded_channel();
        let worker = Self {
            number,
            pid,
            socket,
            started: Instant::now(),
            errors,
            code,
            commands,
            phase: watch::Sender::default(),
            loaded: Mutex::default(),
        };
        (Arc::new(worker), received)
    }

    pub(super) fn command(&self, command: Command) {
        // The error means that the worker has ended.
        let _ = self.commands.send(command);
    }

    /// Notes the report of an application server: its application is loaded, from these files.
    pub(in super::super) fn note_loaded(&self, files: Vec<PathBuf>) {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).extend(files);
        self.phase.send_modify(|phase| phase.is_ready = true);
    }

    pub(super) fn note_ended(&self) {
        self.phase.send_modify(|phase| phase.has_ended = true);
    }

    /// Notes that it ends after the requests that it has.
    pub(super) fn note_leaving(&self) {
        self.phase.send_modify(|phase| phase.is_leaving = true);
    }

    /// Returns `true` if it is replaced or was removed, or has ended.
    pub(in super::super) fn is_leaving(&self) -> bool {
        let phase = self.phase.borrow();
        phase.is_leaving || phase.has_ended
    }

    /// Waits until it is replaced, is removed or has ended.
    pub(in super::super) async fn leaving(&self) {
        self.wait(|phase| phase.is_leaving || phase.has_ended).await;
    }

    /// Returns `true` if its application has been loaded.
    pub(in super::super) fn is_ready(&self) -> bool {
        self.phase.borrow().is_ready
    }

    /// Waits until it is in a phase that `is_wanted`.
    pub(super) async fn wait(&self, is_wanted: impl FnMut(&Phase) -> bool) {
        // The sender is this worker's own.
        let _ = self.phase.subscribe().wait_for(is_wanted).await;
    }

    pub(super) fn loaded(&self) -> HashSet<PathBuf> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
