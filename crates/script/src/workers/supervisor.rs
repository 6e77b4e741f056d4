//! The thread that starts, watches and ends all workers.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use dunlin_net::temp_files;

/// The supervisor, which runs from the first use on.
#[derive(Debug, Default)]
pub(super) struct Supervisor(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    handle: Handle,
    /// Holds the workers' sockets. Only the server's user can enter it.
    directory: tempfile::TempDir,
    /// The thread ends when this is dropped.
    _run: oneshot::Sender<()>,
}

impl Supervisor {
    /// Returns the supervisor's runtime and the directory for sockets; starts the thread if it does not run.
    ///
    /// # Errors
    /// When the directory, the runtime or the thread cannot be created.
    pub(super) fn handle(&self) -> io::Result<(Handle, Box<Path>)> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok((running.handle.clone(), running.directory.path().into()));
        }
        let directory = temp_files::directory("dunlin-")?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (run, stopped) = oneshot::channel::<()>();
        let body = move || {
            // The error means that the sender was dropped: the end.
            let _ = runtime.block_on(stopped);
        };
        std::thread::Builder::new().name("workers".into()).spawn(body)?;
        let path = directory.path().into();
        *running = Some(Running { handle: handle.clone(), directory, _run: run });
        Ok((handle, path))
    }

    /// Ends the thread and removes the directory.
    pub(super) fn stop(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
