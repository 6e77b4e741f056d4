//! Requests to upstreams that differ from those of clients: `proxy_method`, `proxy_set_body`, `proxy_pass_request_body` and
//! `proxy_pass_request_headers`.

use super::scope::Scope;
use super::server::Builder;
use super::variables::constant;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Sets the method, the body and the fields that upstreams get in place of those of the client.
    pub(super) fn request_of_own(&mut self, kind: &str, scope: &Scope<'t>, proxy: &mut Value) {
        let name = |key: &str| format!("{kind}_{key}");
        if let Some(directive) = scope.get(&name("pass_request_headers")) {
            self.context.report.carried(directive);
            if directive.word(0) == "off" {
                proxy.set("pass_fields", Value::Switch(false));
            }
        }
        if let Some(directive) = scope.get(&name("pass_request_body")) {
            self.context.report.carried(directive);
            if directive.word(0) == "off" {
                proxy.set("body", Value::text(""));
            }
        }
        for (directive, key) in [("method", "method"), ("set_body", "body")] {
            let Some(directive) = scope.get(&name(directive)) else { continue };
            let constants = self.constants(scope);
            match constant(directive.word(0), &constants) {
                Ok(method) if key == "method" && matches!(&*method, "HEAD" | "head") => {
                    let what = "a response to HEAD has no body for clients: the upstream gets the method of the client";
                    self.context.report.lost(directive, what);
                }
                Ok(text) => {
                    self.context.report.carried(directive);
                    let text = if key == "method" { text.to_ascii_uppercase() } else { text };
                    proxy.set(key, Value::text(text));
                }
                Err(name) => {
                    let what = format!(
                        "the upstream gets the {key} of the client: {name} depends on the request"
                    );
                    self.context.report.lost(directive, what);
                }
            }
        }
    }
}
