//! The configuration that results.

use crate::keys::Keys;
use crate::map::Map;
use crate::value::Value;

/// The whole configuration.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// The tables `[server]`, `[server.http1]` and so on, by name.
    pub(crate) tables: Vec<(String, Vec<(String, Value)>)>,
    pub(crate) maps: Vec<Map>,
    pub(crate) listens: Vec<Listener>,
    pub(crate) sites: Vec<Site>,
}

/// A table `[[listen]]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listener {
    pub(crate) address: String,
    pub(crate) keys: Vec<(String, Value)>,
}

/// A table `[[site]]`.
#[derive(Debug, Default)]
pub(crate) struct Site {
    pub(crate) comment: String,
    /// Hosts; empty for every other host.
    pub(crate) hosts: Vec<String>,
    /// Addresses of its listeners; empty for all.
    pub(crate) listen: Vec<String>,
    pub(crate) tls: Option<Value>,
    /// Keys of the site itself: `root`, and those of its routes for all paths.
    pub(crate) keys: Keys,
    pub(crate) routes: Vec<Route>,
}

/// A table `[[site.route]]`.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) comment: String,
    pub(crate) matching: Matching,
    pub(crate) when: Option<Value>,
    pub(crate) keys: Keys,
}

/// The paths of a route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Matching {
    /// These paths, or patterns with a `*`.
    Paths(Vec<String>),
    /// Those that a regular expression matches.
    Regex(String),
}

impl Document {
    /// Returns the value of a key of a table.
    pub(crate) fn get(&self, table: &str, key: &str) -> Option<&Value> {
        let (_, entries) = self.tables.iter().find(|(name, _)| name == table)?;
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Sets a key of a table.
    pub(crate) fn set(&mut self, table: &str, key: &str, value: Value) {
        let at = self.tables.iter().position(|(name, _)| name == table).unwrap_or_else(|| {
            self.tables.push((table.to_owned(), Vec::new()));
            self.tables.len() - 1
        });
        let entries = &mut self.tables[at].1;
        entries.retain(|(name, _)| name != key);
        entries.push((key.to_owned(), value));
    }
}

/// Returns a path in the form of a pattern, in which some characters have another meaning.
pub(crate) fn pattern_text(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '#' => text.push_str("%23"),
            '%' => text.push_str("%25"),
            '*' => text.push_str("%2A"),
            '?' => text.push_str("%3F"),
            c => text.push(c),
        }
    }
    text
}

/// Returns conditions that hold where both hold.
///
/// # Errors
/// Both have a value for the same name.
pub(crate) fn both(first: &Value, second: &Value) -> Result<Value, String> {
    let mut all = first.clone();
    for (key, value) in second.entries() {
        match all.get(key).cloned() {
            None => all.set(key, value.clone()),
            Some(mut known @ Value::Table(_)) if key != "not" => {
                for (name, value) in value.entries() {
                    if known.get(name).is_some() {
                        return Err(format!("two conditions on {name}"));
                    }
                    known.set(name, value.clone());
                }
                all.set(key, known);
            }
            Some(known) if known == *value => {}
            Some(_) => return Err(format!("two conditions on {key}")),
        }
    }
    Ok(all)
}
