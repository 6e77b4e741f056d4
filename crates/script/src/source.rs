//! The output of a script as its protocol delivers it.

use bytes::Bytes;

/// A source of a script's output. Both futures are cancel-safe.
pub(super) trait Source {
    /// The next bytes, which may be empty; `None` at the end.
    async fn read(&self) -> Option<Bytes>;

    /// How the script ended. To be called at the end of the output.
    async fn end(&self) -> End;
}

/// How a script ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It succeeded, or it goes on without output.
    Well,
    /// It exited with this status, which is not 0.
    Status(i32),
    /// It ended early, for this reason: the output is incomplete.
    Cut(String),
    /// The worker ended before the first byte of a response. It may have begun.
    Lost(String),
    /// The worker has rejected the request before it began.
    Rejected(String),
    /// The worker ended before it was ready for requests. The log has the reason already.
    Unreachable(String),
}
