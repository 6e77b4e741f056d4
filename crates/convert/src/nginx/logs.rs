//! Access logs.

use dunlin_config::is_secret_name;
use regex::Regex;

use super::assemble::Draft;
use super::condition::{Condition, field_name, negated};
use super::parse::Directive;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::variables::{Constants, Part, parts};
use crate::keys::Keys;
use crate::value::Value;

/// Most single statuses of a class that a log names.
const MAX_STATUSES: usize = 20;

impl<'t> Builder<'_, 't> {
    /// The access log of a server. That of the first one is the log of all that have none of their own.
    pub(super) fn logs(&mut self, scope: &Scope<'t>) {
        if self.server_log().is_some() {
            return;
        }
        let all = scope.all(&["access_log"]);
        let logs: Vec<&'t Directive> = all.into_iter().filter(|log| log.word(0) != "off").collect();
        let log = match logs.split_first() {
            Some((first, others)) => {
                let log = self.log(first);
                self.with_others(log, others)
            }
            // The default of nginx.
            None => {
                let is_default = scope.all(&["access_log"]).is_empty()
                    && self.context.in_prefix("x").starts_with("/usr/share/nginx");
                is_default.then(|| Value::text("/var/log/nginx/access.log"))
            }
        };
        if let Some(log) = log {
            self.context.document.set("server", "access_log", log);
        }
    }

    fn server_log(&self) -> Option<&Value> {
        let mut tables = self.context.document.tables.iter();
        let (_, entries) = tables.find(|(name, _)| name == "server")?;
        entries.iter().find(|(key, _)| key == "access_log").map(|(_, log)| log)
    }

    /// The access log of a location, if it is not that of the server.
    pub(super) fn access_log(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let all = scope.all(&["access_log"]);
        let Some((first, others)) = all.split_first() else { return };
        if first.word(0) == "off" {
            self.context.report.carried(first);
            return keys.set("access_log", Value::Switch(false));
        }
        let log = self.log(first);
        if let Some(log) = self.with_others(log, others)
            && self.server_log() != Some(&log)
        {
            keys.set("access_log", log);
        }
    }

    /// Returns a log with the further ones of its level.
    fn with_others(&mut self, log: Option<Value>, others: &[&'t Directive]) -> Option<Value> {
        let mut also = Vec::new();
        for &other in others {
            let condition = other.words.iter().find_map(|word| word.strip_prefix("if="));
            if condition.is_some_and(|name| self.logged_statuses(name).is_none()) {
                let what =
                    "its requests are not logged: the condition is for the first log of a level";
                self.context.report.lost(other, what);
                continue;
            }
            also.extend(self.log(other));
        }
        let Some(log) = log else { return also.into_iter().next() };
        if also.is_empty() {
            return Some(log);
        }
        let mut table = match log {
            Value::Table(_) => log,
            path => Value::table([("path", path)]),
        };
        table.set("also", Value::List(also));
        Some(table)
    }

    /// Returns the log of a directive.
    fn log(&mut self, directive: &'t Directive) -> Option<Value> {
        let path = directive.word(0);
        if path.starts_with("syslog:") || path.contains('$') {
            let what = "the log is a file or standard output; requests are in that of the server";
            self.context.report.lost(directive, format!("{path}: {what}"));
            return None;
        }
        let condition = directive.words.iter().find_map(|word| word.strip_prefix("if="));
        let statuses = condition.and_then(|name| self.logged_statuses(name));
        if let Some(name) = condition.filter(|_| statuses.is_none())
            && self.logged(name).is_none()
        {
            self.context.report.lost(directive, "all requests are logged, without a condition");
        }
        self.context.report.carried(directive);
        let path = match path {
            "/dev/stdout" => "-".to_owned(),
            path => self.context.in_prefix(path),
        };
        let mut log = Value::table([("path", Value::text(path.clone()))]);
        if let Some(format) = self.log_format(directive.word(1)) {
            log.set("format", Value::text(format));
        }
        if let Some(statuses) = statuses {
            log.set("status", Value::one_or_many(statuses));
        }
        Some(if log.entries().len() == 1 { Value::text(path) } else { log })
    }

    /// Returns the condition under which requests are logged; `None` if it has no counterpart.
    fn logged(&mut self, variable: &str) -> Option<Condition> {
        self.context.map_condition(&[variable.to_owned()], &Constants::new())
    }

    /// Returns a route for the requests of a location that are not logged, with its settings.
    pub(super) fn unlogged(&mut self, location: &Location<'t>, keys: &Keys) -> Option<Draft> {
        let log = location.scope.all(&["access_log"]).into_iter().next()?;
        let name = log.words.iter().find_map(|word| word.strip_prefix("if="))?;
        if self.logged_statuses(name).is_some() {
            return None;
        }
        let Condition::When(when) = negated(self.logged(name)?).ok()? else { return None };
        let mut keys = keys.clone();
        keys.set("access_log", Value::Switch(false));
        let comment = format!("{}: not logged", location.comment());
        Some(Draft::new(comment, location.paths.clone(), Some(when), keys))
    }

    /// Returns the statuses that a `map` of `$status` has logged; `None` for other variables.
    fn logged_statuses(&mut self, variable: &str) -> Option<Vec<String>> {
        let map = self.context.maps.get(variable.trim_start_matches('$')).copied()?;
        (map.name == "map" && map.word(0) == "$status").then_some(())?;
        let mut entries = Vec::new();
        let mut default = "";
        for entry in map.children() {
            let value = entry.word(0);
            match entry.name.strip_prefix('~') {
                _ if entry.name == "default" => default = value,
                Some(pattern) => {
                    entries.push((Regex::new(pattern.trim_start_matches('*')).ok()?, value));
                }
                None => entries
                    .push((Regex::new(&format!("^{}$", regex::escape(&entry.name))).ok()?, value)),
            }
        }
        let is_logged = |status: u16| {
            let text = status.to_string();
            let found = entries.iter().find(|(regex, _)| regex.is_match(&text));
            !matches!(found.map_or(default, |(_, value)| value), "" | "0")
        };
        let mut statuses = Vec::new();
        for class in 1..=5_u16 {
            let logged: Vec<u16> =
                (class * 100..class * 100 + 100).filter(|status| is_logged(*status)).collect();
            match logged.len() {
                100 => statuses.push(format!("{class}xx")),
                count if count <= MAX_STATUSES => {
                    statuses.extend(logged.iter().map(u16::to_string));
                }
                _ => return None,
            }
        }
        (!statuses.is_empty()).then_some(())?;
        self.context.report.carried(map);
        Some(statuses)
    }

    fn log_format(&mut self, name: &str) -> Option<String> {
        let directive = self.context.log_formats.get(name).copied()?;
        let text: String = directive
            .words
            .iter()
            .skip(1)
            .filter(|word| !word.starts_with("escape="))
            .cloned()
            .collect();
        let mut format = String::new();
        for part in parts(&text) {
            match part {
                Part::Text(text) => format.push_str(&text.replace('{', "{{").replace('}', "}}")),
                // No request is pipelined here.
                Part::Variable("pipe") => format.push('.'),
                Part::Variable(name) => match placeholder(name) {
                    Some(placeholder) => format.push_str(&placeholder),
                    None => {
                        let what = format!("${name} is `-` in lines of the log");
                        self.context.report.differs(directive, what);
                        format.push('-');
                    }
                },
            }
        }
        self.context.report.carried(directive);
        let combined = "{remote} - {user} [{time}] \"{method} {target} {protocol}\" {status} {bytes} \"{referer}\" \"{user_agent}\"";
        (format != combined && format.contains('{')).then_some(format)
    }
}

/// Returns the placeholder of a variable in lines of the log.
fn placeholder(name: &str) -> Option<String> {
    let of = |kind: &str, name: &str| Some(format!("{{{kind}.{}}}", field_name(name)));
    if let Some(known) = known(name) {
        return Some(known.to_owned());
    }
    let of_response = name.strip_prefix("sent_http_").or(name.strip_prefix("upstream_http_"));
    match (name.strip_prefix("http_"), of_response) {
        // Fields with secrets are not logged.
        (Some("cookie" | "authorization" | "proxy_authorization"), _) | (_, Some("set_cookie")) => {
            None
        }
        (Some(name), _) | (_, Some(name)) if is_secret_name(name.as_bytes()) => None,
        (Some(name), _) => of("header", name),
        (_, Some(name)) => of("response", name),
        (None, None) => None,
    }
}

fn known(name: &str) -> Option<&'static str> {
    Some(match name {
        "remote_addr"
        | "http_x_forwarded_for"
        | "proxy_add_x_forwarded_for"
        | "realip_remote_addr" => "{remote}",
        "remote_user" => "{user}",
        "time_local" => "{time}",
        "time_iso8601" => "{time_iso}",
        "request" => "{method} {target} {protocol}",
        "request_method" => "{method}",
        "request_uri" => "{target}",
        "uri" | "document_uri" => "{path}",
        "args" | "query_string" => "{query}",
        "server_protocol" => "{protocol}",
        "status" => "{status}",
        "body_bytes_sent" | "bytes_sent" => "{bytes}",
        "http_referer" => "{referer}",
        "http_user_agent" => "{user_agent}",
        "host" | "http_host" => "{host}",
        "server_name" => "{site}",
        "request_time" => "{duration_s}",
        "msec" => "{time_unix}",
        "upstream_addr" | "proxy_host" => "{upstream}",
        "upstream_response_time" | "upstream_header_time" => "{upstream_s}",
        "upstream_connect_time" => "{upstream_connect_s}",
        "upstream_cache_status" => "{cache}",
        "ssl_protocol" => "{tls_protocol}",
        "ssl_cipher" => "{tls_cipher}",
        "ssl_client_s_dn" => "{tls_client_subject}",
        "ssl_client_verify" => "{tls_client_verify}",
        "request_id" => "{request_id}",
        "connection" => "{connection}",
        "request_length" => "{received}",
        _ => return None,
    })
}
