//! The key `auth.forward_fields`: request fields that are forwarded to the endpoint of forward authentication.

use super::forwarded_field::{is_forwarding, is_plain_name};

/// Request fields that are forwarded to the endpoint by default.
pub(crate) const DEFAULT_FIELDS: [&str; 8] = [
    "Accept",
    "Accept-Language",
    "Authorization",
    "Cookie",
    "Origin",
    "Referer",
    "User-Agent",
    "X-Requested-With",
];

/// Hop-by-hop fields (RFC 9110 §7.6.1), besides those that `Connection` lists.
pub const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Request fields that are never forwarded to the endpoint: they describe the client's connection or body,
/// make the response conditional, or are set by the server.
const NEVER_FORWARDED: [&str; 13] = [
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "proxy-authorization",
    "range",
];

/// Checks that the configuration may forward a request field of that name to the endpoint.
///
/// # Errors
/// The reason why it may not.
pub(crate) fn check_forward_field(name: &str, user_field: &str) -> Result<(), String> {
    if !is_plain_name(name.as_bytes()) {
        return Err(format!("{name:?} is not a field name of letters, digits and \"-\""));
    }
    let lower = name.to_ascii_lowercase();
    if is_forwarding(lower.as_bytes()) || lower.starts_with("x-original-") {
        return Err(format!("{name} is set by the server"));
    }
    if lower == user_field.to_ascii_lowercase().replace(['_', '.'], "-") {
        return Err(format!("{name} is the `user_field`, which clients may not set"));
    }
    if HOP_BY_HOP.contains(&&*lower) || NEVER_FORWARDED.contains(&&*lower) {
        return Err(format!("{name} applies to the client's own request or connection only"));
    }
    Ok(())
}

/// Request fields, besides hop-by-hop ones, that clients set themselves, or the server for another purpose. In lower case.
const OF_CLIENT: [&str; 27] = [
    "accept",
    "accept-language",
    "authorization",
    "cache-control",
    "client-cert",
    "client-cert-chain",
    "cookie",
    "dnt",
    "early-data",
    "from",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "proxy",
    "referer",
    "remote-user",
    "set-cookie",
    "traceparent",
    "tracestate",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "www-authenticate",
    "x-request-id",
    "x-sendfile",
    "x-sendfile-type",
];

/// Checks that authentication may set a request field of that name, which clients then cannot.
///
/// # Errors
/// The reason why it may not.
pub(crate) fn check_copied_field(name: &str) -> Result<(), String> {
    if !is_plain_name(name.as_bytes()) {
        return Err(format!("{name:?} is not a field name of letters, digits and \"-\""));
    }
    let lower = name.to_ascii_lowercase();
    let is_listed = |list: &[&str]| list.contains(&&*lower);
    let begins = ["sec-", "proxy-", "x-accel-", "x-original-"];
    if is_listed(&OF_CLIENT)
        || is_listed(&HOP_BY_HOP)
        || is_listed(&NEVER_FORWARDED)
        || begins.iter().any(|start| lower.starts_with(start))
        || is_forwarding(lower.as_bytes())
    {
        return Err(format!("{name} has another meaning; name another header, such as \"X-User\""));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_fields_may_be_forwarded_and_protected_fields_may_not() {
        for name in DEFAULT_FIELDS.into_iter().chain(["X-CSRF-Token", "Sec-Fetch-Mode"]) {
            assert_eq!(check_forward_field(name, "Remote-User"), Ok(()), "{name}");
        }
        for name in [
            "X_CSRF",
            "X.A",
            "",
            "Host",
            "TE",
            "Proxy-Authorization",
            "X-Forwarded-Uri",
            "Forwarded",
            "X-Original-URI",
            "x-real-ip",
            "X-User",
            "Connection",
            "Range",
            "Content-Length",
        ] {
            assert!(check_forward_field(name, "X_User").is_err(), "{name}");
        }
    }
}
