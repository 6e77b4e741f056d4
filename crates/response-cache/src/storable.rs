//! The rules by which responses may be stored (RFC 9111 §3).

use dunlin_http::FieldLines;
use dunlin_http::semantics::Method;
use dunlin_http::semantics::status::reason;

use crate::directives::Directives;
use crate::fields::values;
use crate::freshness::Freshness;

/// The properties of a request that the cache knows besides its key.
#[derive(Debug, Clone, Copy)]
pub struct Requested {
    /// The method.
    pub method: Method,
    /// The request has credentials, or the server has authenticated its client (RFC 9111 §3.5).
    pub is_authenticated: bool,
    /// The request has the directive `no-store`.
    pub no_store: bool,
}

/// The responses that the configuration allows to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Store responses with `Set-Cookie`.
    pub set_cookie: bool,
    /// Responses without an explicit lifetime have a heuristic one (RFC 9111 §4.2.2).
    pub is_heuristic: bool,
    /// The lifetime of this response in seconds, if it has no explicit one.
    pub lifetime: Option<u64>,
    /// The largest body in bytes.
    pub max_body: u64,
}

/// Returns whether a response may be stored; if not, why, as a token for `Cache-Status`.
///
/// # Errors
/// The reason.
pub fn check(
    requested: Requested,
    status: u16,
    fields: &FieldLines,
    directives: &Directives,
    freshness: &Freshness,
    rules: &Rules,
) -> Result<(), &'static str> {
    if requested.method != Method::Get {
        return Err("method");
    }
    // 426 is about one connection, whose protocols it names (RFC 9110 §15.5.22).
    if matches!(status, 0..=199 | 206 | 304 | 426) {
        return Err("status");
    }
    let understood = !reason(status).is_empty();
    if directives.must_understand && !understood {
        return Err("must-understand");
    }
    // A cache that understands the status ignores `no-store` beside `must-understand` (RFC 9111 §5.2.2.3).
    if requested.no_store || directives.no_store && !directives.must_understand {
        return Err("no-store");
    }
    if directives.private {
        return Err("private");
    }
    let is_shared =
        directives.public || directives.s_maxage.is_some() || directives.must_revalidate;
    if requested.is_authenticated && !is_shared {
        return Err("authorization");
    }
    if !rules.set_cookie && has(fields, &["Set-Cookie", "Set-Cookie2"]) {
        return Err("set-cookie");
    }
    // Without a lifetime only a validator makes it of use.
    let is_explicit = freshness.is_explicit || directives.public;
    let can_be_stored = is_explicit || is_heuristically_cacheable(status);
    let has_validator = has(fields, &["ETag", "Last-Modified"]);
    if !can_be_stored || !(freshness.is_ever_usable() || has_validator) {
        return Err("no-lifetime");
    }
    Ok(())
}

/// Returns `true` if a response with this status may be stored without explicit permission (RFC 9110 §15.1), apart from
/// partial ones.
pub(crate) fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

fn has(fields: &FieldLines, names: &[&str]) -> bool {
    names.iter().any(|name| !values(fields, name).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::Received;
    use crate::testing::fields;

    const REQUESTED: Requested =
        Requested { method: Method::Get, is_authenticated: false, no_store: false };
    const RULES: Rules =
        Rules { set_cookie: false, is_heuristic: true, lifetime: None, max_body: 1000 };

    fn result(
        requested: Requested,
        status: u16,
        pairs: &[(&str, &str)],
        rules: &Rules,
    ) -> Result<(), &'static str> {
        let fields = fields(pairs);
        let directives = Directives::of(&fields);
        let received = Received { date: None, unix: 784_111_777, at: 0, delay: 0 };
        let freshness = Freshness::of(status, &fields, &directives, received, rules.is_heuristic);
        check(requested, status, &fields, &directives, &freshness, rules)
    }

    #[test]
    fn the_response_decides() {
        let max_age = ("Cache-Control", "max-age=60");
        let etag = ("ETag", "\"a\"");
        for (status, pairs, expected) in [
            (200, &[max_age][..], Ok(())),
            (404, &[max_age], Ok(())),
            (503, &[max_age], Ok(())),
            (599, &[max_age], Ok(())),
            (204, &[max_age], Ok(())),
            (206, &[max_age], Err("status")),
            (304, &[max_age], Err("status")),
            (101, &[max_age], Err("status")),
            (426, &[max_age], Err("status")),
            (200, &[], Err("no-lifetime")),
            (200, &[etag], Ok(())),
            (200, &[etag, ("Cache-Control", "no-cache")], Ok(())),
            (200, &[("Cache-Control", "no-cache, max-age=60")], Err("no-lifetime")),
            (200, &[("Cache-Control", "max-age=0")], Err("no-lifetime")),
            (200, &[("Cache-Control", "max-age=0, stale-if-error=60")], Ok(())),
            (200, &[("Cache-Control", "max-age=60"), ("Age", "60")], Err("no-lifetime")),
            (201, &[etag], Err("no-lifetime")),
            (200, &[("Last-Modified", "Sat, 05 Nov 1994 08:49:37 GMT")], Ok(())),
            (200, &[("Cache-Control", "max-age=60, no-store")], Err("no-store")),
            (200, &[("Cache-Control", "max-age=60, private")], Err("private")),
            (200, &[("Cache-Control", "max-age=60, no-store, must-understand")], Ok(())),
            (599, &[("Cache-Control", "max-age=60, must-understand")], Err("must-understand")),
            (200, &[max_age, ("set-cookie", "a=b")], Err("set-cookie")),
            (200, &[("CDN-Cache-Control", "max-age=60"), ("Cache-Control", "no-store")], Ok(())),
        ] {
            assert_eq!(result(REQUESTED, status, pairs, &RULES), expected, "{status} {pairs:?}");
        }
        let allowed = Rules { set_cookie: true, ..RULES };
        assert_eq!(result(REQUESTED, 200, &[max_age, ("Set-Cookie", "a=b")], &allowed), Ok(()));
    }

    #[test]
    fn the_request_decides() {
        let with = |value| {
            result(
                Requested { is_authenticated: true, ..REQUESTED },
                200,
                &[("Cache-Control", value)],
                &RULES,
            )
        };
        assert_eq!(with("max-age=60"), Err("authorization"));
        assert_eq!(with("max-age=60, public"), Ok(()));
        assert_eq!(with("s-maxage=60"), Ok(()));
        assert_eq!(with("max-age=60, must-revalidate"), Ok(()));
        let max_age = [("Cache-Control", "max-age=60")];
        let head = Requested { method: Method::Head, ..REQUESTED };
        assert_eq!(result(head, 200, &max_age, &RULES), Err("method"));
        let no_store = Requested { no_store: true, ..REQUESTED };
        assert_eq!(result(no_store, 200, &max_age, &RULES), Err("no-store"));
    }
}
