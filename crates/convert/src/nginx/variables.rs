//! Variables of nginx in texts, and their placeholders.

use std::collections::HashMap;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Text(&'t str),
    Variable(&'t str),
}

/// Splits a text into plain parts and the names of variables.
pub(super) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut plain = 0;
    while let Some(at) = rest[plain..].find('$').map(|at| at + plain) {
        let after = &rest[at + 1..];
        let (name, end) = match after.strip_prefix('{').and_then(|inner| inner.find('}')) {
            Some(length) => (&after[1..=length], length + 2),
            None => {
                let is_digit = after.starts_with(|c: char| c.is_ascii_digit());
                let end = match is_digit {
                    true => 1,
                    false => after
                        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                        .unwrap_or(after.len()),
                };
                (&after[..end], end)
            }
        };
        if name.is_empty() {
            plain = at + 1;
            continue;
        }
        if at > 0 {
            parts.push(Part::Text(&rest[..at]));
        }
        parts.push(Part::Variable(name));
        rest = &after[end..];
        plain = 0;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}

/// Returns `true` if the text has a variable.
pub(super) fn has_variable(text: &str) -> bool {
    parts(text).iter().any(|part| matches!(part, Part::Variable(_)))
}

/// The variables whose values do not depend on the request.
pub(super) type Constants = HashMap<String, String>;

/// Returns the text with the values of constants.
///
/// # Errors
/// The first variable that is none.
pub(super) fn constant(text: &str, constants: &Constants) -> Result<String, String> {
    let mut result = String::new();
    for part in parts(text) {
        match part {
            Part::Text(text) => result.push_str(text),
            Part::Variable(name) => {
                result.push_str(constants.get(name).ok_or_else(|| format!("${name}"))?);
            }
        }
    }
    Ok(result)
}

/// Returns the text with the values of constants; other variables stay.
pub(super) fn with_constants(text: &str, constants: &Constants) -> String {
    let mut result = String::new();
    for part in parts(text) {
        match part {
            Part::Text(text) => result.push_str(text),
            Part::Variable(name) => match constants.get(name) {
                Some(value) => result.push_str(value),
                None => result.push_str(&format!("${{{name}}}")),
            },
        }
    }
    result
}

/// The variable of the query that nginx adds to a new path by itself.
pub(super) const APPENDED: &str = "appended_query";

/// The place of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// `redirect`
    Redirect,
    /// `rewrite` and `try`
    Path,
}

/// Returns the text as a template. `values` has the placeholders of further variables, `group` returns `true` for the names of groups.
///
/// # Errors
/// The variable that has no placeholder there.
pub(super) fn template(
    text: &str,
    place: Place,
    constants: &Constants,
    values: &Constants,
    group: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let text = with_constants(text, constants);
    if parts(&text).iter().any(|part| matches!(part, Part::Text(text) if text.contains(['{', '}'])))
    {
        return Err("a brace".to_owned());
    }
    let mut result = String::new();
    let all = parts(&text);
    let mut at = 0;
    while let Some(part) = all.get(at) {
        at += 1;
        let name = match part {
            Part::Text(text) => {
                result.push_str(text);
                continue;
            }
            Part::Variable(name) => *name,
        };
        let is_next = |names: &[&str]| matches!(all.get(at), Some(Part::Variable(next)) if names.contains(next));
        match name {
            "is_args" if is_next(&["args", "query_string"]) => {
                at += 1;
                result.push_str(if result.contains('?') { "&{query}" } else { "?{query}" });
            }
            APPENDED => result.push_str("{query}"),
            "args" | "query_string" => {
                let is_explicit = place == Place::Path && result.ends_with('&');
                result.push_str(if is_explicit { "{raw_query}" } else { "{query}" });
            }
            "uri" | "document_uri" if is_next(&["is_args"]) && place == Place::Redirect => {
                at += 2;
                result.push_str("{target}");
            }
            "uri" | "document_uri" => result.push_str("{path}"),
            "request_uri" if place == Place::Redirect => result.push_str("{target}"),
            "request_uri" => result.push_str("{path}"),
            "host" | "http_host" if place == Place::Redirect => result.push_str("{host}"),
            "scheme" if place == Place::Redirect && result.is_empty() => {
                // `//host` has the scheme of the request.
                let Some(Part::Text(next)) = all.get(at) else { return Err("$scheme".to_owned()) };
                let Some(after) = next.strip_prefix("://") else {
                    return Err("$scheme".to_owned());
                };
                at += 1;
                result.push_str("//");
                result.push_str(after);
            }
            name if group(name) => result.push_str(&format!("{{{name}}}")),
            name => match values.get(name) {
                Some(placeholder) => result.push_str(placeholder),
                None => return Err(format!("${name}")),
            },
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_at_variables() {
        use Part::{Text, Variable};
        assert_eq!(
            parts("a$b/${c}d$1x$"),
            [
                Text("a"),
                Variable("b"),
                Text("/"),
                Variable("c"),
                Text("d"),
                Variable("1"),
                Text("x$")
            ]
        );
        assert_eq!(parts("$"), [Text("$")]);
    }

    #[test]
    fn variables_become_placeholders() {
        let none = Constants::new();
        let redirect = |text| template(text, Place::Redirect, &none, &none, |name| name == "1");
        for (text, expected) in [
            ("https://$host$request_uri", "https://{host}{target}"),
            ("$scheme://www.a.test$request_uri", "//www.a.test{target}"),
            ("/x$is_args$args", "/x?{query}"),
            ("/x/$1?a=b&$args", "/x/{1}?a=b&{query}"),
            ("https://a.test$uri$is_args$args", "https://a.test{target}"),
        ] {
            assert_eq!(redirect(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(redirect("/$cookie_a").unwrap_err(), "$cookie_a");
        let path = template("/index.php?q=$uri&$args", Place::Path, &none, &none, |_| false);
        assert_eq!(path.as_deref(), Ok("/index.php?q={path}&{raw_query}"));
    }
}
