//! Response fields whose values depend on the request or the response.

use dunlin_config::{ComputedField, Facts};
use dunlin_http::semantics::path;
use dunlin_http::semantics::target::{self, Target};

use super::{CheckInput, Decision};

/// Sets the fields of the route, in place of those of a route that has redirected the request here.
pub(super) fn check(fields: &[ComputedField], input: &CheckInput<'_, '_>) -> Decision {
    let CheckInput { request, context, .. } = input;
    let (raw, query) = match target::parse(request.method(), request.target()) {
        Ok(Target::Origin { path, query } | Target::Absolute { path, query, .. }) => (path, query),
        _ => (&b"/"[..], None),
    };
    let mut path = Vec::new();
    // The path was decoded before.
    let _ = path::decode_opaque(raw, &mut path);
    let client = context.client;
    let facts = Facts {
        request: **request,
        path: &path,
        query,
        client: client.address.ip(),
        encrypted: client.encrypted,
        hidden: input.hidden,
    };
    context.set_computed_fields(fields.iter().map(|field| field.of_request(&facts)).collect());
    Decision::Allow
}
