//! A request for a script.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use dunlin_exchange::{Client, Incoming, RequestContext};
use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, FieldName, Request};
use dunlin_telemetry::ScriptContext;

use super::buffered::ResponseContext;
use super::request_id;
use super::route::Route;
use super::state::WorkerScripts;
use super::workers::Worker;
use dunlin_config::{Script, ScriptKind};

/// A request for a script.
pub struct Call<'a> {
    /// The scripts of the worker.
    pub scripts: &'a WorkerScripts,
    /// The head of the request.
    pub request: Request<'a>,
    /// The site and the route of the request.
    pub route: &'a dyn Route,
    /// The path as in the request target.
    pub raw_path: &'a [u8],
    /// The decoded path that leads to the script; encoded slashes are NULs.
    pub path: &'a [u8],
    /// The query, without the question mark.
    pub query: Option<&'a [u8]>,
    /// The status for which the script makes the error page.
    pub error: Option<u16>,
    /// The results of the checks; `None` if the route has no checks.
    pub checked: Option<&'a RequestContext>,
    /// Variables that follow from the request, besides those of CGI.
    pub env: Vec<(&'a str, Vec<u8>)>,
    /// The rules of the route for its scripts.
    pub rules: &'a Arc<Script>,
    /// The process that serves the request, for its standard error.
    pub stderr_source: StderrSource,
}

/// The worker that was last sent a request, and when, if error pages show its standard error.
#[derive(Default)]
pub struct StderrSource(RefCell<Option<(Arc<Worker>, Instant)>>);

impl Call<'_> {
    /// Prepares the request: sets its id, sends the Early Hints that the route configures.
    pub(super) fn begin(&self, incoming: &Incoming) {
        let script_context = &incoming.script_context;
        script_context.set_id(|| request_id::request_id(&self.request, self.rules));
        if self.rules.show_errors {
            script_context.keep_errors();
        }
        self.hint(incoming);
        if self.rules.kind != ScriptKind::Asgi && self.wants_websocket() {
            self.scripts.pools.report_websocket(self.rules);
        }
        if !self.rules.kind.is_cgi() {
            self.scripts.ctx.note_other();
        }
    }

    /// Returns `true` if the request is for a WebSocket (RFC 6455 §4.1).
    fn wants_websocket(&self) -> bool {
        let mut values = self.request.values(FieldName::Upgrade);
        values.any(|value| value.eq_ignore_ascii_case(b"websocket"))
    }

    /// Sends the Early Hints that the route configures.
    fn hint(&self, incoming: &Incoming) {
        let links = &self.route.settings().early_hints;
        if !links.is_empty() && matches!(self.request.method(), Method::Get | Method::Head) {
            let mut fields = FieldLines::new();
            links.iter().for_each(|link| fields.push("Link", link));
            incoming.early_hints.send(fields);
        }
    }

    /// Notes the worker that is sent the request.
    pub(super) fn note_worker(&self, worker: &Arc<Worker>) {
        if self.rules.show_errors {
            self.stderr_source.0.replace(Some((Arc::clone(worker), Instant::now())));
        }
    }

    /// Collects what that worker has written to its standard error since.
    pub(super) async fn collect_stderr(&self, script_context: &ScriptContext) {
        let stderr_source = self.stderr_source.0.take();
        if let Some((worker, since)) = stderr_source
            && let Some(errors) = &worker.errors
        {
            errors.collect(since, script_context).await;
        }
    }

    /// Returns what a response that is read at once depends on.
    pub(super) fn response_context<'a>(
        &'a self,
        script_context: &'a ScriptContext,
        is_bodiless: bool,
    ) -> ResponseContext<'a> {
        ResponseContext {
            deadlines: &self.scripts.ctx.deadlines,
            rules: self.rules,
            script_context,
            is_bodiless,
        }
    }

    /// Returns the client that sent the request.
    pub fn client(&self, incoming: &Incoming) -> Client {
        self.checked.map_or_else(|| incoming.client(), |checked| checked.client)
    }
}
