//! The cookie that keeps the requests of a client at one upstream.

use std::time::Duration;

use dunlin_http::semantics::is_token;

use super::super::file::{SameSite, StickyTable};
use super::super::report::Report;
use super::super::spanned::Spanned;

/// The cookie that names a client's upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sticky {
    /// The name of the cookie.
    pub cookie: String,
    /// The requests from other sites that have the cookie.
    pub same_site: SameSite,
    /// Time for which browsers keep it; `None` until they are closed.
    pub max_age: Option<Duration>,
    /// Only connections with TLS have it; `None` if the client's connection has TLS.
    pub secure: Option<bool>,
    /// The key of the hash of an upstream's address.
    pub secret: Option<String>,
}

/// Bytes of a secret at least.
const MIN_SECRET: usize = 16;

impl Sticky {
    pub(super) fn read(table: &Spanned<StickyTable>, report: Report<'_>) -> Self {
        let StickyTable { cookie, same_site, max_age, secure, secret } = &table.value;
        let place = cookie.span.clone().or_else(|| table.span.clone());
        if !is_token(cookie.as_bytes()) {
            report(&place, format!("proxy: sticky: {:?} is not a cookie name", cookie.value));
        }
        let same_site = same_site.unwrap_or(SameSite::Lax);
        if same_site == SameSite::None && *secure == Some(false) {
            let what = "proxy: sticky: browsers reject a cookie with same_site = \"none\" and without `secure`";
            report(&place, what.into());
        }
        if let Some(secret) = secret.as_ref().filter(|secret| secret.value.len() < MIN_SECRET) {
            let what = format!("proxy: sticky: secret has less than {MIN_SECRET} bytes");
            report(&secret.span, what);
        }
        let secret = secret.as_ref().map(|secret| secret.value.clone());
        let max_age = max_age.as_ref().map(|age| age.value.0);
        Self { cookie: cookie.value.clone(), same_site, max_age, secure: *secure, secret }
    }
}
