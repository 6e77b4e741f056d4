//! The components of one worker: which one a request is for, and the instances that are kept.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_client::Client;
use dunlin_config::{Component, Mapping, Script};
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::in_process::ResolvedScript;

use crate::counts::Counts;
use crate::instance::Instance;
use crate::loaded::Loaded;
use crate::outbound::OutboundHttp;
use crate::registry::{Components, Directory};
use crate::shelf::Shelf;
use crate::slot::Slot;

/// The components of one worker, in one generation of the configuration.
pub struct WorkerComponents {
    shared: Arc<Components>,
    client: Client,
    /// By the number of the script.
    routes: RefCell<HashMap<usize, Rc<Route>>>,
}

/// The components of one route.
pub(crate) struct Route {
    pub(crate) script: Arc<Script>,
    source: Source,
    client: Client,
    /// Number of instances that handle a request or are kept.
    live: Rc<Cell<usize>>,
    kept: Rc<Shelf<Kept>>,
}

enum Source {
    File(Arc<Slot>),
    Directory(Arc<Directory>),
}

/// An instance between two requests.
pub(crate) struct Kept {
    pub(crate) instance: Instance,
    pub(crate) loaded: Arc<Loaded>,
    /// Requests that it has handled.
    pub(crate) requests: usize,
    pub(crate) permit: Permit,
}

/// The permit of an instance. `instances` limits those of a worker.
pub(crate) struct Permit {
    live: Rc<Cell<usize>>,
    counts: Arc<Counts>,
}

impl WorkerComponents {
    /// Creates the components of a worker. Their requests to other servers use `client`.
    pub fn new(shared: &Arc<Components>, client: &Client) -> Self {
        Self { shared: Arc::clone(shared), client: client.clone(), routes: RefCell::default() }
    }

    /// Returns the components of the route that a request is for.
    ///
    /// # Errors
    /// When the directory of its components was not read, which happens when a configuration is loaded.
    pub(crate) fn route(&self, script: &Arc<Script>) -> Result<Rc<Route>, Failure> {
        let mut routes = self.routes.borrow_mut();
        if let Some(route) = routes.get(&script.id) {
            return Ok(Rc::clone(route));
        }
        let path = &script.directory;
        let source = match script.mapping {
            Mapping::Program => Source::File(self.shared.slot(path)),
            _ => Source::Directory(
                self.shared
                    .known(path)
                    .ok_or_else(|| Failure::Broken(format!("{} was not read", path.display())))?,
            ),
        };
        let route = Rc::new(Route {
            script: Arc::clone(script),
            source,
            client: self.client.clone(),
            live: Rc::default(),
            kept: Rc::default(),
        });
        routes.insert(script.id, Rc::clone(&route));
        Ok(route)
    }
}

impl Route {
    /// Returns the component that the path of a request names, with the parts of the path.
    ///
    /// # Errors
    /// [`Failure::Missing`] if it names none.
    pub(crate) fn find(&self, call: &Call<'_>) -> Result<(Arc<Slot>, ResolvedScript), Failure> {
        match &self.source {
            Source::File(slot) => {
                let (name, info) = self.script.split(call.path);
                Ok((Arc::clone(slot), ResolvedScript::new(slot.path.clone(), name, info)))
            }
            Source::Directory(directory) => {
                let rest = self.script.rest(call.path);
                let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
                let slot = directory.find(&rest[..end]).ok_or(Failure::Missing)?;
                let (name, info) = call.path.split_at(call.path.len() - rest.len() + end);
                let located = ResolvedScript::new(slot.path.clone(), name, info);
                Ok((slot, located))
            }
        }
    }

    /// Returns the settings of the components.
    ///
    /// # Errors
    /// The script is not a component.
    pub(crate) fn settings(&self) -> Result<&Component, Failure> {
        let settings = self.script.component();
        settings.ok_or_else(|| Failure::Broken("it is not a component".into()))
    }

    /// Returns what sends the requests of an instance to other servers.
    pub(crate) fn outbound_http(&self, slot: &Slot, settings: &Component) -> OutboundHttp {
        OutboundHttp {
            name: Arc::clone(&slot.label),
            hosts: settings.outbound.as_slice().into(),
            client: self.client.clone(),
        }
    }

    /// Takes a kept instance of the component.
    pub(crate) fn take(&self, loaded: &Arc<Loaded>) -> Option<Kept> {
        self.kept.take(|kept| Arc::ptr_eq(&kept.loaded, loaded))
    }

    /// Keeps an instance for a further request, if `reuse` permits it.
    pub(crate) fn keep(&self, kept: Kept) {
        let Some(settings) = self.script.component() else { return };
        if kept.requests < settings.reuse {
            self.kept.keep(kept, settings.idle);
        }
    }

    /// Returns a permit for a new instance.
    ///
    /// # Errors
    /// [`Failure::Busy`] if all are in use.
    pub(crate) fn permit(&self, slot: &Slot) -> Result<Permit, Failure> {
        let max = self.settings()?.instances;
        if self.live.get() >= max {
            // Instances of other components of a directory, or of an older version.
            drop(self.kept.take_oldest());
        }
        if self.live.get() >= max {
            Counts::add(&slot.counts.rejected);
            return Err(Failure::Busy);
        }
        Ok(Permit::new(&self.live, &slot.counts))
    }
}

impl Permit {
    fn new(live: &Rc<Cell<usize>>, counts: &Arc<Counts>) -> Self {
        live.set(live.get() + 1);
        Counts::add(&counts.live);
        Self { live: Rc::clone(live), counts: Arc::clone(counts) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.live.set(self.live.get() - 1);
        Counts::subtract(&self.counts.live);
    }
}
