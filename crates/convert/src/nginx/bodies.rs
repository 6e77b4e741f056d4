//! What changes bodies and files: `sub_filter`, `ssi` and `dav_methods`.

use super::scope::Scope;
use super::server::Builder;
use super::variables::{Constants, Part, parts, with_constants};
use crate::keys::Keys;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Sets what changes the bodies of responses.
    pub(super) fn bodies(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let is_once = scope.word("sub_filter_once") != Some("off");
        let types = scope.get("sub_filter_types").map(|types| {
            let html = "text/html".to_owned();
            Value::list(
                types
                    .words
                    .iter()
                    .cloned()
                    .chain((!types.words.iter().any(|word| word == "*")).then_some(html)),
            )
        });
        let mut list = Vec::new();
        let filters = scope.all(&["sub_filter"]);
        let constants = if filters.is_empty() { Constants::new() } else { self.constants(scope) };
        for directive in filters {
            let to = replacement(&with_constants(directive.word(1), &constants));
            let (from, Some(to)) = (directive.word(0), to) else {
                self.context
                    .report
                    .lost(directive, "the text depends on the request: it is not replaced");
                continue;
            };
            if from.is_empty() || super::variables::has_variable(from) {
                self.context.report.lost(
                    directive,
                    "the text that is looked for depends on the request: it is not replaced",
                );
                continue;
            }
            self.context.report.carried(directive);
            let mut entry = Value::table([("from", Value::text(from)), ("to", Value::text(to))]);
            if is_once {
                entry.set("once", Value::Switch(true));
            }
            if let Some(types) = &types {
                entry.set("types", types.clone());
            }
            list.push(entry);
        }
        for name in ["sub_filter_once", "sub_filter_types"] {
            if let Some(directive) = scope.get(name) {
                self.context.report.carried(directive);
            }
        }
        if !list.is_empty() {
            keys.set("substitute", Value::List(list));
        }
        if let Some(directive) = scope.get("ssi") {
            self.context.report.carried(directive);
            if directive.word(0) == "on" {
                keys.set("ssi", self.included(scope));
            }
        }
    }

    fn included(&mut self, scope: &Scope<'t>) -> Value {
        let Some(types) = scope.get("ssi_types") else { return Value::Switch(true) };
        self.context.report.carried(types);
        let all = ["text/html".to_owned()].into_iter().chain(types.words.iter().cloned());
        Value::table([("types", Value::list(all))])
    }

    /// Lets clients change files.
    pub(super) fn webdav(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut methods: Vec<String> = Vec::new();
        for directive in
            scope.all(&["dav_methods"]).into_iter().chain(scope.all(&["dav_ext_methods"]))
        {
            self.context.report.carried(directive);
            let own = directive.words.iter().filter(|word| *word != "off");
            // They are there with every set of methods.
            methods.extend(
                own.filter(|word| !matches!(word.as_str(), "PROPFIND" | "OPTIONS")).cloned(),
            );
        }
        if !methods.is_empty() {
            keys.set("dav", Value::table([("methods", Value::list(methods))]));
            // It follows none.
            keys.set("symlinks", Value::text("deny"));
        }
        for name in ["create_full_put_path", "min_delete_depth", "dav_access"] {
            if let Some(directive) = scope.get(name) {
                self.context.report.differs(directive, "a PUT into a directory that is not there gets 409, and files have the mode of the server");
            }
        }
    }
}

/// Returns the text that replaces another, with placeholders; `None` if it depends on anything but the host and the scheme.
fn replacement(text: &str) -> Option<String> {
    let mut to = String::new();
    for part in parts(text) {
        match part {
            Part::Text(text) if text.contains(['{', '}']) => return None,
            Part::Text(text) => to.push_str(text),
            Part::Variable("host" | "http_host") => to.push_str("{host}"),
            Part::Variable("scheme") => to.push_str("{scheme}"),
            Part::Variable(_) => return None,
        }
    }
    Some(to)
}
