//! What the whole conversion knows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::map::Map;
use crate::model::Document;
use crate::report::Report;
use crate::value::Value;

/// What the whole conversion knows.
pub(super) struct Context {
    pub(super) report: Report,
    pub(super) document: Document,
    /// `ServerRoot`.
    server_root: PathBuf,
    /// The document root of a `.htaccess` file.
    pub(super) htaccess_root: Option<String>,
    /// A section that restricts access is lost: requests of the site get 403.
    pub(super) is_closed: bool,
    /// Formats of logs, by name.
    pub(super) log_formats: HashMap<String, String>,
    /// Upstreams of `<Proxy balancer://NAME>`, by name.
    pub(super) balancers: HashMap<String, Balancer>,
}

/// Upstreams with one name.
#[derive(Debug, Clone, Default)]
pub(super) struct Balancer {
    /// URLs with their weights.
    pub(super) members: Vec<(String, u64)>,
    pub(super) balance: Option<String>,
}

impl Context {
    pub(super) fn new(server_root: PathBuf) -> Self {
        Self {
            report: Report::default(),
            document: Document::default(),
            server_root,
            htaccess_root: None,
            is_closed: false,
            log_formats: HashMap::new(),
            balancers: HashMap::new(),
        }
    }

    /// Returns a path that is relative to `ServerRoot`, without a slash at its end.
    pub(super) fn in_root(&self, path: &str) -> String {
        let joined = self.server_root.join(Path::new(path));
        let text = joined.to_string_lossy();
        match text.strip_suffix('/') {
            Some(plain) if !plain.is_empty() => plain.to_owned(),
            _ => text.into_owned(),
        }
    }

    /// Returns the condition that an expression matches a text with values of the request, or does not. `value` is what the map
    /// has where it matches.
    pub(super) fn tested(&mut self, from: &str, expression: &str, is_negated: bool) -> Value {
        let name = self.map(from, expression, "1");
        Value::table([("map", Value::Table(vec![(name, Value::Switch(!is_negated))]))])
    }

    /// Returns the name of a map with one expression.
    pub(super) fn map(&mut self, from: &str, expression: &str, value: &str) -> String {
        self.map_of(from, vec![(format!("~{expression}"), value.to_owned())])
    }

    /// Returns the name of a map with these entries.
    pub(super) fn map_of(&mut self, from: &str, entries: Vec<(String, String)>) -> String {
        let known =
            self.document.maps.iter().find(|map| map.from == from && map.entries == entries);
        if let Some(known) = known {
            return known.name.clone();
        }
        let stem = from.rsplit(['.', ' ']).next().unwrap_or_default();
        let stem: String = stem
            .trim_matches(|c| matches!(c, '{' | '}'))
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        let is_free = |name: &String| self.document.maps.iter().all(|map| map.name != *name);
        let name = (1..).map(|number| format!("{stem}_{number}")).find(is_free).unwrap_or(stem);
        self.document.maps.push(Map::with(&name, from.to_owned(), entries));
        name
    }
}
