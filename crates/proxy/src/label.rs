//! The request that a line of the error log is about.

use std::fmt;

use dunlin_telemetry::{RequestLabel, ScriptContext};

use crate::failure::Failure;

/// Names a request in the error log.
pub trait Label: fmt::Debug {
    /// Returns the label of the request in the error log. Sets its id, unless it has one, which the access log has, too.
    fn label(&self, script_context: &ScriptContext) -> RequestLabel;
}

/// Logs why the response of an upstream cannot be used.
pub fn report(label: &dyn Label, failure: &Failure, script_context: &ScriptContext) {
    let upstream = script_context.upstream();
    let result = format!("the response is {}", failure.status());
    log_failure(upstream.as_deref(), (label, script_context), failure.reason(), &result);
}

/// Logs a failure of an upstream. `result` is what follows for the client.
pub(crate) fn log_failure(
    upstream: Option<&str>,
    (request, script_context): (&dyn Label, &ScriptContext),
    reason: &str,
    result: &str,
) {
    let RequestLabel { method, url, route, client } = request.label(script_context);
    let request_id = script_context.id();
    tracing::error!(
        upstream,
        method,
        url,
        route,
        client,
        request_id,
        "the upstream failed: {reason}; {result}"
    );
}
