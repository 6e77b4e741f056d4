//! The parts of the server that scripts use: its files, its threads, and the worker that they run in.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::process_groups::ProcessGroups;
use dunlin_config::ForwardedField;
use dunlin_exchange::Storage;
use dunlin_fs::roots::Root;
use dunlin_fs::watch::Watch;
use dunlin_net::blocking;
use dunlin_net::clock::Clock;
use dunlin_net::deadlines::Deadlines;
use dunlin_telemetry::ReverseDns;

/// The state that all workers share, in one generation of the configuration.
pub struct Shared {
    /// The process groups of scripts that run.
    pub groups: Arc<ProcessGroups>,
    /// Room for request bodies that wait for a script.
    pub bodies: Arc<Storage>,
    /// Threads for work that may block.
    pub blocking: Arc<blocking::Pools>,
    /// The files of the server.
    pub files: Arc<dyn Files>,
    /// Names of clients for `REMOTE_HOST`.
    pub reverse_dns: Option<Arc<ReverseDns>>,
    /// The field in which trusted proxies name the client.
    pub forwarded_field: ForwardedField,
    /// The name servers for the names of workers; those of the system if there are none.
    pub name_servers: Vec<SocketAddr>,
}

/// The server's access to files, as far as scripts need it.
pub trait Files: Send + Sync {
    /// Opens a directory that the configuration names.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn root(&self, directory: &Path) -> io::Result<Arc<Root>>;

    /// Returns the watch for changes of files, if changes are reported.
    fn watch(&self) -> Option<&Watch>;

    /// Closes file descriptors that caches hold, because the process has none left.
    fn release_descriptors(&self);
}

/// The worker of the server that scripts run in, as far as they depend on it.
pub trait Host {
    /// Closes the file descriptors that the worker's own caches hold.
    fn release_descriptors(&self);

    /// Returns `true` if lately all requests of the worker were for scripts that start a process.
    fn has_programs_alone(&self) -> bool;

    /// Records a request that is not for a script that starts a process.
    fn note_other(&self);
}

/// The buffer of one worker for output of scripts; absent before the first use.
#[derive(Default)]
pub struct InputBuffer(Cell<Option<Box<[u8]>>>);

/// The state that scripts use in one worker and one generation of the configuration.
pub struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Rc<Clock>,
    pub(super) deadlines: Rc<Deadlines>,
    buffer: Rc<InputBuffer>,
    host: Weak<dyn Host>,
}

/// Maximum of bytes per read: 64 KB of a response with its framing.
const INPUT: usize = 80 * 1024;

impl Context {
    /// Creates the context of a worker.
    pub fn new(
        shared: &Arc<Shared>,
        clock: &Rc<Clock>,
        deadlines: &Rc<Deadlines>,
        buffer: &Rc<InputBuffer>,
        host: Weak<dyn Host>,
    ) -> Rc<Self> {
        Rc::new(Self {
            shared: Arc::clone(shared),
            clock: Rc::clone(clock),
            deadlines: Rc::clone(deadlines),
            buffer: Rc::clone(buffer),
            host,
        })
    }

    /// Closes file descriptors that caches hold, because the process has none left.
    pub(super) fn release_descriptors(&self) {
        self.shared.files.release_descriptors();
        if let Some(host) = self.host.upgrade() {
            host.release_descriptors();
        }
    }

    /// Returns `true` if lately all requests of this worker were for scripts that start a process.
    pub(super) fn has_programs_alone(&self) -> bool {
        self.host.upgrade().is_some_and(|host| host.has_programs_alone())
    }

    /// Records a request for a script that starts no process.
    pub(super) fn note_other(&self) {
        if let Some(host) = self.host.upgrade() {
            host.note_other();
        }
    }

    /// Calls `read` with at most `most` bytes of the worker's buffer for output of scripts.
    pub(super) fn with_buffer<T>(&self, most: usize, read: impl FnOnce(&mut [u8]) -> T) -> T {
        let buffer = self.buffer.0.take();
        let mut buffer = buffer.unwrap_or_else(|| vec![0; INPUT].into());
        let room = buffer.len().min(most);
        let result = read(&mut buffer[..room]);
        self.buffer.0.set(Some(buffer));
        result
    }
}
