//! Errors of the store.

use std::fmt;

use redis::RedisError;

/// Why the store did not do what was requested of it. The connection is unusable after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreError {
    what: String,
}

impl StoreError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for StoreError {}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            return Self::new("it did not respond in time");
        }
        Self::new(error.to_string())
    }
}
