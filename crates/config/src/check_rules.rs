//! The checks of a route: who may send requests, which and how many.

use super::access::AccessRules;
use super::auth::{AuthRules, auth};
use super::file::Route;
use super::handler::Handler;
use super::https::HttpsRules;
use super::methods::MethodRules;
use super::rate_limit::{RateRules, limit};
use super::report::Report;
use super::throttle::{ThrottleRules, throttle};

/// The checks of a route before its handler responds. A check that the route does not have is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckRules {
    /// Redirect to TLS.
    pub https: Option<HttpsRules>,
    /// Allowed and denied networks.
    pub access: Option<AccessRules>,
    /// Allowed methods.
    pub methods: Option<MethodRules>,
    /// Authentication.
    pub auth: Option<AuthRules>,
    /// Request rates.
    pub limits: Vec<RateRules>,
    /// Concurrency and bandwidth.
    pub throttle: Option<ThrottleRules>,
    /// Receive the body before a request waits, because the request is for a script.
    pub receives_body: bool,
}

impl CheckRules {
    /// Reads the checks of `route`, whose handler is `handler`.
    pub(super) fn read(route: &Route, handler: &Handler, report: Report<'_>) -> Self {
        let access = AccessRules::read(route, report);
        let methods = MethodRules::read(route, handler, report);
        let limits = route.limit.iter().flat_map(|limits| &limits.0);
        let limits = limits.map(|table| limit(table, report)).collect();
        let throttle = route.throttle.as_ref().map(|table| throttle(table, report));
        let auth = auth(route, report);
        let may_wait = throttle.as_ref().is_some_and(|throttle| throttle.concurrency.is_some());
        let receives_body = handler.script().is_some() && may_wait;
        let https = HttpsRules::read(route, report);
        Self { https, access, methods, auth, limits, throttle, receives_body }
    }

    /// Returns `true` if the route has no checks.
    pub fn is_empty(&self) -> bool {
        let Self { https, access, methods, auth, limits, throttle, receives_body: _ } = self;
        let limited = throttle.is_some() || !limits.is_empty();
        https.is_none() && access.is_none() && methods.is_none() && auth.is_none() && !limited
    }

    /// Describes each check, keyed by configuration key.
    pub(super) fn describe(&self) -> Vec<(&'static str, String)> {
        let access = self.access.iter().flat_map(AccessRules::describe);
        let methods = self.methods.iter().map(|methods| ("methods", methods.allow().to_owned()));
        let auth = self.auth.iter().map(|auth| ("auth", auth.describe()));
        let limits: Vec<_> = self.limits.iter().map(ToString::to_string).collect();
        let limits = (!limits.is_empty()).then(|| ("limit", limits.join(", ")));
        let throttle = self.throttle.iter().map(|throttle| ("throttle", throttle.to_string()));
        let https = self.https.iter().flat_map(HttpsRules::describe);
        https.chain(access).chain(methods).chain(auth).chain(limits).chain(throttle).collect()
    }
}
