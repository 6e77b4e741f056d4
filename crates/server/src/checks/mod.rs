//! Access phase: the checks between a route and its handler. Each check allows a request, rejects it, or
//! makes it wait.

mod access;
mod any;
mod auth;
mod client;
mod cors;
mod fields;
mod forwarding;
mod https;
mod methods;
mod rate_limit;
mod signed;
mod throttle;

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_client::Client;
use dunlin_http::{FieldLines, Request};
use dunlin_limits::rate::RateLimit;
use dunlin_net::blocking::Pool;
use dunlin_telemetry::redact::Redactor;

pub(crate) use self::any::Alternative;
#[cfg(feature = "fleet")]
pub(crate) use self::auth::WINDOW as ATTEMPTS_WINDOW;
pub(crate) use self::auth::{
    Attempts, Auth, Basic, Forward, Jwt, Keys, Logins, MAX_BODY, UserFile, read_keys,
};
pub(crate) use self::client::resolve_client;
pub(crate) use self::cors::add_fields as add_cors_fields;
pub(crate) use self::https::{add_strict, to_https};
pub(crate) use self::throttle::{Limited, RouteCounts, Throttle};
use dunlin_config::{AccessRules, ComputedField, CorsRules, HttpsRules, MethodRules, SignedRules};
use dunlin_exchange::{RequestContext, Response};

/// The checks of a route. A check that the route does not configure is absent.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) https: Option<HttpsRules>,
    pub(crate) access: Option<AccessRules>,
    pub(crate) methods: Option<MethodRules>,
    pub(crate) auth: Option<Auth>,
    /// Conditions of which one must hold.
    pub(crate) any: Option<Arc<[Alternative]>>,
    /// Response fields that depend on the request.
    pub(crate) fields: Vec<ComputedField>,
    pub(crate) cors: Option<CorsRules>,
    pub(crate) signed: Option<SignedRules>,
    pub(crate) limits: Vec<Arc<RateLimit>>,
    pub(crate) throttle: Option<Arc<Throttle>>,
    /// Requests go to scripts and may queue for a permit, so their bodies are received first.
    pub(crate) receives_body: bool,
}

/// The checks in the order in which they run.
const ORDER: [fn(&Checks, &CheckInput<'_, '_>) -> Decision; 13] = [
    // Rejections have them, too.
    |checks, input| match checks.fields.is_empty() {
        true => Decision::Allow,
        false => fields::check(&checks.fields, input),
    },
    // Rejections have its fields, too.
    |checks, input| checks.cors.as_ref().map_or(Decision::Allow, |rules| cors::check(rules, input)),
    // Redirect to TLS before any check that could request credentials in clear text.
    |checks, input| {
        checks.https.as_ref().map_or(Decision::Allow, |rules| https::check(rules, input))
    },
    |checks, input| {
        checks.access.as_ref().map_or(Decision::Allow, |rules| access::check(rules, input))
    },
    // Preflights have no credentials, and another method than the request that follows.
    |checks, input| {
        checks.cors.as_ref().map_or(Decision::Allow, |rules| cors::preflight(rules, input))
    },
    |checks, input| {
        checks.signed.as_ref().map_or(Decision::Allow, |rules| signed::check(rules, input))
    },
    |checks, input| {
        checks.methods.as_ref().map_or(Decision::Allow, |rules| methods::check(rules, input))
    },
    |checks, input| checks.auth.as_ref().map_or(Decision::Allow, |check| check.check(input)),
    |checks, input| checks.any.as_ref().map_or(Decision::Allow, |all| any::check(all, input)),
    |checks, input| rate_limit::check(&checks.limits, input),
    // A slow upload must not hold a permit.
    |checks, input| match checks.receives_body && input.at_once.is_none() {
        true => Decision::ReceiveBody,
        false => Decision::Allow,
    },
    |checks, input| checks.throttle.as_ref().map_or(Decision::Allow, |check| check.check(input)),
    |checks, input| {
        checks.throttle.as_ref().map_or(Decision::Allow, |check| check.check_bandwidth(input))
    },
];

/// Index of the fields for scripts of other origins in [`ORDER`], and that of their preflights.
const CORS: usize = 1;
const PREFLIGHT: usize = 4;
/// Index of the redirect to TLS in [`ORDER`].
const HTTPS: usize = 2;
/// Index of the allowed methods in [`ORDER`].
const METHODS: usize = 6;
/// Index of the rate limits in [`ORDER`].
const LIMITS: usize = 9;
/// Index in [`ORDER`] from which all checks belong to the throttle.
const THROTTLE: usize = LIMITS + 1;

/// The checks that apply to a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection {
    cors: bool,
    https: bool,
    methods: bool,
    limits: bool,
    throttle: bool,
}

impl Selection {
    /// All checks of the route.
    pub(crate) const ALL: Self =
        Self { cors: true, https: true, methods: true, limits: true, throttle: true };
    /// The checks that identify the client: access, signatures and authentication.
    pub(crate) const IDENTITY: Self =
        Self { cors: false, https: false, methods: false, limits: false, throttle: false };

    /// Returns the checks of the target route of an internal redirect. `before` are the checks of the original route: limits
    /// and the rules for other origins apply once per request.
    pub(crate) fn after_redirect(before: Option<&Checks>) -> Self {
        Self {
            cors: before.is_none_or(|checks| checks.cors.is_none()),
            https: false,
            methods: true,
            limits: before.is_none_or(|checks| checks.limits.is_empty()),
            throttle: before.is_none_or(|checks| checks.throttle.is_none()),
        }
    }

    #[inline]
    fn has(self, number: usize) -> bool {
        match number {
            CORS | PREFLIGHT => self.cors,
            HTTPS => self.https,
            METHODS => self.methods,
            LIMITS => self.limits,
            THROTTLE.. => self.throttle,
            _ => true,
        }
    }
}

/// The request that a check examines.
pub(crate) struct CheckInput<'a, 'r> {
    pub(crate) services: &'a Rc<dyn Services>,
    pub(crate) request: &'a Request<'r>,
    pub(crate) context: &'a Rc<RequestContext>,
    /// Fields of the site in which authentication has what handlers get of a client.
    pub(crate) hidden: &'a [String],
    /// The clock is read once for all checks.
    pub(crate) now: Instant,
    /// Length of the response body, if it is in memory and sent before the next request is read.
    pub(crate) at_once: Option<u64>,
}

/// The services of the worker that checks need.
pub(crate) trait Services {
    /// Returns the threads that compare passwords.
    fn passwords(&self) -> &Pool;

    /// Returns the client for requests to other servers.
    fn client(&self) -> &Client;

    /// Returns what removes secrets from targets that are logged.
    fn redactor(&self) -> &Redactor;

    /// Responds to a request that the server makes itself: `message` is a complete HTTP/1 message, on behalf of the request
    /// of `context`.
    fn subrequest(
        self: Rc<Self>,
        context: Rc<RequestContext>,
        message: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = io::Result<Response>>>>;
}

/// Result of a check.
pub(crate) enum Decision {
    Allow,
    Reject(Rejection),
    Wait(PendingDecision),
    /// Receive the request body before the next check runs.
    ReceiveBody,
}

/// Future of a check that makes the request wait. It resolves when the request is allowed or rejected.
pub(crate) type PendingDecision = Pin<Box<dyn Future<Output = Result<(), Rejection>>>>;

/// Response of a check that rejects the request.
#[derive(Debug)]
pub(crate) struct Rejection {
    pub(crate) status: u16,
    /// Additional response fields.
    pub(crate) fields: FieldLines,
    /// Complete response, which replaces the route's error page for `status`.
    pub(crate) response: Option<Box<Response>>,
}

impl Rejection {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, fields: FieldLines::default(), response: None }
    }

    /// Adds a response field.
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(name, value);
        self
    }
}

impl Checks {
    /// Runs the `selected` checks from index `first` until one does not allow the request. Returns the index of that check:
    /// when it makes the request wait, the caller continues behind it.
    #[inline]
    pub(crate) fn check(
        &self,
        input: &CheckInput<'_, '_>,
        selected: Selection,
        first: usize,
    ) -> (usize, Decision) {
        for (number, check) in ORDER.iter().enumerate().skip(first) {
            if !selected.has(number) {
                continue;
            }
            match check(self, input) {
                Decision::Allow => {}
                decision => return (number, decision),
            }
        }
        (ORDER.len(), Decision::Allow)
    }
}
