//! Errors of the TOML parser, in the terms of a configuration.

use std::ops::Range;

use super::error::{Problem, Source};

/// Returns the problem of a syntax error at `span` with the message of the parser.
pub(super) fn problem(source: &Source<'_>, span: Option<Range<usize>>, message: &str) -> Problem {
    let what = unquoted(source.text, span.as_ref()).unwrap_or_else(|| one_line(message));
    source.problem(span.as_ref(), what)
}

/// Suggests a fix for an error within a value without quotes.
fn unquoted(text: &str, span: Option<&Range<usize>>) -> Option<String> {
    let at = text.floor_char_boundary(span?.start);
    let start = text[..at].rfind('\n').map_or(0, |line| line + 1);
    let line = text[start..].lines().next()?;
    let (key, value) = line.split_once('=')?;
    let value = value.split('#').next().unwrap_or_default().trim();
    let is_key = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '"' | ' ');
    let is_bare = |c: char| c.is_alphanumeric() || "_-./:*@%+".contains(c);
    let (is_key, is_bare) = (key.trim().chars().all(is_key), value.chars().all(is_bare));
    let key = key.trim();
    (is_key && is_bare && !key.is_empty() && !value.is_empty())
        .then(|| format!("the value of `{key}` is a text: put it in quotes, {key} = \"{value}\""))
}

fn one_line(message: &str) -> String {
    message.trim().replace('\n', ", ")
}
