//! The condition of an `if` as the table `when`, or as an expression for paths.

use super::expression::{Expression, globs};
use super::variables::Constants;
pub(super) use crate::model::both;
use crate::value::Value;

/// What an `if` depends on.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    /// Conditions besides the path.
    When(Value),
    /// The path matches.
    Path(Expression),
    /// The condition holds for every request, or for none.
    Fixed(bool),
    /// The file of the request exists, or does not.
    File { exists: bool },
}

/// A condition with a difference that remains.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Read {
    pub(super) condition: Condition,
    pub(super) difference: Option<&'static str>,
}

/// Returns the words of an `if` without their parentheses.
pub(super) fn terms(words: &[String]) -> Vec<&str> {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(first) = words.first_mut() {
        *first = first.strip_prefix('(').unwrap_or(first);
    }
    if let Some(last) = words.last_mut() {
        *last = last.strip_suffix(')').unwrap_or(last);
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Reads the words of an `if`, with their parentheses.
///
/// # Errors
/// What the condition depends on that `when` has no word for.
pub(super) fn read(words: &[String], constants: &Constants) -> Result<Read, String> {
    let words = terms(words);
    let plain = |condition| Read { condition, difference: None };
    match words[..] {
        [
            file @ ("-f" | "!-f" | "-e" | "!-e"),
            "$request_filename"
            | "$document_root$uri"
            | "$document_root$document_uri"
            | "$document_root/$uri",
        ] => Ok(plain(Condition::File { exists: !file.starts_with('!') })),
        [file @ ("-f" | "!-f" | "-e" | "!-e" | "-d" | "!-d" | "-x" | "!-x"), name] => {
            Err(format!("{file} {name}: conditions on files are those of `try`"))
        }
        [variable] => truth(variable, constants).map(plain),
        [variable, sign @ ("=" | "!="), value] => {
            let test = equality(variable, value, constants)?;
            let condition = if sign == "=" { test } else { negated(test)? };
            let is_get = (variable, value) == ("$request_method", "GET");
            let difference = is_get.then_some("HEAD counts as GET");
            Ok(Read { condition, difference })
        }
        // `$x = ""` has an empty value.
        [variable, sign @ ("=" | "!=")] => {
            let test = equality(variable, "", constants)?;
            Ok(plain(if sign == "=" { test } else { negated(test)? }))
        }
        [variable, sign @ ("~" | "~*" | "!~" | "!~*"), pattern] => {
            let Read { condition, difference } = matching(variable, pattern, sign.ends_with('*'))?;
            let condition = if sign.starts_with('!') { negated(condition)? } else { condition };
            Ok(Read { condition, difference })
        }
        _ => Err(words.join(" ")),
    }
}

/// Returns the opposite of a condition.
///
/// # Errors
/// What cannot be expressed.
pub(super) fn negated(condition: Condition) -> Result<Condition, String> {
    match condition {
        Condition::When(when) => Ok(Condition::When(match when.get("not") {
            Some(inner) if when.entries().len() == 1 => inner.clone(),
            _ => Value::table([("not", when)]),
        })),
        Condition::Fixed(holds) => Ok(Condition::Fixed(!holds)),
        Condition::File { exists } => Ok(Condition::File { exists: !exists }),
        Condition::Path(_) => Err("paths that an expression does not match".to_owned()),
    }
}

fn one(name: &str, value: Value) -> Condition {
    Condition::When(Value::table([(name, value)]))
}

fn named(kind: &str, name: &str, value: Value) -> Condition {
    one(kind, Value::Table(vec![(name.to_owned(), value)]))
}

/// Returns the kind of value of a variable and its name there.
fn value_of(variable: &str) -> Option<(&'static str, String)> {
    let variable = variable.trim_start_matches('$').trim_matches(|c| matches!(c, '{' | '}'));
    if let Some(name) = variable.strip_prefix("http_") {
        return Some(("header", field_name(name)));
    }
    if let Some(name) = variable.strip_prefix("cookie_") {
        return Some(("cookie", name.to_owned()));
    }
    if let Some(name) = variable.strip_prefix("arg_") {
        return Some(("query", name.to_owned()));
    }
    match variable {
        "host" => Some(("header", "Host".to_owned())),
        "content_type" => Some(("header", "Content-Type".to_owned())),
        _ => None,
    }
}

/// Returns the usual spelling of the field that a variable stands for.
pub(super) fn field_name(variable: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_ascii_uppercase().to_string() + letters.as_str()
        })
    };
    variable.split('_').map(word).collect::<Vec<_>>().join("-")
}

fn truth(variable: &str, constants: &Constants) -> Result<Condition, String> {
    let name = variable.trim_start_matches('$');
    if let Some(value) = constants.get(name) {
        return Ok(Condition::Fixed(!value.is_empty() && value != "0"));
    }
    match (name, value_of(variable)) {
        ("https", _) => Ok(one("scheme", Value::text("https"))),
        (_, Some((kind, name))) => Ok(named(kind, &name, Value::Switch(true))),
        _ => Err(variable.to_owned()),
    }
}

fn equality(variable: &str, value: &str, constants: &Constants) -> Result<Condition, String> {
    let name = variable.trim_start_matches('$').trim_matches(|c| matches!(c, '{' | '}'));
    if value.contains('$') {
        return Err(format!("{variable} = {value}"));
    }
    if let Some(known) = constants.get(name) {
        return Ok(Condition::Fixed(known == value));
    }
    match name {
        "request_method" => return Ok(one("method", Value::text(value))),
        "scheme" => return Ok(one("scheme", Value::text(value))),
        "https" => {
            return Ok(one("scheme", Value::text(if value == "on" { "https" } else { "http" })));
        }
        "server_port" if value == "80" => return Ok(one("scheme", Value::text("http"))),
        "server_port" if value == "443" => return Ok(one("scheme", Value::text("https"))),
        "remote_addr" => return Ok(one("client", Value::text(value))),
        "uri" | "document_uri" => {
            let text = format!("^{}$", regex::escape(value));
            return Ok(Condition::Path(Expression { text, except: None }));
        }
        "request_uri" if !value.contains('?') => {
            let text = format!("^{}$", regex::escape(value));
            return Ok(Condition::Path(Expression { text, except: None }));
        }
        "host" | "http_host" => {
            let values = [value.to_owned(), format!("{value}:*")];
            return Ok(named("header", "Host", Value::list(values)));
        }
        "args" | "query_string" => {
            if let Some((key, value)) = value.split_once('=')
                && !value.contains(['&', '%', '+'])
            {
                return Ok(named("query", key, Value::text(value)));
            }
        }
        _ => {}
    }
    match value_of(variable) {
        // An empty value is like none.
        Some((kind, name)) if value.is_empty() => {
            negated(named(kind, &name, Value::text("~(?s).")))
        }
        Some((kind, name)) if !value.contains('*') => Ok(named(kind, &name, Value::text(value))),
        _ => Err(variable.to_owned()),
    }
}

fn matching(variable: &str, pattern: &str, ignores_case: bool) -> Result<Read, String> {
    let name = variable.trim_start_matches('$').trim_matches(|c| matches!(c, '{' | '}'));
    if matches!(name, "uri" | "document_uri" | "request_uri") {
        let expression = Expression::new(pattern, ignores_case)?;
        if name == "request_uri" && !expression.has_group("1") {
            // The target with its query is the text of a map.
            return Err(format!("{variable} ~ {pattern}"));
        }
        let condition = Condition::Path(expression);
        let difference = (name == "request_uri").then_some(
            "the decoded path is compared, without its query, not the URI as it was sent",
        );
        return Ok(Read { condition, difference });
    }
    if matches!(name, "args" | "query_string") {
        return query(pattern)
            .map(|condition| Read { condition, difference: None })
            .ok_or_else(|| variable.to_owned());
    }
    let is_host = matches!(name, "host" | "http_host");
    let has_letters = pattern.contains(char::is_alphabetic);
    let globs = globs(pattern)
        .filter(|globs| !globs.is_empty() && (is_host || !ignores_case || !has_letters));
    let Some(globs) = globs else {
        return expression(variable, pattern, ignores_case);
    };
    let is_present = |globs: &[String]| globs.iter().any(|glob| glob == "*");
    let condition = match (name, value_of(variable)) {
        ("request_method", _) if globs.iter().all(|glob| !glob.contains('*')) => {
            one("method", Value::one_or_many(globs))
        }
        ("host" | "http_host", _) => {
            let with_port = |glob: &String| match glob.ends_with('*') {
                true => vec![glob.clone()],
                false => vec![glob.clone(), format!("{glob}:*")],
            };
            named("header", "Host", Value::list(globs.iter().flat_map(with_port)))
        }
        (_, Some((kind, name))) if is_present(&globs) => named(kind, &name, Value::Switch(true)),
        (_, Some((kind, name))) => named(kind, &name, Value::one_or_many(globs)),
        _ => return Err(variable.to_owned()),
    };
    Ok(Read { condition, difference: None })
}

/// Returns the condition that a regular expression matches a value.
fn expression(variable: &str, pattern: &str, ignores_case: bool) -> Result<Read, String> {
    let what = format!("{variable} ~ {pattern}");
    let expression = Expression::new(pattern, ignores_case)?;
    // An absent value is empty with nginx, and is not compared here.
    let matches_nothing = expression.matches("");
    let (kind, name) = value_of(variable)
        .filter(|(_, name)| name != "Host" && expression.except.is_none() && !matches_nothing)
        .ok_or(what)?;
    let condition = named(kind, &name, Value::text(format!("~{}", expression.text)));
    Ok(Read { condition, difference: None })
}

/// Returns the condition on a parameter of the query: `(^|&)name=value`.
fn query(pattern: &str) -> Option<Condition> {
    let plain =
        pattern.trim_start_matches("(^|&)").trim_start_matches("(?:^|&)").trim_start_matches('^');
    let plain = plain.trim_end_matches("(&|$)").trim_end_matches("(?:&|$)").trim_end_matches('$');
    let is_plain = |text: &str| {
        !text.is_empty()
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    let (name, value) = plain.split_once('=')?;
    is_plain(name).then_some(())?;
    match value {
        "" => Some(named("query", name, Value::Switch(true))),
        value if is_plain(value) => Some(named("query", name, Value::text(format!("{value}*")))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn when(text: &str) -> String {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        match read(&words, &Constants::from([("off".to_owned(), "0".to_owned())])) {
            Ok(Read { condition: Condition::When(when), .. }) => when.to_string(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn conditions_are_tables() {
        for (text, expected) in [
            ("($request_method = POST)", "{ method = \"POST\" }"),
            ("($request_method !~ ^(GET|HEAD)$ )", "{ not = { method = [\"GET\", \"HEAD\"] } }"),
            ("($host = a.test)", "{ header = { Host = [\"a.test\", \"a.test:*\"] } }"),
            ("($http_user_agent ~ bot)", "{ header = { User-Agent = \"*bot*\" } }"),
            (
                "($http_cookie ~ wordpress_|comment)",
                "{ header = { Cookie = [\"*wordpress_*\", \"*comment*\"] } }",
            ),
            ("($arg_debug = 1)", "{ query = { debug = \"1\" } }"),
            ("($scheme != https)", "{ not = { scheme = \"https\" } }"),
            ("($args ~ (^|&)p=1)", "{ query = { p = \"1*\" } }"),
        ] {
            assert_eq!(when(text), expected, "{text}");
        }
        assert!(when("($off)").contains("Fixed(false)"));
        assert!(when("(!-e $request_filename)").contains("File { exists: false }"));
        assert!(when("($other = 1)").contains("Err"));
    }
}
