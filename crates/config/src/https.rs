//! The keys `redirect_https` and `hsts`: TLS requirements of a route.

use super::file::{HstsTable, Route};
use super::report::Report;

/// TLS requirements of a route: redirect to `https` and `Strict-Transport-Security`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsRules {
    /// The value of `Strict-Transport-Security` (RFC 6797 §6.1).
    pub strict: Option<String>,
    /// The port to which requests without TLS are redirected.
    pub redirect: Option<u16>,
}

impl HttpsRules {
    /// Checks the keys `redirect_https` and `hsts` of a route; `None` if they require nothing.
    pub(crate) fn read(route: &Route, report: Report<'_>) -> Option<Self> {
        let redirect = route.redirect_https.as_ref().and_then(|redirect| redirect.value.0);
        let strict = route.hsts.as_ref().map(|hsts| {
            let HstsTable { age, subdomains, preload } = &hsts.value.0;
            // Requirements of the preload list of browsers (hstspreload.org).
            if *preload && !(*subdomains && age.0.as_secs() >= 31_536_000) {
                let what = "hsts: preload needs subdomains = true and an age of 365d";
                report(&hsts.span, what.into());
            }
            let directives = [("; includeSubDomains", *subdomains), ("; preload", *preload)];
            let directives = directives.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name);
            format!("max-age={}{}", age.0.as_secs(), directives.collect::<String>())
        });
        (redirect.is_some() || strict.is_some()).then_some(Self { strict, redirect })
    }

    /// Describes the requirements, keyed by configuration key.
    pub(crate) fn describe(&self) -> impl Iterator<Item = (&'static str, String)> {
        let strict = self.strict.iter().map(|value| ("hsts", value.clone()));
        strict.chain(self.redirect.map(|port| ("redirect_https", format!("to port {port}"))))
    }
}
