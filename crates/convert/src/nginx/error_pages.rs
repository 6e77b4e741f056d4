//! `error_page`: pages, named locations and redirects in place of errors.

use super::assemble::{Draft, Paths};
use super::location::passes;
use super::parse::Directive;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::variables::{Constants, Place, template};
use crate::keys::Keys;
use crate::value::Value;

/// Statuses that no server sends by itself.
const OF_RETURN: [&str; 10] =
    ["418", "419", "420", "430", "432", "440", "450", "460", "470", "480"];

/// Statuses of redirects; any other one is 302.
const REDIRECTS: [u64; 5] = [301, 302, 303, 307, 308];

/// Returns `true` if a block has a `return` of a status alone, also within an `if`.
fn has_bare_return(block: &[Directive]) -> bool {
    let is_bare = |child: &Directive| child.name == "return" && child.words.len() == 1;
    block
        .iter()
        .any(|child| is_bare(child) || child.name == "if" && has_bare_return(child.children()))
}

impl<'t> Builder<'_, 't> {
    /// `error_page 404 = /index.php`: what is looked for where there is no file.
    pub(super) fn missing(&mut self, scope: &Scope<'t>, constants: &Constants) -> Option<String> {
        let pages = scope.all(&["error_page"]);
        let page = pages.into_iter().find(|page| {
            let is_missing = page.words.iter().any(|word| word == "404");
            let is_page = page.words.last().is_some_and(|last| self.is_searched_page(last));
            is_missing
                && is_page
                && page.words.iter().any(|word| matches!(word.as_str(), "=" | "=200"))
        })?;
        let target = page.words.last()?;
        self.context.report.carried(page);
        if let Some(name) = target.strip_prefix('@') {
            let (named, inner) = self.named(name)?;
            return Some(self.named_path(name, named, &inner, scope));
        }
        template(target, Place::Path, constants, &Constants::new(), |_| false).ok()
    }

    /// Pages for error statuses.
    pub(super) fn error_pages(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut pages: Vec<(String, Value)> = Vec::new();
        for directive in scope.all(&["error_page"]) {
            let Some((target, words)) = directive.words.split_last() else { continue };
            if self.is_page && target.starts_with('@') {
                continue;
            }
            let (statuses, changes): (Vec<&String>, Vec<&String>) =
                words.iter().partition(|word| !word.starts_with('='));
            let change = changes.first().map(|change| change.as_str());
            let is_searched = |status: &&String| self.is_searched(status, change, target, scope);
            if statuses.iter().all(is_searched) {
                // The list of files ends with it, or `return` leads there.
                self.context.report.carried(directive);
                continue;
            }
            let statuses = statuses.into_iter().filter(|status| !is_searched(status));
            let statuses: Vec<&String> = statuses.collect();
            let Some(to) = self.error_target(directive, target, scope) else { continue };
            if change.is_some_and(|change| change != "=" && change[1..].parse::<u16>().is_err()) {
                let what = format!("{} is no status", change.unwrap_or_default());
                self.context.report.lost(directive, what);
                continue;
            }
            for status in statuses {
                match status.parse::<u16>() {
                    Ok(number) if matches!(number, 494..=499) => {
                        let what = format!("{number} is a status of nginx alone");
                        self.context.report.differs(directive, what);
                    }
                    Ok(number) if (400..600).contains(&number) => {
                        pages.push((status.clone(), page(&to, target, change, number)));
                    }
                    _ => self
                        .context
                        .report
                        .lost(directive, format!("{status} is not the status of an error")),
                }
            }
            let what = "error pages have the headers of the location of the request, not of their own location";
            match scope.all(&["add_header"]).is_empty() || change == Some("=") {
                true => self.context.report.carried(directive),
                false => self.context.report.differs(directive, what),
            }
        }
        if !pages.is_empty() {
            // The first one is in force.
            let mut known = std::collections::HashSet::new();
            pages.retain(|(status, _)| known.insert(status.clone()));
            keys.set("error_pages", Value::Table(pages));
        }
    }

    /// Returns `true` if the page of a status takes the place of a file that is missing, or is that of a `return` alone.
    fn is_searched(
        &self,
        status: &str,
        change: Option<&str>,
        target: &str,
        scope: &Scope<'t>,
    ) -> bool {
        let of_return =
            target.starts_with('@') && change == Some("=") && OF_RETURN.contains(&status);
        let is_own = matches!(change, Some("=" | "=200"));
        // A script that does not exist is not looked for again.
        let is_page = self.is_searched_page(target);
        let of_files =
            is_page && passes(scope).is_none() && scope.own_directive("stub_status").is_none();
        of_return || is_own && status == "404" && of_files && !target.contains("://")
    }

    /// Returns `true` if a page in place of a missing file can end the list of files: a named location that exists, or a file.
    fn is_searched_page(&self, target: &str) -> bool {
        match target.strip_prefix('@') {
            Some(name) => self.named(name).is_some(),
            None => target.starts_with('/') && !target.contains(".php"),
        }
    }

    /// Adds an internal route in place of a named location that does not exist, and returns its path.
    fn missing_name(&mut self, name: &str) -> String {
        let path = format!("/@{name}");
        let mut keys = Keys::default();
        keys.set("internal", Value::Switch(true));
        keys.set("respond", Value::table([("status", Value::Number(500))]));
        let comment = format!("there is no location @{name}");
        if !self.drafts.internal.iter().any(|draft| draft.comment == comment) {
            let paths = Paths::Exact(path.clone());
            self.drafts.internal.push(Draft::new(comment, paths, None, keys));
        }
        path
    }

    /// Returns where an error leads: a path of the site, or a URL.
    fn error_target(
        &mut self,
        directive: &'t Directive,
        target: &str,
        scope: &Scope<'t>,
    ) -> Option<String> {
        if let Some(name) = target.strip_prefix('@') {
            let Some((named, inner)) = self.named(name) else {
                // nginx fails then.
                return Some(self.missing_name(name));
            };
            let what = "it gets a request with GET and without a body, whatever the method was";
            self.context.report.differs(named, what);
            self.is_page = true;
            let to = self.named_path(name, named, &inner, scope);
            self.is_page = false;
            return Some(match to.contains(['?', '{']) && !to.contains('?') {
                true => format!("{to}?{{query}}"),
                false => to,
            });
        }
        let is_url = target.contains("://");
        if !target.starts_with('/') && !is_url {
            return self.relative_page(directive, target);
        }
        let place = if is_url { Place::Redirect } else { Place::Path };
        let constants = self.constants(scope);
        let values = Constants::new();
        match template(target, place, &constants, &values, |_| false) {
            Ok(to) if !to.starts_with("/{") && !to.contains("{raw_query}") => Some(to),
            _ => {
                self.context.report.lost(
                    directive,
                    "the page depends on the request: errors have the page of the server",
                );
                None
            }
        }
    }

    /// Returns a URL that is relative to that of the request, to which clients are redirected.
    fn relative_page(&mut self, directive: &'t Directive, target: &str) -> Option<String> {
        let first = target.split(['/', '?', '#']).next().unwrap_or_default();
        if first.is_empty() || first.contains(':') || target.contains(['$', '{', '\\']) {
            let what = "the errors have the page of the server, since the page is elsewhere";
            self.context.report.lost(directive, what);
            return None;
        }
        let what = "clients are redirected to a path relative to theirs, as by nginx: a page of the site begins with `/`";
        self.context.report.differs(directive, what);
        Some(format!("./{target}"))
    }

    /// `return 418` where `error_page 418 = @name` is in force: returns the settings of the named location.
    pub(super) fn named_error(
        &mut self,
        scope: &Scope<'t>,
        status: u64,
        paths: &Paths,
    ) -> Option<Keys> {
        let status = status.to_string();
        let page = scope.all(&["error_page"]).into_iter().find(|page| {
            let words = page.words.split_last().map_or(&[][..], |(_, words)| words);
            words.contains(&status) && words.iter().any(|word| word == "=")
        })?;
        let (named, inner) = self.named(page.words.last()?.strip_prefix('@')?)?;
        if has_bare_return(inner.own()) {
            // It could lead to itself.
            return None;
        }
        self.context.report.carried(page);
        self.context.report.carried(named);
        let location = Location {
            paths: paths.clone(),
            is_preferred: false,
            scope: inner.clone(),
            directive: Some(named),
            also: None,
        };
        let flow = self.flow(&location);
        for draft in &flow.before {
            let what = format!("{}: a rewrite of some paths only", draft.comment);
            self.context.report.lost(named, what);
        }
        Some(match flow.end {
            Some(keys) => keys,
            None => self.settings_after(&inner, paths, &flow.rest),
        })
    }
}

/// Returns the page of a status. A named location, or a page with variables, has the status of the error whatever it responds.
fn page(to: &str, target: &str, change: Option<&str>, status: u16) -> Value {
    let code = change.and_then(|change| change[1..].parse::<u64>().ok());
    let status = match change {
        _ if !target.starts_with(['/', '@']) => {
            let code = code.filter(|code| REDIRECTS.contains(code)).unwrap_or(302);
            if target.contains("://") && code == 302 {
                return Value::text(to);
            }
            Value::Number(code)
        }
        None if !target.starts_with('@') => return Value::text(to),
        None => Value::Number(status.into()),
        // A file has 200 by itself, and its validators.
        Some("=" | "=200") => Value::text("page"),
        Some(_) => match code {
            Some(code) => Value::Number(code),
            None => return Value::text(to),
        },
    };
    Value::table([("to", Value::text(to)), ("status", status)])
}
