//! Why a script gives no response.

use dunlin_telemetry::RequestLabel;
use tracing::Level;

use super::start_error::Rejected;

/// Why a script gives no response.
#[derive(Debug)]
pub enum Failure {
    /// The path names no script.
    Missing,
    /// The script exists and may not be run.
    Forbidden(Rejected),
    /// All processes are in use, and too many requests wait or this one has waited too long. The pool has logged it.
    Busy,
    /// The server or the system cannot run the script.
    Broken(String),
    /// The script's output is not a valid response.
    Malformed(String),
    /// The run-time environment or the application server reports that the script failed, and why, if it does: the last line of a traceback.
    Failed(String),
    /// The configuration names this status.
    Status(u16),
    /// The variables exceed what the protocol can carry.
    TooLarge,
    /// The worker has rejected the request before it began.
    Rejected(String),
    /// No worker can be reached or started. The log has the reason already.
    Unreachable(String),
    /// Nothing of the request could be written to a worker.
    NotSent(String),
    /// The worker ended before the first byte of a response. It may have begun.
    Lost(String),
    /// The server has no file descriptor left, even after the cache has closed its own.
    NoDescriptor,
    /// A script within the server's process was stopped: it trapped, or reached a limit.
    Stopped(String),
    /// A time limit has passed.
    Late(&'static str),
    /// The client has left.
    Abandoned,
}

const NO_DESCRIPTOR: &str = "the script was not run: no file descriptor is free; raise the limit (`limits.open_files`, ulimit -n)";

impl Failure {
    /// Returns the status code of the response.
    pub fn status(&self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::Forbidden(_) => 403,
            Self::Busy | Self::Rejected(_) | Self::NoDescriptor => 503,
            Self::Status(status) => *status,
            Self::TooLarge => 431,
            Self::Broken(_) | Self::Failed(_) => 500,
            Self::Malformed(_)
            | Self::NotSent(_)
            | Self::Lost(_)
            | Self::Unreachable(_)
            | Self::Stopped(_)
            | Self::Abandoned => 502,
            Self::Late(_) => 504,
        }
    }

    /// Writes one line to the error log, unless there is nothing to be done about the failure.
    pub(super) fn log(&self, name: &str, label: RequestLabel, request_id: &str) {
        let Some((level, message)) = self.message() else { return };
        let program = match self {
            Self::Forbidden(Rejected { program, .. }) => program.as_ref(),
            _ => None,
        };
        let program = program.map(|program| program.display().to_string());
        let script = program.as_deref().unwrap_or(name);
        let RequestLabel { method, url, route, client } = label;
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(script, request_id, method, url, route, client, "{message}")
            };
        }
        match level {
            Level::ERROR => line!(error),
            Level::WARN => line!(warn),
            _ => line!(debug),
        }
    }

    /// Writes one line to the error log about a failure after the head of the response.
    pub(super) fn log_later(&self, script: &str, request_id: &str) {
        match self.message() {
            Some((Level::ERROR, message)) => tracing::error!(script, request_id, "{message}"),
            Some((Level::WARN, message)) => tracing::warn!(script, request_id, "{message}"),
            Some((_, message)) => tracing::debug!(script, request_id, "{message}"),
            None => {}
        }
    }

    /// Returns the level and the text of the line in the error log.
    fn message(&self) -> Option<(Level, String)> {
        Some(match self {
            Self::Missing | Self::Abandoned | Self::Busy | Self::Status(_) => return None,
            Self::TooLarge => {
                (Level::WARN, "the script was not run: its variables are too long".to_owned())
            }
            Self::NoDescriptor => (Level::ERROR, NO_DESCRIPTOR.to_owned()),
            Self::Forbidden(Rejected { reason, .. }) => {
                (Level::WARN, format!("the script was not run: {reason}"))
            }
            Self::Broken(reason) => (Level::ERROR, format!("the script was not run: {reason}")),
            Self::Malformed(reason)
            | Self::NotSent(reason)
            | Self::Lost(reason)
            | Self::Rejected(reason) => {
                (Level::ERROR, format!("the response is invalid: {reason}"))
            }
            Self::Unreachable(reason) => {
                (Level::DEBUG, format!("no worker is available: {reason}"))
            }
            Self::Failed(reason) if reason.is_empty() => {
                (Level::ERROR, "the script failed".to_owned())
            }
            Self::Failed(reason) => (Level::ERROR, format!("the script failed: {reason}")),
            Self::Stopped(reason) => (Level::ERROR, format!("the script was stopped: {reason}")),
            Self::Late(reason) => (Level::ERROR, format!("the script was terminated: {reason}")),
        })
    }

    /// Returns the reason for the developers of the script.
    pub fn reason(&self) -> &str {
        match self {
            Self::Malformed(reason)
            | Self::Broken(reason)
            | Self::NotSent(reason)
            | Self::Lost(reason)
            | Self::Rejected(reason)
            | Self::Stopped(reason)
            | Self::Unreachable(reason) => reason,
            Self::Late(reason) => reason,
            Self::Failed(reason) if !reason.is_empty() => reason,
            Self::Failed(_) => "the script failed",
            Self::NoDescriptor => "no file descriptor is free",
            _ => "too many requests wait",
        }
    }

    /// Returns the predicate of a sentence about the script for the error page, if the page has one.
    pub fn summary(&self) -> Option<&'static str> {
        Some(match self {
            Self::Busy => "has too many requests to respond to; try again later",
            Self::Rejected(_) => "did not take the request",
            Self::Broken(_) | Self::NoDescriptor => "could not be run",
            Self::Failed(_) | Self::Stopped(_) => "has failed",
            Self::Malformed(_) => "gave no valid response",
            Self::NotSent(_) | Self::Lost(_) => "ended before it responded",
            Self::Unreachable(_) => "cannot be reached",
            Self::Late(_) => "took too long to respond",
            Self::Forbidden(_) => "may not be run",
            Self::Missing | Self::Status(_) | Self::TooLarge | Self::Abandoned => return None,
        })
    }
}
