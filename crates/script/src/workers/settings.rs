//! The settings of a pool.

use std::path::Path;
use std::sync::Arc;

use dunlin_config::{Interface, Local, Script};

/// The settings of a pool, which do not change.
#[derive(Debug)]
pub(in super::super) struct PoolSettings {
    /// Distinguishes its workers' sockets from those of other pools.
    pub(super) number: usize,
    pub(super) rules: Arc<Script>,
    pub(super) local: Local,
    /// The name of the pool in the log.
    pub(super) label: String,
    /// The one program that the workers run, where the route has several; otherwise empty.
    pub(super) program: Box<Path>,
    /// The directory for the workers' sockets.
    pub(super) directory: Box<Path>,
}

impl PoolSettings {
    /// Returns `true` if the workers are application servers, which report when their application is loaded.
    pub(super) fn is_application(&self) -> bool {
        self.rules.kind.interface() == Interface::Application
    }
}
