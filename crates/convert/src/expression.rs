//! Regular expressions: from PCRE to those that match in linear time, and what is known of the paths that they match.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use regex::Regex;
use regex_syntax::hir::Look;
use regex_syntax::hir::literal::{ExtractKind, Extractor};

use crate::groups::{closing, group_of, split_top};
use crate::pcre::{
    reason, split_lookahead, with_plain_braces, without_lookaheads, without_possessives,
};

/// A regular expression of a location or a rewrite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    /// In the syntax of Dunlin.
    pub(crate) text: String,
    /// Paths for which the expression does not hold although it matches: from `(?!…)`.
    pub(crate) except: Option<String>,
}

impl Expression {
    /// Translates an expression of nginx.
    ///
    /// # Errors
    /// The reason for which it has no counterpart.
    pub(crate) fn new(pcre: &str, ignores_case: bool) -> Result<Self, String> {
        let flag = if ignores_case { "(?i)" } else { "" };
        let plain = with_plain_braces(&without_possessives(pcre));
        let plain = match split_lookahead(&plain) {
            Some(_) => plain,
            None => without_lookaheads(&plain).unwrap_or(plain),
        };
        let (text, except) = match split_lookahead(&plain) {
            Some((before, inner, after)) => {
                let except = format!("{flag}{before}(?:{inner})");
                (format!("{flag}{before}{after}"), Some(except))
            }
            None => (format!("{flag}{plain}"), None),
        };
        for text in [Some(&text), except.as_ref()].into_iter().flatten() {
            compiled(text).ok_or_else(|| reason(&plain))?;
        }
        Ok(Self { text, except })
    }

    /// As [`Expression::new`], for values in which a text that is excluded may stand beside one that is not.
    ///
    /// # Errors
    /// The reason for which it has no counterpart.
    pub(crate) fn whole(pcre: &str, ignores_case: bool) -> Result<Self, String> {
        let plain = without_possessives(pcre);
        Self::new(&without_lookaheads(&plain).unwrap_or(plain), ignores_case)
    }

    /// Returns an expression that matches at least what one of PCRE without a counterpart does.
    pub(crate) fn wider(pcre: &str, ignores_case: bool) -> Self {
        let mut text = without_possessives(pcre);
        for start in ["(?=", "(?!", "(?<=", "(?<!"] {
            while let Some(at) = text.find(start) {
                let Some(end) = closing(&text[at..]) else { break };
                text.replace_range(at..=at + end, "");
            }
        }
        let references = (1..10).map(|number| format!("\\{number}"));
        let text = references.fold(text, |text, reference| text.replace(&reference, ".*"));
        let all = || Self { text: "^/".into(), except: None };
        let is_plain = !text.contains("(?P>") && !text.contains("\\G");
        let wider = Self::new(&text, ignores_case).ok().filter(|_| is_plain);
        wider.map(|wider| Self { except: None, ..wider }).unwrap_or_else(all)
    }

    /// Returns `true` if it matches the path.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let is_match = |text: &str| compiled(text).is_some_and(|regex| regex.is_match(path));
        is_match(&self.text) && !self.except.as_deref().is_some_and(is_match)
    }

    /// Returns `true` if every path that begins with `prefix` is one for which the expression does not hold although it matches.
    pub(crate) fn excludes_beneath(&self, prefix: &str) -> bool {
        // What looks for no end matches whatever follows.
        let is_open =
            |except: &str| !["$", "\\z", "\\b", "\\B"].iter().any(|end| except.contains(end));
        self.except.as_deref().is_some_and(|except| {
            is_open(except) && compiled(except).is_some_and(|regex| regex.is_match(prefix))
        })
    }

    /// Returns `true` unless no path that begins with `prefix` can match.
    pub(crate) fn may_match_beneath(&self, prefix: &str) -> bool {
        let starts = literal_starts(&self.text);
        starts.is_empty()
            || starts.iter().any(|start| start.starts_with(prefix) || prefix.starts_with(start))
    }

    /// Returns `true` unless no path that ends with `suffix` can match.
    pub(crate) fn may_end_with(&self, suffix: &str) -> bool {
        let ends = literal_ends(&self.text);
        ends.is_empty() || ends.iter().any(|end| end.ends_with(suffix) || suffix.ends_with(end))
    }

    /// Returns `true` unless no path can match both.
    pub(crate) fn may_meet(&self, other: &Self) -> bool {
        let (starts, ends) = (literal_starts(&other.text), literal_ends(&other.text));
        (starts.is_empty() || starts.iter().any(|start| self.may_match_beneath(start)))
            && (ends.is_empty() || ends.iter().any(|end| self.may_end_with(end)))
    }

    /// Returns `true` if every path that matches begins with `prefix`.
    pub(crate) fn begins_with(&self, prefix: &str) -> bool {
        literal_start(&self.text).starts_with(prefix)
    }

    /// Returns the text of which the expression is made after `^`, if that is all; empty otherwise.
    pub(crate) fn whole_prefix(&self) -> String {
        literal_start(&self.text)
    }

    /// Returns `true` if the expression matches all paths with a beginning.
    pub(crate) fn is_prefix(&self) -> bool {
        self.text == of_prefix(&self.whole_prefix())
    }

    /// Returns the same expression for paths that begin with `prefix` only.
    pub(crate) fn beneath(&self, prefix: &str) -> Self {
        if prefix == "/" || literal_start(&self.text).starts_with(prefix) {
            return self.clone();
        }
        let narrow = |text: &str| {
            let (flag, body) = match text.strip_prefix("(?i)") {
                Some(body) => ("(?i)", body),
                None => ("", text),
            };
            let start = regex::escape(prefix);
            let start = if flag.is_empty() { start } else { format!("(?-i:{start})") };
            match body.strip_prefix('^') {
                // The expression begins at the same place: `prefix` would have to be matched twice.
                Some(_) => None,
                // It begins with the prefix, and is first tried there.
                None if flag.is_empty() && body.starts_with(&regex::escape(prefix)) => {
                    Some(format!("^{body}"))
                }
                None if body.contains('|') => Some(format!("{flag}^{start}.*(?:{body})")),
                None => Some(format!("{flag}^{start}.*{body}")),
            }
        };
        match narrow(&self.text) {
            Some(text) => Self { text, except: self.except.as_deref().and_then(narrow) },
            None => self.clone(),
        }
    }

    /// Returns an expression for the paths that both match, with the groups of this one; `None` if there is none that is
    /// simple.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let is_open =
            |text: &str| text.starts_with('^') && !text.ends_with('$') && !text.contains("(?i)");
        let end = &other.text;
        if !is_open(&self.text)
            || end.starts_with('^')
            || end.contains("(?i)")
            || other.except.is_some()
        {
            return None;
        }
        let both = |text: &str| format!("{text}.*(?:{end})");
        Some(Self { text: both(&self.text), except: self.except.as_deref().map(both) })
    }

    /// Returns a template in which the groups of the expression have the values that a path gives them.
    pub(crate) fn fill(&self, template: &str, path: &str) -> String {
        let Some(regex) = compiled(&self.text) else { return template.into() };
        let Some(captures) = regex.captures(path) else { return template.into() };
        let names = regex.capture_names().enumerate().skip(1);
        names.fold(template.to_owned(), |text, (number, name)| {
            let value = captures.get(number).map_or("", |group| group.as_str());
            let text = text.replace(&format!("{{{number}}}"), value);
            name.map_or(text.clone(), |name| text.replace(&format!("{{{name}}}"), value))
        })
    }

    /// Returns the same expression and template where the first group begins with the slash of the path, which the template then
    /// begins with; `None` for others.
    pub(crate) fn after_slash(&self, template: &str) -> Option<(Self, String)> {
        let begins = |text: &str| {
            let rest = text.strip_prefix('^').unwrap_or(text);
            let end = closing(rest)?;
            let after = &rest[end + 1..];
            let group = match &rest[..=end] {
                "(.*)" | "(.+)" => "(.*)".to_owned(),
                "(.*/)" => "((?:.*/)?)".to_owned(),
                "(.+/)" => "(.*/)".to_owned(),
                group if !group.contains('|') && text.starts_with('^') => {
                    let inner = group.strip_prefix("(/")?;
                    (!inner.starts_with(['?', '*', '+', '{'])).then(|| format!("({inner}"))?
                }
                _ => return None,
            };
            (!after.starts_with(['?', '*', '+', '{']) && !after.contains('|'))
                .then(|| format!("^/{group}{after}"))
        };
        (template.starts_with('{') && !self.text.contains("(?i)")).then_some(())?;
        if !template.starts_with("{1}") || begins(&self.text).is_none() {
            return self.with_slash_before(template);
        }
        let except = match &self.except {
            Some(except) => Some(begins(except)?),
            None => None,
        };
        Some((Self { text: begins(&self.text)?, except }, template.replace("{1}", "/{1}")))
    }

    /// As [`Self::after_slash`], for a group anywhere whose text begins with a slash.
    fn with_slash_before(&self, template: &str) -> Option<(Self, String)> {
        let (name, _) = template.strip_prefix('{')?.split_once('}')?;
        let (start, end) = group_of(&self.text, name)?;
        let inner = self.text[start..end].strip_prefix('/')?;
        let after = &self.text[end + 1..];
        let is_one = split_top(&self.text[start..end], '|').len() == 1;
        let is_repeated = |text: &str| text.starts_with(['?', '*', '+', '{']);
        (is_one && !is_repeated(inner) && !is_repeated(after) && self.except.is_none())
            .then_some(())?;
        let before = self.text[..start].strip_suffix('(')?;
        let text = format!("{before}/({inner}){after}");
        let group = format!("{{{name}}}");
        Some((Self { text, except: None }, template.replace(&group, &format!("/{group}"))))
    }

    /// Returns `true` if the expression has a group of that number or name.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        let Some(regex) = compiled(&self.text) else { return false };
        match group.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => regex.capture_names().flatten().any(|name| name == group),
        }
    }
}

thread_local! {
    /// Expressions that were compiled, by their text: each is matched with many paths.
    static COMPILED: RefCell<HashMap<String, Option<Rc<Regex>>>> = RefCell::default();
}

/// Most expressions that are kept.
const MAX_COMPILED: usize = 4096;

/// Returns the compiled expression; `None` if its text has another syntax.
fn compiled(text: &str) -> Option<Rc<Regex>> {
    COMPILED.with_borrow_mut(|known| {
        if let Some(regex) = known.get(text) {
            return regex.clone();
        }
        if known.len() >= MAX_COMPILED {
            known.clear();
        }
        let regex = Regex::new(text).ok().map(Rc::new);
        known.insert(text.to_owned(), regex.clone());
        regex
    })
}

/// Returns the expression of all paths that begin with `prefix`.
pub(crate) fn of_prefix(prefix: &str) -> String {
    format!("^{}", regex::escape(prefix))
}

/// Returns the texts of which each match has one at its begin, if the expression is anchored; none otherwise.
fn literal_starts(text: &str) -> Vec<String> {
    anchored_literals(text, Look::Start)
}

/// Returns the texts of which each match has one at its end, if the expression is anchored there; none otherwise.
fn literal_ends(text: &str) -> Vec<String> {
    anchored_literals(text, Look::End)
}

/// Returns the texts of which each match has one beside the anchor, if the expression has it there; none otherwise.
fn anchored_literals(text: &str, anchor: Look) -> Vec<String> {
    let Ok(hir) = regex_syntax::Parser::new().parse(text) else { return Vec::new() };
    let properties = hir.properties();
    let (looks, kind) = match anchor {
        Look::End => (properties.look_set_suffix(), ExtractKind::Suffix),
        _ => (properties.look_set_prefix(), ExtractKind::Prefix),
    };
    if !looks.contains(anchor) {
        return Vec::new();
    }
    let mut extractor = Extractor::new();
    extractor.kind(kind);
    let found = extractor.extract(&hir);
    let literals = found.literals().unwrap_or_default();
    literals
        .iter()
        .map(|literal| String::from_utf8_lossy(literal.as_bytes()).into_owned())
        .collect()
}

/// Returns the text with which every match begins, if the expression is anchored; empty otherwise.
fn literal_start(text: &str) -> String {
    let mut starts = literal_starts(text).into_iter();
    let Some(first) = starts.next() else { return String::new() };
    starts.fold(first, |common, other| {
        let same = common.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        same.map(|(c, _)| c).collect()
    })
}

/// Returns the patterns with `*` that match what the expression matches, if it is made of texts, alternatives and `.*`.
pub(crate) fn globs(text: &str) -> Option<Vec<String>> {
    let anchored = text.starts_with('^');
    let text = text.strip_prefix('^').unwrap_or(text);
    let is_closed = text.ends_with('$') && !text.ends_with("\\$");
    let text = if is_closed { &text[..text.len() - 1] } else { text };
    let all = alternatives(text, 0)?;
    let star = |text: String| {
        let start = if anchored || text.starts_with('*') { "" } else { "*" };
        let end = if is_closed || text.ends_with('*') { "" } else { "*" };
        format!("{start}{text}{end}")
    };
    // `^a|b$` anchors each side alone.
    let has_sides = all.len() > 1 && has_top_alternative(text) && (anchored != is_closed);
    let is_split = has_sides || has_top_alternative(text) && anchored && is_closed;
    (!is_split).then(|| all.into_iter().map(star).collect())
}

fn has_top_alternative(text: &str) -> bool {
    split_top(text, '|').len() > 1
}

/// Most patterns of one expression.
const MAX_GLOBS: usize = 64;

fn alternatives(text: &str, depth: usize) -> Option<Vec<String>> {
    if depth > 8 {
        return None;
    }
    let mut all = Vec::new();
    for part in split_top(text, '|') {
        all.extend(sequence(part, depth)?);
    }
    (all.len() <= MAX_GLOBS).then_some(all)
}

fn sequence(text: &str, depth: usize) -> Option<Vec<String>> {
    let mut found = vec![String::new()];
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (parts, after) = match c {
            '(' => {
                let end = closing(rest)?;
                let inner = &rest[1..end];
                let inner = match inner.strip_prefix("?:") {
                    Some(inner) => inner,
                    None if inner.starts_with('?') => return None,
                    None => inner,
                };
                (alternatives(inner, depth + 1)?, &rest[end + 1..])
            }
            '.' if rest.starts_with(".*") => (vec!["*".to_owned()], &rest[2..]),
            '\\' => {
                let escaped = rest[1..].chars().next()?;
                if escaped.is_ascii_alphanumeric() {
                    return None;
                }
                (vec![escaped.to_string()], &rest[1 + escaped.len_utf8()..])
            }
            '.' | '[' | ']' | '{' | '}' | '^' | '$' | '*' | '+' | '?' | ')' => return None,
            c => (vec![c.to_string()], &rest[c.len_utf8()..]),
        };
        if after.starts_with(['*', '+', '?', '{'])
            || parts.iter().any(|part| part == "*") && c != '.' && c != '('
        {
            return None;
        }
        found = found
            .iter()
            .flat_map(|start| parts.iter().map(move |part| format!("{start}{part}")))
            .collect();
        if found.len() > MAX_GLOBS {
            return None;
        }
        rest = after;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_pcre_are_rewritten() {
        let expression = Expression::new(r"/\.(?!well-known).*", false).unwrap();
        assert_eq!(expression.text, r"/\..*");
        assert_eq!(expression.except.as_deref(), Some(r"/\.(?:well-known)"));
        assert!(expression.matches("/.git") && !expression.matches("/.well-known/x"));
        let plain = Expression::new(r"^/a\/[^/]++\.php$", true).unwrap();
        assert_eq!(plain.text, r"(?i)^/a/[^/]+\.php$");
        let braces = Expression::new(r"^/a{2}/${B}|\x{41}[{]{1,}", false).unwrap();
        assert_eq!(braces.text, r"^/a{2}/$\{B}|\x{41}[{]{1,}");
        for text in ["(?<=a)b", r"(a)\1", "(a(?=b))"] {
            assert!(Expression::new(text, false).is_err(), "{text}");
        }
    }

    #[test]
    fn the_paths_of_an_expression_are_known_by_their_begin() {
        let php = Expression::new(r"\.php$", false).unwrap();
        assert!(php.may_match_beneath("/a/"));
        assert_eq!(php.beneath("/a/").text, r"^/a/.*\.php$");
        let api = Expression::new("^/api/v(1|2)", false).unwrap();
        assert!(
            api.may_match_beneath("/api/")
                && api.may_match_beneath("/api/v1/x")
                && !api.may_match_beneath("/b/")
        );
        assert_eq!(api.beneath("/api/"), api);
    }

    #[test]
    fn the_slash_of_a_group_stands_before_it() {
        let of = |text: &str, template: &str| {
            let expression = Expression::new(text, false).unwrap();
            expression.after_slash(template).map(|(made, to)| (made.text, to))
        };
        let some = |text: &str, to: &str| Some((text.to_owned(), to.to_owned()));
        assert_eq!(of("^(.*)$", "{1}/x"), some("^/(.*)$", "/{1}/x"));
        assert_eq!(of("^(/[^/]+)?(/wp-.*)", "{2}"), some("^(/[^/]+)?/(wp-.*)", "/{2}"));
        assert_eq!(of("^(/a|/b)", "{1}"), None);
        assert_eq!(of("^/x(/a)?", "{1}"), None);
    }

    #[test]
    fn simple_expressions_are_patterns() {
        let list = |texts: &[&str]| Some(texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(globs("^(GET|HEAD)$"), list(&["GET", "HEAD"]));
        assert_eq!(globs("bot|crawler"), list(&["*bot*", "*crawler*"]));
        assert_eq!(globs(r"^www\.(a|b)\.test$"), list(&["www.a.test", "www.b.test"]));
        assert_eq!(globs("a.*b$"), list(&["*a*b"]));
        for text in ["^a|b$", "[ab]", "a+", r"\d"] {
            assert_eq!(globs(text), None, "{text}");
        }
    }
}
