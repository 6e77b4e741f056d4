//! The command that compiles a component, in a process of its own: a component may make the compiler use much memory and time,
//! and the compiler is a large part of what an attacker could use.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, setrlimit};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::cache::{Cache, Entry};
use crate::engine::{self, Concurrency};

/// Maximum address space of the process, in bytes.
const MEMORY: u64 = 4 << 30;
/// Maximum CPU time of the process, in seconds.
const CPU: u64 = 600;
/// Maximum size of a component in bytes.
pub(crate) const MAX_SIZE: u64 = 256 << 20;

/// Compiles the component `file` into the cache beneath the directory of state. Returns `true` if it was not there before.
/// The process has limits of memory and CPU time from then on.
///
/// # Errors
/// Why it cannot be compiled or stored, in one line.
pub fn compile(state: &Path, file: &Path) -> Result<bool, String> {
    limit()?;
    let explain = |why: String| format!("{}: {why}", file.display());
    let component = read(file).map_err(explain)?;
    let cache = Cache::open(state)?;
    let entries = cache.entries(&component)?;
    for (concurrency, entry) in Concurrency::ALL.into_iter().zip(&entries) {
        if is_present(entry, engine::compiler(concurrency)?) {
            return Ok(false);
        }
    }
    let (concurrency, code) = code(&component).map_err(explain)?;
    cache
        .store(&entries[concurrency as usize], &code)
        .map_err(|error| format!("{}: {error}", state.display()))?;
    Ok(true)
}

fn is_present(entry: &Entry, engine: &Engine) -> bool {
    entry.load(engine).is_ok_and(|code| code.is_some())
}

/// Compiles a component without concurrency if it needs none. Also returns what the code is for.
fn code(component: &[u8]) -> Result<(Concurrency, Vec<u8>), String> {
    let explain = |error: wasmtime::Error| reason(&error);
    let engine = engine::compiler(Concurrency::Off)?;
    // One that has functions of WASI 0.3 that run concurrently is not valid there.
    if let Ok(compiled) = Component::new(engine, component)
        && !has_new_interfaces(engine, &compiled)
    {
        return Ok((Concurrency::Off, compiled.serialize().map_err(explain)?));
    }
    let engine = engine::compiler(Concurrency::On)?;
    Ok((Concurrency::On, engine.precompile_component(component).map_err(explain)?))
}

/// Returns `true` if a component has interfaces of WASI 0.3.
fn has_new_interfaces(engine: &Engine, component: &Component) -> bool {
    let kind = component.component_type();
    let is_new = |name: &str| name.starts_with("wasi:") && name.contains("@0.3.");
    kind.imports(engine).any(|(name, _)| is_new(name))
        || kind.exports(engine).any(|(name, _)| is_new(name))
}

/// Reads a component.
///
/// # Errors
/// When it cannot be read or is none.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, String> {
    let size = file.metadata().map_err(|error| error.to_string())?.len();
    if size > MAX_SIZE {
        return Err(format!("it has more than {} MB", MAX_SIZE >> 20));
    }
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    match Engine::detect_precompiled(&bytes) {
        Some(_) => Err("it is compiled code; name the component that it was made of".into()),
        None => check(&bytes).map(|()| bytes),
    }
}

/// The first bytes of a component, and of a module, which is not a component.
const COMPONENT: [u8; 8] = *b"\0asm\x0d\0\x01\0";
const MODULE: [u8; 8] = *b"\0asm\x01\0\0\0";

/// Checks that a file begins as a component.
///
/// # Errors
/// Returns a description of the bytes if they are not a component.
pub fn check(bytes: &[u8]) -> Result<(), String> {
    match bytes.get(..8) {
        Some(start) if start == COMPONENT => Ok(()),
        Some(start) if start == MODULE => {
            Err("it is a WebAssembly module, not a component; build it for wasm32-wasip2, or use \
                 `wasm-tools component new`"
                .into())
        }
        _ => Err("it is not a WebAssembly component".into()),
    }
}

/// Returns the error of the compiler in one line.
fn reason(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(": ")
}

fn limit() -> Result<(), String> {
    let limits = [(Resource::As, MEMORY), (Resource::Cpu, CPU), (Resource::Core, 0)];
    for (resource, max) in limits {
        let limit = Rlimit { current: Some(max), maximum: Some(max) };
        let now = rustix::process::getrlimit(resource);
        // A lower limit stays.
        if now.maximum.is_none_or(|now| now > max) {
            setrlimit(resource, limit).map_err(|error| format!("limits: {error}"))?;
        }
    }
    // The workers of the server come first. A failure to lower the priority is ignored.
    let _ = rustix::process::nice(10);
    Ok(())
}

/// Returns the command line that compiles a component: the arguments of the server's own program.
pub(crate) fn arguments(state: &Path, file: &Path) -> [PathBuf; 4] {
    ["compile".into(), "--state".into(), state.to_owned(), file.to_owned()]
}
