//! Response fields: `add_header`, and those that are hidden.

use super::location::passes;
use super::parse::Directive;
use super::scope::{PLACES_OF_FILES, Scope};
use super::server::Builder;
use super::variables::{Constants, constant};
use crate::keys::Keys;
use crate::value::Value;

/// Fields that only the server sends.
const OF_SERVER: [&str; 15] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "accept-ranges",
    "etag",
    "last-modified",
    "server",
];

impl<'t> Builder<'_, 't> {
    /// A level that has an `add_header` of its own inherits none.
    pub(super) fn fields(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut fields = Value::Table(Vec::new());
        let mut cache_control: Vec<String> = Vec::new();
        let constants = self.constants(scope);
        self.is_application = passes(scope).is_some();
        for directive in scope.all(&["add_header"]) {
            let (name, text) = (directive.word(0), directive.word(1));
            if self.is_copied(scope, name, text) {
                // `copy_to_response` of `auth` has it.
                self.context.report.carried(directive);
                continue;
            }
            self.value(directive, (name, text), &constants, &mut fields, &mut cache_control);
        }
        self.not_set(scope);
        for directive in scope.all(&["more_set_headers"]) {
            for word in directive.words.iter().filter(|word| !word.starts_with('-')) {
                let (name, value) = word.split_once(':').unwrap_or((word, ""));
                let named = (name, value.trim());
                self.value(directive, named, &constants, &mut fields, &mut cache_control);
            }
        }
        if !cache_control.is_empty() {
            let text = Value::text(cache_control.join(", "));
            match scope.get("expires").is_none() && is_always(scope, "Cache-Control") {
                // Errors have it, too.
                true => fields.set("Cache-Control", text),
                false => keys.set("cache_control", text),
            }
        }
        let names_vary = fields.entries().iter().any(|(name, _)| name.eq_ignore_ascii_case("vary"));
        if names_vary && !scope.is_on("gzip") {
            // `Vary` would name `Accept-Encoding`, too.
            keys.set("compress", Value::Switch(false));
        }
        if !fields.entries().is_empty() {
            keys.set("set_fields", unless_always(scope, fields));
        }
        for directive in scope.all(&["add_trailer"]) {
            self.context.report.lost(directive, "responses have no such trailer field");
        }
    }

    /// Reports a field that the server sends although it is not set.
    fn not_set(&mut self, scope: &Scope<'t>) {
        let is_it = |directive: &&Directive| {
            directive.word(0).eq_ignore_ascii_case("x-content-type-options")
        };
        let place = scope.first(&PLACES_OF_FILES);
        if let Some(place) = place.filter(|_| !scope.all(&["add_header"]).iter().any(is_it)) {
            let what = "files, redirects and pages of the server have `X-Content-Type-Options: nosniff`; `nosniff = false` ends that";
            self.context.report.differs(place, what);
        }
    }

    /// A field with its value, which may have variables.
    fn value(
        &mut self,
        directive: &'t Directive,
        (name, text): (&str, &str),
        constants: &Constants,
        fields: &mut Value,
        cache_control: &mut Vec<String>,
    ) {
        let value =
            constant(text, constants).or_else(|_| self.context.field_template(text, constants));
        match value {
            Ok(value) => self.field(directive, name, &value, fields, cache_control),
            Err(variable) => {
                let what = format!("responses have no {name}: {variable} has no placeholder");
                self.context.report.lost(directive, what);
            }
        }
    }

    fn field(
        &mut self,
        directive: &'t Directive,
        name: &str,
        value: &str,
        fields: &mut Value,
        cache_control: &mut Vec<String>,
    ) {
        let lower = name.to_ascii_lowercase();
        if value.is_empty() {
            // nginx adds no empty field.
            return self.context.report.carried(directive);
        }
        if directive.word(1).contains("$upstream_cache_status") {
            let what = "responses that are no upstream's have it, too";
            self.context.report.differs(directive, what);
        }
        if directive.word(1).contains("$upstream_response_time") {
            let what = "the time is that until the head of the response, for which nginx has `-`";
            self.context.report.differs(directive, what);
        }
        if lower == "x-content-type-options" {
            let what = "pages of the server and redirects have it, too, whatever is inherited";
            self.context.report.differs(directive, what);
        }
        match lower.as_str() {
            "cache-control" if !value.contains('{') => {
                self.context.report.carried(directive);
                cache_control.push(value.to_owned());
            }
            "vary" if value.eq_ignore_ascii_case("accept-encoding") => {
                self.context
                    .report
                    .not_needed(directive, "responses that depend on `Accept-Encoding` have it");
            }
            "vary" if value.contains('{') => {
                self.context.report.lost(directive, format!("{value} is not added to `Vary`"));
            }
            "content-length" => {
                let what = "the server states the length of each body; a response with status 204 has none (RFC 9110, section 8.6)";
                self.context.report.differs(directive, what);
            }
            name if !name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)) =>
            {
                self.context.report.lost(directive, format!("{name} is not the name of a field"));
            }
            "last-modified" if self.is_application => {
                self.context.report.carried(directive);
                fields.set(name, Value::text(value));
            }
            name if OF_SERVER.contains(&name) => {
                self.context.report.lost(directive, format!("{name} is the server's to send"));
            }
            _ => {
                let known =
                    fields.entries().iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
                let value = match known {
                    None => value.to_owned(),
                    Some((_, Value::Text(before))) if lower != "set-cookie" => {
                        format!("{before}, {value}")
                    }
                    Some(_) => {
                        self.context
                            .report
                            .lost(directive, "a field is set once: responses have no second one");
                        return;
                    }
                };
                let name = known.map_or_else(|| name.to_owned(), |(known, _)| known.clone());
                self.context.report.carried(directive);
                fields.set(&name, Value::text(value));
            }
        }
    }

    /// Fields of upstreams that clients do not get, and `Cache-Control` that is added to their responses.
    pub(super) fn upstream_fields(&mut self, kind: &str, scope: &Scope<'t>, keys: &mut Keys) {
        let name = format!("{kind}_hide_header");
        let mut hidden: Vec<String> = Vec::new();
        for directive in scope.all(&[&name, "more_clear_headers"]) {
            for name in directive.words.iter().filter(|word| !word.starts_with('-')) {
                let lower = name.to_ascii_lowercase();
                if OF_SERVER[..11].contains(&lower.as_str())
                    || lower == "server"
                    || lower == "vary"
                    || name.contains('*')
                {
                    self.context
                        .report
                        .differs(directive, format!("{name} is the server's to send"));
                    continue;
                }
                self.context.report.carried(directive);
                let is_set = keys.get("set_fields").is_some_and(|fields| {
                    fields.entries().iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
                });
                if !is_set && !hidden.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                    hidden.push(name.clone());
                }
            }
        }
        if !hidden.is_empty() {
            keys.set("remove_fields", Value::list(hidden));
        }
        for directive in scope.all(&[&format!("{kind}_pass_header")]) {
            match directive.word(0).to_ascii_lowercase().as_str() {
                "server" if matches!(kind, "proxy" | "grpc") => {
                    self.context.report.carried(directive);
                }
                "server" => {
                    self.context.report.lost(directive, "`Server` names this server, or none");
                }
                name if name.starts_with("x-accel") => self
                    .context
                    .report
                    .lost(directive, "X-Accel fields are followed, and not sent to clients"),
                _ => self.context.report.not_needed(directive, "fields of upstreams are passed on"),
            }
        }
        let control = match keys.remove("cache_control") {
            Some(Value::Text(control)) => Some(control),
            _ => None,
        };
        let expires = scope.get("expires");
        let lifetime = expires.and_then(|directive| {
            self.context.report.differs(
                directive,
                "responses have `Cache-Control` of this lifetime, and no `Expires`",
            );
            match directive.word(0) {
                "off" => None,
                "max" => Some("max-age=315360000".to_owned()),
                "epoch" => Some("no-cache".to_owned()),
                word if word.starts_with('-') => Some("no-cache".to_owned()),
                word if word.starts_with('$') => {
                    let field = self.context.lifetimes(word, control.as_deref());
                    if field.is_none() {
                        let what = "responses keep the lifetime of the upstream";
                        self.context.report.lost(directive, format!("{word}: {what}"));
                    }
                    field
                }
                word => match super::units::time(word) {
                    Some(time) => Some(format!("max-age={}", time / 1000)),
                    None => {
                        self.context.report.lost(
                            directive,
                            format!("{word}: responses keep the lifetime of the upstream"),
                        );
                        None
                    }
                },
            }
        });
        // The values of a map have what is added already.
        let is_map = lifetime.as_ref().is_some_and(|lifetime| lifetime.starts_with("{map."));
        let control = control.filter(|_| !is_map);
        let value = [lifetime, control].into_iter().flatten().collect::<Vec<_>>().join(", ");
        if !value.is_empty() {
            let mut fields = keys.remove("set_fields").unwrap_or(Value::Table(Vec::new()));
            fields.set("Cache-Control", Value::text(value));
            keys.set("set_fields", fields);
        }
    }
}

/// Returns fields that errors do not have, but for those with `always`.
fn unless_always(scope: &Scope<'_>, fields: Value) -> Value {
    let entries = fields.entries().iter().map(|(name, value)| {
        let value = match is_always(scope, name) {
            true => value.clone(),
            false => {
                Value::table([("value", value.clone()), ("status", Value::list(["2xx", "3xx"]))])
            }
        };
        (name.clone(), value)
    });
    Value::Table(entries.collect())
}

/// Returns `true` if errors have a field, too: it has `always`, or is not that of an `add_header`.
fn is_always(scope: &Scope<'_>, name: &str) -> bool {
    let added = scope.all(&["add_header"]);
    let own = added.iter().find(|directive| directive.word(0).eq_ignore_ascii_case(name));
    own.is_none_or(|directive| directive.words.iter().any(|word| word == "always"))
}
