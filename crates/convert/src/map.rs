//! Tables `[map.NAME]`.

use crate::value::Value;

/// The key of the value for all other texts.
pub(crate) const OTHER: &str = "*";

/// A table `[map.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Map {
    pub(crate) name: String,
    pub(crate) from: String,
    /// `true` for shares of clients.
    pub(crate) is_split: bool,
    pub(crate) entries: Vec<(String, String)>,
}

impl Map {
    pub(crate) fn with(name: &str, from: String, entries: Vec<(String, String)>) -> Self {
        Self { entries, ..Self::new(name, from) }
    }

    pub(crate) fn new(name: &str, from: String) -> Self {
        Self { name: name.to_owned(), from, is_split: false, entries: Vec::new() }
    }

    /// Returns the key of its values, and these.
    pub(crate) fn values(&self) -> (&'static str, Value) {
        let entries = self.entries.iter().map(|(key, value)| (key.clone(), Value::text(value)));
        (if self.is_split { "split" } else { "values" }, Value::Table(entries.collect()))
    }

    /// Adds a value, unless the key has one.
    pub(crate) fn add(&mut self, key: String, value: String) {
        if !self.entries.iter().any(|(known, _)| known.eq_ignore_ascii_case(&key)) {
            self.entries.push((key, value));
        }
    }

    /// Returns all values; `None` if one depends on the request.
    pub(crate) fn fixed(&self) -> Option<Vec<&str>> {
        let mut values: Vec<&str> = self.entries.iter().map(|(_, value)| value.as_str()).collect();
        if !self.entries.iter().any(|(key, _)| key == OTHER) {
            values.push("");
        }
        values.sort_unstable();
        values.dedup();
        values.iter().all(|value| !value.contains('{')).then_some(values)
    }

    /// Returns the test whether nginx takes a value for true: neither empty nor `0`.
    pub(crate) fn truth(&self) -> Value {
        let list =
            |texts: Vec<&str>| Value::one_or_many(texts.into_iter().map(str::to_owned).collect());
        match self.fixed() {
            Some(values) if !values.contains(&"0") => Value::Switch(true),
            Some(values) => {
                let holds: Vec<&str> =
                    values.into_iter().filter(|value| !value.is_empty() && *value != "0").collect();
                match holds.is_empty()
                    || holds.iter().any(|value| value.starts_with('~') || value.contains('*'))
                {
                    true => Value::text("~^([^0]|..)"),
                    false => list(holds),
                }
            }
            None => Value::text("~(?s)^([^0]|..)"),
        }
    }
}
