//! Caches of responses: `proxy_cache` and its relatives.

use super::assemble::Draft;
use super::condition::{self, Condition};
use super::location::passes;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::units::{shown_size, shown_time, size, time};
use crate::keys::Keys;
use crate::value::Value;

/// Variables of requests that no cache serves anyway.
const USUAL: [&str; 4] =
    ["$http_authorization", "$http_pragma", "$http_cache_control", "$http_upgrade"];

impl<'t> Builder<'_, 't> {
    /// Returns the conditions under which one of which has to hold for a variable to be neither empty nor `0`; `None` if one
    /// has no counterpart.
    fn cache_condition(&mut self, variable: &str, scope: &Scope<'t>) -> Option<Vec<Value>> {
        let constants = self.constants(scope);
        let words = [variable.to_owned()];
        let mapped = self.context.map_condition(&words, &constants);
        let condition =
            mapped.or_else(|| condition::read(&words, &constants).ok().map(|read| read.condition));
        match condition {
            Some(Condition::When(when)) => Some(vec![when]),
            Some(Condition::Fixed(false)) => Some(Vec::new()),
            _ => None,
        }
    }

    /// Returns routes without the cache for requests that pass it by.
    pub(super) fn uncached(&mut self, location: &Location<'t>, keys: &Keys) -> Vec<Draft> {
        let mut drafts: Vec<Draft> = Vec::new();
        if keys.get("cache").is_none() {
            return drafts;
        }
        let Some((_, kind)) = passes(&location.scope) else { return drafts };
        for name in ["cache_bypass", "no_cache"] {
            let Some(directive) = location.scope.get(&format!("{kind}_{name}")) else { continue };
            for word in directive.words.iter().filter(|word| !USUAL.contains(&word.as_str())) {
                for when in self.cache_condition(word, &location.scope).into_iter().flatten() {
                    if drafts.iter().any(|draft| draft.when.as_ref() == Some(&when)) {
                        continue;
                    }
                    let mut keys = keys.clone();
                    drop(keys.remove("cache"));
                    let comment = format!("{}: not cached", location.comment());
                    drafts.push(Draft::new(comment, location.paths.clone(), Some(when), keys));
                }
            }
        }
        drafts
    }

    pub(super) fn response_cache(&mut self, kind: &str, scope: &Scope<'t>, keys: &mut Keys) {
        let name = |key: &str| format!("{kind}_{key}");
        let Some(cache) = scope.get(&name("cache")) else { return };
        if cache.word(0) == "off" {
            return self.context.report.carried(cache);
        }
        self.context.report.differs(cache, "HEAD is passed on as it is, and responses are kept for each host, and not for requests with Authorization");
        if let Some(path) = self.context.cache_paths.get(cache.word(0)).copied() {
            self.context.report.differs(
                path,
                "one directory and one bound are for all routes, and what is used least makes room",
            );
            let folder = self.context.in_prefix(path.word(0));
            self.context.document.set("server.cache", "directory", Value::text(folder));
            if let Some(bytes) =
                path.words.iter().find_map(|word| size(word.strip_prefix("max_size=")?))
            {
                self.context.document.set("server.cache", "disk", Value::text(shown_size(bytes)));
            }
        }
        let mut table = Value::table([("responses", Value::Switch(true))]);
        let mut lifetimes = Value::Table(Vec::new());
        for valid in scope.all(&[&name("cache_valid")]) {
            let Some((last, statuses)) = valid.words.split_last() else { continue };
            let Some(lifetime) = time(last) else { continue };
            let statuses = if statuses.is_empty() {
                ["200", "301", "302"].map(str::to_owned).to_vec()
            } else {
                statuses.to_vec()
            };
            self.context.report.carried(valid);
            if statuses.iter().any(|status| status == "206") {
                let what = "responses with status 206 are not stored";
                self.context.report.differs(valid, what);
            }
            statuses
                .iter()
                .filter(|status| *status != "206")
                .for_each(|status| lifetimes.set(status, Value::text(shown_time(lifetime))));
        }
        if !lifetimes.entries().is_empty() {
            table.set("lifetime", lifetimes);
        }
        keys.set("cache", table);
        if let Some(key) = scope.get(&name("cache_key")) {
            let text: String = key.words.join("");
            let usual = [
                "$scheme$proxy_host$request_uri",
                "$scheme$proxy_host$uri$is_args$args",
                "$scheme$request_method$host$request_uri",
                "$scheme$host$request_uri",
                "$host$request_uri",
                "$request_uri",
            ];
            match usual.contains(&text.as_str()) {
                true => self
                    .context
                    .report
                    .not_needed(key, "responses are kept by host, path and query"),
                false => self.context.report.differs(
                    key,
                    "responses are kept by host, path and query, and by what `Vary` names",
                ),
            }
        }
        for key in ["cache_bypass", "no_cache"] {
            if let Some(directive) = scope.get(&name(key)) {
                let text = directive.words.join(" ");
                let own: Vec<&String> =
                    directive.words.iter().filter(|word| !USUAL.contains(&word.as_str())).collect();
                match own.iter().all(|word| self.cache_condition(word, scope).is_some()) {
                    _ if own.is_empty() => self.context.report.not_needed(
                        directive,
                        "as RFC 9111 has it, and requests that upgrade are not cached",
                    ),
                    true => self.context.report.differs(directive, "requests for which it holds neither get a stored response, nor is theirs stored"),
                    false => self.context.report.lost(directive, format!("{text}: responses are cached by their own fields, whatever the request has")),
                }
            }
        }
        if let Some(stale) = scope.get(&name("cache_use_stale")) {
            match stale.word(0) {
                "off" => self.context.report.carried(stale),
                _ => self.context.report.differs(stale, "stale responses are sent where `stale-if-error` and `stale-while-revalidate` of `Cache-Control` permit it"),
            }
        }
    }
}
