//! Texts with placeholders in braces.

use std::fmt;
use std::ops::Range;

use super::facts::Facts;
use super::map::{Map, Maps};
use super::request_value::{NAMES, Piece, RequestValue};

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(Box<str>),
    Placeholder(Box<str>),
    Value(RequestValue),
}

/// Variables of other servers, and their replacements.
const FOREIGN: [(&str, &str); 18] = [
    ("args", "{query}"),
    ("arg_", "{query}"),
    ("query_string", "{query}"),
    ("is_args", "{query}"),
    ("uri", "{path}"),
    ("document_uri", "{path}"),
    ("request_uri", "{path}{query}"),
    ("request_filename", "{path}"),
    ("fastcgi_script_name", "{path}"),
    ("fastcgi_path_info", "{rest}"),
    ("host", "{host}"),
    ("http_", ""),
    ("server_name", "{host}"),
    ("server_port", ""),
    ("scheme", ""),
    ("remote_", ""),
    ("document_root", ""),
    ("request_method", ""),
];

/// A part of a template.
pub(super) enum Segment<'t> {
    Text(&'t str),
    /// A named placeholder.
    Named(&'t str),
    Value(&'t RequestValue),
}

impl Template {
    /// Returns the parts.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        self.parts.iter().map(|part| match part {
            Part::Text(text) => Segment::Text(text),
            Part::Placeholder(name) => Segment::Named(name),
            Part::Value(value) => Segment::Value(value),
        })
    }

    /// Parses a text in which `{name}` is a placeholder, for each name in `known`.
    ///
    /// # Errors
    /// A name is unknown, a brace is not closed, or the text has a variable of another server.
    pub(super) fn parse(text: &str, known: &[&str]) -> Result<Self, String> {
        Self::read(text, known, None)
    }

    /// As [`Template::parse`], with the values of requests as further placeholders.
    ///
    /// # Errors
    /// As [`Template::parse`], or there is no such map.
    pub(super) fn with_values(text: &str, known: &[&str], maps: &Maps) -> Result<Self, String> {
        Self::read(text, known, Some(maps))
    }

    /// As [`Template::with_values`], for a text that may have other braces.
    ///
    /// # Errors
    /// There is no such map, or the name of a field or cookie is invalid.
    pub(super) fn in_text(text: &str, known: &[&str], maps: &Maps) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((range, name)) = first_value(rest, known) {
            push_text(&rest[..range.start], &mut parts);
            parts.push(match RequestValue::parse(name, maps) {
                _ if known.contains(&name) => Part::Placeholder(name.into()),
                value => Part::Value(value.ok_or_else(|| unknown(name, known, true))??),
            });
            rest = &rest[range.end..];
        }
        push_text(rest, &mut parts);
        Ok(Self { parts })
    }

    /// Returns a text without placeholders.
    pub(super) fn of_text(text: &str) -> Self {
        let mut parts = Vec::new();
        push_text(text, &mut parts);
        Self { parts }
    }

    fn read(text: &str, known: &[&str], maps: Option<&Maps>) -> Result<Self, String> {
        reject_variables(text, known)?;
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("a `{` is not closed")?;
            push_text(before, &mut parts);
            let value = || maps.and_then(|maps| RequestValue::parse(name, maps));
            parts.push(match known.contains(&name) {
                true => Part::Placeholder(name.into()),
                false => Part::Value(value().ok_or_else(|| unknown(name, known, maps.is_some()))??),
            });
            rest = after;
        }
        push_text(rest, &mut parts);
        Ok(Self { parts })
    }

    /// Returns the text of a template that was made of a text without placeholders.
    pub(super) fn fixed_text(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns `true` if the template has no placeholder.
    pub(super) fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// Returns `true` if a client can choose a part of the text freely. Named placeholders are not examined.
    pub(super) fn is_chosen(&self) -> bool {
        self.values().any(RequestValue::is_chosen)
            || self.parts.iter().any(|part| matches!(part, Part::Placeholder(_)))
    }

    /// Returns the names of the placeholders that a client can choose freely.
    pub(super) fn chosen_names(&self) -> Vec<String> {
        let names = self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder(name) => (&**name != "host").then(|| name.to_string()),
            Part::Value(value) => value.is_chosen().then(|| value.to_string()),
        });
        names.collect()
    }

    /// Returns `true` if the text depends on more of a request than what the named placeholders stand for.
    pub(super) fn has_values(&self) -> bool {
        self.values().next().is_some()
    }

    /// Returns the map with whose value the text begins.
    pub(super) fn leading_map(&self) -> Option<&Map> {
        match self.parts.first()? {
            Part::Value(RequestValue::Map(map)) => Some(map),
            _ => None,
        }
    }

    /// Returns the values of requests that the template names.
    pub(super) fn values(&self) -> impl Iterator<Item = &RequestValue> {
        self.parts.iter().filter_map(|part| match part {
            Part::Value(value) => Some(value),
            _ => None,
        })
    }

    /// Returns the maps whose values the template names.
    pub(super) fn maps(&self) -> impl Iterator<Item = &Map> {
        self.values().filter_map(|value| match value {
            RequestValue::Map(map) => Some(&**map),
            _ => None,
        })
    }

    /// Passes on the pieces of the text. `named` passes on those of a named placeholder. Without facts, the values of requests are
    /// empty.
    pub(super) fn pieces(
        &self,
        facts: Option<&Facts<'_>>,
        add: &mut dyn FnMut(Piece<'_>),
        named: impl Fn(&str, &mut dyn FnMut(Piece<'_>)),
    ) {
        for part in &self.parts {
            match (part, facts) {
                (Part::Text(text), _) => add(Piece::Text(text)),
                (Part::Placeholder(name), _) => named(name, add),
                (Part::Value(value), Some(facts)) => value.pieces(facts, add),
                (Part::Value(_), None) => {}
            }
        }
    }

    /// Renders a text that names no values of requests but the placeholders that `named` writes.
    pub fn fill(&self, named: impl FnMut(&str, &mut Vec<u8>)) -> Vec<u8> {
        self.render(None, |_, _| {}, named)
    }

    /// Renders the text with what `named` writes for named placeholders. `encode` writes values of the request.
    pub(super) fn render(
        &self,
        facts: Option<&Facts<'_>>,
        encode: impl Fn(&[u8], &mut Vec<u8>),
        mut named: impl FnMut(&str, &mut Vec<u8>),
    ) -> Vec<u8> {
        let mut text = Vec::new();
        for part in &self.parts {
            match (part, facts) {
                (Part::Text(part), _) => text.extend_from_slice(part.as_bytes()),
                (Part::Placeholder(name), _) => named(name, &mut text),
                (Part::Value(value), Some(facts)) => {
                    value.pieces(facts, &mut |piece| piece.push_encoded(&encode, &mut text));
                }
                (Part::Value(_), None) => {}
            }
        }
        text
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Placeholder(name) => write!(f, "{{{name}}}"),
            Part::Value(value) => write!(f, "{{{value}}}"),
        })
    }
}

/// Appends a part of a text, unless it is empty.
fn push_text(text: &str, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        parts.push(Part::Text(text.into()));
    }
}

/// Returns `true` if the text names a value of requests.
pub(super) fn names_values(text: &str) -> bool {
    first_value(text, &[]).is_some()
}

/// Returns the first placeholder of a text that is known or names a value of requests.
fn first_value<'t>(text: &'t str, known: &[&str]) -> Option<(Range<usize>, &'t str)> {
    text.match_indices('{').find_map(|(start, _)| {
        let end = start + text[start..].find('}')?;
        let name = &text[start + 1..end];
        let is_value = known.contains(&name)
            || match name.split_once('.') {
                Some((kind, rest)) => {
                    matches!(kind, "header" | "cookie" | "query" | "map")
                        && !rest.contains(['"', ' ', '{'])
                }
                None => matches!(
                    name,
                    "method"
                        | "scheme"
                        | "protocol"
                        | "client"
                        | "host"
                        | "path"
                        | "query"
                        | "target"
                        | "time_iso"
                ),
            };
        is_value.then_some((start..end + 1, name))
    })
}

fn unknown(name: &str, known: &[&str], has_values: bool) -> String {
    let mut all: Vec<String> = known.iter().map(|known| format!("{{{known}}}")).collect();
    if has_values {
        all.push(NAMES.to_owned());
    }
    format!("there is no placeholder {{{name}}}; there are: {}", all.join(", "))
}

/// Returns the placeholders of a template: those that are `known`, and the groups of the route's regular expression.
pub(super) fn with_groups<'a>(known: &[&'a str], groups: &'a [String]) -> Vec<&'a str> {
    known.iter().copied().chain(groups.iter().map(String::as_str)).collect()
}

/// Appends bytes as a value within a query. Bytes that would end the value or have another meaning are percent-encoded; those
/// in `plain` are not.
pub(super) fn push_value(value: &[u8], plain: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~/:@,!*()".contains(&byte) || plain.contains(&byte)
        {
            text.push(byte);
        } else {
            // A NUL stands for an encoded slash.
            let byte = if byte == 0 { b'/' } else { byte };
            text.push(b'%');
            text.push(DIGITS[usize::from(byte >> 4)]);
            text.push(DIGITS[usize::from(byte & 15)]);
        }
    }
}

/// Adds a query to a path or URL, after a question mark unless there is one.
pub fn push_query(query: Option<&[u8]>, text: &mut Vec<u8>) {
    let has_query = memchr::memchr(b'?', text).is_some();
    match query {
        Some(query) => {
            if !has_query {
                text.push(b'?');
            }
            text.extend_from_slice(query);
        }
        // `/a?b={path}&{query}` without a query.
        None if has_query && text.ends_with(b"&") => drop(text.pop()),
        None => {}
    }
}

/// Rejects variables in the syntax of nginx (`$args`, `$uri`), which would be used literally. `known` are the allowed
/// placeholders.
///
/// # Errors The first variable, with its replacement.
pub(super) fn reject_variables(text: &str, known: &[&str]) -> Result<(), String> {
    for (at, _) in text.match_indices('$') {
        let name = text[at + 1..].trim_start_matches('{');
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = &name[..end.unwrap_or(name.len())];
        let is_capture = !known.is_empty() && name.starts_with(|c: char| c.is_ascii_digit());
        let foreign = FOREIGN.iter().find(|(foreign, _)| match foreign.strip_suffix('_') {
            Some(_) => name.starts_with(foreign),
            None => name == *foreign,
        });
        let instead = match foreign {
            _ if is_capture && known.contains(&name) => format!("{{{name}}}"),
            _ if is_capture => "{rest}".to_owned(),
            Some((_, instead)) => (*instead).to_owned(),
            None => continue,
        };
        let may_have =
            |name: &String| known.iter().any(|known| name.contains(&format!("{{{known}}}")));
        return Err(match Some(instead).filter(may_have) {
            Some(instead) => format!("there are no variables such as ${name}; write {instead}"),
            None if known.is_empty() => {
                format!("there are no variables such as ${name}: the text is used as it stands")
            }
            None => format!(
                "there are no variables such as ${name}; there are: {{{}}}",
                known.join("}, {")
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_other_servers_are_rejected_with_their_replacement() {
        let known = &["path", "query", "rest"];
        for (text, instead) in [
            ("/index.php?$args", "{query}"),
            ("/index.php$is_args$args", "{query}"),
            ("$uri/", "{path}"),
            ("${uri}", "{path}"),
            ("$request_uri", "{path}{query}"),
            ("/x/$1", "{rest}"),
            ("/x?a=$arg_page", "{query}"),
        ] {
            let error = Template::parse(text, known).unwrap_err();
            assert!(error.contains(&format!("write {instead}")), "{text}: {error}");
        }
        assert!(Template::parse("/$/a$b?price=$", known).is_ok());
        assert!(reject_variables("$5 for $name", &[]).is_ok());
        assert!(reject_variables("$remote_addr", &[]).unwrap_err().contains("as it stands"));
    }

    #[test]
    fn a_query_is_appended_to_an_existing_one() {
        let join = |text: &str, query: Option<&[u8]>| {
            let mut joined = text.as_bytes().to_vec();
            push_query(query, &mut joined);
            String::from_utf8(joined).unwrap()
        };
        assert_eq!(join("/a", Some(b"b=c")), "/a?b=c");
        assert_eq!(join("/a?", Some(b"b=c")), "/a?b=c");
        assert_eq!(join("/a?x=1&", Some(b"b=c")), "/a?x=1&b=c");
        assert_eq!(join("/a?x=1&", None), "/a?x=1");
        assert_eq!(join("/a", None), "/a");
    }
}
