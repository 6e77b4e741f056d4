//! Patterns for values of requests: texts with any number of `*`, and regular expressions after a `~`.

use std::fmt;

use regex::bytes::Regex;

use super::glob::Glob;
use super::path_regex::{compile, describe};

/// A pattern for a value.
#[derive(Debug, Clone)]
pub(super) enum ValuePattern {
    Glob(Glob),
    Regex(Regex),
}

impl ValuePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The regular expression is malformed or too large. The error is one line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix('~') {
            Some(expression) => expression_of(expression).map(Self::Regex),
            None => Ok(Self::Glob(Glob::new(text))),
        }
    }

    /// Returns `true` if the pattern matches all of the value; a regular expression, if it matches a part of it.
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Glob(glob) => glob.matches(value),
            Self::Regex(regex) => regex.is_match(value),
        }
    }
}

/// Compiles a regular expression for values.
///
/// # Errors
/// The expression is malformed or too large. The error is one line.
pub(super) fn expression_of(text: &str) -> Result<Regex, String> {
    compile(text, false).map_err(|error| format!("{text:?}: {}", describe(error)))
}

impl PartialEq for ValuePattern {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Glob(one), Self::Glob(other)) => one == other,
            (Self::Regex(one), Self::Regex(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}

impl fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Glob(glob) => write!(f, "{glob}"),
            Self::Regex(regex) => write!(f, "~{}", regex.as_str()),
        }
    }
}
