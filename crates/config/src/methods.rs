//! The key `methods`: request methods that a route allows.

use dunlin_http::semantics::is_token;

use super::file::Route;
use super::handler::Handler;
use super::report::Report;
use super::spanned::{Span, Spanned};

/// Request methods that a route allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodRules {
    names: Vec<String>,
    /// Value of `Allow`: the allowed methods that the handler implements.
    allow: String,
}

impl MethodRules {
    /// `GET` implies `HEAD` (RFC 9110 §9.3.2). `handled` are the methods that the route's handler implements;
    /// `None` for all.
    fn new(mut names: Vec<String>, handled: Option<&[&str]>) -> Self {
        let has = |names: &[String], name: &str| names.iter().any(|other| other == name);
        if has(&names, "GET") && !has(&names, "HEAD") {
            names.push("HEAD".into());
        }
        let is_handled =
            |name: &&String| handled.is_none_or(|handled| handled.contains(&name.as_str()));
        let allow: Vec<&str> = names.iter().filter(is_handled).map(String::as_str).collect();
        Self { allow: allow.join(", "), names }
    }

    /// Checks the key `methods` of a route whose handler is `handler`; `None` if it is absent.
    pub(crate) fn read(route: &Route, handler: &Handler, report: Report<'_>) -> Option<Self> {
        let names = route.methods.as_ref()?;
        check(
            names.iter().map(|name| (name.as_str(), &name.span)),
            (&names.span, "methods"),
            report,
        );
        let names = names.iter().map(|name| name.value.clone()).collect();
        let has_dav = route.dav.as_ref().is_some_and(|dav| dav.is_on());
        // A `try` list or an index can end in a script, which may support any method.
        let may_reroute = handler.is_files() && (route.r#try.is_some() || route.index.is_some());
        let handled = handler.methods(has_dav).filter(|_| !may_reroute);
        Some(Self::new(names, handled))
    }

    /// Checks the methods of the key `key`, whatever the handler.
    pub(crate) fn of(names: &Spanned<Vec<String>>, key: &str, report: Report<'_>) -> Self {
        let all = names.iter().map(|name| (name.as_str(), &names.span));
        check(all, (&names.span, key), report);
        Self::new(names.value.clone(), None)
    }

    /// Returns the value of `Allow`.
    pub fn allow(&self) -> &str {
        &self.allow
    }

    /// Returns `true` if requests with `method` are allowed.
    pub fn allows(&self, method: &[u8]) -> bool {
        self.names.iter().any(|name| name.as_bytes() == method)
    }
}

fn check<'n>(
    names: impl Iterator<Item = (&'n str, &'n Span)>,
    (whole, key): (&Span, &str),
    report: Report<'_>,
) {
    let mut is_empty = true;
    for (name, span) in names {
        is_empty = false;
        if !is_token(name.as_bytes()) {
            report(span, format!("{key}: {name:?} is not a method"));
        } else if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            report(span, format!("{key}: {name:?} is not {:?}", name.to_ascii_uppercase()));
        }
    }
    if is_empty {
        report(whole, format!("{key}: the list is empty, so that nothing would be allowed"));
    }
}
