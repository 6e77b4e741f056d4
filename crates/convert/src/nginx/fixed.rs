//! `return`: redirects and fixed responses.

use super::assemble::Paths;
use super::parse::Directive;
use super::rewrite::redirect;
use super::scope::Scope;
use super::server::{AFTER_HOST, Builder};
use super::units::time;
use super::variables::{Constants, Part, Place, constant, parts, template};
use crate::keys::Keys;
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Returns the settings of requests that are redirected or get a fixed response: neither access nor files matter, since
    /// `return` comes before them.
    pub(super) fn fixed_keys(&mut self, scope: &Scope<'t>) -> Keys {
        let mut keys = Keys::default();
        self.common(scope, &mut keys);
        keys.remove("expires");
        keys.remove("cache_control");
        keys
    }

    /// Returns the settings of a `return`.
    pub(super) fn fixed(
        &mut self,
        directive: &'t Directive,
        scope: &Scope<'t>,
        paths: &Paths,
        constants: &Constants,
    ) -> Keys {
        let mut keys = self.fixed_keys(scope);
        let (status, text) = match directive.word(0).parse::<u64>() {
            Ok(status) => (status, directive.words.get(1).map(String::as_str)),
            // `return URL`
            Err(_) => (302, Some(directive.word(0))),
        };
        if text.is_none()
            && let Some(keys) = self.named_error(scope, status, paths)
        {
            self.context.report.carried(directive);
            return keys;
        }
        let is_other = |page: &&Directive| {
            let has = |word: &str| page.words.iter().any(|other| other == word);
            has("404") && (has("=") || has("=200"))
        };
        if (status, text) == (404, None)
            && scope.all(&["error_page"]).iter().any(is_other)
            && !has_page(&keys, status)
            && let Some(page) = self.missing(scope, constants)
        {
            // The page takes the place of the error, with a status of its own.
            self.context.report.carried(directive);
            keys.set("rewrite", Value::text(page));
            return keys;
        }
        let has_group = |name: &str| match paths {
            Paths::Regex(expression) => expression.has_group(name),
            _ => false,
        };
        match (status, text) {
            (444, _) => {
                self.context.report.carried(directive);
                keys.set("close", Value::Switch(true));
            }
            (301 | 302 | 303 | 307 | 308, Some(to)) => {
                let values = self.context.values_of(to);
                let target = template(to, Place::Redirect, constants, &values, has_group);
                match target.map(|to| with_slash(to, paths)) {
                    Ok(to) if is_target(&to) => {
                        let query = to.split_once('?').map_or("", |(_, query)| query);
                        if query.replace("{query}", "").contains('{') {
                            let what =
                                "values in the query are encoded for it, which nginx leaves out";
                            self.context.report.differs(directive, what);
                        }
                        match to.contains("{target}") {
                        true => self.context.report.differs(directive, "a path with `.`, `..`, empty or encoded segments is in its normal form"),
                        false => self.context.report.carried(directive),
                    }
                        keys.set("redirect", redirect(to, status));
                    }
                    Ok(to) => {
                        self.context.report.lost(directive, format!("{to}: the host or the scheme depends on the request; the response is 404"));
                        keys.set("respond", Value::table([("status", Value::Number(404))]));
                    }
                    Err(name) => {
                        self.lost_variable(directive, &name, "the response is 404");
                        keys.set("respond", Value::table([("status", Value::Number(404))]));
                    }
                }
            }
            // The page of the error is sent.
            (400..600, None) if has_page(&keys, status) => {
                self.context.report.differs(
                    directive,
                    "other methods than GET and HEAD get 405, where the error has a page",
                );
                self.links(scope, &mut keys);
                // No file is looked for there, and a site needs one.
                let root = self.root(scope).unwrap_or_else(|| self.context.in_prefix("html"));
                keys.set("root", Value::text(root));
                keys.set("try", Value::list([format!("={status}")]));
            }
            _ => self.text(directive, (status, text), scope, paths, constants, &mut keys),
        }
        keys
    }

    /// Fields and lifetime of a fixed response that is no error.
    pub(super) fn caching_of_fixed(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut own = Keys::default();
        self.fields(scope, &mut own);
        self.caching(scope, &mut own);
        if own.remove("expires").is_some() && own.get("cache_control").is_none() {
            // Only files have `Expires`.
            let seconds = match scope.word("expires") {
                Some("max") => Some(315_360_000),
                word => word.and_then(time).map(|milliseconds| milliseconds / 1000),
            };
            let control = seconds.map(|seconds| Value::text(format!("max-age={seconds}")));
            control.into_iter().for_each(|control| own.set("cache_control", control));
        }
        for key in ["cache_control", "set_fields"] {
            if let Some(value) = own.remove(key) {
                keys.set(key, value);
            }
        }
    }

    fn text(
        &mut self,
        directive: &Directive,
        (status, text): (u64, Option<&str>),
        scope: &Scope<'t>,
        paths: &Paths,
        constants: &Constants,
        keys: &mut Keys,
    ) {
        if (200..400).contains(&status) {
            self.caching_of_fixed(scope, keys);
        }
        let mut respond = Value::Table(Vec::new());
        if status != 200 {
            respond.set("status", Value::Number(status.clamp(200, 599)));
        }
        match text.map(|text| constant(text, constants)) {
            None => {
                self.context.report.carried(directive);
                if status == 200 {
                    self.content_type(scope, &mut respond);
                }
            }
            Some(Ok(text)) => {
                self.context.report.carried(directive);
                if !text.is_empty() {
                    respond.set("body", Value::text(text));
                }
                self.content_type(scope, &mut respond);
            }
            Some(Err(_)) => match self.body(text.unwrap_or_default(), scope, paths, constants) {
                Ok(template) => {
                    self.context.report.carried(directive);
                    respond.set("template", Value::text(template));
                    self.content_type(scope, &mut respond);
                }
                Err(name) => {
                    let what = format!("the body is empty: {name} has no placeholder there");
                    self.context.report.lost(directive, what);
                }
            },
        }
        if text.is_some_and(|text| !text.is_empty()) && !matches!(paths, Paths::Exact(_)) {
            let what = "the body has `default_type`, whatever the extension of the path is";
            self.context.report.differs(directive, what);
        }
        if !(200..600).contains(&status) {
            self.context
                .report
                .lost(directive, format!("{status} is not a status of a final response"));
        }
        keys.set("respond", respond);
    }

    /// Returns a body with variables as a template.
    ///
    /// # Errors
    /// The variable that has no placeholder.
    fn body(
        &mut self,
        text: &str,
        scope: &Scope<'t>,
        paths: &Paths,
        constants: &Constants,
    ) -> Result<String, String> {
        let group = |name: &str| matches!(paths, Paths::Regex(regex) if regex.has_group(name));
        let has_referer = parts(text).contains(&Part::Variable("invalid_referer"));
        let referer = has_referer.then(|| self.invalid_referer(scope)).flatten();
        let other = |name: &str| match name {
            "invalid_referer" => referer.clone(),
            name => group(name).then(|| format!("{{{name}}}")),
        };
        self.context.template(text, constants, other)
    }

    /// The type of a fixed text is `default_type`, or that of an `add_header Content-Type`.
    fn content_type(&mut self, scope: &Scope<'t>, respond: &mut Value) {
        if let Some(kind) = scope.get("default_type").filter(|kind| !kind.word(0).is_empty()) {
            self.context.report.carried(kind);
            let charset = scope
                .word("charset")
                .filter(|charset| *charset != "off" && kind.word(0).starts_with("text/"));
            let value = match charset {
                Some(charset) => format!("{}; charset={charset}", kind.word(0)),
                None => kind.word(0).to_owned(),
            };
            respond.set("content_type", Value::text(value));
        } else {
            respond.set("content_type", Value::text("text/plain"));
        }
    }
}

/// Returns a target with the slash between a host and the group behind it.
fn with_slash(to: String, paths: &Paths) -> String {
    match paths {
        Paths::Regex(own) if own.text.ends_with(AFTER_HOST) => {
            to.replace("{host}{1}", "{host}/{1}")
        }
        _ => to,
    }
}

fn has_page(keys: &Keys, status: u64) -> bool {
    keys.get("error_pages").is_some_and(|pages| pages.get(&status.to_string()).is_some())
}

/// Returns `true` if the client chooses neither scheme nor host.
fn is_target(to: &str) -> bool {
    let after = ["https://", "http://", "//"].iter().find_map(|start| to.strip_prefix(start));
    match after {
        Some(host) => !host.is_empty() && !host.starts_with('/') && !starts_with_group(host),
        None => ["/", "{path}", "{target}", "{map."].iter().any(|start| to.starts_with(start)),
    }
}

fn starts_with_group(host: &str) -> bool {
    let authority = host.split(['/', '?', '#']).next().unwrap_or_default();
    let mut known = ["{host}", "{path}", "{target}", "{query}"]
        .iter()
        .fold(authority.to_owned(), |text, known| text.replace(known, ""));
    // The configuration decides which maps name hosts.
    while let Some((start, end)) = known.split_once("{map.") {
        known = format!("{start}{}", end.split_once('}').map_or("", |(_, end)| end));
    }
    known.contains('{') || authority.starts_with("{path}") || authority.starts_with("{target}")
}
