//! Components in a build that has none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_client::Client;
use dunlin_config::Config;
use dunlin_exchange::Incoming;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::outcome::Outcome;

use super::{ABSENT, Component};
use crate::start_program::Starter;

/// No components.
pub(crate) struct Components;

/// No components of a worker.
pub(crate) struct WorkerComponents;

pub(crate) fn new(_: Option<PathBuf>, _: Option<Starter>) -> Arc<Components> {
    Arc::new(Components)
}

impl Components {
    pub(crate) fn prepare(&self, config: &Config) -> Result<(), String> {
        if config.has_components() { Err(ABSENT.into()) } else { Ok(()) }
    }

    pub(crate) fn retain(&self, _: &Config) {}
}

impl WorkerComponents {
    pub(crate) fn new(_: &Arc<Components>, _: &Client) -> Self {
        Self
    }
}

impl super::report::Describe for Components {
    fn describe(&self) -> Vec<Component> {
        Vec::new()
    }
}

pub(crate) async fn respond(
    _: &WorkerComponents,
    _: &Call<'_>,
    _: Box<Incoming>,
    _: &mut Arc<str>,
) -> Result<Outcome, Failure> {
    Err(Failure::Broken(ABSENT.into()))
}

pub(crate) fn compile(_: &Path, _: &Path) -> Result<bool, String> {
    Err(ABSENT.into())
}

pub(crate) fn check(_: &[u8]) -> Result<(), String> {
    Err(ABSENT.into())
}
