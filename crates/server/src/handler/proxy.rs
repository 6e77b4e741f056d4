//! Connects the reverse proxy to the router: forwards the requests of a route, and makes the response if no upstream does.

use std::fmt;
use std::rc::Rc;

use dunlin_exchange::{Client, Incoming, Named, Response};
use dunlin_http::FieldLines;
use dunlin_proxy::{Call, Failure, Forwarded, Group, Label, forward, report};
use dunlin_telemetry::ids::{acceptable_id, random_id};
use dunlin_telemetry::{RequestLabel, ScriptContext};

use super::call::HandlerCall;
use super::errors;
use super::kept_fields::kept_fields;
use super::named::Naming;
use super::request_label::request_label;

/// Forwards a request to the upstreams of its route.
pub(super) async fn fetch(this: Rc<HandlerCall>, mut incoming: Box<Incoming>) -> Response {
    let ctx = &this.ctx;
    incoming.script_context.set_proxied();
    let Some(group) = &this.matched.settings.proxy else {
        return this.error_response(500, FieldLines::default(), incoming).await;
    };
    let present;
    let group = if group.has_services() {
        match group.present(&ctx.proxy).await {
            Ok(group) => present = group,
            Err(failure) => return Box::pin(this.failed(&failure, incoming)).await,
        }
        &present
    } else {
        group
    };
    let label: Rc<dyn Label> = Rc::<HandlerCall>::clone(&this);
    let script_context = Rc::clone(&incoming.script_context);
    let mut call = this.matched().proxied(ctx, group, this.request());
    call.script_context = Some(&script_context);
    ctx.count_other();
    match forward(&call, &label, &mut incoming).await {
        Ok(Forwarded { mut response, named: Some(named) }) if this.follows(&named) => {
            let fields = std::mem::take(&mut response.fields);
            // Its body is not received.
            drop(response);
            Box::pin(this.send_named(&call, &fields, &named, incoming)).await
        }
        Ok(Forwarded { response, .. }) if this.is_intercepted(&response, group) => {
            let (status, fields) = (response.status, kept_fields(&response));
            // The rest of its body is not received.
            drop(response);
            Box::pin(this.error_response(status, fields, incoming)).await
        }
        Ok(Forwarded { response, .. }) => {
            this.finish(response, || upstream_timing(&script_context))
        }
        Err(failure) => Box::pin(this.failed(&failure, incoming)).await,
    }
}

impl HandlerCall {
    /// Returns the client, as the checks know it.
    pub(super) fn client(&self) -> Client {
        self.context.as_ref().map_or(self.matched.client, |context| context.client)
    }

    /// Returns `true` if the route allows its upstreams to name resources: it does, unless it removes the field from
    /// responses.
    fn follows(&self, named: &Named) -> bool {
        let field = match named {
            Named::Path(_) => "X-Accel-Redirect",
            Named::File(_) => "X-Sendfile",
        };
        let removed = &self.matched.settings.remove_fields;
        !removed.iter().any(|name| name.eq_ignore_ascii_case(field))
    }

    /// Returns the response with a resource of the site that the response of an upstream names, under its `fields`.
    async fn send_named(
        &self,
        call: &Call<'_>,
        fields: &FieldLines,
        named: &Named,
        incoming: Box<Incoming>,
    ) -> Response {
        let script_context = Rc::clone(&incoming.script_context);
        let naming = Naming {
            ctx: &self.ctx,
            request: &call.request,
            matched: &self.matched,
            context: self.context.as_ref(),
            client: self.client(),
        };
        let log = |status, named: &str| {
            let upstream = script_context.upstream();
            let upstream = upstream.as_deref();
            let RequestLabel { method, url, route, client } = self.label(&script_context);
            let request_id = script_context.id();
            tracing::warn!(
                upstream,
                status,
                method,
                url,
                route,
                client,
                request_id,
                "the resource that the upstream names cannot be sent: {named}"
            );
        };
        let again = incoming.without_body();
        match naming.respond(named, fields, incoming, log).await {
            Ok(response) => self.finish(response, || upstream_timing(&script_context)),
            Err(reason) => {
                let failure = Failure::malformed(reason);
                report(self, &failure, &script_context);
                self.failed(&failure, again).await
            }
        }
    }

    /// Returns the response if no upstream has one.
    async fn failed(&self, failure: &Failure, incoming: Box<Incoming>) -> Response {
        let mut fields = FieldLines::default();
        fields.push("Proxy-Status", failure.proxy_status());
        self.error_response(failure.status(), fields, incoming).await
    }

    /// Returns `true` if an error page replaces an upstream's response.
    fn is_intercepted(&self, response: &Response, group: &Group) -> bool {
        group.rules().intercepts_errors
            && self.matched.settings.error_pages.contains_key(&response.status)
    }

    /// Returns the error page in place of an upstream's response. It does not name the upstream.
    async fn error_response(
        &self,
        status: u16,
        fields: FieldLines,
        incoming: Box<Incoming>,
    ) -> Response {
        let request_id = incoming.script_context.named_id();
        let details = errors::Details { fields, request_id, ..errors::Details::default() };
        let (request, matched) = (self.request(), self.matched());
        let reply = errors::reply(&self.ctx, &request, &matched, status, details);
        reply.response(&request, Box::new(incoming.with_empty_body())).await
    }
}

impl fmt::Debug for HandlerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerCall").finish_non_exhaustive()
    }
}

impl Label for HandlerCall {
    /// Returns the id: that of the client, which upstreams get, or a new one.
    fn label(&self, script_context: &ScriptContext) -> RequestLabel {
        let request = self.request();
        script_context.set_id(|| {
            let is_it = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"x-request-id");
            let sent = request.fields().find(is_it).and_then(|(_, id)| acceptable_id(id));
            sent.map_or_else(|| random_id().into(), Into::into)
        });
        request_label(&self.ctx, &request, &self.matched())
    }
}

/// Returns the times of the upstream as a value of `Server-Timing`, in milliseconds.
fn upstream_timing(script_context: &ScriptContext) -> String {
    let millis = |nanos: Option<u64>| nanos.unwrap_or_default() as f64 / 1e6;
    format!(
        "connect;dur={:.3}, upstream;dur={:.3}",
        millis(script_context.connect_ns()),
        millis(script_context.upstream_ns())
    )
}
