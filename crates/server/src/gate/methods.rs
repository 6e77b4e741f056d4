//! Methods that a route allows.

use super::{Asker, Refused, Verdict};

/// Methods that a route allows.
#[derive(Debug)]
pub(crate) struct Methods {
    names: Vec<String>,
    /// The list as `Allow` has it.
    allow: String,
}

impl Methods {
    /// GET brings HEAD with it (RFC 9110 §9.3.2).
    pub(crate) fn new(mut names: Vec<String>) -> Self {
        let has = |names: &[String], name: &str| names.iter().any(|other| other == name);
        if has(&names, "GET") && !has(&names, "HEAD") {
            names.push("HEAD".into());
        }
        Self { allow: names.join(", "), names }
    }

    /// The list as `Allow` has it.
    pub(super) fn allow(&self) -> &str {
        &self.allow
    }

    pub(super) fn ask(&self, asker: &Asker<'_, '_>) -> Verdict {
        let method = asker.request.method_text();
        if self.names.iter().any(|name| name.as_bytes() == method) {
            return Verdict::Pass;
        }
        Verdict::Refuse(Refused::new(405).with("Allow", &self.allow))
    }
}
