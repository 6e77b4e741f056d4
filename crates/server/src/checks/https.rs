//! TLS requirements of a route: redirect to `https` and `Strict-Transport-Security`.

use dunlin_config::HttpsRules;
use dunlin_exchange::RequestContext;
use dunlin_http::semantics::host;
use dunlin_http::semantics::target;
use dunlin_http::{FieldName, Request};

use super::{CheckInput, Decision, Rejection};

/// Adds `Strict-Transport-Security`, to responses over TLS only (RFC 6797 §7.2).
pub(crate) fn add_strict(rules: &HttpsRules, context: &RequestContext) {
    if let Some(value) = rules.strict.as_ref().filter(|_| context.client.encrypted) {
        context.add_field("Strict-Transport-Security", value);
    }
}

pub(super) fn check(rules: &HttpsRules, input: &CheckInput<'_, '_>) -> Decision {
    if input.context.client.encrypted {
        add_strict(rules, input.context);
        return Decision::Allow;
    }
    match rules.redirect {
        Some(port) => Decision::Reject(to_https(input.request, port)),
        None => Decision::Allow,
    }
}

/// Redirects the client to the same target with scheme `https`.
pub(crate) fn to_https(request: &Request<'_>, port: u16) -> Rejection {
    let field = request.field(FieldName::Host);
    let named = field.and_then(host::parse).map(|host| host.name).filter(|name| !name.is_empty());
    let Some(name) = named else {
        // Without a host there is no URL to redirect to.
        return Rejection::new(400);
    };
    let mut location = [b"https://", name].concat();
    if port != 443 {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    let target = target::parse(request.method(), request.target());
    let Some(target) = target.ok().and_then(|target| target.path_and_query()) else {
        return Rejection::new(400);
    };
    location.extend_from_slice(&target);
    Rejection::new(308).with("Location", location)
}
