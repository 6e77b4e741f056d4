//! What an error page keeps of the error response that it replaces.

use dunlin_exchange::Response;
use dunlin_http::FieldLines;

/// Returns the fields of an upstream's error response that its error page has, too: clients act on them.
pub(super) fn kept_fields(response: &Response) -> FieldLines {
    let mut kept = FieldLines::default();
    for (name, value) in response.fields.iter() {
        if KEPT.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
            kept.push_parsed(name, value);
        }
    }
    kept
}

/// `Upgrade` is there with 426 only.
const KEPT: [&str; 6] =
    ["Allow", "Connection", "Retry-After", "Set-Cookie", "Upgrade", "WWW-Authenticate"];
