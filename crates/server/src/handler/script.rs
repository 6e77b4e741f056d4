//! Connects the scripts to the router: runs the script of a route, and makes the responses that it leaves to the server.

mod internal;
mod state;

use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::Request;
use dunlin_http::semantics::Method;
use dunlin_http::semantics::status::reason;

pub(crate) use self::state::FileAccess;
use dunlin_config::Script;
use dunlin_config::field_edits::apply_to_message;
use dunlin_exchange::{Incoming, Response};
use dunlin_script::call::{Call, StderrSource};
use dunlin_script::failure::Failure;
use dunlin_script::outcome::Outcome;
use dunlin_script::respond as scripts;
use dunlin_telemetry::ScriptContext;

use super::call::HandlerCall;
use super::kept_fields::kept_fields;
use super::redirect::to_slash;
use super::request_label::request_label;
use super::{error_page, errors};
use crate::component;
use crate::route::route_match::RouteMatch;
use crate::route::select::facts;
use crate::worker::WorkerContext;

/// Runs the script of the route.
pub(super) async fn fetch(this: Rc<HandlerCall>, incoming: Box<Incoming>) -> Response {
    let HandlerCall { ctx, matched, context, .. } = &*this;
    let Some(rules) = matched.settings.handler.script() else {
        return errors::plain_page(500, None, true);
    };
    let request = this.request();
    let target = (&*matched.path, matched.query.as_deref());
    let facts = facts(&matched.site, this.client(), &request, target);
    let env = rules.request_env.iter().map(|one| (&*one.name, one.value(&facts))).collect();
    let call = Call {
        scripts: &ctx.scripts,
        request,
        route: matched,
        raw_path: &matched.raw_path,
        path: &matched.path,
        query: matched.query.as_deref(),
        error: matched.via.error,
        checked: context.as_deref(),
        env,
        rules,
        stderr_source: StderrSource::default(),
    };
    // The name in the log: the script's, as soon as it is known.
    let mut name = Arc::clone(&rules.label);
    let script_context = Rc::clone(&incoming.script_context);
    let has_pages = !matched.settings.error_pages.is_empty();
    let again = has_pages.then(|| incoming.without_body());
    let responded = match rules.component() {
        Some(_) => Box::pin(component::respond(&ctx.components, &call, incoming, &mut name)).await,
        None => scripts::respond(&call, incoming, &mut name).await,
    };
    let failure = match responded {
        Ok(Outcome::Response(response))
            if rules.intercepts_errors
                && matched.settings.error_pages.contains_key(&response.status) =>
        {
            let fields = kept_fields(&response);
            let details = errors::Details { fields, ..errors::Details::default() };
            let reply =
                errors::reply(ctx, &call.request, &this.matched(), response.status, details);
            return Box::pin(reply.response(&call.request, again)).await;
        }
        Ok(Outcome::Response(response)) => {
            return this.finish_script(response, rules, &script_context);
        }
        Ok(Outcome::Message(response)) => return response,
        Ok(Outcome::Directory) => return to_slash(ctx, &call.request, &matched.borrow()),
        Ok(Outcome::Internal(internal)) => {
            match Box::pin(this.respond_internally(&call, *internal, &script_context)).await {
                Ok(response) => return response,
                Err(failure) => failure,
            }
        }
        Err(failure) => failure,
    };
    let label = request_label(ctx, &call.request, &this.matched());
    scripts::report(&call, &failure, &name, label, &script_context).await;
    let mut response = match failure.status() {
        500.. if rules.show_errors => {
            let mut response = explanation(&failure, &call.request, &name, &script_context);
            apply_to_message(&matched.settings, response.status, &mut response.fields);
            response
        }
        _ => {
            let (request, matched) = (&call.request, this.matched());
            let of = (&failure, &*script_context);
            Box::pin(error_response(ctx, request, &matched, of, again)).await
        }
    };
    if rules.send_request_id {
        response.fields.set("X-Request-Id", script_context.id());
    }
    response
}

impl HandlerCall {
    /// Adds the fields of the route to a script's response.
    fn finish_script(
        &self,
        response: Response,
        rules: &Script,
        script_context: &ScriptContext,
    ) -> Response {
        let mut response = self.finish(response, || script_context.server_timing());
        if rules.send_request_id {
            response.fields.set("X-Request-Id", script_context.id());
        }
        response
    }
}

/// Receives the body of a request for a script before the request waits in the queue of a limit.
///
/// # Errors
/// The response when the body could not be received.
pub(crate) async fn receive_body(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    incoming: &mut Incoming,
) -> Result<(), Response> {
    let settings = matched.settings;
    let Some(rules) = settings.handler.script() else { return Ok(()) };
    let label = || request_label(ctx, request, matched);
    let rules = (&***settings, &**rules);
    let received = scripts::receive_body(&ctx.scripts, request, rules, incoming, label).await;
    let Err(failure) = received else { return Ok(()) };
    let again = Some(incoming.without_body());
    let of = (&failure, &*incoming.script_context);
    Err(Box::pin(error_response(ctx, request, matched, of, again)).await)
}

/// Returns the error page in place of a script's response.
async fn error_response(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    (failure, script_context): (&Failure, &ScriptContext),
    incoming: Option<Box<Incoming>>,
) -> Response {
    // The name of the program is in the log only.
    let text = failure
        .summary()
        .map(|summary| format!("The program for {} {summary}.", error_page::quoted(matched.path)));
    // Failures with other statuses are not in the log.
    let request_id = script_context.named_id().filter(|_| failure.status() >= 500);
    let details = errors::Details { text, request_id, ..errors::Details::default() };
    let reply = errors::reply(ctx, request, matched, failure.status(), details);
    reply.response(request, incoming).await
}

/// Returns a page for the developers of the script: the reason, and what the script wrote to its standard error.
fn explanation(
    failure: &Failure,
    request: &Request<'_>,
    script: &str,
    script_context: &ScriptContext,
) -> Response {
    let details =
        [("script", script), ("request", script_context.id()), ("reason", failure.reason())];
    let status = failure.status();
    let page = error_page::explained(status, reason(status), &details, &script_context.errors());
    let mut response = Response::with_text(status, error_page::HTML, page);
    response.fields.push("Cache-Control", "no-store");
    response.fields.push("X-Content-Type-Options", "nosniff");
    if request.method() == Method::Head { response.without_body() } else { response }
}
