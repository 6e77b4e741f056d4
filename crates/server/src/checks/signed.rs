//! Links that are valid with a signature only.

use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_config::SignedRules;
use dunlin_http::FieldName;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::semantics::{host, path};
use dunlin_tokens::{Link, LinkState};

use super::{CheckInput, Decision, Rejection};

pub(super) fn check(rules: &SignedRules, input: &CheckInput<'_, '_>) -> Decision {
    match state(rules, input) {
        Some(LinkState::Valid) => Decision::Allow,
        Some(LinkState::Expired) => Decision::Reject(Rejection::new(410)),
        Some(LinkState::Wrong) | None => Decision::Reject(Rejection::new(403)),
    }
}

/// Returns what the signature of the request means; `None` if the request has no path. The path is that of the link, also where a
/// redirect within the server has led to another one.
fn state(rules: &SignedRules, input: &CheckInput<'_, '_>) -> Option<LinkState> {
    let CheckInput { request, context, .. } = input;
    let (Target::Origin { path: raw, query } | Target::Absolute { path: raw, query, .. }) =
        target::parse(request.method(), request.target()).ok()?
    else {
        return None;
    };
    let mut decoded = Vec::new();
    path::decode_opaque(raw, &mut decoded).ok()?;
    let host = request.field(FieldName::Host).and_then(host::parse);
    let client = context.client.address.to_string();
    let value = |name| parameter(query, name).unwrap_or_default();
    let link = Link {
        path: &path::with_slashes(&decoded),
        client: client.as_bytes(),
        host: host.map_or(&b""[..], |host| host.name),
        expires: rules.expires.as_deref().map(value).unwrap_or_default(),
    };
    Some(link.state(rules, value(&rules.signature), unix_time()))
}

/// Returns the value of the first parameter of that name, as it stands in the query.
pub(super) fn parameter<'q>(query: Option<&'q [u8]>, name: &str) -> Option<&'q [u8]> {
    query?.split(|&byte| byte == b'&').find_map(|parameter| {
        parameter.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
    })
}

/// Returns the time in seconds since 1970.
pub(super) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
