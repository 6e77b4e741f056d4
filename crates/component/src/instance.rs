//! Instances: their creation, and what handles one request of them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_config::{Component, ComponentStderr};
use dunlin_script::failure::Failure;
use dunlin_telemetry::ScriptContext;
use wasmtime::{Store, component};
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};
use wasmtime_wasi_http::p2::bindings::Proxy;
use wasmtime_wasi_http::p3::bindings::Service;

use crate::counts::Counts;
use crate::engine::Runtime;
use crate::host::{Host, prepare_kept};
use crate::loaded::Loaded;
use crate::running_instance::Termination;
use crate::slot::Slot;
use crate::stdio::LogOutput;
use crate::worker::{Kept, Permit, Route};

/// An instance of a component that can handle several requests.
pub(crate) enum Instance {
    Proxy(Store<Host>, Proxy),
    Service(Store<Host>, Service),
    Typed(Store<Host>, component::Instance),
}

/// The exports of an instance that can handle several requests.
pub(crate) trait Exports: Sized {
    /// Returns the exports of a kept instance of this kind.
    fn from_kept(instance: Instance) -> Option<(Store<Host>, Self)>;

    fn into_kept(self, store: Store<Host>) -> Instance;
}

impl Exports for Proxy {
    fn from_kept(instance: Instance) -> Option<(Store<Host>, Self)> {
        if let Instance::Proxy(store, exports) = instance { Some((store, exports)) } else { None }
    }

    fn into_kept(self, store: Store<Host>) -> Instance {
        Instance::Proxy(store, self)
    }
}

impl Exports for Service {
    fn from_kept(instance: Instance) -> Option<(Store<Host>, Self)> {
        if let Instance::Service(store, exports) = instance { Some((store, exports)) } else { None }
    }

    fn into_kept(self, store: Store<Host>) -> Instance {
        Instance::Service(store, self)
    }
}

impl Exports for component::Instance {
    fn from_kept(instance: Instance) -> Option<(Store<Host>, Self)> {
        if let Instance::Typed(store, exports) = instance { Some((store, exports)) } else { None }
    }

    fn into_kept(self, store: Store<Host>) -> Instance {
        Instance::Typed(store, self)
    }
}

/// The resources with which a request runs: a kept instance, or the parts of a new one.
pub(crate) struct InstanceRequest {
    pub(crate) runtime: &'static Runtime,
    loaded: Arc<Loaded>,
    permit: Permit,
    /// A kept instance.
    instance: Option<Instance>,
    /// Requests that it has handled.
    requests: usize,
    /// The store of a new instance.
    store: Option<Store<Host>>,
    script_context: Rc<ScriptContext>,
}

impl InstanceRequest {
    /// Takes a kept instance of the component, or prepares a new one; `wasi` is what that is granted.
    ///
    /// # Errors
    /// The component is not loaded, or all instances are in use.
    pub(crate) fn new(
        route: &Rc<Route>,
        slot: &Slot,
        loaded: &Arc<Loaded>,
        script_context: &Rc<ScriptContext>,
        wasi: impl FnOnce(&mut WasiCtxBuilder),
    ) -> Result<Self, Failure> {
        let runtime = loaded.runtime;
        let settings = route.settings()?;
        let kept = if settings.reuse > 1 { route.take(loaded) } else { None };
        let (instance, requests, permit, store) = match kept {
            Some(Kept { instance, requests, permit, loaded: _ }) => {
                Counts::add(&slot.counts.reused);
                (Some(instance), requests, permit, None)
            }
            None => {
                let permit = route.permit(slot)?;
                Counts::add(&slot.counts.fresh);
                let wasi = grant(route, settings, wasi).map_err(Failure::Broken)?;
                let outbound_http = route.outbound_http(slot, settings);
                let store =
                    Host::store(runtime, wasi, outbound_http, settings.memory, &slot.counts);
                (None, 0, permit, Some(store))
            }
        };
        Ok(Self {
            runtime,
            loaded: Arc::clone(loaded),
            permit,
            instance,
            requests,
            store,
            script_context: Rc::clone(script_context),
        })
    }

    /// As [`InstanceRequest::new`], for a component whose standard output and error go to the log. Also returns its lines,
    /// unless they are dropped.
    ///
    /// # Errors
    /// As those of [`InstanceRequest::new`].
    pub(crate) fn with_log(
        route: &Rc<Route>,
        slot: &Slot,
        loaded: &Arc<Loaded>,
        script_context: &Rc<ScriptContext>,
    ) -> Result<(Self, Option<LogOutput>), Failure> {
        let log = log_output(route.settings()?);
        let start = Self::new(route, slot, loaded, script_context, |wasi| {
            if let Some(log) = &log {
                wasi.stdout(log.clone()).stderr(log.clone());
            }
        })?;
        Ok((start, log))
    }

    /// Returns the kept instance, or a new one that `create` instantiates. What follows is its own time.
    ///
    /// # Errors
    /// Why it could not be created.
    pub(crate) async fn instance<T: Exports>(
        &mut self,
        create: impl AsyncFnOnce(&mut Store<Host>) -> wasmtime::Result<T>,
    ) -> Result<(Store<Host>, T), Termination> {
        let Some((mut store, exports)) = self.instance.take().and_then(T::from_kept) else {
            return self.fresh(create).await;
        };
        let began = Instant::now();
        prepare_kept(&mut store);
        self.note_ready(began);
        Ok((store, exports))
    }

    /// As [`InstanceRequest::instance`], for an instance that is never kept.
    ///
    /// # Errors
    /// Why it could not be created.
    pub(crate) async fn fresh<T>(
        &mut self,
        create: impl AsyncFnOnce(&mut Store<Host>) -> wasmtime::Result<T>,
    ) -> Result<(Store<Host>, T), Termination> {
        let began = Instant::now();
        let mut store = self.store.take().ok_or(Termination::NoRoom)?;
        let created = create(&mut store).await;
        let exports = created.map_err(|error| Termination::instantiation(&error, store.data()))?;
        self.note_ready(began);
        Ok((store, exports))
    }

    /// Keeps the instance for a further request, if `reuse` permits it.
    pub(crate) fn keep(self, route: &Rc<Route>, store: Store<Host>, exports: impl Exports) {
        let Self { loaded, requests, permit, .. } = self;
        let instance = exports.into_kept(store);
        route.keep(Kept { instance, loaded, requests: requests + 1, permit });
    }

    /// Records that the instance is ready. `began` is within the time that counts as that of the instance, so that the time of
    /// its own code is what remains of that.
    fn note_ready(&self, began: Instant) {
        let now = Instant::now();
        self.script_context.start(began, now);
        self.script_context.request_sent.set(Some(now));
    }
}

/// Returns what a new instance is granted: the environment and the directories that the configuration lists, and what `more`
/// adds.
fn grant(
    route: &Route,
    settings: &Component,
    more: impl FnOnce(&mut WasiCtxBuilder),
) -> Result<WasiCtx, String> {
    let mut wasi = WasiCtxBuilder::new();
    wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
    for (name, value) in &route.script.env {
        wasi.env(name, value);
    }
    for files in &settings.files {
        let permissions = if files.write { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
        wasi.preopened_dir(&files.path, &files.name, permissions)
            .map_err(|error| format!("files {}: {error:#}", files.path.display()))?;
    }
    more(&mut wasi);
    Ok(wasi.build())
}

/// Returns where the lines of an instance for the log go; `None` if they are dropped.
pub(crate) fn log_output(settings: &Component) -> Option<LogOutput> {
    (settings.stderr == ComponentStderr::Log).then(LogOutput::default)
}
