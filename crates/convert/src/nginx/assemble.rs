//! From the complete settings of each location to routes: only one location is in force for a request, but routes inherit.
//!
//! Prefixes are patterns, and inherit from shorter ones. Of regular expressions only the first that matches applies. So a
//! prefix becomes an expression, too, where an expression must not come before it (`^~`), or where a route would inherit a
//! key from it that nothing ends.

use super::condition;
use super::context::Context;
use super::expression::{Expression, of_prefix};
use super::parse::Directive;
use crate::keys::{Keys, over_all};
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

fn text_of(paths: &Paths) -> &str {
    match paths {
        Paths::Exact(text) | Paths::Prefix(text) => text,
        Paths::Regex(expression) => &expression.text,
    }
}

/// Returns the paths as an expression. Its group is what the `*` of a pattern matches.
fn expression_of(paths: &Paths, keys: &Keys) -> Expression {
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
const NO_FILE: &str = " is none of the files below";

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
        let first = |place: &&Place| {
            expression(&place.draft).is_some_and(|regex| regex.matches(&path))
                && place.draft.when.is_none()
        };
        let of_regex = || self.drafts.regexes.iter().find(first);
        let of_files = |place: &&Place| place.draft.keys.handler().is_none();
        let place = exact(&path).or_else(|| of_regex().filter(of_files));
        let Some(place) = place.filter(|_| has_files && exact("/").is_none()) else {
            return;
        };
        let mut keys = place.draft.keys.clone();
        keys.retain(|key| matches!(key, "set_fields" | "error_pages" | "access_log"));
        keys.set("rewrite", Value::text(path.clone()));
        let draft = Draft::new(
            format!("{}: as index", place.draft.comment),
            Paths::Exact("/".into()),
            None,
            keys,
        );
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
            if !place.is_regex && !is_inherited && !is_chosen {
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

/// Returns settings with the groups of an expression as one path has them; `None` if they have none.
fn of_path(keys: &Keys, expression: &Expression, path: &str) -> Option<Keys> {
    let mut changed = keys.clone();
    for (key, value) in keys.iter() {
        changed.set(key, value.with_texts(&|text| expression.fill(text, path)));
    }
    (changed != *keys).then_some(changed)
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
    keys.retain(|key| matches!(key, "set_fields" | "error_pages" | "access_log"));
    let to = Value::text(format!("{bare}/{{query}}"));
    keys.set("redirect", Value::table([("to", to), ("status", Value::Number(301))]));
    let comment = format!("{}: without its slash", place.draft.comment);
    let draft = Draft::new(comment, Paths::Exact(bare.to_owned()), None, keys);
    Place { draft, before: Vec::new(), is_preferred: false, is_regex: false }
}

/// The steps of `try` that look for the rest of a path in a root, as `alias` does.
pub(super) const ALIAS_STEPS: [&str; 3] = ["/{rest}", "/{rest}/", "=404"];

fn expression(draft: &Draft) -> Option<Expression> {
    match &draft.paths {
        Paths::Regex(expression) => Some(expression.clone()),
        _ => None,
    }
}

/// Returns the settings of the routes with conditions after one of a place: where both hold, the first one is in force alone.
fn later(place: &Place, at: usize) -> Vec<Keys> {
    let after = place.before.iter().skip(at + 1);
    let after = after.filter(|draft| !matches!(draft.paths, Paths::Regex(_)));
    after.map(|draft| draft.keys.clone()).collect()
}

struct Writer {
    base: Keys,
    root: Option<Value>,
    prefixes: Vec<Place>,
    routes: Vec<Route>,
}

impl Writer {
    /// Returns the settings that a path inherits from patterns.
    fn inherited(&self, path: &str, is_own: bool) -> Keys {
        let is_general = |place: &&Place| {
            let prefix = text_of(&place.draft.paths);
            !place.is_regex
                && path.starts_with(prefix)
                && (is_own || prefix != path)
                && prefix != "/"
        };
        // The longest comes first.
        self.prefixes
            .iter()
            .find(is_general)
            .map_or_else(|| self.base.clone(), |place| place.draft.keys.clone())
    }

    /// Returns the settings of routes with conditions, which paths beneath their patterns inherit as well.
    fn conditional(&self, is_beneath: impl Fn(&str) -> bool) -> Vec<Keys> {
        let places = self
            .prefixes
            .iter()
            .filter(|place| !place.is_regex && is_beneath(text_of(&place.draft.paths)));
        let drafts = places
            .flat_map(|place| &place.before)
            .filter(|draft| !matches!(draft.paths, Paths::Regex(_)));
        drafts.map(|draft| draft.keys.clone()).collect()
    }

    fn push(&mut self, draft: &Draft, matching: Matching, base: &Keys, others: &[Keys]) {
        let mut keys = over_all(&draft.keys, base, others, self.root.as_ref());
        if let Matching::Paths(paths) = &matching
            && paths.iter().all(|path| !path.ends_with(['/', '*']))
        {
            // The path of a file has no index file.
            drop(keys.remove("index"));
        }
        if draft.comment.ends_with(NO_FILE) {
            // A route without a handler would redirect to the files.
            let key = draft.keys.handler().unwrap_or("root");
            let value = draft.keys.get(key).or(self.root.as_ref());
            value.into_iter().for_each(|value| keys.set(key, value.clone()));
        }
        let (comment, when) = (draft.comment.clone(), draft.when.clone());
        self.routes.push(Route { comment, matching, when, keys });
    }

    /// Exact paths, and what comes before all locations there.
    fn exact(&mut self, drafts: &Drafts) {
        let mut kept: Vec<(&Place, String)> = Vec::new();
        let mut as_expressions = Vec::new();
        for place in &drafts.exact {
            let path = text_of(&place.draft.paths).to_owned();
            let is_taken = |draft: &Draft| {
                draft.when.is_none() && expression(draft).is_some_and(|regex| regex.matches(&path))
            };
            if drafts.first.iter().any(is_taken) {
                // Requests never get here: the first expression that matches is that of the server.
                continue;
            }
            let base = self.inherited_by_exact(&path, drafts);
            if place.draft.keys.over(&base, self.root.as_ref()).is_err() {
                as_expressions.push(place);
                continue;
            }
            let matching = Matching::Paths(vec![pattern_text(&path)]);
            let conditional = self.conditional(|prefix| path.starts_with(prefix));
            self.push(&place.draft, matching.clone(), &base, &conditional);
            for (at, draft) in place.before.iter().enumerate() {
                let mut others = conditional.clone();
                others.extend(later(place, at));
                self.push(draft, matching.clone(), &place.draft.keys, &others);
            }
            kept.push((place, path));
        }
        for (at, draft) in drafts.first.iter().enumerate() {
            let is_earlier = |path: &str| {
                let earlier = drafts.first[..at].iter().filter(|other| other.when == draft.when);
                earlier.filter_map(expression).any(|regex| regex.matches(path))
            };
            if draft.when.is_some() {
                self.first_of_exact(draft, kept.iter().filter(|(_, path)| !is_earlier(path)));
            }
        }
        for draft in &drafts.first {
            self.regex(draft);
        }
        for place in as_expressions {
            place.before.iter().chain([&place.draft]).for_each(|draft| self.regex(draft));
        }
    }

    /// What comes before all locations, for exact paths, which are more specific than expressions.
    fn first_of_exact<'p>(
        &mut self,
        draft: &Draft,
        exact: impl Iterator<Item = &'p (&'p Place, String)>,
    ) {
        let matches = |path: &str| expression(draft).is_some_and(|regex| regex.matches(path));
        let mut keys = Keys::default();
        let mut paths = Vec::new();
        for (place, path) in exact.filter(|(_, path)| matches(path)) {
            if let Some(own) = expression(draft).and_then(|own| of_path(&draft.keys, &own, path)) {
                // The groups of the expression are known.
                let keys = own.over(&place.draft.keys, self.root.as_ref()).unwrap_or(own);
                let matching = Matching::Paths(vec![pattern_text(path)]);
                let (comment, when) = (draft.comment.clone(), draft.when.clone());
                self.routes.push(Route { comment, matching, when, keys });
                continue;
            }
            paths.push(pattern_text(path));
            let own = draft
                .keys
                .over(&place.draft.keys, self.root.as_ref())
                .unwrap_or_else(|_| draft.keys.clone());
            own.iter().for_each(|(key, value)| keys.set(key, value.clone()));
        }
        if !paths.is_empty() {
            let (comment, when) = (draft.comment.clone(), draft.when.clone());
            self.routes.push(Route { comment, matching: Matching::Paths(paths), when, keys });
        }
    }

    /// An exact path inherits from the first expression that matches it, and from patterns.
    fn inherited_by_exact(&self, path: &str, drafts: &Drafts) -> Keys {
        let regexes = drafts.regexes.iter().filter(|place| place.draft.when.is_none());
        let preferred = self.prefixes.iter().filter(|place| place.is_regex && place.is_preferred);
        let others = self.prefixes.iter().filter(|place| place.is_regex && !place.is_preferred);
        let begins = |place: &&Place| path.starts_with(text_of(&place.draft.paths));
        let matches =
            |place: &&Place| expression(&place.draft).is_some_and(|regex| regex.matches(path));
        let found = preferred.clone().find(begins);
        let found =
            found.or_else(|| regexes.clone().find(matches)).or_else(|| others.clone().find(begins));
        found.map_or_else(|| self.inherited(path, true), |place| place.draft.keys.clone())
    }

    /// A route with an expression inherits from every pattern; each ends what the others leave.
    fn regex(&mut self, draft: &Draft) {
        let expression = match &draft.paths {
            Paths::Regex(expression) => expression.clone(),
            paths => expression_of(paths, &draft.keys),
        };
        let is_beneath = |prefix: &str| expression.may_match_beneath(prefix);
        let patterns = self
            .prefixes
            .iter()
            .filter(|place| !place.is_regex && is_beneath(text_of(&place.draft.paths)));
        let mut beneath: Vec<Keys> = patterns.map(|place| place.draft.keys.clone()).collect();
        beneath.extend(self.conditional(is_beneath));
        if let Some(except) = &expression.except {
            // Paths that the expression excludes have the settings that they inherit.
            self.routes.push(Route {
                comment: format!("{}: not these", draft.comment),
                matching: Matching::Regex(except.clone()),
                when: draft.when.clone(),
                keys: draft
                    .otherwise
                    .as_ref()
                    .map(|keys| over_all(keys, &self.base, &beneath, self.root.as_ref()))
                    .unwrap_or_default(),
            });
        }
        let keys = over_all(&draft.keys, &self.base, &beneath, self.root.as_ref());
        let (comment, when) = (draft.comment.clone(), draft.when.clone());
        self.routes.push(Route { comment, matching: Matching::Regex(expression.text), when, keys });
    }

    fn prefixes_as_expressions(&mut self, is_preferred: bool, drafts: &Drafts) {
        let is_wanted = |place: &&Place| {
            let is_own = !self.is_within_preferred(place);
            place.is_regex && place.is_preferred == is_preferred && is_own
        };
        let places: Vec<Place> = self.prefixes.iter().filter(is_wanted).cloned().collect();
        if is_preferred {
            self.within_preferred(drafts);
        }
        for place in &places {
            place.before.iter().chain([&place.draft]).for_each(|draft| self.regex(draft));
        }
        if is_preferred {
            // Expressions within a location come before those of the server.
            return;
        }
        let patterns: Vec<Place> =
            self.prefixes.iter().filter(|place| !place.is_regex).cloned().collect();
        for draft in patterns.iter().flat_map(|place| &place.before) {
            if matches!(draft.paths, Paths::Regex(_)) {
                self.regex(draft);
            }
        }
    }

    fn is_within_preferred(&self, place: &Place) -> bool {
        let prefix = text_of(&place.draft.paths);
        let outer = self.prefixes.iter().filter(|outer| outer.is_regex && outer.is_preferred);
        !place.is_preferred
            && outer.into_iter().any(|outer| prefix.starts_with(text_of(&outer.draft.paths)))
    }

    /// Longer prefixes beneath `^~` ones, for which expressions are tried nevertheless, come before these.
    fn within_preferred(&mut self, drafts: &Drafts) {
        let within: Vec<Place> =
            self.prefixes.iter().filter(|place| self.is_within_preferred(place)).cloned().collect();
        for place in &within {
            let prefix = text_of(&place.draft.paths);
            for regex in &drafts.regexes {
                let Some(own) =
                    expression(&regex.draft).filter(|own| own.may_match_beneath(prefix))
                else {
                    continue;
                };
                let narrow = own.beneath(prefix);
                // One that is anchored cannot be narrowed; its own route comes too late beneath the prefix.
                if narrow != own {
                    self.regex(&Draft { paths: Paths::Regex(narrow), ..regex.draft.clone() });
                }
            }
            place.before.iter().chain([&place.draft]).for_each(|draft| self.regex(draft));
        }
    }

    fn patterns(&mut self) {
        let mut places: Vec<Place> =
            self.prefixes.iter().filter(|place| !place.is_regex).cloned().collect();
        places.reverse();
        for place in &places {
            let prefix = text_of(&place.draft.paths).to_owned();
            if prefix != "/" {
                let base = self.inherited(&prefix, false);
                let matching = Matching::Paths(vec![format!("{}*", pattern_text(&prefix))]);
                let conditional =
                    self.conditional(|outer| prefix.starts_with(outer) && outer != prefix);
                self.push(&place.draft, matching, &base, &conditional);
            }
            for (at, draft) in place.before.iter().enumerate() {
                if !matches!(draft.paths, Paths::Regex(_)) {
                    let matching = Matching::Paths(vec![format!("{}*", pattern_text(&prefix))]);
                    self.push(draft, matching, &place.draft.keys, &later(place, at));
                }
            }
        }
    }

    fn pattern(&mut self, draft: &Draft) {
        let base = self.base.clone();
        let matching = match &draft.paths {
            Paths::Exact(path) => Matching::Paths(vec![pattern_text(path)]),
            Paths::Prefix(path) => Matching::Paths(vec![format!("{}*", pattern_text(path))]),
            Paths::Regex(expression) => Matching::Regex(expression.text.clone()),
        };
        let conditional = self.conditional(|prefix| prefix == "/");
        self.push(draft, matching, &base, &conditional);
    }
}
