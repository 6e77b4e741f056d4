//! `Redirect`, `RedirectMatch`, `FallbackResource`, and their kin.

use super::builder::simple;
use super::builder::{Builder, EndKind, Front, OF_ALIAS, OF_DIRECTORY, comment, redirect, respond};
use super::scope::is;
use super::target::{Groups, References, target};
use crate::directive::Directive;
use crate::expression::Expression;
use crate::keys::Keys;
use crate::regions::{Paths, Region};
use crate::value::Value;

const NAMES: [&str; 4] = ["Redirect", "RedirectPermanent", "RedirectTemp", "RedirectMatch"];

impl<'t> Builder<'_, 't> {
    /// Reads the redirects of the server and of its sections.
    pub(super) fn redirects(&mut self) {
        for (at, directive) in self.server.clone().all(&NAMES).enumerate() {
            self.redirect(directive, None, OF_ALIAS + at);
        }
        let sections: Vec<_> = self
            .sections
            .iter()
            .map(|section| {
                (
                    section.level,
                    section.paths.clone(),
                    section.when.clone(),
                    section.directory.is_some(),
                )
            })
            .collect();
        let mut order = OF_DIRECTORY + 90_000_000;
        for (level, paths, when, is_directory) in sections {
            for directive in level {
                order += 1;
                if NAMES.iter().any(|name| is(directive, name)) {
                    let within = (!is_directory).then(|| (paths.clone(), when.clone()));
                    self.redirect(directive, within, order);
                } else if is(directive, "FallbackResource") {
                    self.fallback(directive, &paths);
                }
            }
        }
        for directive in self.server.clone().all(&["FallbackResource"]) {
            self.fallback(directive, &[Paths::All]);
        }
    }

    fn fallback(&mut self, directive: &'t Directive, paths: &[Paths]) {
        self.context.report.carried(directive);
        let target = directive.word(0);
        for paths in paths {
            let directory = match paths {
                Paths::All => "/".to_owned(),
                Paths::Pattern(before, behind) if behind.is_empty() => before.clone(),
                _ => {
                    self.context
                        .report
                        .lost(directive, "it is for directories: a path without a file gets 404");
                    continue;
                }
            };
            if target.eq_ignore_ascii_case("disabled") {
                let region =
                    Region { comment: comment(directive), paths: paths.clone(), when: None };
                self.end(OF_DIRECTORY + 99_000_000, region, EndKind::Pass);
                continue;
            }
            self.context.report.differs(directive, super::rule_effect::PASSED_OVER);
            self.context.report.differs(
                directive,
                "a PHP file that does not exist gets the last path of the list",
            );
            let tries = ["{path}", "{path}/", target].map(str::to_owned).to_vec();
            self.fronts.push(Front { directory, tries, except: Vec::new(), is_rule: false });
        }
    }

    /// `within` has the paths of the section around it.
    fn redirect(
        &mut self,
        directive: &'t Directive,
        within: Option<(Vec<Paths>, Option<Value>)>,
        order: usize,
    ) {
        let name = directive.name.to_ascii_lowercase();
        let mut words = directive.words.iter().map(String::as_str).peekable();
        let mut status = if name == "redirectpermanent" { 301 } else { 302 };
        if let Some(known) = words.peek().and_then(|word| status_of(word)) {
            status = known;
            words.next();
        }
        let rest: Vec<&str> = words.collect();
        let is_expression = name == "redirectmatch";
        let (path, to) = match (&rest[..], &within) {
            ([only], Some(_)) if status < 400 => (None, Some(*only)),
            ([], Some(_)) => (None, None),
            ([path, to, ..], _) => (Some(*path), Some(*to)),
            ([path], _) => (Some(*path), None),
            ([], None) => (None, None),
        };
        if to.is_none() && (300..400).contains(&status) {
            return self.context.report.lost(directive, "it has no target");
        }
        let when = within.as_ref().and_then(|(_, when)| when.clone());
        let result = match path {
            Some(path) if is_expression => self.matched(path, to),
            Some(path) => Ok(prefixes(path, to)),
            None => {
                let paths = within.map(|(paths, _)| paths).unwrap_or_default();
                Ok(paths.into_iter().map(|paths| (paths, to.map(str::to_owned))).collect())
            }
        };
        match result {
            Ok(found) => {
                self.context.report.carried(directive);
                for (paths, to) in found {
                    let mut keys = Keys::default();
                    match to {
                        Some(to) => keys.set("redirect", redirect(with_query(to), status)),
                        None => keys.set("respond", respond(status)),
                    }
                    let region = Region { comment: comment(directive), paths, when: when.clone() };
                    self.end(order, region, EndKind::Fixed(keys));
                }
            }
            Err(what) if status >= 400 => {
                let pattern = path.unwrap_or_default();
                let paths = simple(Expression::wider(pattern, false));
                self.context.report.lost(directive, format!("{what}: more paths are rejected"));
                let mut keys = Keys::default();
                keys.set("respond", respond(status));
                let region = Region { comment: comment(directive), paths, when };
                self.end(order, region, EndKind::Fixed(keys));
            }
            Err(what) => {
                self.context.report.lost(directive, format!("{what}: it does not redirect"));
            }
        }
    }

    fn matched(
        &mut self,
        pattern: &str,
        to: Option<&str>,
    ) -> Result<Vec<(Paths, Option<String>)>, String> {
        let expression = Expression::new(pattern, false)?;
        let Some(to) = to else { return Ok(vec![(simple(expression), None)]) };
        let (paths, groups) = match to.contains('$') {
            true => (Paths::Regex(expression), Groups::Expression),
            false => (simple(expression), Groups::Expression),
        };
        let references = References { groups, conditions: &[], base: "" };
        Ok(vec![(paths, Some(target(to, &references)?))])
    }
}

fn with_query(to: String) -> String {
    if to.contains('?') { to } else { format!("{to}{{query}}") }
}

fn status_of(word: &str) -> Option<u64> {
    Some(match word.to_ascii_lowercase().as_str() {
        "permanent" => 301,
        "temp" => 302,
        "seeother" => 303,
        "gone" => 410,
        word => word.parse().ok().filter(|status| (100..600).contains(status))?,
    })
}

/// Returns the paths that begin with one, each with its target.
fn prefixes(path: &str, to: Option<&str>) -> Vec<(Paths, Option<String>)> {
    let to = to.map(|to| to.replace('{', "%7B").replace('}', "%7D"));
    if path == "/" {
        return vec![(
            Paths::All,
            to.map(|to| match to.strip_suffix('/') {
                Some(plain) => format!("{plain}{{path}}"),
                None => format!("{to}{{rest}}"),
            }),
        )];
    }
    let beneath = Paths::beneath(&format!("{}/", path.trim_end_matches('/')));
    if path.ends_with('/') {
        return vec![(beneath, to.map(|to| format!("{to}{{rest}}")))];
    }
    vec![
        (Paths::Exact(path.to_owned()), to.clone()),
        (beneath, to.map(|to| format!("{to}/{{rest}}"))),
    ]
}
