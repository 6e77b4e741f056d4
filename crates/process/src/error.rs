//! The error of a start.

use std::fmt;

/// The reason why a start, a reload or an upgrade failed: one line for the user.
#[derive(Debug)]
pub struct StartError {
    what: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for StartError {}

/// Creates the error with this line.
pub fn fail(what: impl Into<String>) -> StartError {
    StartError { what: what.into() }
}
