//! Response fields, error pages, charsets and logs: what every response of a region has.

use super::builder::{Builder, comment};
use super::scope::Scope;
use crate::directive::Directive;
use crate::keys::Keys;
use crate::model::{Matching, Route};
use crate::units::shown_time;
use crate::value::Value;

/// Fields that only the server sends.
const OF_SERVER: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "accept-ranges",
    "expires",
    "last-modified",
    "server",
];

impl<'t> Builder<'_, 't> {
    /// Sets the keys of all responses; `has_content` for others than redirects and rejections.
    pub(super) fn common(&mut self, scope: &Scope<'t>, keys: &mut Keys, has_content: bool) {
        let all: Vec<_> = scope.all(&["Header"]).collect();
        for directive in all {
            self.header(directive, keys);
        }
        self.error_pages(scope, keys);
        if !has_content {
            keys.remove("cache_control");
            return;
        }
        self.lifetime(scope, keys);
        let Some(directive) = scope.get("AddDefaultCharset") else { return };
        self.context.report.carried(directive);
        match directive.word(0).to_ascii_lowercase().as_str() {
            "off" => keys.set("charset", Value::text("")),
            "on" => keys.set("charset", Value::text("iso-8859-1")),
            "utf-8" => {}
            charset => keys.set("charset", Value::text(charset)),
        }
    }

    fn header(&mut self, directive: &'t Directive, keys: &mut Keys) {
        let mut words = directive.words.iter().map(String::as_str).peekable();
        let is_always = words.peek().is_some_and(|word| word.eq_ignore_ascii_case("always"));
        if is_always || words.peek().is_some_and(|word| word.eq_ignore_ascii_case("onsuccess")) {
            words.next();
        }
        let action = words.next().unwrap_or_default().to_ascii_lowercase();
        let name = words.next().unwrap_or_default().trim_end_matches(':').to_owned();
        let has_value = !matches!(action.as_str(), "unset" | "echo");
        let value = if has_value { words.next().unwrap_or_default() } else { "" };
        let condition = words.next().filter(|word| *word != "early");
        let lower = name.to_ascii_lowercase();
        if lower == "strict-transport-security" && action != "unset" {
            return self.transport_security(directive, value, keys);
        }
        if let Some(condition) = condition {
            let what = format!("{condition}: responses have no {name} under this condition");
            return self.context.report.lost(directive, what);
        }
        match action.as_str() {
            "unset" => self.unset(directive, &name, &lower, keys),
            "set" | "append" | "merge" | "add" | "setifempty" => {
                self.set(directive, &action, (&name, &lower), value, is_always, keys);
            }
            _ => self
                .context
                .report
                .lost(directive, format!("{action}: values of {name} stay as they are")),
        }
    }

    fn unset(&mut self, directive: &'t Directive, name: &str, lower: &str, keys: &mut Keys) {
        self.context.report.carried(directive);
        match lower {
            "etag" => return keys.set("etag", Value::text("off")),
            "cache-control" => drop(keys.remove("cache_control")),
            "server" => {
                return self
                    .context
                    .report
                    .differs(directive, "`server_field = false` in [server] leaves it out");
            }
            name if OF_SERVER.contains(&name) => {
                return self
                    .context
                    .report
                    .lost(directive, format!("{name} is the server's to send"));
            }
            _ => {}
        }
        if let Some(Value::Table(mut fields)) = keys.remove("set_fields") {
            fields.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            if !fields.is_empty() {
                keys.set("set_fields", Value::Table(fields));
            }
        }
        let mut removed = match keys.remove("remove_fields") {
            Some(Value::List(names)) => names,
            _ => Vec::new(),
        };
        if !removed
            .iter()
            .any(|other| matches!(other, Value::Text(other) if other.eq_ignore_ascii_case(name)))
        {
            removed.push(Value::text(name));
        }
        keys.set("remove_fields", Value::List(removed));
    }

    fn set(
        &mut self,
        directive: &'t Directive,
        action: &str,
        (name, lower): (&str, &str),
        value: &str,
        is_always: bool,
        keys: &mut Keys,
    ) {
        let Some(value) = field_value(value) else {
            return self
                .context
                .report
                .lost(directive, format!("responses have no {name}: {value} has no placeholder"));
        };
        if OF_SERVER.contains(&lower) {
            return self.context.report.lost(directive, format!("{name} is the server's to send"));
        }
        if lower == "vary" && value.eq_ignore_ascii_case("accept-encoding") {
            return self
                .context
                .report
                .not_needed(directive, "responses that depend on `Accept-Encoding` have it");
        }
        self.context.report.carried(directive);
        if !is_always {
            self.context.report.differs(directive, "errors have the field, too, as with `always`");
        }
        if lower == "cache-control" && !value.contains('{') {
            let known = match keys.get("cache_control") {
                Some(Value::Text(known)) if matches!(action, "append" | "merge" | "add") => {
                    format!("{known}, {value}")
                }
                _ => value,
            };
            return keys.set("cache_control", Value::text(known));
        }
        let known = keys.get("set_fields").and_then(|fields| {
            let (known, value) =
                fields.entries().iter().find(|(other, _)| other.eq_ignore_ascii_case(name))?;
            Some((known.clone(), value.clone()))
        });
        let value = match (action, &known) {
            ("append" | "merge" | "add", Some((_, Value::Text(before))))
                if lower != "set-cookie" =>
            {
                Value::text(format!("{before}, {value}"))
            }
            ("add", Some(_)) => {
                return self
                    .context
                    .report
                    .lost(directive, "a field is set once: responses have no second one");
            }
            ("setifempty", None) => {
                Value::table([("value", Value::text(value)), ("absent", Value::Switch(true))])
            }
            ("setifempty", Some(_)) => return,
            ("append" | "merge" | "add", None) => {
                self.context.report.differs(directive, "it replaces what an application sends");
                Value::text(value)
            }
            _ => Value::text(value),
        };
        if let Some(Value::List(mut removed)) = keys.remove("remove_fields") {
            removed.retain(
                |other| !matches!(other, Value::Text(other) if other.eq_ignore_ascii_case(name)),
            );
            if !removed.is_empty() {
                keys.set("remove_fields", Value::List(removed));
            }
        }
        let name = known.map_or_else(|| name.to_owned(), |(known, _)| known);
        keys.set_entry("set_fields", &name, value);
    }

    fn transport_security(&mut self, directive: &'t Directive, value: &str, keys: &mut Keys) {
        let lower = value.to_ascii_lowercase();
        let age = lower.split(';').find_map(|part| {
            part.trim().strip_prefix("max-age=")?.trim_matches('"').parse::<u64>().ok()
        });
        let Some(age) = age else {
            return self.context.report.lost(directive, "it has no `max-age`: it is not sent");
        };
        self.context.report.differs(directive, "it is sent over TLS only");
        let age = Value::text(shown_time(age.min(1_000_000_000) * 1000));
        let mut hsts = Value::table([("age", age.clone())]);
        if lower.contains("includesubdomains") {
            hsts.set("subdomains", Value::Switch(true));
        }
        if lower.contains("preload") {
            hsts.set("preload", Value::Switch(true));
        }
        keys.set("hsts", if hsts.entries().len() == 1 { age } else { hsts });
    }

    fn error_pages(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        for directive in scope.all(&["ErrorDocument"]) {
            let (status, target) =
                (directive.word(0), directive.words.get(1..).unwrap_or_default().join(" "));
            let is_error = status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status));
            if !is_error {
                self.context.report.lost(directive, "pages are for statuses from 400 to 599");
                continue;
            }
            if target.eq_ignore_ascii_case("default") {
                self.context.report.not_needed(directive, "statuses have a page by default");
                continue;
            }
            self.context.report.carried(directive);
            let path = match target.starts_with('/') {
                true => target,
                false => self.text_page(directive, status, &target),
            };
            keys.set_entry("error_pages", status, Value::text(path));
        }
    }

    /// Returns the path of an internal route that has a text, or redirects.
    fn text_page(&mut self, directive: &'t Directive, status: &str, target: &str) -> String {
        let path = format!("/@error-{status}");
        let comment = comment(directive);
        let mut keys = Keys::default();
        match target.contains("://") {
            true => keys.set("redirect", Value::text(target)),
            false => {
                let kind = if target.trim_start().starts_with('<') {
                    "text/html"
                } else {
                    "text/html; charset=iso-8859-1"
                };
                let body = [("body", Value::text(target)), ("content_type", Value::text(kind))];
                keys.set("respond", Value::table(body));
            }
        }
        keys.set("internal", Value::Switch(true));
        let known = self.pages.iter().filter(|page| page.comment == comment).count();
        if known == 0 {
            let matching = Matching::Paths(vec![path.clone()]);
            self.pages.push(Route { comment, matching, when: None, keys });
        }
        path
    }
}

/// Returns a value of a field with the placeholders of Dunlin.
fn field_value(text: &str) -> Option<String> {
    let known = [
        ("%{HTTP_HOST}s", "{host}"),
        ("%{REQUEST_SCHEME}s", "{scheme}"),
        ("%{REMOTE_ADDR}s", "{client}"),
        ("%{REQUEST_URI}s", "{path}"),
        ("%{Origin}i", "{header.Origin}"),
    ];
    if text.starts_with("expr=") || text.contains(['{', '}']) && !text.contains("%{") {
        return None;
    }
    let replaced = known.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let rest = replaced.replace("%%", "");
    (!rest.contains('%')).then(|| replaced.replace("%%", "%"))
}
