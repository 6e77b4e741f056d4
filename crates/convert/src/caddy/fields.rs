//! `header`: fields of responses.

use super::builder::{Builder, State};
use super::entry::Entry;
use super::placeholders::template;
use crate::directive::Directive;
use crate::units::shown_time;
use crate::value::Value;

/// Fields that only the server sends.
const OF_SERVER: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "accept-ranges",
    "last-modified",
    "expires",
];

impl<'t> Builder<'_, 't> {
    pub(super) fn header(&mut self, entry: &Entry<'t>, state: &mut State) {
        if !entry.words.is_empty() {
            self.field_line(entry.directive, &entry.words, state);
        } else {
            self.context.report.carried(entry.directive);
        }
        for child in entry.directive.children() {
            if child.name == "defer" {
                self.context
                    .report
                    .not_needed(child, "fields are set when the response is complete");
                continue;
            }
            let words: Vec<String> =
                [child.name.clone()].into_iter().chain(child.words.clone()).collect();
            self.field_line(child, &words, state);
        }
    }

    /// Sets, adds or removes a field.
    pub(super) fn field_line(
        &mut self,
        directive: &'t Directive,
        words: &[String],
        state: &mut State,
    ) {
        let (name, value) =
            (words.first().map_or("", String::as_str), words.get(1).map_or("", String::as_str));
        if words.len() > 2 {
            return self
                .context
                .report
                .lost(directive, format!("values of {name} are not changed"));
        }
        let plain = name.trim_start_matches(['+', '-', '?', '>']);
        let lower = plain.to_ascii_lowercase();
        if name.starts_with('-') {
            return self.removed(directive, plain, &lower, state);
        }
        if OF_SERVER.contains(&lower.as_str()) || lower == "server" {
            return self.context.report.lost(directive, format!("{plain} is the server's to send"));
        }
        if lower == "strict-transport-security" {
            return self.transport_security(directive, value, state);
        }
        if lower == "etag" {
            return self.context.report.lost(directive, "the tag of a file follows from the file");
        }
        if lower == "vary" && value.eq_ignore_ascii_case("accept-encoding") {
            return self
                .context
                .report
                .not_needed(directive, "responses that depend on `Accept-Encoding` have it");
        }
        let text = match template(value, &[]) {
            Ok(text) => text,
            Err(what) => {
                return self
                    .context
                    .report
                    .lost(directive, format!("responses have no {plain}: {what}"));
            }
        };
        self.context.report.carried(directive);
        if lower == "cache-control"
            && text == value
            && !name.starts_with('?')
            && state.keys.get("proxy").is_none()
        {
            return state.keys.set("cache_control", Value::text(text));
        }
        let known = state.keys.get("set_fields").and_then(|fields| {
            fields.entries().iter().find(|(other, _)| other.eq_ignore_ascii_case(plain)).cloned()
        });
        let value = match (name.chars().next(), known.as_ref().map(|(_, value)| value)) {
            (Some('?'), Some(_)) => return,
            (Some('?'), None) => {
                Value::table([("value", Value::text(text)), ("absent", Value::Switch(true))])
            }
            (Some('+'), Some(Value::Text(before))) if lower != "set-cookie" => {
                Value::text(format!("{before}, {text}"))
            }
            (Some('+'), Some(_)) => {
                return self
                    .context
                    .report
                    .lost(directive, "a field is set once: responses have no second one");
            }
            (Some('+'), None) => {
                self.context.report.differs(directive, "it replaces what an application sends");
                Value::text(text)
            }
            _ => Value::text(text),
        };
        let name = known.map_or_else(|| plain.to_owned(), |(known, _)| known);
        state.keys.set_entry("set_fields", &name, value);
    }

    fn removed(&mut self, directive: &'t Directive, name: &str, lower: &str, state: &mut State) {
        match lower {
            "server" => {
                self.context.report.carried(directive);
                return self.context.document.set("server", "server_field", Value::Switch(false));
            }
            "etag" => {
                self.context.report.carried(directive);
                return state.keys.set("etag", Value::text("off"));
            }
            _ if OF_SERVER.contains(&lower) || name.contains('*') => {
                return self
                    .context
                    .report
                    .lost(directive, format!("{name} is the server's to send"));
            }
            _ => {}
        }
        self.context
            .report
            .differs(directive, "routes of other paths that are beneath this one lack it, too");
        let mut names = match state.keys.remove("remove_fields") {
            Some(Value::List(names)) => names,
            _ => Vec::new(),
        };
        names.push(Value::text(name));
        state.keys.set("remove_fields", Value::List(names));
    }

    fn transport_security(&mut self, directive: &'t Directive, value: &str, state: &mut State) {
        let lower = value.to_ascii_lowercase();
        let age = lower
            .split(';')
            .find_map(|part| part.trim().strip_prefix("max-age=")?.parse::<u64>().ok());
        let Some(age) = age else {
            return self.context.report.lost(directive, "it has no `max-age`: it is not sent");
        };
        self.context.report.differs(directive, "it is sent over TLS only");
        let age = Value::text(shown_time(age.min(1_000_000_000) * 1000));
        let mut hsts = Value::table([("age", age.clone())]);
        for (word, key) in [("includesubdomains", "subdomains"), ("preload", "preload")] {
            if lower.contains(word) {
                hsts.set(key, Value::Switch(true));
            }
        }
        state.keys.set("hsts", if hsts.entries().len() == 1 { age } else { hsts });
    }
}
