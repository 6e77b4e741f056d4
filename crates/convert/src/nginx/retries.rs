//! `proxy_next_upstream`: when another upstream gets a request.

use super::scope::Scope;
use super::server::Builder;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Sets when another upstream gets a request.
    pub(super) fn retries(&mut self, kind: &str, scope: &Scope<'t>, proxy: &mut Value) {
        let mut retry = Value::Table(Vec::new());
        let mut is_off = false;
        if let Some(directive) = scope.get(&format!("{kind}_next_upstream")) {
            let words = &directive.words;
            is_off = directive.word(0) == "off";
            let status = |word: &String| word.strip_prefix("http_")?.parse().ok();
            let statuses: Vec<Value> = words.iter().filter_map(status).map(Value::Number).collect();
            let is_plain = statuses.is_empty() && !is_off;
            if !statuses.is_empty() {
                retry.set("statuses", Value::List(statuses));
            }
            match is_plain {
                _ if words.iter().any(|word| word == "non_idempotent") => {
                    let what = "a request that was sent goes to another upstream if its method is idempotent";
                    self.context.report.differs(directive, what);
                }
                true => {
                    let what = "another upstream gets the request after errors and times";
                    self.context.report.not_needed(directive, what);
                }
                false => self.context.report.carried(directive),
            }
        }
        if let Some(directive) = scope.get(&format!("{kind}_next_upstream_tries")) {
            self.context.report.carried(directive);
            match directive.word(0).parse::<u64>() {
                Ok(1) => is_off = true,
                Ok(tries) if tries > 1 => {
                    retry.set("attempts", Value::Number((tries - 1).min(10)));
                }
                _ => {}
            }
        }
        if let Some(directive) = scope.get(&format!("{kind}_next_upstream_timeout")) {
            self.context.report.not_needed(directive, "each attempt has the times of the proxy");
        }
        if is_off {
            proxy.set("retry", Value::Switch(false));
        } else if !retry.entries().is_empty() {
            proxy.set("retry", retry);
        }
    }
}
