//! Request methods that a route allows.

use super::{CheckInput, Decision, Rejection};

/// Request methods that a route allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Methods {
    names: Vec<String>,
    /// Value of `Allow`: the allowed methods that the handler implements.
    allow: String,
}

impl Methods {
    /// `GET` implies `HEAD` (RFC 9110 §9.3.2). `handled` are the methods that the route's handler implements;
    /// `None` for all.
    pub(crate) fn new(mut names: Vec<String>, handled: Option<&[&str]>) -> Self {
        let has = |names: &[String], name: &str| names.iter().any(|other| other == name);
        if has(&names, "GET") && !has(&names, "HEAD") {
            names.push("HEAD".into());
        }
        let is_handled =
            |name: &&String| handled.is_none_or(|handled| handled.contains(&name.as_str()));
        let allow: Vec<&str> = names.iter().filter(is_handled).map(String::as_str).collect();
        Self { allow: allow.join(", "), names }
    }

    /// Returns the value of `Allow`.
    pub(crate) fn allow(&self) -> &str {
        &self.allow
    }

    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        let method = input.request.method_text();
        if self.names.iter().any(|name| name.as_bytes() == method) {
            return Decision::Allow;
        }
        Decision::Reject(Rejection::new(405).with("Allow", &self.allow))
    }
}
