//! `map`, `geo` and `split_clients` as tables `[map.NAME]`, which are written where a setting uses them.

use super::condition::field_name;
use super::context::Context;
use super::expression::Expression;
use super::parse::Directive;
use super::variables::{Constants, Part, parts};
use crate::map::{Map, OTHER};

/// The start of a placeholder for a field of the response.
const OF_RESPONSE: &str = "{response.";

/// Most values of a map in keys that are not templates.
const MAX_CHOICES: usize = 64;

impl<'t> Context<'t> {
    /// Returns the placeholder of a variable in templates with values of requests.
    pub(super) fn placeholder(&mut self, name: &str) -> Result<String, String> {
        let of = |kind: &str, name: &str| format!("{{{kind}.{name}}}");
        Ok(match name {
            "host" => "{host}".to_owned(),
            "uri" | "document_uri" => "{path}".to_owned(),
            "args" | "query_string" => "{query}".to_owned(),
            "request_uri" => "{target}".to_owned(),
            "scheme" => "{scheme}".to_owned(),
            "time_iso8601" => "{time_iso}".to_owned(),
            "server_protocol" => "{protocol}".to_owned(),
            "request_method" => "{method}".to_owned(),
            "remote_addr" | "binary_remote_addr" => "{client}".to_owned(),
            // Without trusted proxies, the address of the connection is that of the client.
            "realip_remote_addr" if self.document.get("server", "trusted_proxies").is_none() => {
                "{client}".to_owned()
            }
            "content_type" => of("header", "Content-Type"),
            "content_length" => of("header", "Content-Length"),
            name if self.is_map(name) => format!("{{map.{}}}", self.map(name)?.name),
            "proxy_add_x_forwarded_for" => {
                let field = "{header.X-Forwarded-For}";
                let entries = [
                    (String::new(), "{client}".to_owned()),
                    (OTHER.to_owned(), format!("{field}, {{client}}")),
                ];
                format!("{{map.{}}}", self.made(name, field, entries.to_vec()))
            }
            "https" => self.own("https", "{scheme}", "https", "on"),
            "is_args" => self.own("is_args", "{query}", "~.", "?"),
            name => {
                if let Some(name) = name.strip_prefix("http_") {
                    of("header", &field_name(name))
                } else if let Some(name) = name.strip_prefix("cookie_") {
                    of("cookie", name)
                } else if let Some(name) = name.strip_prefix("arg_") {
                    of("query", name)
                } else if let Some(value) = self.assigned_value(name) {
                    value
                } else {
                    return Err(format!("${name}"));
                }
            }
        })
    }

    /// Returns a text with variables as a template with values of requests. `group` returns `true` for the names of groups.
    ///
    /// # Errors
    /// The variable that has no placeholder.
    pub(super) fn values_template(
        &mut self,
        text: &str,
        constants: &Constants,
        group: impl Fn(&str) -> bool,
    ) -> Result<String, String> {
        let other = |name: &str| group(name).then(|| format!("{{{name}}}"));
        match text.contains(['{', '}']) && parts(text).iter().any(has_brace) {
            true => Err("a brace".to_owned()),
            false => self.template(text, constants, other),
        }
    }

    /// Returns the value of a response field as a template with values of requests and of responses.
    ///
    /// # Errors
    /// The variable that has no placeholder.
    pub(super) fn field_template(
        &mut self,
        text: &str,
        constants: &Constants,
    ) -> Result<String, String> {
        self.template(text, constants, response_value)
    }

    /// As [`Self::values_template`]. `other` returns further placeholders.
    ///
    /// # Errors
    /// The variable that has no placeholder.
    pub(super) fn template(
        &mut self,
        text: &str,
        constants: &Constants,
        other: impl Fn(&str) -> Option<String>,
    ) -> Result<String, String> {
        let text = ["$uri$is_args$args", "$uri$is_args$query_string", "$document_uri$is_args$args"]
            .iter()
            .fold(text.to_owned(), |text, target| text.replace(target, "${request_uri}"));
        let mut result = String::new();
        for part in parts(&text) {
            match part {
                Part::Text(text) if is_like_placeholder(text) => {
                    return Err("a word in braces".to_owned());
                }
                Part::Text(text) => result.push_str(text),
                Part::Variable(name) => match constants.get(name) {
                    Some(value) if value.contains(['{', '}']) => return Err("a brace".to_owned()),
                    Some(value) => result.push_str(value),
                    None => match (other(name), self.common.get(name)) {
                        (Some(placeholder), _) => result.push_str(&placeholder),
                        (None, Some(value)) => result.push_str(value),
                        (None, None) => result.push_str(&self.placeholder(name)?),
                    },
                },
            }
        }
        Ok(result)
    }

    /// Returns the placeholders of those variables of a text that have values of requests.
    pub(super) fn values_of(&mut self, text: &str) -> Constants {
        let names = parts(text).into_iter().filter_map(|part| match part {
            // Before `$args` it is a part of `{query}`.
            Part::Variable("is_args") | Part::Text(_) => None,
            Part::Variable(name) => Some(name),
        });
        names.filter_map(|name| Some((name.to_owned(), self.placeholder(name).ok()?))).collect()
    }

    /// Returns the placeholders of those variables of a text that are maps with fixed values.
    pub(super) fn choices_of(&mut self, text: &str) -> Constants {
        let names = parts(text).into_iter().filter_map(|part| match part {
            Part::Variable(name) => Some(name),
            Part::Text(_) => None,
        });
        let placeholder = |name: &str| {
            let map = self.is_map(name).then(|| self.map(name).ok()).flatten()?;
            map.fixed().map(|_| (name.to_owned(), format!("{{map.{}}}", map.name)))
        };
        names.filter_map(placeholder).collect()
    }

    /// Returns a text with the values of constants, and with the names of maps whose values are fixed: for keys that are no
    /// templates.
    pub(super) fn choices_template(&mut self, text: &str, constants: &Constants) -> Option<String> {
        let (mut result, mut count) = (String::new(), 1);
        for part in parts(text) {
            match part {
                Part::Text(text) if text.contains(['{', '}']) => return None,
                Part::Text(text) => result.push_str(text),
                Part::Variable(name) => match constants.get(name) {
                    Some(value) => result.push_str(value),
                    None if self.is_map(name) => {
                        let map = self.map(name).ok()?;
                        let values = map.fixed()?;
                        count *= values.len();
                        if values.contains(&"") || count > MAX_CHOICES {
                            return None;
                        }
                        result.push_str(&format!("{{map.{}}}", map.name));
                    }
                    None => return None,
                },
            }
        }
        Some(result)
    }

    /// Returns the map that defines a variable, and writes it at its first use.
    ///
    /// # Errors
    /// The reason for which it has no counterpart.
    pub(super) fn map(&mut self, name: &str) -> Result<Map, String> {
        let name = name.trim_start_matches('$');
        if let Some(map) = self.document.maps.iter().find(|map| map.name == name) {
            let is_of_response = map.from.contains(OF_RESPONSE);
            return match is_of_response && !self.reads_field {
                true => Err(format!("${name} follows from the response")),
                false => Ok(map.clone()),
            };
        }
        if self.reading.iter().any(|other| other == name) {
            return Err(format!("${name}: its value needs itself"));
        }
        let Some(directive) = self.maps.get(name).copied() else {
            return Err(format!("${name}"));
        };
        self.reading.push(name.to_owned());
        let read = match directive.name.as_str() {
            "geo" => self.geo(name, directive),
            "split_clients" => self.shares(name, directive),
            _ => self.texts(name, directive),
        };
        self.reading.pop();
        match read {
            Ok(map) => {
                self.report.carried(directive);
                self.document.maps.push(map.clone());
                Ok(map)
            }
            Err(what) => {
                self.report.lost(directive, format!("what uses ${name} is lost: {what}"));
                Err(format!("${name}: {what}"))
            }
        }
    }

    /// Writes a map with the values of another one in another form, and returns its name.
    pub(super) fn derived(
        &mut self,
        name: &str,
        suffix: &str,
        mut change: impl FnMut(&mut Self, &str) -> Option<String>,
    ) -> Option<Map> {
        let mut map = self.map(name).ok()?;
        if map.fixed()?.len() > MAX_CHOICES {
            return None;
        }
        if !map.entries.iter().any(|(key, _)| key == OTHER) {
            map.entries.push((OTHER.to_owned(), String::new()));
        }
        for (_, value) in &mut map.entries {
            *value = change(self, value)?;
        }
        map.entries.retain(|(key, value)| key != OTHER || !value.is_empty());
        let stem = format!("{}_{suffix}", map.name);
        map.name = self.free_name(&stem, &map);
        if !self.document.maps.contains(&map) {
            self.document.maps.push(map.clone());
        }
        Some(map)
    }

    /// Returns the text of `Cache-Control` for an `expires` with a variable, and what `add_header` adds to it.
    pub(super) fn lifetimes(&mut self, variable: &str, more: Option<&str>) -> Option<String> {
        let lifetime = |_: &mut Self, value: &str| {
            let own = match value {
                "" | "off" => String::new(),
                "max" => "max-age=315360000".to_owned(),
                "epoch" => "no-cache".to_owned(),
                value if value.starts_with('-') => "no-cache".to_owned(),
                value => format!("max-age={}", super::units::time(value)? / 1000),
            };
            let all = [Some(own.as_str()), more].into_iter().flatten();
            Some(all.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", "))
        };
        self.reads_field = true;
        let map = self.derived(variable, "lifetime", lifetime);
        self.reads_field = false;
        let map = map?;
        Some(format!("{{map.{}}}", map.name))
    }

    /// Writes a map whose value is `1` where an expression matches a text with values of requests; returns its name.
    pub(super) fn test(&mut self, from: String, expression: &str) -> String {
        let entries = vec![(format!("~{expression}"), "1".to_owned())];
        let known = self
            .document
            .maps
            .iter()
            .find(|map| map.from == from && map.entries == entries && !map.is_split);
        if let Some(map) = known {
            return map.name.clone();
        }
        let stem: String = from
            .trim_matches(|c| matches!(c, '{' | '}'))
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let map = Map { name: String::new(), from, is_split: false, entries };
        let name = self.free_name(&format!("{stem}_1"), &map);
        self.document.maps.push(Map { name: name.clone(), ..map });
        name
    }

    /// Writes a map that is made, and returns its name.
    pub(super) fn made(
        &mut self,
        stem: &str,
        from: &str,
        entries: Vec<(String, String)>,
    ) -> String {
        let map = Map { entries, ..Map::new(stem, from.to_owned()) };
        let name = self.free_name(stem, &map);
        let map = Map { name: name.clone(), ..map };
        if !self.document.maps.contains(&map) {
            self.document.maps.push(map);
        }
        name
    }

    /// Returns a name that no map has, or that of the same one.
    fn free_name(&self, stem: &str, map: &Map) -> String {
        let is_free = |name: &String| {
            let other = self.document.maps.iter().find(|other| other.name == *name);
            let is_same = |other: &Map| Map { name: name.clone(), ..map.clone() } == *other;
            !self.maps.contains_key(name.as_str()) && other.is_none_or(is_same)
        };
        let stem_of = stem.trim_end_matches("_1");
        let numbered = (2..).map(|number: u64| format!("{stem_of}_{number}"));
        let mut names = std::iter::once(stem.to_owned()).chain(numbered);
        names.find(is_free).unwrap_or_default()
    }

    /// Returns the name of a map for a variable of nginx itself that follows from another one.
    fn own(&mut self, name: &str, from: &str, key: &str, value: &str) -> String {
        let entries = vec![(key.to_owned(), value.to_owned())];
        let map = Map { entries, ..Map::new(name, from.to_owned()) };
        if !self.document.maps.contains(&map) {
            self.document.maps.push(map);
        }
        format!("{{map.{name}}}")
    }

    fn texts(&mut self, name: &str, directive: &Directive) -> Result<Map, String> {
        let mut known = Constants::new();
        if directive.word(0).contains("$ssl_early_data") && directive.word(0) != "$ssl_early_data" {
            known.insert("ssl_early_data".into(), String::new());
            let what = "`$ssl_early_data` counts as empty: the server itself sends 425 for early data that is not safe to repeat";
            self.report.differs(directive, what);
        }
        let from = match self.values_template(directive.word(0), &known, |_| false) {
            Err(_) if self.reads_field => self.field_template(directive.word(0), &known)?,
            from => from?,
        };
        let mut map = Map::new(name, from);
        let has_names = directive.children().iter().any(|entry| entry.name == "hostnames");
        for entry in directive.children() {
            let is_parameter =
                entry.words.is_empty() && matches!(&*entry.name, "hostnames" | "volatile");
            if is_parameter || entry.name == "include" {
                continue;
            }
            let keys = keys(&entry.name, has_names)?;
            let has_group = |group: &str| {
                keys.first().and_then(|key| key.strip_prefix('~')).is_some_and(|text| {
                    Expression { text: text.to_owned(), except: None }.has_group(group)
                })
            };
            let value = self.values_template(entry.word(0), &known, has_group)?;
            keys.into_iter().for_each(|key| map.add(key, value.clone()));
        }
        Ok(map)
    }

    fn shares(&mut self, name: &str, directive: &Directive) -> Result<Map, String> {
        let from = self.values_template(directive.word(0), &Constants::new(), |_| false)?;
        let mut map = Map { is_split: true, ..Map::new(name, from) };
        if directive.word(0).contains("$binary_remote_addr") {
            self.report.differs(
                directive,
                "the text of the address is hashed, not its bytes: clients have other shares",
            );
        }
        for entry in directive.children() {
            let mut key = entry.name.clone();
            while map.entries.iter().any(|(known, _)| *known == key) {
                // Shares of the same size have keys of their own.
                let number = key.trim_end_matches('%').to_owned();
                key = match number.contains('.') {
                    true => format!("{number}0%"),
                    false => format!("{number}.0%"),
                };
            }
            if entry.word(0).contains(['{', '}', '$']) {
                return Err(format!("{}: a brace", entry.word(0)));
            }
            map.entries.push((key, entry.word(0).to_owned()));
        }
        Ok(map)
    }
}

fn has_brace(part: &Part<'_>) -> bool {
    matches!(part, Part::Text(text) if text.contains(['{', '}']))
}

/// Returns `true` if a text has a word in braces, which a template may take for a placeholder.
fn is_like_placeholder(text: &str) -> bool {
    text.match_indices('{').any(|(start, _)| {
        let name = text[start + 1..].split_once('}').map_or("", |(name, _)| name);
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !name.is_empty() && name.chars().all(is_of_name)
    })
}

/// Returns the placeholder of a value that is known with the response.
fn response_value(name: &str) -> Option<String> {
    let field = name.strip_prefix("upstream_http_").or_else(|| name.strip_prefix("sent_http_"));
    if let Some(field) = field {
        return Some(format!("{{response.{}}}", field_name(field)));
    }
    if let Some(cookie) = name.strip_prefix("upstream_cookie_") {
        return Some(format!("{{response_cookie.{cookie}}}"));
    }
    let value = match name {
        "status" | "upstream_status" => "status",
        "upstream_addr" => "upstream_address",
        "upstream_response_time" => "upstream_time",
        "date_gmt" => "date",
        "upstream_cache_status" => "cache_status",
        "remote_user" => "user",
        "connection" | "connection_requests" | "request_id" | "request_body" => name,
        "remote_port" | "proxy_protocol_port" | "realip_remote_port" => "client_port",
        "proxy_protocol_addr" => "client",
        "server_addr" | "proxy_protocol_server_addr" => "server_address",
        "server_port" | "proxy_protocol_server_port" => "server_port",
        "ssl_protocol" => "tls_protocol",
        "ssl_cipher" => "tls_cipher",
        "ssl_client_s_dn" => "tls_client_subject",
        "ssl_client_verify" => "tls_client_verify",
        "ssl_server_name" => "tls_server_name",
        "ssl_session_reused" => "tls_resumed",
        _ => return None,
    };
    Some(format!("{{{value}}}"))
}

/// Returns the keys of an entry of a `map`.
fn keys(text: &str, has_names: bool) -> Result<Vec<String>, String> {
    if let Some(pattern) = text.strip_prefix('~') {
        let (pattern, ignores_case) = match pattern.strip_prefix('*') {
            Some(pattern) => (pattern, true),
            None => (pattern, false),
        };
        let expression = Expression::whole(pattern, ignores_case)?;
        return match expression.except {
            None => Ok(vec![format!("~{}", expression.text)]),
            Some(_) => Err("expressions match in linear time, without look-ahead".to_owned()),
        };
    }
    if text == "default" {
        return Ok(vec![OTHER.to_owned()]);
    }
    if let (true, Some(name)) = (has_names, text.strip_prefix('.')) {
        return Ok(vec![name.to_owned(), format!("*.{name}")]);
    }
    let is_pattern = has_names && (text.starts_with("*.") || text.ends_with(".*"));
    let plain = match text.strip_prefix('\\') {
        Some(plain) => plain,
        None => text,
    };
    match plain.contains('*') && !is_pattern || plain.starts_with('~') {
        true => Ok(vec![format!("~(?i)^{}$", regex::escape(plain))]),
        false => Ok(vec![plain.to_owned()]),
    }
}
