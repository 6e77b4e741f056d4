//! From the complete settings of each location to routes: only one location is in force for a request, but routes inherit.
//!
//! Prefixes are patterns, and inherit from shorter ones. Of regular expressions only the first that matches applies. So a
//! prefix becomes an expression, too, where an expression must not come before it (`^~`), or where a route would inherit a
//! key from it that nothing ends.

use super::condition;
use super::context::Context;
use super::expression::{Expression, of_prefix};
use super::parse::Directive;
use super::writer::Writer;
use crate::keys::Keys;
pub(super) use crate::model::pattern_text;
use crate::model::{Matching, Route, Site};
use crate::value::Value;

/// The paths of a draft.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Paths {
    Exact(String),
    Prefix(String),
    Regex(Expression),
}

/// A route with its complete settings.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) comment: String,
    pub(super) paths: Paths,
    pub(super) when: Option<Value>,
    pub(super) keys: Keys,
    /// The settings of paths that the expression excludes; those that they inherit if absent.
    pub(super) otherwise: Option<Keys>,
}

impl Draft {
    pub(super) fn new(comment: String, paths: Paths, when: Option<Value>, keys: Keys) -> Self {
        Self { comment, paths, when, keys, otherwise: None }
    }
}

/// A location: routes for some of its requests, in order, and the settings of the others.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) draft: Draft,
    pub(super) before: Vec<Draft>,
    /// It is `^~`.
    pub(super) is_preferred: bool,
    /// It needs an expression: its handler would take the text of a pattern for its own.
    pub(super) is_regex: bool,
}

/// The routes of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Drafts {
    /// What comes before all locations.
    pub(super) first: Vec<Draft>,
    pub(super) exact: Vec<Place>,
    pub(super) regexes: Vec<Place>,
    pub(super) prefixes: Vec<Place>,
    /// Internal routes.
    pub(super) internal: Vec<Draft>,
    pub(super) root: Option<Value>,
}

impl Drafts {
    /// Adds the routes of another server for requests without TLS.
    pub(super) fn with_plain(
        mut self,
        plain: Drafts,
        context: &mut Context<'_>,
        server: Option<&Directive>,
    ) -> Self {
        let scheme = Value::table([("scheme", Value::text("http"))]);
        let mut all: Vec<Draft> = plain.first;
        let mut prefixes = plain.prefixes;
        prefixes.sort_by_key(|place| std::cmp::Reverse(text_of(&place.draft.paths).len()));
        let places = plain.exact.into_iter().chain(plain.regexes).chain(prefixes);
        all.extend(places.flat_map(|place| place.before.into_iter().chain([place.draft])));
        for draft in &mut all {
            let when = draft
                .when
                .as_ref()
                .map_or_else(|| Ok(scheme.clone()), |when| condition::both(when, &scheme));
            match when {
                Ok(when) => draft.when = Some(when),
                Err(what) => {
                    if let Some(server) = server {
                        context
                            .report
                            .lost(server, format!("a route for requests without TLS: {what}"));
                    }
                }
            }
            draft.paths = Paths::Regex(expression_of(&draft.paths, &draft.keys));
        }
        all.extend(std::mem::take(&mut self.first));
        self.first = all;
        self.internal.extend(plain.internal);
        self
    }
}

impl Drafts {
    fn all(&self) -> impl Iterator<Item = &Draft> {
        let places = self.exact.iter().chain(&self.regexes).chain(&self.prefixes);
        self.first
            .iter()
            .chain(places.flat_map(|place| place.before.iter().chain([&place.draft])))
            .chain(&self.internal)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Draft> {
        let places = self.exact.iter_mut().chain(&mut self.regexes).chain(&mut self.prefixes);
        let of_places = places.flat_map(|place| place.before.iter_mut().chain([&mut place.draft]));
        self.first.iter_mut().chain(of_places).chain(&mut self.internal)
    }

    /// Returns `true` if a location rejects requests for hidden files.
    fn guards_hidden(&self) -> bool {
        self.regexes.iter().any(|place| {
            let keys = &place.draft.keys;
            let is_rejected = keys.get("deny").is_some() || keys.get("respond").is_some();
            let hidden = ["/.git/config", "/.env", "/a/.htaccess"];
            let matches =
                |path: &&str| expression(&place.draft).is_some_and(|regex| regex.matches(path));
            is_rejected && hidden.iter().all(matches)
        })
    }
}

pub(super) fn text_of(paths: &Paths) -> &str {
    match paths {
        Paths::Exact(text) | Paths::Prefix(text) => text,
        Paths::Regex(expression) => &expression.text,
    }
}

/// Returns the paths as an expression. Its group is what the `*` of a pattern matches.
pub(super) fn expression_of(paths: &Paths, keys: &Keys) -> Expression {
    let uses_rest = keys.iter().any(|(_, value)| value.to_string().contains("{rest}"));
    let text = match paths {
        Paths::Exact(path) => format!("^{}$", regex::escape(path)),
        Paths::Prefix(prefix) if uses_rest => format!("{}(.*)", of_prefix(prefix)),
        Paths::Prefix(prefix) => of_prefix(prefix),
        Paths::Regex(expression) => return expression.clone(),
    };
    Expression { text, except: None }
}

/// Makes the routes of a site.
pub(super) fn assemble(mut drafts: Drafts) -> Site {
    let sends_files = drafts.all().any(|draft| draft.keys.get("root").is_some());
    let is_guarded = drafts.guards_hidden();
    for draft in drafts.all_mut() {
        // Hidden files that no request reaches need no key.
        draft.keys.retain(|key| match key {
            "symlinks" => sends_files,
            "hidden" => sends_files && !is_guarded,
            _ => true,
        });
    }
    drafts.prefixes.sort_by_key(|place| std::cmp::Reverse(text_of(&place.draft.paths).len()));
    let mut assembly = Assembly { base: None, drafts };
    assembly.index_files();
    assembly.choose_forms();
    assembly.missing_slashes();
    assembly.choose_base();
    assembly.site()
}

/// The comment of a path that has the name of a directory of files, and is none of them.
pub(super) const NO_FILE: &str = " is none of the files below";

struct Assembly {
    /// The settings of the site itself.
    base: Option<Keys>,
    drafts: Drafts,
}

impl Assembly {
    /// A request for `/` is one for its index file, whose own location is in force.
    fn index_files(&mut self) {
        let prefixes = &self.drafts.prefixes;
        let Some(root) = prefixes.iter().find(|place| text_of(&place.draft.paths) == "/") else {
            return;
        };
        let has_files = root.draft.keys.handler().is_none();
        let exact =
            |path: &str| self.drafts.exact.iter().find(|place| text_of(&place.draft.paths) == path);
        let index = match root.draft.keys.get("index") {
            Some(Value::List(names)) => {
                names.iter().map(|name| name.to_string().trim_matches('"').to_owned()).next()
            }
            _ => Some("index.html".to_owned()),
        };
        let Some(path) = index.map(|index| format!("/{index}")) else { return };
        let is_first = |draft: &Draft| {
            expression(draft).is_some_and(|regex| regex.matches(&path)) && draft.when.is_none()
        };
        let first = |place: &&Place| is_first(&place.draft);
        let of_regex = || self.drafts.regexes.iter().find(first).map(|place| &place.draft);
        let of_files = |draft: &&Draft| draft.keys.handler().is_none();
        let nested = || root.before.iter().find(|draft| is_first(draft));
        let exactly = exact(&path).map(|place| &place.draft);
        let draft = exactly.or_else(|| nested().or_else(of_regex).filter(of_files));
        let Some(own) = draft.filter(|_| has_files && exact("/").is_none()) else {
            return;
        };
        let mut keys = own.keys.clone();
        keys.retain(|key| matches!(key, "set_fields" | "error_pages" | "access_log"));
        keys.set("rewrite", Value::text(path.clone()));
        let draft =
            Draft::new(format!("{}: as index", own.comment), Paths::Exact("/".into()), None, keys);
        self.drafts.exact.push(Place {
            draft,
            before: Vec::new(),
            is_preferred: false,
            is_regex: false,
        });
    }

    fn has_exact(&self, path: &str) -> bool {
        self.drafts.exact.iter().any(|exact| text_of(&exact.draft.paths) == path)
    }

    /// Returns `true` if a pattern that is not for every path is for what `prefix` is for, with a handler or a list of files: then the
    /// path without a slash is its own.
    fn is_within_handler(&self, prefix: &str) -> bool {
        self.drafts.prefixes.iter().any(|other| {
            let shorter = text_of(&other.draft.paths);
            let keys = &other.draft.keys;
            let is_outer = !other.is_regex && prefix.starts_with(shorter) && prefix != shorter;
            is_outer && shorter != "/" && (keys.handler().is_some() || keys.get("try").is_some())
        })
    }

    /// A request for `/a` is redirected to `/a/` where `/a/` is that of an application. A pattern does so by itself, an
    /// expression does not.
    fn missing_slashes(&mut self) {
        let mut made = Vec::new();
        let mut without_slash = Vec::new();
        for place in &self.drafts.prefixes {
            let prefix = text_of(&place.draft.paths);
            let outer = self.drafts.prefixes.iter().find(|other| {
                let shorter = text_of(&other.draft.paths);
                !other.is_regex && prefix.starts_with(shorter) && prefix != shorter
            });
            let handler = |place: &Place| {
                place.draft.keys.handler().and_then(|key| place.draft.keys.get(key).cloned())
            };
            let is_alias = is_alias_of_path(place);
            if let Some(path) = prefix.strip_suffix('/')
                && is_alias
                && place.is_regex
                && !place.draft.comment.ends_with(prefix)
                && !self.has_exact(path)
            {
                made.push(redirect_to_slash(place, path));
                continue;
            }
            let is_other = |outer: &Place| is_alias || handler(outer).is_some();
            if handler(place).is_none()
                && !place.is_regex
                && let Some(outer) = outer.filter(|outer| is_other(outer))
                && let Some(path) = prefix.strip_suffix('/')
            {
                if place.draft.comment.ends_with(prefix) {
                    // Only files have this redirect, and the path is none of theirs.
                    without_slash.push((path.to_owned(), outer.draft.keys.clone()));
                } else if is_alias_of_path(place) && !self.has_exact(path) {
                    made.push(redirect_to_slash(place, path));
                }
                continue;
            }
            // A route that inherits the application of a more general one has no such redirect.
            let is_inherited = outer.is_some_and(|outer| handler(outer) == handler(place));
            // Routes for each value of a map have none either.
            let is_chosen = handler(place).is_some_and(|value| value.to_string().contains("{map."));
            // The more general one responds by itself.
            let is_fixed = outer.is_some_and(|outer| {
                matches!(outer.draft.keys.handler(), Some("respond" | "redirect" | "close"))
            });
            if !(place.is_regex
                || is_inherited
                || is_chosen
                || is_fixed
                || self.is_within_handler(prefix))
            {
                continue;
            }
            let Some(path) = prefix.strip_suffix('/').filter(|path| !path.is_empty()) else {
                continue;
            };
            let is_application = matches!(place.draft.keys.handler(), Some("proxy" | "script"));
            let has_exact =
                self.drafts.exact.iter().any(|exact| text_of(&exact.draft.paths) == path);
            if is_application && !has_exact {
                made.push(redirect_to_slash(place, path));
            }
        }
        for place in &self.drafts.exact {
            let path = text_of(&place.draft.paths);
            let is_application = matches!(place.draft.keys.handler(), Some("proxy" | "script"));
            let bare = path.strip_suffix('/').filter(|bare| is_application && !bare.is_empty());
            let is_taken = |bare: &str| {
                let places = self.drafts.exact.iter().chain(&made);
                places.into_iter().any(|other| text_of(&other.draft.paths) == bare)
            };
            if let Some(bare) = bare.filter(|bare| !is_taken(bare)) {
                made.push(redirect_to_slash(place, bare));
            }
        }
        for (path, keys) in without_slash {
            let is_exact =
                self.drafts.exact.iter().any(|exact| text_of(&exact.draft.paths) == path);
            let is_regex =
                self.drafts.regexes.iter().any(|place| {
                    expression(&place.draft).is_some_and(|regex| regex.matches(&path))
                });
            if is_exact || is_regex {
                continue;
            }
            let comment = format!("{path}{NO_FILE}");
            let draft = Draft::new(comment, Paths::Exact(path), None, keys);
            made.push(Place { draft, before: Vec::new(), is_preferred: false, is_regex: false });
        }
        self.drafts.exact.extend(made);
    }

    /// Determines which prefixes become expressions.
    fn choose_forms(&mut self) {
        let regexes: Vec<Expression> =
            self.drafts.regexes.iter().filter_map(|place| expression(&place.draft)).collect();
        for place in &mut self.drafts.prefixes {
            let prefix = text_of(&place.draft.paths).to_owned();
            place.is_regex |=
                place.is_preferred && regexes.iter().any(|regex| regex.may_match_beneath(&prefix));
        }
        // Each round marks at least one prefix.
        for _ in 0..=self.drafts.prefixes.len() {
            let marked = self.failures();
            if marked.is_empty() {
                break;
            }
            marked.into_iter().for_each(|at| self.drafts.prefixes[at].is_regex = true);
        }
    }

    /// Returns the prefixes that must become expressions, and have not yet.
    fn failures(&self) -> Vec<usize> {
        let prefixes = &self.drafts.prefixes;
        let mut failed = Vec::new();
        for (at, place) in prefixes.iter().enumerate().filter(|(_, place)| !place.is_regex) {
            let prefix = text_of(&place.draft.paths);
            let is_beneath_regex = prefixes.iter().any(|other| {
                other.is_regex
                    && prefix.starts_with(text_of(&other.draft.paths))
                    && !std::ptr::eq(place, other)
            });
            // Routes with conditions have the same pattern, and are inherited as well.
            let conditional =
                place.before.iter().filter(|draft| !matches!(draft.paths, Paths::Regex(_)));
            let inherited: Vec<&Keys> =
                conditional.chain([&place.draft]).map(|draft| &draft.keys).collect();
            let ends = |draft: &Draft| {
                let root = self.drafts.root.as_ref();
                inherited.iter().all(|keys| draft.keys.over(keys, root).is_ok())
            };
            let is_other = |draft: &Draft| match &draft.paths {
                Paths::Regex(expression) => expression.may_match_beneath(prefix),
                Paths::Prefix(other) | Paths::Exact(other) => {
                    other.starts_with(prefix) && other != prefix
                }
            };
            let heirs = self.all().filter(|draft| is_other(draft));
            // An expression that belongs to a shorter prefix must not come before this one.
            let is_overruled = prefixes.iter().any(|other| {
                let shorter = text_of(&other.draft.paths);
                let is_shorter = prefix.starts_with(shorter) && prefix != shorter;
                let rewrites = other.before.iter().filter_map(expression);
                is_shorter && rewrites.into_iter().any(|regex| regex.may_match_beneath(prefix))
            });
            if is_beneath_regex || is_overruled || !heirs.into_iter().all(ends) {
                failed.push(at);
            }
        }
        failed
    }

    fn all(&self) -> impl Iterator<Item = &Draft> {
        let Drafts { first, exact, regexes, prefixes, .. } = &self.drafts;
        let places = exact.iter().chain(regexes).chain(prefixes);
        first.iter().chain(places.flat_map(|place| place.before.iter().chain([&place.draft])))
    }

    /// The settings of the site are those of the location `/`, or what all locations have in common.
    fn choose_base(&mut self) {
        let root = self.drafts.prefixes.iter().position(|place| text_of(&place.draft.paths) == "/");
        let place = root.map(|at| &self.drafts.prefixes[at]);
        if let Some(place) = place.as_ref().filter(|place| !place.is_regex) {
            self.base = Some(place.draft.keys.clone());
            return;
        }
        let mut common: Option<Keys> = None;
        for draft in self.all() {
            match &mut common {
                None => common = Some(draft.keys.clone()),
                Some(common) => {
                    let other = &draft.keys;
                    let mut same = common.clone();
                    same.retain(|key| {
                        other.get(key).is_some() && other.get(key) == common.get(key)
                    });
                    *common = same;
                }
            }
        }
        let mut common = common.unwrap_or_default();
        if common.handler().is_none() && common.get("root").is_none() && self.drafts.root.is_none()
        {
            // A site needs a handler, although one of the routes has every path.
            let of_files = place.filter(|place| place.draft.keys.handler().is_none());
            match of_files.and_then(|place| place.draft.keys.get("root")) {
                Some(root) => common.set("root", root.clone()),
                None => common.set("respond", Value::table([("status", Value::Number(404))])),
            }
        }
        self.base = Some(common);
    }

    fn site(self) -> Site {
        let base = self.base.clone().unwrap_or_default();
        let has_handler = base.handler().is_some();
        let site_root =
            base.get("root").cloned().or_else(|| self.drafts.root.clone().filter(|_| !has_handler));
        let mut site = Site { keys: base.clone(), ..Site::default() };
        if let Some(root) = &site_root {
            site.keys.set("root", root.clone());
        }
        let mut writer = Writer {
            base,
            root: site_root,
            prefixes: self.drafts.prefixes.clone(),
            early: Vec::new(),
            routes: Vec::new(),
        };
        writer.exact(&self.drafts);
        writer.prefixes_as_expressions(true, &self.drafts);
        for place in &self.drafts.regexes {
            place.before.iter().chain([&place.draft]).for_each(|draft| writer.regex(draft));
        }
        writer.prefixes_as_expressions(false, &self.drafts);
        writer.patterns();
        self.drafts.internal.iter().for_each(|draft| writer.pattern(draft));
        site.routes = writer.routes;
        for route in &mut site.routes {
            self.short_alias(route);
        }
        site
    }

    /// Writes `alias` for the rest of a pattern, where no other route could inherit it.
    fn short_alias(&self, route: &mut Route) {
        let Matching::Paths(paths) = &route.matching else { return };
        let steps = Value::list(ALIAS_STEPS);
        let is_alias = route.when.is_none() && route.keys.get("try") == Some(&steps);
        let Some(path) = paths.first().filter(|path| is_alias && path.ends_with("/*")) else {
            return;
        };
        let is_own = |place: &&Place| {
            let prefix = text_of(&place.draft.paths);
            !place.is_regex && format!("{}*", pattern_text(prefix)) == *path
        };
        let Some(own) = self.drafts.prefixes.iter().find(is_own) else { return };
        let prefix = text_of(&own.draft.paths);
        let is_heir = |draft: &Draft| match &draft.paths {
            Paths::Regex(regex) => regex.may_match_beneath(prefix),
            Paths::Prefix(other) | Paths::Exact(other) => other.starts_with(prefix),
        };
        let others = || self.all().filter(|draft| !std::ptr::eq(*draft, &own.draft));
        if others().any(|draft| is_heir(draft) && draft.keys.handler().is_none()) {
            return;
        }
        let Some(root) = route.keys.remove("root") else { return };
        route.keys.set("alias", root);
        let is_general = |draft: &Draft| matches!(&draft.paths, Paths::Prefix(shorter) if prefix.starts_with(shorter));
        match others().any(|draft| is_general(draft) && draft.keys.get("try").is_some()) {
            true => route.keys.set("try", Value::List(Vec::new())),
            false => drop(route.keys.remove("try")),
        }
    }
}

/// Returns `true` if the steps of the location are those of an alias.
fn is_alias_of_path(place: &Place) -> bool {
    match place.draft.keys.get("try") {
        Some(Value::List(steps)) => {
            matches!(steps.first(), Some(Value::Text(first)) if first.starts_with("/{rest}"))
        }
        _ => false,
    }
}

/// Returns the redirect of `bare` to the location with a slash at its end.
fn redirect_to_slash(place: &Place, bare: &str) -> Place {
    let mut keys = place.draft.keys.clone();
    keys.retain(|key| {
        matches!(
            key,
            "set_fields" | "cache_control" | "expires" | "error_pages" | "access_log" | "internal"
        )
    });
    let to = Value::text(format!("{bare}/{{query}}"));
    keys.set("redirect", Value::table([("to", to), ("status", Value::Number(301))]));
    let comment = format!("{}: without its slash", place.draft.comment);
    let draft = Draft::new(comment, Paths::Exact(bare.to_owned()), None, keys);
    Place { draft, before: Vec::new(), is_preferred: false, is_regex: false }
}

/// The steps of `try` that look for the rest of a path in a root, as `alias` does.
pub(super) const ALIAS_STEPS: [&str; 3] = ["/{rest}", "/{rest}/", "=404"];

pub(super) fn expression(draft: &Draft) -> Option<Expression> {
    match &draft.paths {
        Paths::Regex(expression) => Some(expression.clone()),
        _ => None,
    }
}
