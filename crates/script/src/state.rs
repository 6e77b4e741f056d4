//! The state of scripts: the processes that all workers share, and the state of one worker.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::app_server::connection::AppConnections;
use super::context::{Context, InputBuffer, Shared};
use super::location_cache::LocationCache;
use super::pool::Pools;
use super::workers::Renewal;

/// The scripts of one generation of the configuration.
pub struct Scripts {
    /// Processes and their limits. They outlive a generation.
    pub pools: Arc<Pools>,
    /// The parts of the server that scripts use.
    pub shared: Arc<Shared>,
}

/// The state of one worker that outlives reloads.
#[derive(Default)]
pub struct ThreadState {
    pub(super) app_connections: Rc<AppConnections>,
    /// The buffer for their output.
    pub buffer: Rc<InputBuffer>,
}

impl ThreadState {
    /// Closes the WebSockets of applications, also those that are opened later: the worker stops.
    pub fn close_websockets(&self) {
        self.app_connections.close_websockets();
    }
}

/// The scripts of one worker, in one generation of the configuration.
pub struct WorkerScripts {
    pub(super) ctx: Rc<Context>,
    pub(super) pools: Arc<Pools>,
    /// Connections to application servers.
    pub(super) app_connections: Rc<AppConnections>,
    /// Scripts that were found lately.
    pub(super) locations: RefCell<LocationCache>,
}

impl Scripts {
    /// Retries what could not be started or reached, and replaces the workers whose code has changed; all workers if
    /// `all`.
    pub async fn renew(&self, all: bool) -> Vec<Renewal> {
        self.pools.renew(&self.shared, all).await
    }
}

impl WorkerScripts {
    /// Creates the scripts of a worker, whose `thread` state lasts longer.
    pub fn new(scripts: &Scripts, thread: &ThreadState, ctx: Rc<Context>) -> Self {
        Self {
            ctx,
            pools: Arc::clone(&scripts.pools),
            app_connections: Rc::clone(&thread.app_connections),
            locations: RefCell::default(),
        }
    }
}
