//! The checks of a route: who may send requests, which and how many.

use super::access::{AccessRules, Alternative};
use super::auth::{AuthRules, auth};
use super::cors::CorsRules;
use super::fields::ComputedField;
use super::file::Route;
use super::handler::Handler;
use super::https::HttpsRules;
use super::map::Maps;
use super::methods::MethodRules;
use super::rate_limit::{RateRules, limit};
use super::report::Report;
use super::signed::SignedRules;
use super::throttle::{ThrottleRules, throttle};

/// The checks of a route before its handler responds. A check that the route does not have is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CheckRules {
    /// Redirect to TLS.
    pub https: Option<HttpsRules>,
    /// Allowed and denied networks.
    pub access: Option<AccessRules>,
    /// Allowed methods.
    pub methods: Option<MethodRules>,
    /// Authentication.
    pub auth: Option<AuthRules>,
    /// Conditions of which one must hold; empty if there are none.
    pub any: Vec<Alternative>,
    /// Response fields whose values depend on the request.
    pub fields: Vec<ComputedField>,
    /// Access of scripts of other origins.
    pub cors: Option<CorsRules>,
    /// Signatures of links.
    pub signed: Option<SignedRules>,
    /// Request rates.
    pub limits: Vec<RateRules>,
    /// Concurrency and bandwidth.
    pub throttle: Option<ThrottleRules>,
    /// Receive the body before a request waits, because the request is for a script.
    pub receives_body: bool,
}

impl CheckRules {
    /// Reads the checks of `route`, whose handler is `handler`.
    pub(super) fn read(route: &Route, handler: &Handler, maps: &Maps, report: Report<'_>) -> Self {
        let access = AccessRules::read(&route.allow, &route.deny, report);
        let methods = MethodRules::read(route, handler, report);
        let limits = route.limit.iter().flat_map(|limits| &limits.0);
        let limits = limits.map(|table| limit(table, report)).collect();
        let throttle = route.throttle.as_ref().map(|table| throttle(table, report));
        let auth = route.auth.as_ref().and_then(|at| auth(at, report));
        let any = Alternative::read_all(route, report);
        let cors = CorsRules::read(route, methods.as_ref(), report);
        let signed = SignedRules::read(route, report);
        let may_wait = throttle.as_ref().is_some_and(|throttle| throttle.concurrency.is_some());
        let receives_body = handler.script().is_some() && may_wait;
        let https = HttpsRules::read(route, report);
        let fields = ComputedField::read(route, maps, report);
        Self {
            https,
            access,
            methods,
            auth,
            any,
            fields,
            cors,
            signed,
            limits,
            throttle,
            receives_body,
        }
    }

    /// Returns `true` if the route has no checks.
    pub fn is_empty(&self) -> bool {
        let Self {
            https,
            access,
            methods,
            auth,
            any,
            fields,
            cors,
            signed,
            limits,
            throttle,
            receives_body: _,
        } = self;
        let limited = throttle.is_some() || !limits.is_empty();
        let has_access = access.is_some() || auth.is_some() || !any.is_empty() || signed.is_some();
        fields.is_empty()
            && https.is_none()
            && methods.is_none()
            && cors.is_none()
            && !has_access
            && !limited
    }

    /// Returns `true` if all clients get the same responses: none is rejected for what it is or knows, and no field that decides about
    /// caches depends on the request.
    pub(super) fn are_open(&self) -> bool {
        let decides = |field: &ComputedField| {
            ["cache-control", "set-cookie", "vary"].contains(&&*field.name.to_ascii_lowercase())
        };
        self.access.is_none()
            && self.auth.is_none()
            && self.any.is_empty()
            && self.signed.is_none()
            && !self.fields.iter().any(decides)
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
        let any: Vec<_> = self.any.iter().map(Alternative::describe).collect();
        let any = (!any.is_empty()).then(|| ("any", any.join("; or ")));
        let cors = self.cors.iter().map(|cors| ("cors", cors.describe()));
        let signed = self.signed.iter().map(|signed| ("signed", signed.describe()));
        let access = access.chain(methods).chain(auth).chain(any).chain(cors).chain(signed);
        https.chain(access).chain(limits).chain(throttle).collect()
    }
}
