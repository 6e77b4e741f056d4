//! The services of the server for scripts: access to its files, to its routes, and to the worker that they run in.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::route::route_match::OwnedRouteMatch;
use crate::route::sites::{Route, Site};
use crate::worker::WorkerContext;
use dunlin_config::Settings;
use dunlin_files::shared::Shared;
use dunlin_fs::roots::Root;
use dunlin_fs::watch::Watch;
use dunlin_net::connection_limits::limiter::ConnectionLimiter;
use dunlin_script::context::{Files, Host};
use dunlin_script::route::Route as ScriptRoute;

/// Access to files, in one generation of the configuration.
pub(crate) struct FileAccess {
    files: Arc<Shared>,
    limiter: Arc<ConnectionLimiter>,
}

impl FileAccess {
    pub(crate) fn new(files: &Arc<Shared>, limiter: &Arc<ConnectionLimiter>) -> Arc<Self> {
        Arc::new(Self { files: Arc::clone(files), limiter: Arc::clone(limiter) })
    }
}

impl Files for FileAccess {
    fn root(&self, directory: &Path) -> io::Result<Arc<Root>> {
        self.files.root(directory)
    }

    fn watch(&self) -> Option<&Watch> {
        self.files.watch.as_deref()
    }

    fn release_descriptors(&self) {
        self.files.cache.release_descriptors();
        self.limiter.request_release();
    }
}

impl Host for WorkerContext {
    fn release_descriptors(&self) {
        self.sweep();
    }

    fn has_programs_alone(&self) -> bool {
        self.has_programs_alone()
    }

    fn note_other(&self) {
        self.count_other();
    }
}

impl ScriptRoute for OwnedRouteMatch {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn user_fields(&self) -> &[String] {
        &self.site.user_fields
    }

    fn covers(&self, path: &[u8]) -> bool {
        self.site.config().has_settings(path, self.settings.configured())
    }

    fn share(&self) -> Arc<dyn ScriptRoute + Send + Sync> {
        Arc::new(SharedRoute { site: Arc::clone(&self.site), route: Arc::clone(&self.settings) })
    }
}

/// The site and the route of a request, without the request.
#[derive(Clone)]
struct SharedRoute {
    site: Arc<Site>,
    route: Arc<Route>,
}

impl ScriptRoute for SharedRoute {
    fn settings(&self) -> &Settings {
        &self.route
    }

    fn user_fields(&self) -> &[String] {
        &self.site.user_fields
    }

    fn covers(&self, path: &[u8]) -> bool {
        self.site.config().has_settings(path, self.route.configured())
    }

    fn share(&self) -> Arc<dyn ScriptRoute + Send + Sync> {
        Arc::new(self.clone())
    }
}
