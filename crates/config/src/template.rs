//! Texts with placeholders in braces.

use std::fmt;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Placeholder(Box<str>),
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

impl Template {
    /// Parses a text in which `{name}` is a placeholder, for each name in `known`.
    ///
    /// # Errors A name is unknown, a brace is not closed, or the text has a variable of another server.
    pub(super) fn parse(text: &str, known: &[&str]) -> Result<Self, String> {
        reject_variables(text, known)?;
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or("a `{` is not closed")?;
            let known = known.iter().find(|known| **known == name).ok_or_else(|| {
                format!("there is no placeholder {{{name}}}; there are: {{{}}}", known.join("}, {"))
            })?;
            parts.push(Part::Text(before.into()));
            parts.push(Part::Placeholder((*known).into()));
            rest = after;
        }
        parts.push(Part::Text(rest.into()));
        Ok(Self { parts })
    }

    /// Returns `true` if the template has no placeholder.
    pub(super) fn is_fixed(&self) -> bool {
        !self.parts.iter().any(|part| matches!(part, Part::Placeholder(_)))
    }

    /// Renders the text with the values that `value` writes.
    pub fn render(&self, mut value: impl FnMut(&str, &mut Vec<u8>)) -> Vec<u8> {
        let mut text = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(part) => text.extend_from_slice(part.as_bytes()),
                Part::Placeholder(name) => value(name, &mut text),
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
        })
    }
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
