//! The directives of a site in the order in which Caddy runs them.

use std::collections::HashMap;

use super::context::Context;
use super::matcher::{Matcher, paths, read};
use crate::directive::Directive;
use crate::expression::{Expression, of_prefix};
use crate::model::both;
use crate::regions::{Paths, Region};
use crate::value::Value;

/// The order of directives.
const ORDER: [&str; 36] = [
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
];

/// Directives whose first word is no matcher.
const WITHOUT_MATCHER: [&str; 10] = [
    "try_files",
    "handle_errors",
    "log",
    "tls",
    "bind",
    "vars",
    "map",
    "import",
    "handle_path",
    "tracing",
];

/// A directive with its matcher.
#[derive(Debug)]
pub(super) struct Entry<'t> {
    pub(super) directive: &'t Directive,
    pub(super) matcher: Matcher,
    /// Words behind the matcher.
    pub(super) words: Vec<String>,
    /// The directives of a `handle` or a `route`.
    pub(super) inner: Vec<Entry<'t>>,
    /// What `handle_path` removes.
    pub(super) strip: Option<String>,
    /// The position in the order of all directives of the site.
    pub(super) at: usize,
}

/// Where directives stand.
#[derive(Debug, Clone)]
pub(super) struct Level {
    matchers: HashMap<String, Result<Matcher, String>>,
    /// What `handle_path` has removed from the paths of matchers.
    prefix: String,
}

impl Level {
    pub(super) fn new() -> Self {
        Self { matchers: HashMap::new(), prefix: String::new() }
    }
}

/// Returns the directives of a level, in their order unless it is that of a `route`.
pub(super) fn entries<'t>(
    level: &'t [Directive],
    outer: &Level,
    is_sorted: bool,
    context: &mut Context,
) -> Vec<Entry<'t>> {
    let mut known = outer.clone();
    for directive in level.iter().filter(|directive| directive.name.starts_with('@')) {
        let matcher = read(directive, context).map(|matcher| beneath(matcher, &known.prefix));
        match &matcher {
            Ok(_) => context.report.carried(directive),
            Err(what) => {
                context.report.lost(directive, format!("{what}: what is for it does not apply"));
            }
        }
        known.matchers.insert(directive.name.clone(), matcher);
    }
    let mut all: Vec<Entry<'t>> = level
        .iter()
        .filter(|directive| !directive.name.starts_with('@'))
        .filter_map(|directive| entry(directive, &known, context))
        .collect();
    if is_sorted {
        let rank = |entry: &Entry<'_>| {
            let name = entry.directive.name.as_str();
            let name = if name == "handle_path" { "handle" } else { name };
            ORDER.iter().position(|other| *other == name).unwrap_or(ORDER.len())
        };
        all.sort_by_key(&rank);
        // As Caddy does: lengths are compared where both have one path, and what has no matcher comes last.
        let is_before = |one: &Entry<'_>, other: &Entry<'_>| {
            let lengths = (one.matcher.length(), other.matcher.length());
            // Roots are set from general to specific.
            let is_reversed = matches!(one.directive.name.as_str(), "root" | "vars");
            match (rank(one) == rank(other), lengths.0 > 0 && lengths.1 > 0) {
                (false, _) => false,
                (true, true) if is_reversed => lengths.0 < lengths.1,
                (true, true) => lengths.0 > lengths.1,
                (true, false) if is_reversed => {
                    one.matcher.is_everything() && !other.matcher.is_everything()
                }
                (true, false) => !one.matcher.is_everything() && other.matcher.is_everything(),
            }
        };
        for end in 1..all.len() {
            let mut at = end;
            while at > 0 && is_before(&all[at], &all[at - 1]) {
                all.swap(at, at - 1);
                at -= 1;
            }
        }
    }
    all
}

/// Numbers the directives in the order in which they run.
pub(super) fn number(all: &mut [Entry<'_>], next: &mut usize) {
    for entry in all {
        entry.at = *next;
        *next += 1;
        number(&mut entry.inner, next);
    }
}

fn entry<'t>(directive: &'t Directive, known: &Level, context: &mut Context) -> Option<Entry<'t>> {
    let name = directive.name.as_str();
    let first = directive.word(0);
    let has_matcher = match name {
        _ if WITHOUT_MATCHER.contains(&name) => false,
        // The only word is the directory.
        "root" => directive.words.len() > 1,
        "rewrite" | "redir" => directive.words.len() > 1 && is_matcher(first),
        _ => is_matcher(first),
    };
    let mut words = directive.words.clone();
    let mut matcher = Ok(beneath(Matcher::default(), &known.prefix));
    if has_matcher {
        words.remove(0);
        matcher = match first {
            "*" => matcher,
            name if name.starts_with('@') => match known.matchers.get(name) {
                Some(matcher) => matcher.clone(),
                None => Err("the matcher is not defined".into()),
            },
            path => paths(path).map(|paths| {
                beneath(Matcher { paths: vec![paths], ..Matcher::default() }, &known.prefix)
            }),
        };
    }
    let mut strip = None;
    if name == "handle_path" {
        let prefix = first.trim_end_matches('*').trim_end_matches('/').to_owned();
        matcher = paths(first).map(|paths| {
            beneath(Matcher { paths: vec![paths], ..Matcher::default() }, &known.prefix)
        });
        strip = Some(format!("{}{prefix}", known.prefix));
    }
    let matcher = match matcher {
        Ok(matcher) => matcher,
        Err(what) if restricts(directive, &words) => {
            context
                .report
                .lost(directive, format!("{what}: every request of its level is rejected"));
            words = vec!["403".to_owned()];
            let matcher = beneath(Matcher::default(), &known.prefix);
            return Some(Entry {
                directive,
                matcher,
                words,
                inner: Vec::new(),
                strip: None,
                at: 0,
            });
        }
        Err(what) => {
            context.report.lost(directive, format!("{what}: it does not apply"));
            return None;
        }
    };
    let inner = match name {
        "handle" | "handle_path" | "route" => {
            let prefix = strip.clone().unwrap_or_else(|| known.prefix.clone());
            let level = Level { prefix, ..known.clone() };
            entries(directive.children(), &level, name != "route", context)
        }
        _ => Vec::new(),
    };
    Some(Entry { directive, matcher, words, inner, strip, at: 0 })
}

fn is_matcher(word: &str) -> bool {
    word == "*" || word.starts_with(['/', '@'])
}

/// Returns `true` if the directive restricts access.
fn restricts(directive: &Directive, words: &[String]) -> bool {
    match directive.name.as_str() {
        "abort" | "basicauth" | "basic_auth" | "forward_auth" => true,
        "respond" | "error" => words.iter().any(|word| word.len() == 3 && word.starts_with('4')),
        "handle" | "route" | "handle_path" => {
            directive.children().iter().any(|child| restricts(child, &child.words))
        }
        _ => false,
    }
}

/// Returns a matcher for the paths behind a prefix that was removed.
fn beneath(matcher: Matcher, prefix: &str) -> Matcher {
    if prefix.is_empty() {
        return matcher;
    }
    let one = |paths: Paths| match paths {
        Paths::All => Paths::beneath(&format!("{prefix}/")),
        Paths::Exact(path) => Paths::Exact(format!("{prefix}{path}")),
        Paths::Pattern(before, behind) if before.is_empty() => {
            Paths::Pattern(format!("{prefix}/"), behind)
        }
        Paths::Pattern(before, behind) => Paths::Pattern(format!("{prefix}{before}"), behind),
        Paths::Regex(regex) => {
            let start = of_prefix(prefix);
            let text = |text: &str| match text.strip_prefix('^') {
                Some(rest) => format!("{start}{rest}"),
                None => format!("{start}.*?{text}"),
            };
            Paths::Regex(Expression {
                text: text(&regex.text),
                except: regex.except.as_deref().map(text),
            })
        }
    };
    Matcher { paths: matcher.paths.into_iter().map(one).collect(), ..matcher }
}

/// Returns the regions of directives that are not for all requests.
pub(super) fn regions(all: &[Entry<'_>], outer: Option<&Region>, found: &mut Vec<Region>) {
    for entry in all {
        let comment = comment(entry.directive);
        for paths in &entry.matcher.paths {
            let when = entry.matcher.when.clone();
            let Some(region) = within(&comment, paths, when, outer) else { continue };
            if entry.matcher.is_everything() {
                regions(&entry.inner, outer, found);
            } else {
                found.push(region.clone());
                regions(&entry.inner, Some(&region), found);
            }
        }
    }
}

fn within(
    comment: &str,
    paths: &Paths,
    when: Option<Value>,
    outer: Option<&Region>,
) -> Option<Region> {
    let Some(outer) = outer else {
        return Some(Region { comment: comment.to_owned(), paths: paths.clone(), when });
    };
    let paths = outer.paths.and(paths)?;
    let when = match (&outer.when, when) {
        (Some(known), Some(own)) => Some(both(known, &own).ok()?),
        (known, own) => own.or_else(|| known.clone()),
    };
    Some(Region { comment: comment.to_owned(), paths, when })
}

/// Returns the comment that names a directive.
pub(super) fn comment(directive: &Directive) -> String {
    let words: String = directive.words.iter().map(|word| format!(" {word}")).collect();
    let words: String = words.chars().filter(|c| !c.is_control()).take(90).collect();
    format!("{}: {}{words}", directive.place.short(), directive.name)
}
