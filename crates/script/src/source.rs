//! The output of a script as its protocol delivers it.

use bytes::Bytes;

/// A source of a script's output. Both futures are cancel-safe.
pub trait Source {
    /// Returns the next bytes, which may be empty; `None` at the end.
    fn read(&self) -> impl Future<Output = Option<Bytes>>;

    /// Returns how the script ended. To be called at the end of the output.
    fn end(&self) -> impl Future<Output = SourceEnd>;
}

/// The end of a script's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceEnd {
    /// It succeeded, or it goes on without output.
    Complete,
    /// It exited with this status, which is not 0.
    Status(i32),
    /// It ended early, for this reason: the output is incomplete.
    Truncated(String),
    /// It was stopped for this reason, and is not a process that could have ended: the output is incomplete.
    Stopped(String),
    /// It was stopped because of a time limit: the output is incomplete.
    TimedOut(&'static str),
    /// The worker ended before the first byte of a response. It may have begun.
    ConnectionLost(String),
    /// The worker has rejected the request before it began.
    Rejected(String),
    /// The worker ended before it was ready for requests. The log has the reason already.
    Unreachable(String),
}
