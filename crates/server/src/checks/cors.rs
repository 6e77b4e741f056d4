//! Access of scripts of other origins: the CORS protocol (Fetch standard §3.2).

use dunlin_config::CorsRules;
use dunlin_exchange::{RequestContext, Response};
use dunlin_http::Request;
use dunlin_http::semantics::Method;

use super::{CheckInput, Decision, Rejection};

/// Adds the fields of every response, in place of those that a script or an upstream sets.
pub(crate) fn add_fields(rules: &CorsRules, request: &Request<'_>, context: &RequestContext) {
    let allowed = rules.allowed(field(request, b"origin"));
    let if_allowed = |value| if allowed.is_some() { value } else { "" };
    context.replace_field("Access-Control-Allow-Origin", allowed.unwrap_or_default());
    let credentials = if rules.credentials { "true" } else { "" };
    context.replace_field("Access-Control-Allow-Credentials", if_allowed(credentials));
    context.replace_field("Access-Control-Expose-Headers", if_allowed(&rules.expose));
    if rules.depends_on_origin() {
        context.vary_by_origin();
    }
}

pub(super) fn check(rules: &CorsRules, input: &CheckInput<'_, '_>) -> Decision {
    add_fields(rules, input.request, input.context);
    Decision::Allow
}

/// Responds to a preflight, which browsers send without credentials.
pub(super) fn preflight(rules: &CorsRules, input: &CheckInput<'_, '_>) -> Decision {
    let request = input.request;
    let origin = field(request, b"origin");
    let is_preflight = request.method() == Method::Options
        && origin.is_some()
        && field(request, b"access-control-request-method").is_some();
    if !is_preflight {
        return Decision::Allow;
    }
    let mut response = Response::new(204);
    if rules.allowed(origin).is_some() {
        rules.preflight.iter().for_each(|(name, value)| response.fields.push(name, value));
    }
    let mut rejection = Rejection::new(response.status);
    rejection.response = Some(Box::new(response));
    Decision::Reject(rejection)
}

/// Returns the value of a field, whose name is in lower case; `None` unless there is one alone.
fn field<'r>(request: &Request<'r>, name: &[u8]) -> Option<&'r [u8]> {
    let mut lines = request.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let value = lines.next()?.1;
    lines.next().is_none().then_some(value)
}
