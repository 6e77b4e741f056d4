//! The limit of processes for each route.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;
use super::report::PoolReport;
use dunlin_config::Script;

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

impl ProcessLimit {
    pub(super) fn new(script: &Script) -> Self {
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

    pub(super) fn report(&self) -> PoolReport {
        let busy = (self.max - self.permits.available_permits().min(self.max)) as u64;
        PoolReport {
            name: self.name.clone(),
            kind: self.kind.into(),
            max: self.max as u64,
            processes: busy,
            busy,
            waiting: self.waiting.load(Ordering::Relaxed) as u64,
            ..PoolReport::default()
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
                    "all processes are busy and the queue is full; requests are rejected until there \
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
