//! A component that can be instantiated. What it exports decides what it is.

use std::sync::Arc;

use dunlin_component_types::Interfaces;
use wasmtime::component::{Component, InstancePre};
use wasmtime_wasi::p2::bindings::CommandPre as CommandPre2;
use wasmtime_wasi::p3::bindings::CommandPre as CommandPre3;
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p3::bindings::ServicePre;

use crate::engine::Runtime;
use crate::host::Host;

/// A component that can be instantiated.
pub(crate) struct Loaded {
    pub(crate) runtime: &'static Runtime,
    pub(crate) program: Program,
}

/// The kind of a component, with the code to make instances of it.
pub(crate) enum Program {
    /// It exports `wasi:http/incoming-handler@0.2`.
    Proxy(ProxyPre<Host>),
    /// It exports `wasi:http/handler@0.3`.
    Service(ServicePre<Host>),
    /// It exports `wasi:cli/run@0.2`: a CGI program.
    Command(CommandPre2<Host>),
    /// It exports `wasi:cli/run@0.3`: a CGI program.
    AsyncCommand(CommandPre3<Host>),
    /// It exports functions of its own, which are called with JSON.
    Typed(InstancePre<Host>, Box<Interfaces>),
}

impl Loaded {
    /// Links a component to the interfaces of the server.
    ///
    /// # Errors
    /// It imports what the server does not have, or exports nothing that handles requests.
    pub(crate) fn new(
        runtime: &'static Runtime,
        component: &Component,
    ) -> Result<Arc<Self>, String> {
        let explain = |error: wasmtime::Error| one_line(&format!("{error:#}"));
        let kind = Kind::of(runtime, component)?;
        let pre = runtime.linker.instantiate_pre(component).map_err(explain)?;
        let program = match kind {
            Kind::Proxy => Program::Proxy(ProxyPre::new(pre).map_err(explain)?),
            Kind::Service => Program::Service(ServicePre::new(pre).map_err(explain)?),
            Kind::Command => Program::Command(CommandPre2::new(pre).map_err(explain)?),
            Kind::AsyncCommand => Program::AsyncCommand(CommandPre3::new(pre).map_err(explain)?),
            Kind::Typed => {
                let interfaces = Interfaces::new(&runtime.engine, component);
                Program::Typed(pre, Box::new(interfaces.map_err(|why| why.to_string())?))
            }
        };
        Ok(Arc::new(Self { runtime, program }))
    }
}

impl Program {
    /// Returns the name of the interface.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Proxy(_) => Kind::Proxy,
            Self::Service(_) => Kind::Service,
            Self::Command(_) => Kind::Command,
            Self::AsyncCommand(_) => Kind::AsyncCommand,
            Self::Typed(..) => Kind::Typed,
        }
        .interface()
    }
}

/// The interface that a component exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Proxy,
    Service,
    Command,
    AsyncCommand,
    /// None of these: functions of its own.
    Typed,
}

impl Kind {
    /// Those with an interface of WASI, in the order of precedence.
    const ALL: [Self; 4] = [Self::Service, Self::Proxy, Self::AsyncCommand, Self::Command];

    /// Returns the exported interface, without the last part of its version.
    fn interface(self) -> &'static str {
        match self {
            Self::Proxy => "wasi:http/incoming-handler@0.2",
            Self::Service => "wasi:http/handler@0.3",
            Self::Command => "wasi:cli/run@0.2",
            Self::AsyncCommand => "wasi:cli/run@0.3",
            Self::Typed => "typed",
        }
    }

    fn of(runtime: &Runtime, component: &Component) -> Result<Self, String> {
        let kind = component.component_type();
        let names: Vec<String> =
            kind.exports(&runtime.engine).map(|(name, _)| name.to_owned()).collect();
        let exports = |kind: &Self| {
            let wanted = kind.interface();
            names
                .iter()
                .any(|name| name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.')))
        };
        match Self::ALL.into_iter().find(exports) {
            Some(kind) => Ok(kind),
            None if names.is_empty() => {
                let wanted = Self::ALL.map(Self::interface).join(", ");
                Err(format!("it exports nothing; a handler exports one of {wanted}, or functions"))
            }
            None => Ok(Self::Typed),
        }
    }
}

/// Returns an error of the engine in one line.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.split('\n').map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(": ")
}
