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
use crate::host::Host;
use crate::loaded::Loaded;
use crate::slot::Slot;
use crate::stdio::LogOutput;
use crate::worker::{Kept, Permit, Route};

/// An instance of a component that can handle several requests.
pub(crate) enum Instance {
    Proxy(Store<Host>, Proxy),
    Service(Store<Host>, Service),
    Typed(Store<Host>, component::Instance),
}

/// What a request gets to run with: a kept instance, or what a new one is made of.
pub(crate) struct Start {
    pub(crate) runtime: &'static Runtime,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) permit: Permit,
    /// A kept instance.
    pub(crate) instance: Option<Instance>,
    /// Requests that it has handled.
    pub(crate) requests: usize,
    /// The store of a new instance.
    pub(crate) store: Option<Store<Host>>,
    pub(crate) script_context: Rc<ScriptContext>,
    chosen: Instant,
}

impl Start {
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
        let chosen = Instant::now();
        let runtime = Runtime::get().map_err(Failure::Broken)?;
        let settings = route.settings()?;
        let kept = if settings.reuse > 1 { route.take(loaded) } else { None };
        let (instance, requests, permit, store) = match kept {
            Some(Kept { instance, requests, permit, .. }) => {
                Counts::add(&slot.counts.reused);
                (Some(instance), requests, permit, None)
            }
            None => {
                let permit = route.permit(slot)?;
                Counts::add(&slot.counts.fresh);
                let wasi = grant(route, settings, wasi).map_err(Failure::Broken)?;
                let outbox = route.outbox(slot, settings);
                let store = Host::store(runtime, wasi, outbox, settings.memory, &slot.counts);
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
            chosen,
        })
    }

    /// Records that the instance is ready: what follows is its own time.
    pub(crate) fn begin(&self) {
        let now = Instant::now();
        self.script_context.start(self.chosen, now);
        self.script_context.request_sent.set(Some(now));
    }
}

/// What a new instance is granted: the environment and the directories that the configuration lists, and what `more` adds.
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
