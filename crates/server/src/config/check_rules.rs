//! The checks of a route: who may send requests, which and how many.

use std::time::Duration;

use dunlin_http::semantics::{is_field_value, is_token};

use super::at::{At, Place};
use super::file::{self, AuthTable, HstsTable, Route, Server};
use super::handler::Handler;
use super::limits::{limit, throttle};
use super::settings::Report;
use crate::checks::{
    Access, AuthRules, BasicRules, DEFAULT_FIELDS, Forward, ForwardedField, Https, Methods,
    Network, RateRules, Target, ThrottleRules, check_passed_field,
};

/// The checks of a route before its handler responds. Each is absent when the route does not have it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CheckRules {
    pub(crate) https: Option<Https>,
    pub(crate) access: Option<Access>,
    pub(crate) methods: Option<Methods>,
    pub(crate) auth: Option<AuthRules>,
    pub(crate) limits: Vec<RateRules>,
    pub(crate) throttle: Option<ThrottleRules>,
    /// Receives the body before a request waits: the request is for a script.
    pub(crate) receives_body: bool,
}

impl CheckRules {
    /// The checks that `route` has, whose handler is `handler`.
    pub(super) fn read(route: &Route, handler: &Handler, report: Report<'_>) -> Self {
        let access = (route.allow.is_some() || route.deny.is_some()).then(|| {
            if let Some(list) = route.allow.as_ref().filter(|list| list.is_empty()) {
                report(
                    &list.span,
                    "allow: the list is empty, so that every client is rejected".into(),
                );
            }
            let allow = networks("allow", list(&route.allow), report);
            Access::new(&allow, &networks("deny", list(&route.deny), report))
        });
        let methods = methods(route, handler, report);
        let limits = route.limit.iter().flat_map(|limits| &limits.0);
        let limits = limits.map(|table| limit(table, report)).collect();
        let throttle = route.throttle.as_ref().map(|table| throttle(table, report));
        let auth = auth(route, report);
        let may_wait = throttle.as_ref().is_some_and(|throttle| throttle.concurrency.is_some());
        let receives_body = handler.script().is_some() && may_wait;
        let https = https(route, report);
        Self { https, access, methods, auth, limits, throttle, receives_body }
    }

    /// Whether the route has none.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { https, access, methods, auth, limits, throttle, receives_body: _ } = self;
        let limited = throttle.is_some() || !limits.is_empty();
        https.is_none() && access.is_none() && methods.is_none() && auth.is_none() && !limited
    }

    /// Each check by the key of the configuration.
    pub(super) fn describe(&self) -> Vec<(&'static str, String)> {
        let access = self.access.iter().flat_map(Access::describe);
        let methods = self.methods.iter().map(|methods| ("methods", methods.allow().to_owned()));
        let auth = self.auth.iter().map(|auth| ("auth", auth.describe()));
        let limits: Vec<_> = self.limits.iter().map(ToString::to_string).collect();
        let limits = (!limits.is_empty()).then(|| ("limit", limits.join(", ")));
        let throttle = self.throttle.iter().map(|throttle| ("throttle", throttle.to_string()));
        let https = self.https.iter().flat_map(Https::describe);
        https.chain(access).chain(methods).chain(auth).chain(limits).chain(throttle).collect()
    }
}

fn list(texts: &Option<At<Vec<At<String>>>>) -> &[At<String>] {
    texts.as_ref().map_or(&[], |texts| &texts.value)
}

/// The networks of a list.
pub(super) fn networks(key: &str, texts: &[At<String>], report: Report<'_>) -> Vec<Network> {
    let read = |text: &At<String>| {
        let network = text.parse::<Network>();
        network.map_err(|what| report(&text.span, format!("{key}: {what}"))).ok()
    };
    texts.iter().filter_map(read).collect()
}

/// The field by which trusted proxies name the client.
pub(super) fn forwarded_field(server: &Server, report: Report<'_>) -> ForwardedField {
    let Some(name) = &server.forwarded_field else { return ForwardedField::default() };
    if server.trusted_proxies.as_ref().is_none_or(Vec::is_empty) {
        report(&name.span, "forwarded_field does nothing without `trusted_proxies`".into());
    }
    let field = ForwardedField::parse(name);
    field.unwrap_or_else(|what| {
        report(&name.span, format!("forwarded_field: {what}"));
        ForwardedField::default()
    })
}

fn auth(route: &Route, report: Report<'_>) -> Option<AuthRules> {
    let at = route.auth.as_ref()?;
    let file::Auth::Table(table) = &at.value else { return None };
    let mut only_with = |key: &str, set: &[(&str, Option<&Place>)]| {
        for (other, place) in set.iter().filter_map(|(name, place)| Some((name, (*place)?))) {
            report(place, format!("auth: {other} does nothing without `{key}`"));
        }
    };
    match (&table.basic, &table.forward) {
        (Some(path), None) => {
            only_with(
                "forward",
                &[
                    ("user_field", table.user_field.as_ref().map(|at| &at.span)),
                    ("forward_fields", table.forward_fields.as_ref().map(|at| &at.span)),
                    ("forward_authority", table.forward_authority.as_ref().map(|at| &at.span)),
                    ("timeout", table.timeout.as_ref().map(|at| &at.span)),
                ],
            );
            let most = table.attempts.as_ref().map_or(10, |at| at.value);
            if let Some(at) = table.attempts.as_ref().filter(|at| at.value == 0) {
                report(&at.span, "auth: attempts is 0, so that no user could log in".into());
            }
            Some(AuthRules::Basic(BasicRules {
                path: path.value.clone(),
                challenge: challenge(table, report),
                max_attempts: u32::try_from(most).unwrap_or(u32::MAX),
            }))
        }
        (None, Some(forward)) => {
            only_with(
                "basic",
                &[
                    ("realm", table.realm.as_ref().map(|at| &at.span)),
                    ("attempts", table.attempts.as_ref().map(|at| &at.span)),
                ],
            );
            let authority = table.forward_authority.as_ref().map(|path| path.value.clone());
            let target = Target::parse(forward, authority)
                .map_err(|what| report(&forward.span, format!("auth: {what}")))
                .ok()?;
            if let Some(path) = table.forward_authority.as_ref().filter(|_| !target.is_secure()) {
                let what = "auth: forward_authority does nothing without an https URL";
                report(&path.span, what.into());
            }
            let user_field = table.user_field();
            if let Some(at) = table.user_field.as_ref().filter(|at| !is_token(at.as_bytes())) {
                report(&at.span, format!("auth: {:?} is not a field name", at.value));
            }
            let timeout = table.timeout.as_ref().map_or(Duration::from_secs(5), |at| at.value.0);
            let fields = forward_fields(table, user_field, report);
            let user_field = user_field.into();
            Some(AuthRules::Forward(Forward { target, user_field, fields, timeout }))
        }
        (Some(_), Some(forward)) => {
            report(&forward.span, "auth: either `basic` or `forward` decides".into());
            None
        }
        (None, None) => {
            report(&at.span, "auth: write basic = \"USERS\" or forward = \"URL\"".into());
            None
        }
    }
}

/// The names of the client's fields that are passed to the endpoint.
fn forward_fields(table: &AuthTable, user_field: &str, report: Report<'_>) -> Vec<String> {
    let Some(names) = &table.forward_fields else {
        return DEFAULT_FIELDS.map(String::from).into();
    };
    for name in &names.value {
        if let Err(what) = check_passed_field(name, user_field) {
            report(&name.span, format!("auth: forward_fields: {what}"));
        }
    }
    names.iter().map(|name| name.value.clone()).collect()
}

fn challenge(table: &AuthTable, report: Report<'_>) -> String {
    let realm = table.realm.as_ref().map_or("Restricted", |realm| &realm.value);
    if let Some(at) = &table.realm
        && (!is_field_value(at.as_bytes()) || at.contains(['"', '\\']))
    {
        let what = format!("auth: {:?} cannot stand between quotes", at.value);
        report(&at.span, what);
    }
    format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")
}

fn https(route: &Route, report: Report<'_>) -> Option<Https> {
    let redirect = route.redirect_https.as_ref().and_then(|redirect| redirect.value.0);
    let strict = route.hsts.as_ref().map(|hsts| {
        let HstsTable { age, subdomains, preload } = &hsts.value.0;
        // What the list of browsers asks for (hstspreload.org).
        if *preload && !(*subdomains && age.0.as_secs() >= 31_536_000) {
            report(&hsts.span, "hsts: preload needs subdomains = true and an age of 365d".into());
        }
        let directives = [("; includeSubDomains", *subdomains), ("; preload", *preload)];
        let directives = directives.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name);
        format!("max-age={}{}", age.0.as_secs(), directives.collect::<String>())
    });
    (redirect.is_some() || strict.is_some()).then_some(Https { strict, redirect })
}

fn methods(route: &Route, handler: &Handler, report: Report<'_>) -> Option<Methods> {
    let names = route.methods.as_ref()?;
    if names.is_empty() {
        report(&names.span, "methods: the list is empty, so that nothing would be allowed".into());
    }
    for name in &names.value {
        if !is_token(name.as_bytes()) {
            report(&name.span, format!("methods: {:?} is not a method", name.value));
        } else if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let what = format!("methods: {:?} is not {:?}", name.value, name.to_ascii_uppercase());
            report(&name.span, what);
        }
    }
    let names = names.iter().map(|name| name.value.clone()).collect();
    // A `try` list or an index can end in a script, which may support any method.
    let may_reroute = handler.is_files() && (route.r#try.is_some() || route.index.is_some());
    let handled = handler.methods().filter(|_| !may_reroute);
    Some(Methods::new(names, handled))
}
