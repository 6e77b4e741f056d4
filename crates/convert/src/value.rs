//! Values of TOML.

use std::fmt;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Switch(bool),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn list(texts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::List(texts.into_iter().map(Self::text).collect())
    }

    /// A list, or its only text.
    pub(crate) fn one_or_many(texts: Vec<String>) -> Self {
        match <[String; 1]>::try_from(texts) {
            Ok([text]) => Self::Text(text),
            Err(texts) => Self::list(texts),
        }
    }

    pub(crate) fn table<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Returns the entries of a table; none of another value.
    pub(crate) fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Table(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns the value with changed texts.
    pub(crate) fn with_texts(&self, change: &impl Fn(&str) -> String) -> Self {
        match self {
            Self::Text(text) => Self::Text(change(text)),
            Self::List(list) => Self::List(list.iter().map(|one| one.with_texts(change)).collect()),
            Self::Table(entries) => {
                let changed =
                    |(key, value): &(String, Self)| (key.clone(), value.with_texts(change));
                Self::Table(entries.iter().map(changed).collect())
            }
            other => other.clone(),
        }
    }

    /// Sets an entry of a table.
    pub(crate) fn set(&mut self, key: &str, value: Self) {
        let Self::Table(entries) = self else { return };
        match entries.iter_mut().find(|(name, _)| name == key) {
            Some(entry) => entry.1 = value,
            None => entries.push((key.to_owned(), value)),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Number(number) => write!(f, "{number}"),
            Self::Switch(is_on) => write!(f, "{is_on}"),
            Self::List(list) => {
                f.write_str("[")?;
                for (at, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Table(entries) if entries.is_empty() => f.write_str("{}"),
            Self::Table(entries) => {
                f.write_str("{ ")?;
                for (at, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{} = {value}", if at == 0 { "" } else { ", " }, quoted_key(key))?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// Returns a text in the form in which it needs the fewest escapes.
fn quoted(text: &str) -> String {
    let needs_escape = text.contains(['\\', '"']);
    if needs_escape && !text.contains(|c: char| c == '\'' || c.is_control()) {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

pub(crate) fn quoted_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match !key.is_empty()
        && key.chars().all(is_bare)
        && !key.starts_with(|c: char| c.is_ascii_digit())
    {
        true => key.to_owned(),
        false => quoted(key),
    }
}
