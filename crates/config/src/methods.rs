//! The key `methods`: request methods that a route allows.

use dunlin_http::semantics::is_token;

use super::file::Route;
use super::handler::Handler;
use super::report::Report;

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
        if names.is_empty() {
            let what = "methods: the list is empty, so that nothing would be allowed";
            report(&names.span, what.into());
        }
        for name in &names.value {
            if !is_token(name.as_bytes()) {
                report(&name.span, format!("methods: {:?} is not a method", name.value));
            } else if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
                let what =
                    format!("methods: {:?} is not {:?}", name.value, name.to_ascii_uppercase());
                report(&name.span, what);
            }
        }
        let names = names.iter().map(|name| name.value.clone()).collect();
        // A `try` list or an index can end in a script, which may support any method.
        let may_reroute = handler.is_files() && (route.r#try.is_some() || route.index.is_some());
        let handled = handler.methods().filter(|_| !may_reroute);
        Some(Self::new(names, handled))
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
