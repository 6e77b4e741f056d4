//! WebAssembly components, in builds with the feature `component`.
//!
//! Without the feature, a configuration that names one is rejected, and what is here does nothing.

// The tests of a build with components check it, too.
#[cfg(any(test, not(feature = "component")))]
#[cfg_attr(feature = "component", expect(dead_code, reason = "its tests use a part of it"))]
mod absent;
#[cfg(feature = "component")]
mod present;

use std::path::Path;

#[cfg(not(feature = "component"))]
use self::absent as build;
#[cfg(feature = "component")]
use self::present as build;

pub(crate) use self::build::{Components, WorkerComponents, describe, new, respond};

/// This build has components.
pub(crate) const IS_PRESENT: bool = cfg!(feature = "component");

/// Why a build without components rejects a configuration or a command.
pub(crate) const ABSENT: &str = "components: this build lacks the feature `component`; build with `--features component`, or \
                                 install a package";

/// Compiles a component into the cache beneath the directory of state, with limits of memory and CPU time for this process.
/// Returns `true` if it was not there before.
///
/// # Errors
/// Why it cannot be compiled or stored.
pub fn compile_component(state: &Path, file: &Path) -> Result<bool, String> {
    build::compile(state, file)
}

/// Checks that a file begins as a component.
///
/// # Errors
/// Returns a description of the file if it is not a component.
pub(crate) fn check_component(file: &Path) -> Result<(), String> {
    use std::io::Read;
    let mut start = Vec::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(8).read_to_end(&mut start));
    read.map_err(|error| error.to_string())?;
    build::check(&start)
}
