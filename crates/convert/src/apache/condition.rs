//! Tests of requests: those of `RewriteCond` and of `<If>`.

use super::builder::Builder;
use crate::expression::{Expression, globs};
use crate::model::both;
use crate::regions::Paths;
use crate::value::Value;

/// A test of a request.
#[derive(Debug, Clone)]
pub(super) enum Test {
    /// It always holds, or never.
    Fixed(bool),
    /// A table `when`.
    When(Value),
    /// The path matches, or does not.
    Path { expression: Expression, is_negated: bool },
}

/// What a variable is compared with.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    Equal(String),
    Regex { text: String, ignores_case: bool },
}

impl Matcher {
    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Equal(text) => text == value,
            Self::Regex { text, ignores_case } => {
                Expression::new(text, *ignores_case).is_ok_and(|regex| regex.matches(value))
            }
        }
    }

    /// Returns an expression that matches the same.
    pub(super) fn expression(&self) -> Result<Expression, String> {
        match self {
            Self::Equal(text) => Expression::new(&format!("^{}$", regex::escape(text)), false),
            Self::Regex { text, ignores_case } => Expression::new(text, *ignores_case),
        }
    }

    /// Returns the test of a value as a table `when` has it.
    fn value(&self) -> Result<Value, String> {
        match self {
            Self::Equal(text) => Ok(Value::text(text)),
            Self::Regex { text, .. } if matches!(text.as_str(), "." | ".+" | "^.+$" | "!^$") => {
                Ok(Value::Switch(true))
            }
            Self::Regex { text, ignores_case: false } if globs(text).is_some() => {
                Ok(Value::one_or_many(globs(text).unwrap_or_default()))
            }
            Self::Regex { .. } => {
                let expression = self.expression()?;
                match expression.except {
                    None => Ok(Value::text(format!("~{}", expression.text))),
                    Some(_) => Err("an expression with `(?!…)` tests paths only".into()),
                }
            }
        }
    }
}

/// The requests of an `<If>`.
pub(super) struct If {
    pub(super) paths: Paths,
    pub(super) when: Option<Value>,
}

/// Returns the test of a variable, whose name is without `%{` and `}`.
pub(super) fn test(
    name: &str,
    matcher: &Matcher,
    is_negated: bool,
    builder: &mut Builder<'_, '_>,
) -> Result<Test, String> {
    let upper = name.to_ascii_uppercase();
    let scheme = |is_https: bool| {
        let scheme = if is_https { "https" } else { "http" };
        Test::When(Value::table([("scheme", Value::text(scheme))]))
    };
    let of_header = |field: &str, builder: &mut Builder<'_, '_>| {
        header(field, matcher, is_negated, builder).map(Test::When)
    };
    let is_empty = matcher.matches("");
    Ok(match upper.as_str() {
        "HTTPS" | "ENV:HTTPS" | "ENV:REDIRECT_HTTPS" | "REQUEST_SCHEME" | "SERVER_PORT" => {
            let values = match upper.as_str() {
                "REQUEST_SCHEME" => ["https", "http"],
                "SERVER_PORT" => ["443", "80"],
                _ => ["on", "off"],
            };
            match values.map(|value| matcher.matches(value) != is_negated) {
                [true, false] => scheme(true),
                [false, true] => scheme(false),
                [both, _] if upper != "SERVER_PORT" => Test::Fixed(both),
                _ => return Err("the port is not known here".into()),
            }
        }
        "REQUEST_URI" | "DOCUMENT_URI" | "SCRIPT_NAME" | "REQUEST_FILENAME" | "SCRIPT_FILENAME" => {
            Test::Path { expression: matcher.expression()?, is_negated }
        }
        "THE_REQUEST" => the_request(matcher, is_negated, builder)?,
        "REQUEST_METHOD" => {
            let methods = match matcher {
                Matcher::Equal(text) => vec![text.clone()],
                Matcher::Regex { text, .. } => methods(text).ok_or("methods are names")?,
            };
            let table = Value::table([("method", Value::one_or_many(methods))]);
            Test::When(negated(table, is_negated))
        }
        "REMOTE_ADDR" | "REMOTE_HOST" => match matcher {
            Matcher::Equal(text) if text.parse::<dunlin_config::Network>().is_ok() => {
                Test::When(negated(Value::table([("client", Value::text(text))]), is_negated))
            }
            _ => Test::When(mapped("{client}", matcher, is_negated, builder)?),
        },
        "QUERY_STRING"
            if is_empty && matches!(matcher, Matcher::Regex { text, .. } if text == "^$")
                || upper == "QUERY_STRING"
                    && matches!(matcher, Matcher::Equal(text) if text.is_empty()) =>
        {
            Test::When(builder.context.tested("{query}", ".", !is_negated))
        }
        "QUERY_STRING" => Test::When(mapped("{query}", matcher, is_negated, builder)?),
        // What was rewritten before is not known: requests begin here.
        "ENV:REDIRECT_STATUS" | "IS_SUBREQ" => Test::Fixed(is_empty != is_negated),
        "HTTP_HOST" | "SERVER_NAME" => of_header("Host", builder)?,
        "HTTP_USER_AGENT" => of_header("User-Agent", builder)?,
        "HTTP_REFERER" => of_header("Referer", builder)?,
        "HTTP_COOKIE" => of_header("Cookie", builder)?,
        "HTTP_ACCEPT" => of_header("Accept", builder)?,
        "HTTP_FORWARDED" => of_header("Forwarded", builder)?,
        "CONTENT_TYPE" => of_header("Content-Type", builder)?,
        _ if upper.starts_with("HTTP:") => of_header(name[5..].trim(), builder)?,
        _ => return Err(format!("%{{{name}}} has no counterpart")),
    })
}

/// Returns the condition on a header field.
fn header(
    field: &str,
    matcher: &Matcher,
    is_negated: bool,
    builder: &mut Builder<'_, '_>,
) -> Result<Value, String> {
    let is_empty = matcher.matches("");
    let is_any = matcher.matches("x") && matcher.matches("/");
    if is_empty && is_any {
        return Ok(Value::Table(Vec::new()));
    }
    if is_empty && matches!(matcher, Matcher::Regex { text, .. } if text == "^$")
        || matches!(matcher, Matcher::Equal(text) if text.is_empty())
    {
        let table = |is_there| {
            Value::table([(
                "header",
                Value::Table(vec![(field.to_owned(), Value::Switch(is_there))]),
            )])
        };
        return Ok(table(is_negated));
    }
    match matcher.value() {
        // An expression that matches an empty text matches where the field is not there, too.
        Ok(value) if !is_empty => {
            let table = Value::table([("header", Value::Table(vec![(field.to_owned(), value)]))]);
            Ok(negated(table, is_negated))
        }
        _ => mapped(&format!("{{header.{field}}}"), matcher, is_negated, builder),
    }
}

/// Returns a condition on a map that has the expression.
fn mapped(
    from: &str,
    matcher: &Matcher,
    is_negated: bool,
    builder: &mut Builder<'_, '_>,
) -> Result<Value, String> {
    let expression = matcher.expression()?;
    match expression.except {
        None => Ok(builder.context.tested(from, &expression.text, is_negated)),
        Some(_) => Err("an expression with `(?!…)` tests paths only".into()),
    }
}

/// The first line of the request: `^[A-Z]{3,9}\ /index\.php` is a path.
fn the_request(
    matcher: &Matcher,
    is_negated: bool,
    builder: &mut Builder<'_, '_>,
) -> Result<Test, String> {
    let Matcher::Regex { text, ignores_case } = matcher else {
        return Err("%{THE_REQUEST} is a whole line".into());
    };
    let plain = text.replace("\\s+", " ").replace("\\s", " ").replace("\\ ", " ");
    let starts =
        ["^[A-Z]{3,9} ", "^[A-Z]+ ", "^GET ", "^(GET|POST) ", "^(?:GET|POST) ", "^.* ", " "];
    let rest = starts.iter().find_map(|start| plain.strip_prefix(start));
    let rest = rest.or_else(|| plain.starts_with('/').then_some(plain.as_str()));
    if let Some(rest) = rest {
        let (rest, end) = match rest
            .strip_suffix(" HTTP/")
            .or_else(|| rest.strip_suffix(" HTTP"))
            .or_else(|| rest.strip_suffix(' '))
        {
            Some(rest) => (rest, "$"),
            None => (rest, ""),
        };
        if rest.starts_with('/') && !rest.contains([' ', '?']) && !rest.contains("[^") {
            let expression = Expression::new(&format!("^{rest}{end}"), *ignores_case)?;
            return Ok(Test::Path { expression, is_negated });
        }
    }
    mapped("{method} {target} HTTP/1.1", matcher, is_negated, builder).map(Test::When)
}

fn methods(text: &str) -> Option<Vec<String>> {
    let names = globs(text)?;
    let plain = names.iter().map(|name| name.trim_matches('*').to_owned());
    let plain: Vec<String> = plain.collect();
    plain.iter().all(|name| name.chars().all(|c| c.is_ascii_uppercase())).then_some(plain)
}

pub(super) fn negated(table: Value, is_negated: bool) -> Value {
    if is_negated { Value::table([("not", table)]) } else { table }
}

/// Returns conditions that both hold.
pub(super) fn and(known: Option<Value>, more: Value) -> Result<Option<Value>, String> {
    if more.entries().is_empty() {
        return Ok(known);
    }
    let Some(known) = known else { return Ok(Some(more)) };
    match (known.get("not"), more.get("not")) {
        // Neither of two values of one field.
        (Some(first), Some(second)) if first != second => {
            let joined = neither(first, second).ok_or("two conditions that must not hold")?;
            let mut all = known.clone();
            all.set("not", joined);
            Ok(Some(all))
        }
        _ => both(&known, &more).map(Some),
    }
}

fn neither(first: &Value, second: &Value) -> Option<Value> {
    let ([(key, one)], [(other_key, other)]) = (first.entries(), second.entries()) else {
        return None;
    };
    if key != other_key {
        return None;
    }
    let list = |value: &Value| match value {
        Value::Text(text) => Some(vec![text.clone()]),
        Value::List(values) => values
            .iter()
            .map(|value| match value {
                Value::Text(text) => Some(text.clone()),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    let joined =
        |one: &Value, other: &Value| Some(Value::list([list(one)?, list(other)?].concat()));
    if let ([(name, one)], [(other_name, other)]) = (one.entries(), other.entries()) {
        let value = (name == other_name).then(|| joined(one, other))??;
        return Some(Value::Table(vec![(key.clone(), Value::Table(vec![(name.clone(), value)]))]));
    }
    Some(Value::Table(vec![(key.clone(), joined(one, other)?)]))
}

/// Reads the expression of an `<If>`: tests that are joined by `&&`.
pub(super) fn read_if(text: &str, builder: &mut Builder<'_, '_>) -> Result<If, String> {
    if text.contains("||") {
        return Err("conditions are joined by `&&` alone".into());
    }
    let mut found = If { paths: Paths::All, when: None };
    for term in text.split("&&") {
        let term = term.trim();
        let (is_negated, term) = match term.strip_prefix('!') {
            Some(rest) if !rest.starts_with(['=', '~']) => (true, rest.trim()),
            _ => (false, term),
        };
        let term = match term.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
            Some(inner) if !inner.contains('(') => inner.trim(),
            _ => term,
        };
        match one(term, is_negated, builder)? {
            Test::Fixed(true) => {}
            Test::Fixed(false) => return Err("it never holds here".into()),
            Test::When(when) => found.when = and(found.when, when)?,
            Test::Path { expression, is_negated: false } => {
                let paths = super::builder::simple(expression);
                found.paths = found.paths.and(&paths).ok_or("two conditions on the path")?;
            }
            Test::Path { expression, is_negated: true } => {
                if found.paths != Paths::All || expression.except.is_some() {
                    return Err("two conditions on the path".into());
                }
                let all = Expression { text: "^/".into(), except: Some(expression.text) };
                found.paths = Paths::Regex(all);
            }
        }
    }
    Ok(found)
}

fn one(term: &str, is_negated: bool, builder: &mut Builder<'_, '_>) -> Result<Test, String> {
    if let Some(network) = term.strip_prefix("-R ") {
        let network = network.trim().trim_matches(['\'', '"']);
        let table = Value::table([("client", Value::text(network))]);
        return Ok(Test::When(negated(table, is_negated)));
    }
    let wrong = || format!("{term}: this form of a condition has no counterpart");
    let (variable, rest) = match term.strip_prefix("%{") {
        Some(rest) => {
            let (name, rest) = rest.split_once('}').ok_or_else(wrong)?;
            (name.to_owned(), rest.trim())
        }
        None => {
            let rest = term
                .strip_prefix("req(")
                .or_else(|| term.strip_prefix("http("))
                .ok_or_else(wrong)?;
            let (name, rest) = rest.split_once(')').ok_or_else(wrong)?;
            (format!("HTTP:{}", name.trim_matches(['\'', '"'])), rest.trim())
        }
    };
    let operators =
        [("==", false), ("-eq", false), ("=~", true), ("!=", false), ("!~", true), ("=", false)];
    let found = operators.iter().find_map(|(sign, is_regex)| {
        Some((rest.strip_prefix(sign)?.trim(), *is_regex, sign.starts_with('!')))
    });
    let (value, is_regex, is_different) = found.ok_or_else(wrong)?;
    let matcher = match is_regex {
        false => Matcher::Equal(value.trim_matches(['\'', '"']).to_owned()),
        true => {
            let body = value.strip_prefix('m').unwrap_or(value);
            let sign = body.chars().next().ok_or_else(wrong)?;
            let end = body.rfind(sign).filter(|end| *end > 0).ok_or_else(wrong)?;
            let ignores_case = body[end..].contains('i');
            Matcher::Regex { text: body[sign.len_utf8()..end].to_owned(), ignores_case }
        }
    };
    test(&variable, &matcher, is_negated != is_different, builder)
}
