//! `proxy_redirect`, `proxy_cookie_domain`, `proxy_cookie_path` and `proxy_cookie_flags`: what is replaced in responses of upstreams.

use super::assemble::Paths;
use super::parse::Directive;
use super::scope::Scope;
use super::server::Builder;
use super::variables::{Constants, constant, has_variable};
use crate::value::Value;

/// The directives of cookies, with the keys for them.
const COOKIES: [(&str, &str); 2] =
    [("cookie_domain", "replace_cookie_domain"), ("cookie_path", "replace_cookie_path")];

impl<'t> Builder<'_, 't> {
    /// Sets what is replaced in responses of the upstreams of a pass.
    pub(super) fn references(
        &mut self,
        pass: &'t Directive,
        kind: &str,
        scope: &Scope<'t>,
        paths: &Paths,
        proxy: &mut Value,
    ) {
        let constants = self.constants(scope);
        let redirects = scope.all(&[&format!("{kind}_redirect")]);
        self.redirects(pass, &redirects, &constants, paths, proxy);
        for (name, key) in COOKIES {
            let all = scope.all(&[&format!("{kind}_{name}")]);
            let mut entries = Vec::new();
            for directive in all {
                match directive.word(0) {
                    "off" => self.context.report.carried(directive),
                    from => entries.extend(self.replacement(directive, from, &constants)),
                }
            }
            if !entries.is_empty() {
                proxy.set(key, Value::List(entries));
            }
        }
        self.cookie_flags(kind, scope, &constants, proxy);
    }

    fn redirects(
        &mut self,
        pass: &'t Directive,
        all: &[&'t Directive],
        constants: &Constants,
        paths: &Paths,
        proxy: &mut Value,
    ) {
        let is_list = all.iter().any(|directive| !matches!(directive.word(0), "off" | "default"));
        let mut entries = Vec::new();
        for &directive in all {
            match directive.word(0) {
                "off" => {
                    self.context.report.carried(directive);
                    if proxy.get("strip").is_some() {
                        proxy.set("rewrite_location", Value::Switch(false));
                    }
                }
                "default" => {
                    self.context.report.carried(directive);
                    // What nginx replaces by itself.
                    let url = constant(pass.word(0), constants).ok();
                    if let (Paths::Prefix(prefix) | Paths::Exact(prefix), Some(url)) = (paths, url)
                    {
                        let to = Value::text(prefix.clone());
                        entries.push(Value::table([("from", Value::text(url)), ("to", to)]));
                    }
                }
                from => entries.extend(self.replacement(directive, from, constants)),
            }
        }
        if is_list && !entries.is_empty() {
            proxy.set("replace_location", Value::List(entries));
        }
    }

    /// Returns an entry of a list of replacements; `None` if it has no counterpart.
    fn replacement(
        &mut self,
        directive: &'t Directive,
        from: &str,
        constants: &Constants,
    ) -> Option<Value> {
        let (sign, text) = match (from.strip_prefix("~*"), from.strip_prefix('~')) {
            (Some(text), _) => ("~(?i)", text),
            (None, Some(text)) => ("~", text),
            (None, None) => ("", from),
        };
        let plain = match sign {
            "" => constant(text, constants),
            // A `$` is the end of the text.
            _ => Ok(text.to_owned()),
        };
        let is_expression = !sign.is_empty();
        let group = |name: &str| {
            let is_group =
                is_expression && !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
            is_group.then(|| format!("{{{name}}}"))
        };
        let to = self.context.template(directive.word(1), constants, group);
        match (plain, to) {
            (Ok(plain), Ok(to)) => {
                self.context.report.carried(directive);
                let from = Value::text(format!("{sign}{plain}"));
                Some(Value::table([("from", from), ("to", Value::text(to))]))
            }
            (Err(name), _) | (_, Err(name)) => {
                let what = format!("{from} is not replaced: {name} has no placeholder there");
                self.context.report.lost(directive, what);
                None
            }
        }
    }

    fn cookie_flags(
        &mut self,
        kind: &str,
        scope: &Scope<'t>,
        constants: &Constants,
        proxy: &mut Value,
    ) {
        let mut entries = Vec::new();
        for directive in scope.all(&[&format!("{kind}_cookie_flags")]) {
            if directive.word(0) == "off" {
                self.context.report.carried(directive);
                continue;
            }
            let name = match directive.word(0).strip_prefix('~') {
                Some(expression) => Ok(format!("~{}", expression.trim_start_matches('*'))),
                None => constant(directive.word(0), constants),
            };
            let depends = directive.words.iter().skip(1).any(|word| has_variable(word));
            match name {
                Ok(name) if !depends => {
                    self.context.report.carried(directive);
                    entries.push(flags(name, directive));
                }
                _ => {
                    let what =
                        "its cookies keep their flags: the name or a flag depends on the request";
                    self.context.report.lost(directive, what);
                }
            }
        }
        if !entries.is_empty() {
            proxy.set("cookie_flags", Value::List(entries));
        }
    }
}

/// Returns the flags of the cookies of a name.
fn flags(name: String, directive: &Directive) -> Value {
    let mut flags = Value::table([("cookie", Value::text(name))]);
    for word in directive.words.iter().skip(1) {
        match word.to_ascii_lowercase().as_str() {
            "secure" => flags.set("secure", Value::Switch(true)),
            "nosecure" => flags.set("secure", Value::Switch(false)),
            "httponly" => flags.set("http_only", Value::Switch(true)),
            "nohttponly" => flags.set("http_only", Value::Switch(false)),
            "nosamesite" => flags.set("same_site", Value::text("off")),
            word => {
                if let Some(kind) = word.strip_prefix("samesite=") {
                    flags.set("same_site", Value::text(kind));
                }
            }
        }
    }
    flags
}
