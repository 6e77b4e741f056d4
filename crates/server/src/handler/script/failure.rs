//! Why a script gives no response, and the response in its place.

use std::rc::Rc;

use dunlin_http::Request;
use dunlin_http::semantics::Method;

use super::start_error::Rejected;
use crate::exchange::{Incoming, Response};
use crate::handler::error_page;
use crate::handler::errors::{self, Details};
use crate::handler::reply::into_response;
use crate::route::{self, RouteMatch};
use crate::telemetry::ScriptContext;
use crate::worker::WorkerContext;

/// Why a script gives no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The path names no script.
    Missing,
    /// The script exists and may not be run.
    Forbidden(Rejected),
    /// All processes are in use, and too many requests wait or this one has waited too long. The pool has logged it.
    Busy,
    /// The server or the system cannot run the script.
    Broken(String),
    /// The script's output is no valid response.
    Malformed(String),
    /// The run-time environment or the application server reports that the script failed.
    Failed,
    /// The configuration names this status.
    Status(u16),
    /// The variables exceed what the protocol can carry.
    TooLarge,
    /// The worker has rejected the request before it began.
    Refused(String),
    /// No worker can be reached or started. The log has the reason already.
    Unreachable(String),
    /// Nothing of the request could be written to a worker.
    NotSent(String),
    /// The worker ended before the first byte of a response. It may have begun.
    Lost(String),
    /// The server has no file descriptor left, even after the cache has closed its own.
    NoDescriptor,
    /// A time limit has passed.
    Late(&'static str),
    /// The client has left.
    Abandoned,
}

impl Failure {
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::Forbidden(_) => 403,
            Self::Busy | Self::Refused(_) | Self::NoDescriptor => 503,
            Self::Status(status) => *status,
            Self::TooLarge => 431,
            Self::Broken(_) | Self::Failed => 500,
            Self::Malformed(_)
            | Self::NotSent(_)
            | Self::Lost(_)
            | Self::Unreachable(_)
            | Self::Abandoned => 502,
            Self::Late(_) => 504,
        }
    }

    /// Writes one line to the error log, unless there is nothing to be done about the failure.
    pub(super) fn log(&self, name: &str, request_id: &str) {
        let script = name;
        match self {
            Self::Missing | Self::Abandoned | Self::Busy | Self::Status(_) => {}
            Self::TooLarge => {
                tracing::warn!(
                    script,
                    request_id,
                    "the script was not run: its variables are too long"
                );
            }
            Self::NoDescriptor => {
                tracing::error!(
                    script,
                    request_id,
                    "the script was not run: no file descriptor is free; raise the limit (`limits.open_files`, ulimit -n)"
                );
            }
            Self::Forbidden(Rejected { program, reason }) => {
                let script = program.as_ref().map(|program| program.display().to_string());
                let script = script.as_deref().unwrap_or(name);
                tracing::warn!(script, request_id, "the script was not run: {reason}");
            }
            Self::Broken(reason) => {
                tracing::error!(script, request_id, "the script was not run: {reason}");
            }
            Self::Malformed(reason)
            | Self::NotSent(reason)
            | Self::Lost(reason)
            | Self::Refused(reason) => {
                tracing::error!(script, request_id, "the response is invalid: {reason}");
            }
            Self::Unreachable(reason) => {
                tracing::debug!(script, request_id, "no worker is available: {reason}");
            }
            Self::Failed => tracing::error!(script, request_id, "the script failed"),
            Self::Late(reason) => {
                tracing::error!(script, request_id, "the script was terminated: {reason}");
            }
        }
    }

    /// A page for the developers of the script: the reason, and what the script wrote to its standard error.
    pub(super) fn shown(
        &self,
        request: &Request<'_>,
        script: &str,
        script_context: &ScriptContext,
    ) -> Response {
        let reason = match self {
            Self::Malformed(reason)
            | Self::Broken(reason)
            | Self::NotSent(reason)
            | Self::Lost(reason)
            | Self::Refused(reason)
            | Self::Unreachable(reason) => reason,
            Self::Late(reason) => *reason,
            Self::Failed => "the script failed",
            Self::NoDescriptor => "no file descriptor is free",
            _ => "too many requests wait",
        };
        let facts = [("script", script), ("request", script_context.id()), ("reason", reason)];
        let page = error_page::explained(self.status(), &facts, &script_context.errors());
        let mut response = Response::with_text(self.status(), "text/html; charset=utf-8", page);
        response.fields.push("Cache-Control", "no-store");
        response.fields.push("X-Content-Type-Options", "nosniff");
        if request.method() == Method::Head { response.without_body() } else { response }
    }

    /// The text of the error page. The name of the program is in the log only.
    fn text(&self, path: &[u8]) -> Option<String> {
        let what = match self {
            Self::Busy => "has too many requests to respond to; try again later",
            Self::Refused(_) => "did not take the request",
            Self::Broken(_) | Self::NoDescriptor => "could not be run",
            Self::Failed => "has failed",
            Self::Malformed(_) => "gave no valid response",
            Self::NotSent(_) | Self::Lost(_) => "ended before it responded",
            Self::Unreachable(_) => "cannot be reached",
            Self::Late(_) => "took too long to respond",
            Self::Forbidden(_) => "may not be run",
            Self::Missing | Self::Status(_) | Self::TooLarge | Self::Abandoned => return None,
        };
        Some(format!("The program for {} {what}.", error_page::quoted(path)))
    }

    pub(super) async fn into_response(
        self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
        incoming: Option<Incoming>,
    ) -> Response {
        let details = Details { text: self.text(matched.path), ..Details::default() };
        let reply = errors::reply(ctx, request, matched, self.status(), details);
        match incoming {
            Some(incoming) => route::complete(request, reply, incoming).await,
            None => into_response(request, reply).await,
        }
    }
}
