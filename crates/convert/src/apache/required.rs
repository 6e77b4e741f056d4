//! What the conditions of a rule require of requests.

use super::builder::Builder;
use super::condition::{Matcher, Test, and, test};
use super::rule::{Condition, Rule};
use super::target::{Groups, References, target};
use super::whole::{Place, full};
use crate::directive::Directive;
use crate::expression::Expression;
use crate::value::Value;

/// Most alternatives of the conditions of a rule.
const MAX_ALTERNATIVES: usize = 16;

/// What the conditions of a rule require.
#[derive(Debug, Clone, Default)]
pub(super) struct Required {
    pub(super) path: Option<Expression>,
    pub(super) except: Vec<String>,
    pub(super) when: Option<Value>,
    /// `f` and `d`: the path is no file, no directory.
    pub(super) absent: Vec<char>,
    /// Other files that have to exist.
    pub(super) exists: Vec<String>,
    /// The path is a file or a directory.
    pub(super) is_there: bool,
    /// What `%1` is a group of: a text with placeholders, and an expression; without a text, the path.
    pub(super) captured: Option<(Option<String>, Expression)>,
}

impl<'t> Builder<'_, 't> {
    /// Returns the alternatives of which one has to hold.
    pub(super) fn required(
        &mut self,
        rule: &Rule<'t>,
        place: &Place,
    ) -> Result<Vec<Required>, (&'t Directive, String)> {
        let mut all = vec![Required::default()];
        let mut at = 0;
        while at < rule.conditions.len() {
            let rest = &rule.conditions[at..];
            let length = rest
                .iter()
                .position(|condition| !condition.is_or)
                .map_or(rest.len(), |end| end + 1);
            let group = &rest[..length];
            at += length;
            let mut next = Vec::new();
            for condition in group {
                for known in &all {
                    let more = self.with_condition(known.clone(), condition, place);
                    next.extend(more.map_err(|what| (condition.directive, what))?);
                }
            }
            // `-f`, `-d` and `-l` are one.
            if next.iter().filter(|required| required.is_there).count() > 1 {
                let first = next.iter().position(|required| required.is_there);
                let mut number = 0;
                next.retain(|required| {
                    number += 1;
                    !required.is_there || Some(number - 1) == first
                });
            }
            if next.len() > MAX_ALTERNATIVES {
                return Err((rule.directive, "its conditions have too many alternatives".into()));
            }
            all = next;
        }
        Ok(all)
    }

    /// Adds a condition; `None` if it never holds.
    fn with_condition(
        &mut self,
        mut required: Required,
        condition: &Condition<'t>,
        place: &Place,
    ) -> Result<Option<Required>, String> {
        if let Some(kind) = file_test(&condition.pattern) {
            return self.with_file(required, condition, kind, place).map(Some);
        }
        if condition.test == "%{HTTPS}s" || condition.test.starts_with("%{REQUEST_URI}::") {
            return Ok(Some(required));
        }
        let matcher = match condition.pattern.strip_prefix('=') {
            Some(text) => Matcher::Equal(text.trim_matches('"').to_owned()),
            None if condition.pattern.starts_with(['<', '>'])
                || condition.pattern.starts_with('-') && condition.pattern.len() <= 3 =>
            {
                return Err(format!("{}: this comparison has no counterpart", condition.pattern));
            }
            None => Matcher::Regex {
                text: condition.pattern.clone(),
                ignores_case: condition.ignores_case,
            },
        };
        let (found, from) =
            match condition.test.strip_prefix("%{").and_then(|rest| rest.strip_suffix('}')) {
                Some(name) if !name.contains('}') => {
                    (test(name, &matcher, condition.is_negated, self)?, placeholder(name))
                }
                _ if condition.test.starts_with('$') => {
                    let Matcher::Regex { text, ignores_case } = &matcher else {
                        return Err("a group is compared with an expression".into());
                    };
                    let expression = Expression::new(&full(text, place), *ignores_case)?;
                    (Test::Path { expression, is_negated: condition.is_negated }, None)
                }
                _ => {
                    let references = References { groups: Groups::Path, conditions: &[], base: "" };
                    let from = target(&condition.test, &references)?;
                    let expression = matcher.expression()?;
                    let tested = self.context.tested(&from, &expression.text, condition.is_negated);
                    (Test::When(tested), Some(from))
                }
            };
        let is_path = matches!(found, Test::Path { .. });
        if !condition.is_negated
            && let Ok(expression) = matcher.expression()
        {
            required.captured = match (is_path, from) {
                (true, _) => Some((None, expression)),
                (false, Some(from)) => Some((Some(from), expression)),
                (false, None) => None,
            };
        }
        match found {
            Test::Fixed(true) => {}
            Test::Fixed(false) => return Ok(None),
            Test::When(when) => required.when = and(required.when, when)?,
            Test::Path { expression, is_negated: true } if expression.except.is_none() => {
                required.except.push(expression.text);
            }
            Test::Path { expression, is_negated: false } => match &required.path {
                None => required.path = Some(expression),
                Some(known) if *known == expression => {}
                Some(known) => {
                    let both = known.and(&expression).or_else(|| expression.and(known));
                    required.path = Some(both.ok_or("two conditions on the path")?);
                }
            },
            Test::Path { .. } => {
                return Err("an expression with `(?!…)` that must not match".into());
            }
        }
        Ok(Some(required))
    }

    fn with_file(
        &mut self,
        mut required: Required,
        condition: &Condition<'t>,
        kind: char,
        place: &Place,
    ) -> Result<Required, String> {
        let root = self.document_root.clone().unwrap_or_default();
        let text = condition.test.replace(&root, "%{DOCUMENT_ROOT}");
        let text = if root.is_empty() { condition.test.clone() } else { text };
        let is_own = matches!(
            text.as_str(),
            "%{REQUEST_FILENAME}"
                | "%{SCRIPT_FILENAME}"
                | "%{DOCUMENT_ROOT}%{REQUEST_URI}"
                | "%{DOCUMENT_ROOT}/%{REQUEST_URI}"
                | "%{DOCUMENT_ROOT}%{REQUEST_FILENAME}"
                | "%{DOCUMENT_ROOT}/%{REQUEST_FILENAME}"
                | "%{DOCUMENT_ROOT}%{SCRIPT_FILENAME}"
                | "%{DOCUMENT_ROOT}/$1"
                | "%{DOCUMENT_ROOT}$1"
                | "%{LA-U:REQUEST_FILENAME}"
        );
        if is_own {
            match condition.is_negated {
                true => required.absent.push(kind),
                false => required.is_there = true,
            }
            return Ok(required);
        }
        if condition.is_negated {
            return Err(format!("{text}: another file that must not exist"));
        }
        let references = References { groups: Groups::Path, conditions: &[], base: "" };
        let file = target(&text, &references)?;
        let file = match (file.starts_with(['/', '{']), place.is_directory) {
            (true, _) => file,
            (false, _) => format!("{}{file}", place.prefix),
        };
        required.exists.push(file);
        Ok(required)
    }
}

/// Returns the placeholder of a variable, whose groups conditions have.
fn placeholder(name: &str) -> Option<String> {
    let upper = name.to_ascii_uppercase();
    Some(match upper.as_str() {
        "HTTP_HOST" | "SERVER_NAME" => "{host}".to_owned(),
        "QUERY_STRING" => "{query}".to_owned(),
        "REMOTE_ADDR" => "{client}".to_owned(),
        "HTTP_USER_AGENT" => "{header.User-Agent}".to_owned(),
        "HTTP_REFERER" => "{header.Referer}".to_owned(),
        "HTTP_COOKIE" => "{header.Cookie}".to_owned(),
        _ => format!("{{header.{}}}", name.get(5..).filter(|_| upper.starts_with("HTTP:"))?),
    })
}

fn file_test(pattern: &str) -> Option<char> {
    Some(match pattern {
        "-f" | "-s" | "-l" | "-F" | "-U" | "-h" | "-L" | "-x" => 'f',
        "-d" => 'd',
        _ => return None,
    })
}
