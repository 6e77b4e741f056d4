//! Matchers of requests.

use super::context::Context;
use crate::directive::Directive;
use crate::expression::{Expression, of_prefix};
use crate::model::both;
use crate::regions::Paths;
use crate::value::Value;

/// What a directive is for: paths with a condition, of which one must match.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    pub(super) paths: Vec<Paths>,
    pub(super) when: Option<Value>,
    pub(super) regexes: Vec<Named>,
    /// The paths of a matcher `file`.
    pub(super) files: Option<Vec<String>>,
    /// Expressions of paths that must not match.
    pub(super) excepts: Vec<String>,
}

/// A regular expression with the name by which placeholders find it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) name: String,
    /// The map that has the group; `None` for an expression of the path.
    pub(super) from: Option<String>,
}

impl Default for Matcher {
    fn default() -> Self {
        Self {
            paths: vec![Paths::All],
            when: None,
            regexes: Vec::new(),
            files: None,
            excepts: Vec::new(),
        }
    }
}

impl Matcher {
    pub(super) fn is_everything(&self) -> bool {
        self.paths == [Paths::All] && self.when.is_none() && self.files.is_none()
    }

    /// Returns the length of its only path, by which Caddy sorts directives.
    pub(super) fn length(&self) -> usize {
        match &self.paths[..] {
            [Paths::Exact(path)] => path.len(),
            [Paths::Pattern(before, behind)] => before.len() + behind.len() + 1,
            _ => 0,
        }
    }
}

/// Returns the paths of a pattern with `*`. Without a slash or a `*` at its begin, it matches nothing.
pub(super) fn paths(text: &str) -> Result<Paths, String> {
    let text = text.replace("%2F", "/");
    if let Some(paths) = Paths::glob(&text) {
        return Ok(paths);
    }
    // Both ends are open: a part of the path.
    if let Some(inner) = text.strip_prefix('*').and_then(|text| text.strip_suffix('*'))
        && !inner.contains('*')
    {
        return Expression::new(&regex::escape(inner), false).map(Paths::Regex);
    }
    let parts: Vec<String> = text.split('*').map(regex::escape).collect();
    Expression::new(&format!("^{}$", parts.join("[^/]*")), false).map(Paths::Regex)
}

/// Reads the definition of a named matcher: `@name path /a/*`, or with a block.
pub(super) fn read(directive: &Directive, context: &mut Context) -> Result<Matcher, String> {
    let mut matcher = Matcher::default();
    let mut found: Option<Vec<Paths>> = None;
    if let Some(kind) = directive.words.first() {
        one(kind, &directive.words[1..], directive.children(), &mut matcher, &mut found, context)?;
    } else {
        for child in directive.children() {
            context.report.carried(child);
            one(&child.name, &child.words, child.children(), &mut matcher, &mut found, context)?;
        }
    }
    if let Some(found) = found {
        matcher.paths = found;
    }
    for except in std::mem::take(&mut matcher.excepts) {
        matcher.paths = matcher.paths.into_iter().map(|paths| paths.without(&except)).collect();
    }
    Ok(matcher)
}

fn one(
    kind: &str,
    words: &[String],
    block: &[Directive],
    matcher: &mut Matcher,
    found: &mut Option<Vec<Paths>>,
    context: &mut Context,
) -> Result<(), String> {
    let when = match kind {
        "path" => {
            let own = words.iter().map(|word| paths(word)).collect::<Result<Vec<_>, _>>()?;
            return restrict(found, own);
        }
        "path_regexp" => {
            let (name, pattern) = named(words)?;
            matcher.regexes.push(Named { name, from: None });
            return restrict(found, vec![Paths::Regex(Expression::new(&pattern, false)?)]);
        }
        "file" => {
            let mut files = words.to_vec();
            for child in block {
                match child.name.as_str() {
                    "try_files" => files.extend(child.words.clone()),
                    "root" | "try_policy" | "split_path" => {
                        return Err(format!("`{}` of a matcher `file`", child.name));
                    }
                    _ => {}
                }
            }
            matcher.files = Some(if files.is_empty() { vec!["{path}".into()] } else { files });
            return Ok(());
        }
        "not" => return negated(words, block, matcher, context),
        "header_regexp" => {
            let (words, name) = match words {
                [field, pattern] => ((field, pattern), String::new()),
                [name, field, pattern] => ((field, pattern), name.clone()),
                _ => return Err("header_regexp".into()),
            };
            let expression = Expression::new(words.1, false)?;
            let map = context.map(&format!("{{header.{}}}", words.0), &expression.text, "{1}");
            if expression.has_group("1") {
                matcher.regexes.push(Named { name, from: Some(map) });
            }
            table("header", words.0, Value::text(format!("~{}", expression.text)))
        }
        _ => simple(kind, words)?,
    };
    matcher.when = match matcher.when.take() {
        Some(known) => Some(both(&known, &when)?),
        None => Some(when),
    };
    Ok(())
}

fn restrict(found: &mut Option<Vec<Paths>>, own: Vec<Paths>) -> Result<(), String> {
    *found = Some(match found.take() {
        None => own,
        Some(known) => {
            let both =
                |one: &Paths| own.iter().map(|other| one.and(other)).collect::<Option<Vec<_>>>();
            let all = known.iter().map(both).collect::<Option<Vec<_>>>();
            all.ok_or("two conditions on the path")?.concat()
        }
    });
    Ok(())
}

fn table(key: &str, name: &str, value: Value) -> Value {
    Value::table([(key, Value::Table(vec![(name.to_owned(), value)]))])
}

fn named(words: &[String]) -> Result<(String, String), String> {
    match words {
        [pattern] => Ok((String::new(), pattern.clone())),
        [name, pattern] => Ok((name.clone(), pattern.clone())),
        _ => Err("an expression has a name and a pattern".into()),
    }
}

/// Returns the condition of a matcher that is not about paths.
fn simple(kind: &str, words: &[String]) -> Result<Value, String> {
    let list = || Value::one_or_many(words.to_vec());
    Ok(match (kind, words) {
        ("method", _) => Value::table([(
            "method",
            Value::one_or_many(words.iter().map(|word| word.to_ascii_uppercase()).collect()),
        )]),
        ("host", _) => table("header", "Host", list()),
        ("header", [field]) if field.starts_with('!') => {
            table("header", &field[1..], Value::Switch(false))
        }
        ("header", [field]) => table("header", field, Value::Switch(true)),
        ("header", [field, value]) if value == "*" => table("header", field, Value::Switch(true)),
        ("header", [field, values @ ..]) => {
            table("header", field, Value::one_or_many(values.to_vec()))
        }
        ("query", _) => {
            let mut entries = Vec::new();
            for word in words {
                let (key, value) = word.split_once('=').ok_or("query")?;
                let value = if value == "*" { Value::Switch(true) } else { Value::text(value) };
                entries.push((key.to_owned(), value));
            }
            if entries.len() > 1 {
                return Err("several parameters of which one is enough".into());
            }
            Value::table([("query", Value::Table(entries))])
        }
        ("protocol", [word]) if word == "http" || word == "https" => {
            Value::table([("scheme", Value::text(word))])
        }
        ("remote_ip" | "client_ip", _) => {
            let mut networks = Vec::new();
            for word in words.iter().filter(|word| *word != "forwarded") {
                match word.as_str() {
                    "private_ranges" => networks.extend(
                        [
                            "192.168.0.0/16",
                            "172.16.0.0/12",
                            "10.0.0.0/8",
                            "127.0.0.0/8",
                            "fd00::/8",
                            "::1",
                        ]
                        .map(str::to_owned),
                    ),
                    word if word.parse::<dunlin_config::Network>().is_ok() => {
                        networks.push(word.to_owned());
                    }
                    word => return Err(format!("{word} is no network")),
                }
            }
            Value::table([("client", Value::one_or_many(networks))])
        }
        _ => return Err(format!("the matcher {kind} has no counterpart")),
    })
}

/// `not`, whose conditions must not all hold.
fn negated(
    words: &[String],
    block: &[Directive],
    matcher: &mut Matcher,
    context: &mut Context,
) -> Result<(), String> {
    let mut inner = Matcher::default();
    let mut paths = None;
    if let Some(kind) = words.first() {
        one(kind, &words[1..], &[], &mut inner, &mut paths, context)?;
    } else {
        for child in block {
            context.report.carried(child);
            one(&child.name, &child.words, child.children(), &mut inner, &mut paths, context)?;
        }
    }
    match (paths, inner.when, inner.files) {
        (Some(paths), None, None) => {
            let texts = paths
                .iter()
                .map(expression)
                .collect::<Option<Vec<String>>>()
                .ok_or("an expression that must not match")?;
            let except = if texts.len() == 1 {
                texts[0].clone()
            } else {
                format!("(?:{})", texts.join(")|(?:"))
            };
            matcher.excepts.push(except);
        }
        (None, Some(when), None) => {
            let when = Value::table([("not", when)]);
            matcher.when = match matcher.when.take() {
                Some(known) => Some(both(&known, &when)?),
                None => Some(when),
            };
        }
        _ => return Err("`not` has conditions on the path and others".into()),
    }
    Ok(())
}

/// Returns an expression that matches the paths.
fn expression(paths: &Paths) -> Option<String> {
    Some(match paths {
        Paths::All => "^/".to_owned(),
        Paths::Exact(path) => format!("{}$", of_prefix(path)),
        Paths::Pattern(before, behind) if behind.is_empty() => of_prefix(before),
        Paths::Pattern(before, behind) if before.is_empty() => {
            format!("{}$", regex::escape(behind))
        }
        Paths::Pattern(before, behind) => {
            format!("{}.*{}$", of_prefix(before), regex::escape(behind))
        }
        Paths::Regex(regex) if regex.except.is_none() => regex.text.clone(),
        Paths::Regex(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_caddy_are_paths() {
        let pattern = |before: &str, behind: &str| Paths::Pattern(before.into(), behind.into());
        assert_eq!(paths("/a").unwrap(), Paths::Exact("/a".into()));
        assert_eq!(paths("/a/*").unwrap(), pattern("/a/", ""));
        assert_eq!(paths("*.css").unwrap(), pattern("", ".css"));
        let Paths::Regex(regex) = paths("/a/*/b/*").unwrap() else { panic!() };
        assert!(regex.matches("/a/x/b/c") && !regex.matches("/a/x/y/b/c"));
    }
}
