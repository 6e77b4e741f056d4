//! Errors of the TOML parser, in the terms of a configuration.

use std::ops::Range;

use super::error::{Problem, Source};
use super::foreign;

/// Returns the problem of a syntax error at `span` with the message of the parser.
pub(super) fn problem(source: &Source<'_>, span: Option<Range<usize>>, message: &str) -> Problem {
    if let Some(problem) = foreign(source, span.as_ref()) {
        return problem;
    }
    let what = curly(source.text, span.as_ref())
        .or_else(|| unquoted(source.text, span.as_ref()))
        .unwrap_or_else(|| one_line(message));
    source.problem(span.as_ref(), what)
}

/// Returns the problem of a file, or of a line, in the syntax of another server.
fn foreign(source: &Source<'_>, span: Option<&Range<usize>>) -> Option<Problem> {
    let at = span?.start;
    let (start, text) = source.files().filter(|(start, _)| *start <= at).last()?;
    let path = source.file_at(at).0;
    let (offset, what) = foreign::recognize(text, path, at - start)?;
    let offset = start + offset;
    Some(source.problem(Some(&(offset..offset)), what))
}

/// Suggests straight quotes instead of typographic ones.
fn curly(text: &str, span: Option<&Range<usize>>) -> Option<String> {
    let at = text.floor_char_boundary(span?.start);
    let quote = text[at..].chars().next().filter(|c| "“”„«»‘’".contains(*c))?;
    Some(format!(
        "{quote} is a typographic quotation mark; write straight ones, as in \"/srv/www\""
    ))
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
        .then(|| format!("the value of `{key}` is text: put it in quotes, {key} = \"{value}\""))
}

/// Returns the message of the parser in one line, in plain words where those of the parser are terms of the grammar.
fn one_line(message: &str) -> String {
    let line = message.trim().replace('\n', ", ");
    match line.as_str() {
        "duplicate key" => "this key is set twice in its table; remove one of the lines".to_owned(),
        _ if line.starts_with("invalid basic string, expected `\"`") => {
            "this text has no closing quotation mark".to_owned()
        }
        _ => line,
    }
}
