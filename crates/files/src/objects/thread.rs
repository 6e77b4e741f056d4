//! The thread on which requests to object stores run.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime, which ends when this is dropped.
#[derive(Debug)]
pub struct Thread {
    handle: Handle,
    /// Dropping it ends the thread.
    _end: oneshot::Sender<()>,
    _thread: JoinHandle<()>,
}

impl Thread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no more threads or descriptors.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("object stores".into()).spawn(move || {
            // The sender sends nothing: it is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _end: end, _thread: thread })
    }

    /// Spawns tasks on the thread.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}
