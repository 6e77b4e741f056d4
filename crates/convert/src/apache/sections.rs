//! Sections, in the order in which Apache merges them, with the paths of URLs that they are for.

use super::builder::{Builder, Phase, Section, simple};
use super::condition::{If, read_if};
use super::scope::is;
use crate::directive::Directive;
use crate::expression::{Expression, globs};
use crate::regions::Paths;
use crate::value::Value;

/// Returns the sections of a server in the order in which they are merged.
pub(super) fn sections<'t>(
    levels: &[&'t [Directive]],
    builder: &mut Builder<'_, 't>,
) -> Vec<Section<'t>> {
    let mut all = Vec::new();
    for level in levels {
        collect(level, None, &mut all, builder);
    }
    // Shorter directories come first; everything else stays in its order.
    let mut order: Vec<usize> = (0..all.len()).collect();
    let key = |at: &usize| {
        let section: &Section<'_> = &all[*at];
        let length = match section.phase {
            Phase::Directory => section
                .directory
                .as_ref()
                .map_or(usize::MAX, |path| path.trim_end_matches('/').matches('/').count()),
            _ => 0,
        };
        (section.phase, length)
    };
    order.sort_by_key(key);
    let places: Vec<usize> =
        (0..all.len()).map(|at| order.iter().position(|old| *old == at).unwrap_or(at)).collect();
    let mut sorted: Vec<(usize, Section<'t>)> = places.iter().copied().zip(all).collect();
    sorted.sort_by_key(|(at, _)| *at);
    let place =
        |section: Section<'t>| Section { within: section.within.map(|at| places[at]), ..section };
    sorted.into_iter().map(|(_, section)| place(section)).collect()
}

fn collect<'t>(
    level: &'t [Directive],
    within: Option<usize>,
    all: &mut Vec<Section<'t>>,
    builder: &mut Builder<'_, 't>,
) {
    for directive in level.iter().filter(|directive| directive.block.is_some()) {
        let outer = within.map(|at| all[at].paths.clone());
        let Some(section) = section(directive, outer, builder) else { continue };
        let at = all.len();
        all.push(Section { within, ..section });
        collect(directive.children(), Some(at), all, builder);
    }
}

/// Returns a section without the one around it; `None` for containers of other kinds.
fn section<'t>(
    directive: &'t Directive,
    outer: Option<Vec<Paths>>,
    builder: &mut Builder<'_, 't>,
) -> Option<Section<'t>> {
    let name = directive.name.to_ascii_lowercase();
    let (first, second) = (directive.word(0), directive.word(1));
    let (is_expression, text) = match (first, name.ends_with("match")) {
        ("~", _) => (true, second),
        (_, true) => (true, first),
        _ => (false, first),
    };
    let new = |phase, paths| Section {
        directive,
        phase,
        paths,
        directory: None,
        when: None,
        within: None,
        level: directive.children(),
    };
    let found = match name.trim_end_matches("match") {
        "directory" if is_expression => {
            match of_directories(text, builder.document_root.as_deref()) {
                Ok(paths) => new(Phase::Directory, vec![paths]),
                Err(what) => return lose(directive, &what, builder),
            }
        }
        "directory" => {
            let path = builder.context.in_root(text);
            if text.contains(['*', '?', '[']) {
                let is_root = builder.document_root.as_ref().is_some_and(|root| fits(&path, root));
                if !is_root {
                    return lose(
                        directive,
                        "directories are names: no pattern of theirs is known",
                        builder,
                    );
                }
                new(Phase::Directory, vec![Paths::All])
            } else {
                let paths = builder.urls(&path);
                if paths.is_empty() {
                    builder.context.report.not_needed(directive, "no path of the site leads there");
                    mark(directive.children(), "no path of the site leads there", builder);
                    return None;
                }
                Section { directory: Some(path), ..new(Phase::Directory, paths) }
            }
        }
        "files" => {
            let names = if is_expression { of_names(text) } else { of_name(text) };
            let names = match names {
                Ok(names) => names,
                Err(what) => return lose(directive, &what, builder),
            };
            let outer = outer.unwrap_or_else(|| vec![Paths::All]);
            let both =
                |outer: &Paths| names.iter().filter_map(|name| outer.and(name)).collect::<Vec<_>>();
            new(Phase::Files, outer.iter().flat_map(both).collect())
        }
        "location" if is_expression => match Expression::new(text, false) {
            Ok(expression) => new(Phase::Location, vec![simple(expression)]),
            Err(what) => return lose(directive, &what, builder),
        },
        "location" => match of_location(text) {
            Some(paths) => new(Phase::Location, paths),
            None => return lose(directive, "a pattern has one `*`", builder),
        },
        "if" => match read_if(&directive.words.join(" "), builder) {
            Ok(If { paths, when }) => {
                let outer = outer.unwrap_or_else(|| vec![Paths::All]);
                let paths = outer.iter().filter_map(|outer| outer.and(&paths)).collect();
                Section { when, ..new(Phase::If, paths) }
            }
            Err(what) => return lose(directive, &what, builder),
        },
        "limit" | "limitexcept" => return limit(directive, outer, builder),
        "else" | "elseif" => {
            return lose(directive, "a condition has no other branch", builder);
        }
        "virtualhost" => return None,
        _ => return None,
    };
    builder.context.report.carried(directive);
    Some(found)
}

/// `<Limit>` and `<LimitExcept>`: sections for methods.
fn limit<'t>(
    directive: &'t Directive,
    outer: Option<Vec<Paths>>,
    builder: &mut Builder<'_, 't>,
) -> Option<Section<'t>> {
    builder.context.report.carried(directive);
    let methods: Vec<String> =
        directive.words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let of_methods = Value::table([("method", Value::one_or_many(methods))]);
    let when = match is(directive, "Limit") {
        true => of_methods,
        false => Value::table([("not", of_methods)]),
    };
    Some(Section {
        directive,
        phase: Phase::If,
        paths: outer.unwrap_or_else(|| vec![Paths::All]),
        directory: None,
        when: Some(when),
        within: None,
        level: directive.children(),
    })
}

/// A section that has no counterpart. If it restricts access, the paths around it are closed.
fn lose<'t>(
    directive: &'t Directive,
    what: &str,
    builder: &mut Builder<'_, 't>,
) -> Option<Section<'t>> {
    if super::access::restricts(directive.children()) {
        let what = format!("{what}: it restricts access, so that every request around it gets 403");
        builder.context.report.lost(directive, what);
        builder.context.is_closed = true;
    } else {
        builder.context.report.lost(directive, format!("{what}: its directives have no effect"));
    }
    mark(directive.children(), "its section is lost", builder);
    None
}

/// Reports what is in a section that is not used.
pub(super) fn mark(all: &[Directive], why: &str, builder: &mut Builder<'_, '_>) {
    for directive in all {
        if !builder.context.report.has(directive) {
            builder.context.report.not_needed(directive, why);
        }
        mark(directive.children(), why, builder);
    }
}

impl Builder<'_, '_> {
    /// Returns the paths of URLs that lead beneath a directory.
    fn urls(&self, directory: &str) -> Vec<Paths> {
        let directory = directory.trim_end_matches('/');
        let mut found = Vec::new();
        if let Some(root) = self.document_root.as_deref() {
            let root = root.trim_end_matches('/');
            if super::builder::is_beneath(root, directory) {
                // Aliases beneath it are regions by themselves.
                return vec![Paths::All];
            }
            if let Some(rest) = directory.strip_prefix(root).filter(|rest| rest.starts_with('/')) {
                found.push(Paths::beneath(&format!("{rest}/")));
            }
        }
        for alias in &self.aliases {
            let target = alias.target.trim_end_matches('/');
            let url = alias.url.trim_end_matches('/');
            if super::builder::is_beneath(target, directory) {
                found.extend(alias.paths.iter().cloned());
            } else if let Some(rest) =
                directory.strip_prefix(target).filter(|rest| rest.starts_with('/'))
            {
                found.push(Paths::beneath(&format!("{url}{rest}/")));
            }
        }
        found.dedup();
        found
    }
}

/// Returns `true` if a pattern of directories with `*` is for this one.
fn fits(pattern: &str, path: &str) -> bool {
    let parts: Vec<&str> = pattern.trim_end_matches('/').split('/').collect();
    let own: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    parts.len() <= own.len()
        && parts.iter().zip(own).all(|(part, own)| match part.split_once('*') {
            Some((before, behind)) => {
                own.starts_with(before) && own.ends_with(behind.trim_start_matches('*'))
            }
            None => *part == own,
        })
}

/// Returns the paths of `<DirectoryMatch>`.
fn of_directories(text: &str, root: Option<&str>) -> Result<Paths, String> {
    let plain = text.trim_end_matches('$');
    if let Some(root) = root {
        let root = format!("{}/", root.trim_end_matches('/'));
        let matches_root = regex::Regex::new(text).is_ok_and(|regex| regex.is_match(&root));
        if matches_root && !regex::Regex::new(text).is_ok_and(|regex| regex.is_match("/none/")) {
            return Ok(Paths::All);
        }
        if let Some(rest) = plain.strip_prefix('^') {
            let escaped = regex::escape(root.trim_end_matches('/'));
            let rest = rest
                .strip_prefix(&escaped)
                .or_else(|| rest.strip_prefix(root.trim_end_matches('/')))
                .or_else(|| rest.strip_prefix(".*"));
            let rest = rest.ok_or("its directories are not beneath the document root")?;
            return Expression::new(&format!("^{rest}"), false).map(Paths::Regex);
        }
    }
    Expression::new(plain, false).map(Paths::Regex)
}

/// Returns the paths of files with a name, which may have `*` and `?`.
fn of_name(name: &str) -> Result<Vec<Paths>, String> {
    if !name.contains(['*', '?', '[']) {
        return Ok(vec![Paths::Pattern(String::new(), format!("/{name}"))]);
    }
    if let Some(end) = name.strip_prefix('*').filter(|end| !end.contains(['*', '?', '[', '/'])) {
        return Ok(vec![Paths::Pattern(String::new(), end.to_owned())]);
    }
    let mut text = String::from("/");
    for c in name.chars() {
        match c {
            '*' => text.push_str("[^/]*"),
            '?' => text.push_str("[^/]"),
            '[' | ']' => text.push(c),
            c => text.push_str(&regex::escape(&c.to_string())),
        }
    }
    Expression::new(&format!("{text}$"), false).map(|regex| vec![Paths::Regex(regex)])
}

/// Returns the paths of files whose names match an expression.
pub(super) fn of_names(text: &str) -> Result<Vec<Paths>, String> {
    let (flag, body) = match text
        .strip_prefix("(?i)")
        .or_else(|| text.strip_prefix("(?i:").and_then(|inner| inner.strip_suffix(')')))
    {
        Some(body) => (true, body),
        None => (false, text),
    };
    if !flag && let Some(found) = globs(body) {
        let pattern = |glob: &String| match (glob.strip_prefix('*'), glob.contains('*')) {
            (Some(end), true) if !end.contains('*') && !end.is_empty() => {
                Some(Paths::Pattern(String::new(), end.to_owned()))
            }
            (None, false) => Some(Paths::Pattern(String::new(), format!("/{glob}"))),
            _ => None,
        };
        if let Some(patterns) = found.iter().map(pattern).collect::<Option<Vec<_>>>() {
            return Ok(patterns);
        }
    }
    let starts = body.starts_with('^') && !body.contains('|');
    let ends = body.ends_with('$') && !body.ends_with("\\$") && !body.contains('|');
    let inner = body;
    let expression = match (starts, ends) {
        (true, true) => format!("/{}", &inner[1..]),
        (true, false) => format!("/{}[^/]*$", &inner[1..]),
        (false, true) => inner.to_owned(),
        // Each alternative may have anchors of its own.
        (false, false) if inner.contains(['^', '$']) => {
            inner.replace("(^", "(/").replace("|^", "|/").strip_prefix('^').map_or_else(
                || inner.replace("(^", "(/").replace("|^", "|/"),
                |rest| format!("/{rest}"),
            )
        }
        (false, false) => format!("(?:{inner})[^/]*$"),
    };
    Expression::new(&expression, flag).map(|regex| vec![Paths::Regex(regex)])
}

/// Returns the paths of a `<Location>`.
fn of_location(text: &str) -> Option<Vec<Paths>> {
    let text = match text.find("://") {
        Some(at) => text[at + 3..].find('/').map_or("/", |slash| &text[at + 3 + slash..]),
        None => text,
    };
    Some(match text {
        "/" | "" => vec![Paths::All],
        text if text.contains(['?', '[']) => return None,
        text if text.contains('*') => vec![Paths::glob(text)?],
        text if text.ends_with('/') => vec![Paths::beneath(text)],
        text => vec![Paths::Exact(text.to_owned()), Paths::beneath(&format!("{text}/"))],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(before: &str, behind: &str) -> Paths {
        Paths::Pattern(before.into(), behind.into())
    }

    #[test]
    fn names_of_files_are_patterns() {
        assert_eq!(of_name("wp-config.php").unwrap(), [pattern("", "/wp-config.php")]);
        assert_eq!(of_name("*.css").unwrap(), [pattern("", ".css")]);
        assert_eq!(of_names(r"\.(css|js)$").unwrap(), [pattern("", ".css"), pattern("", ".js")]);
        assert_eq!(of_names("^xmlrpc\\.php$").unwrap(), [pattern("", "/xmlrpc.php")]);
        let hidden = |paths: Vec<Paths>| match &paths[..] {
            [Paths::Regex(regex)] => {
                assert!(
                    regex.matches("/.htaccess") && regex.matches("/a/.htpasswd"),
                    "{}",
                    regex.text
                );
                assert!(!regex.matches("/a.ht") && !regex.matches("/.htx/y"), "{}", regex.text);
            }
            other => panic!("{other:?}"),
        };
        hidden(of_names(r"^\.ht").unwrap());
        hidden(of_name(".ht*").unwrap());
    }
}
