//! Connects the reverse proxy to the router: forwards the requests of a route, and makes the response if no upstream does.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::field_edits::apply_edits;
use dunlin_exchange::{Incoming, RequestContext, Response};
use dunlin_http::{FieldLines, OwnedRequest, Request};
use dunlin_proxy::{Call, Failure, Group, forward};
use dunlin_telemetry::ScriptContext;

use super::{errors, response_cache};
use crate::handler::rejection::error_reply;
use crate::handler::reply::complete;
use crate::route::reply::Reply;
use crate::route::route_match::{OwnedRouteMatch, RouteMatch};
use crate::worker::WorkerContext;

/// Responds to a request from the cache, or forwards it to the upstreams of the route.
pub(crate) fn respond(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    match &matched.settings.cache.responses {
        Some(rules) => response_cache::respond(ctx, request, matched, rules, forwarded),
        None => forwarded(ctx, request, matched),
    }
}

/// Forwards a request to the upstreams of the route.
fn forwarded(ctx: &Rc<WorkerContext>, request: &Request<'_>, matched: &RouteMatch<'_>) -> Reply {
    let Some(group) = &matched.settings.proxy else {
        return error_reply(ctx, request, matched, 500);
    };
    let exchange = Box::new(ProxyExchange {
        ctx: Rc::clone(ctx),
        request: request.to_owned(),
        matched: matched.to_owned(),
        context: matched.context.cloned(),
        group: Arc::clone(group),
    });
    Reply::Streaming(Box::new(move |incoming| Box::pin(exchange.respond(incoming))))
}

/// A request for an upstream.
struct ProxyExchange {
    ctx: Rc<WorkerContext>,
    request: OwnedRequest,
    matched: OwnedRouteMatch,
    context: Option<Rc<RequestContext>>,
    group: Arc<Group>,
}

impl ProxyExchange {
    async fn respond(self: Box<Self>, incoming: Box<Incoming>) -> Response {
        let Self { ctx, request, matched, context, group } = &*self;
        let present;
        let group = if group.has_services() {
            match group.present(&ctx.proxy).await {
                Ok(group) => present = group,
                Err(failure) => return Box::pin(self.failed(&failure, Some(incoming))).await,
            }
            &present
        } else {
            group
        };
        let call = Call {
            worker: &ctx.proxy,
            group,
            request: request.as_request(),
            raw_path: &matched.raw_path,
            path: &matched.path,
            query: matched.query.as_deref(),
            client: context.as_ref().map_or(matched.client, |context| context.client),
            checked: context.as_deref(),
            user_fields: &matched.site.user_fields,
            keeps_date: matched.settings.cache.responses.is_some(),
            forwarded_field: &ctx.shared.config.server.forwarded_field,
        };
        ctx.count_other();
        let script_context = Rc::clone(&incoming.script_context);
        let has_pages = !matched.settings.error_pages.is_empty();
        let again = has_pages.then(|| incoming.without_body());
        match forward(&call, incoming).await {
            Ok(response) if self.is_intercepted(&response) => {
                let (status, fields) = (response.status, kept_fields(&response));
                // The rest of its body is not received.
                drop(response);
                Box::pin(self.error_response(status, fields, again)).await
            }
            Ok(response) => self.finish(response, &script_context),
            Err(failure) => Box::pin(self.failed(&failure, again)).await,
        }
    }

    /// The response if no upstream has one.
    async fn failed(&self, failure: &Failure, again: Option<Box<Incoming>>) -> Response {
        let mut fields = FieldLines::default();
        fields.push("Proxy-Status", failure.proxy_status());
        self.error_response(failure.status(), fields, again).await
    }

    /// Whether an error page replaces an upstream's response.
    fn is_intercepted(&self, response: &Response) -> bool {
        self.group.rules().intercepts_errors
            && self.matched.settings.error_pages.contains_key(&response.status)
    }

    /// Adds the fields of the route to an upstream's response.
    fn finish(&self, mut response: Response, script_context: &ScriptContext) -> Response {
        let settings = &self.matched.settings;
        apply_edits(settings, &mut response.fields);
        if settings.server_timing {
            response.fields.push("Server-Timing", upstream_timing(script_context));
        }
        response
    }

    /// The error page in place of an upstream's response. It does not name the upstream.
    async fn error_response(
        &self,
        status: u16,
        fields: FieldLines,
        again: Option<Box<Incoming>>,
    ) -> Response {
        let details = errors::Details { fields, text: None };
        let request = self.request.as_request();
        let matched = self.matched.borrow();
        let matched = matched.with(self.context.as_ref());
        let reply = errors::reply(&self.ctx, &request, &matched, status, details);
        match again {
            Some(incoming) => complete(&request, reply, incoming).await,
            None => super::reply::into_response(&request, reply).await,
        }
    }
}

/// The fields of an upstream's error response that its error page has, too: clients act on them.
fn kept_fields(response: &Response) -> FieldLines {
    let mut kept = FieldLines::default();
    for (name, value) in response.fields.iter() {
        if KEPT.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
            kept.push_parsed(name, value);
        }
    }
    kept
}

const KEPT: [&str; 4] = ["Allow", "Retry-After", "Set-Cookie", "WWW-Authenticate"];

/// The times of the upstream as a value of `Server-Timing`, in milliseconds.
fn upstream_timing(script_context: &ScriptContext) -> String {
    let millis = |nanos: Option<u64>| nanos.unwrap_or_default() as f64 / 1e6;
    format!(
        "connect;dur={:.3}, upstream;dur={:.3}",
        millis(script_context.connect_ns()),
        millis(script_context.upstream_ns())
    )
}
