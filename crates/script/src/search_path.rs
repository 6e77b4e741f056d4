//! The search path for programs.

use std::ffi::OsString;

/// `PATH` for scripts if the server itself has none.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// `PATH` for scripts.
pub fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| PATH.into())
}
