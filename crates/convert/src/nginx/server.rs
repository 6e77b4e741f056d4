//! The locations of a server as drafts of routes.

use std::collections::{HashMap, HashSet};

use super::assemble::{Draft, Drafts, Paths, Place};
use super::condition::both;
use super::context::Context;
use super::expression::Expression;
use super::parse::Directive;
use super::restriction::restricts;
use super::scope::Scope;
use super::variables::{Constants, constant};
use crate::value::Value;

/// Makes the drafts of one server.
pub(super) struct Builder<'c, 't> {
    pub(super) context: &'c mut Context<'t>,
    server_name: String,
    /// The port of all its listeners.
    port: Option<String>,
    /// The variable that names an upstream, with one of its values.
    pub(super) chosen: Constants,
    /// Named locations.
    named: HashMap<&'t str, (&'t Directive, Scope<'t>)>,
    /// Expressions of locations within the location of a prefix.
    pub(super) nested: Vec<(Expression, String, &'t Directive)>,
    pub(super) drafts: Drafts,
    /// Locations whose requests are rejected, by the number of their directive.
    pub(super) rejected: HashSet<usize>,
    /// What the server rewrites a path without a file to.
    fallback: Option<String>,
    /// The location at hand passes requests on.
    pub(super) is_application: bool,
    /// Scripts by their extension are run in some location.
    pub(super) has_scripts: bool,
    /// A named location is read as the page of an error, which has no pages of errors of its own.
    pub(super) is_page: bool,
}

/// A location.
#[derive(Debug, Clone)]
pub(super) struct Location<'t> {
    pub(super) paths: Paths,
    pub(super) is_preferred: bool,
    pub(super) scope: Scope<'t>,
    /// `None` for what no location is for.
    pub(super) directive: Option<&'t Directive>,
    /// A condition that has to hold as well: the expression of the location around this one.
    pub(super) also: Option<Value>,
}

impl Location<'_> {
    pub(super) fn comment(&self) -> String {
        match self.directive {
            Some(directive) => format!(
                "{}: {} {}",
                directive.place.short(),
                directive.name,
                directive.words.join(" ")
            ),
            None => "no location".to_owned(),
        }
    }
}

/// Returns the drafts of a server whose directives are those of `scope`.
pub(super) fn drafts<'t>(
    scope: &Scope<'t>,
    (server_name, port): (&str, Option<&str>),
    context: &mut Context<'t>,
) -> Drafts {
    let mut builder = Builder {
        context,
        server_name: server_name.to_owned(),
        port: port.map(str::to_owned),
        chosen: Constants::new(),
        named: HashMap::new(),
        nested: Vec::new(),
        drafts: Drafts::default(),
        rejected: HashSet::new(),
        fallback: None,
        has_scripts: runs_scripts(scope.own()),
        is_application: false,
        is_page: false,
    };
    builder.server(scope);
    builder.drafts
}

impl<'t> Builder<'_, 't> {
    fn server(&mut self, scope: &Scope<'t>) {
        for include in scope.own().iter().filter(|directive| directive.name == "include") {
            self.context.report.carried(include);
        }
        self.logs(scope);
        self.only_here(scope);
        let mut locations = Vec::new();
        self.collect(scope, None, &mut locations);
        let site = Location {
            paths: Paths::Prefix("/".into()),
            is_preferred: false,
            scope: scope.clone(),
            directive: None,
            also: None,
        };
        self.drafts.root = self.root(scope).map(Value::text);
        self.context.assign(scope.own(), true);
        let flow = self.flow(&site);
        if let Some(keys) = flow.end {
            // Nothing that the server has is reached after its `return`.
            let draft = Draft::new(site.comment(), site.paths.clone(), None, keys);
            let is_regex = false;
            self.drafts.prefixes.push(Place {
                draft,
                before: flow.before,
                is_preferred: false,
                is_regex,
            });
            locations.iter().filter_map(|location| location.directive).for_each(|directive| {
                self.unreached(directive, "`return` of the server comes first");
            });
            return;
        }
        self.drafts.first = flow.before.into_iter().map(everywhere).collect();
        self.fallback = flow.rest.fallback.filter(|fallback| fallback != "=proxy");
        if !locations.iter().any(|location| location.paths == Paths::Prefix("/".into())) {
            locations.push(site);
        }
        for location in locations {
            self.place(&location);
        }
        self.place_nested();
    }

    fn unreached(&mut self, directive: &'t Directive, why: &str) {
        self.context.report.not_needed(directive, format!("requests never get here: {why}"));
        directive.children().iter().for_each(|child| self.unreached(child, why));
    }

    /// Adds the routes of a location.
    fn place(&mut self, location: &Location<'t>) {
        let own = location.directive.map_or(&[][..], |_| location.scope.own());
        self.context.assign(own, false);
        let id = location.directive.map(|directive| directive.id);
        if id.is_some_and(|id| self.rejected.contains(&id)) {
            let keys = self.forbidden(location);
            let draft = Draft::new(location.comment(), location.paths.clone(), None, keys);
            let (before, is_preferred, is_regex) = (Vec::new(), false, false);
            return self.drafts.regexes.push(Place { draft, before, is_preferred, is_regex });
        }
        let is_same = |place: &Place| {
            place.draft.paths == location.paths
                && place.draft.when.is_none()
                && location.also.is_none()
        };
        if matches!(location.paths, Paths::Regex(_)) && self.drafts.regexes.iter().any(is_same) {
            if let Some(directive) = location.directive {
                self.unreached(directive, "an earlier location has the same expression");
            }
            return;
        }
        // What the server rewrites comes before all locations.
        let mut flow = match location.directive {
            Some(_) => self.flow(location),
            None => super::flow::Flow::default(),
        };
        flow.rest.fallback = flow.rest.fallback.or_else(|| self.fallback.clone());
        let is_end = flow.end.is_some();
        let mut keys = match flow.end {
            Some(keys) => keys,
            None => self.settings_after(&location.scope, &location.paths, &flow.rest),
        };
        self.index_beneath(location, &keys);
        let is_regex = needs_expression(&location.paths, &keys);
        let mut before = flow.before;
        before.extend(self.limited_methods(location));
        if !is_end {
            before.extend(self.of_upstreams(location, &flow.rest));
            before.extend(self.directory_index(location, &mut keys));
            before.extend(self.uncached(location, &keys));
            before.extend(self.unlogged(location, &keys));
        }
        if let Some(internal) = location.scope.own_directive("internal") {
            // It comes before `return`, `rewrite` and `if`.
            self.context.report.carried(internal);
            let all = before.iter_mut().map(|draft| &mut draft.keys).chain([&mut keys]);
            all.for_each(|keys| keys.set("internal", Value::Switch(true)));
        }
        for draft in &mut before {
            // What the expression of a rewrite excludes belongs to the location.
            let excludes =
                matches!(&draft.paths, Paths::Regex(expression) if expression.except.is_some());
            draft.otherwise = excludes.then(|| keys.clone());
        }
        if let Some(also) = &location.also {
            before.iter_mut().for_each(|draft| {
                let when = draft.when.take();
                draft.when = match when.map(|when| both(&when, also)) {
                    None => Some(also.clone()),
                    Some(Ok(when)) => Some(when),
                    Some(Err(what)) => {
                        if let Some(directive) = location.directive {
                            self.context.report.lost(directive, what);
                        }
                        Some(also.clone())
                    }
                };
            });
        }
        let draft =
            Draft::new(location.comment(), location.paths.clone(), location.also.clone(), keys);
        let is_known = |other: &Place| {
            other.draft.paths == draft.paths
                && other.draft.keys == draft.keys
                && other.before.is_empty()
        };
        if matches!(location.paths, Paths::Exact(_))
            && before.is_empty()
            && self.drafts.exact.iter().any(is_known)
        {
            // One within another location, which is the same.
            return;
        }
        let place = Place { draft, before, is_preferred: location.is_preferred, is_regex };
        match location.paths {
            Paths::Exact(_) => self.drafts.exact.push(place),
            Paths::Prefix(_) => self.drafts.prefixes.push(place),
            Paths::Regex(_) => self.drafts.regexes.push(place),
        }
    }

    /// Reports an expression for index files: nginx looks for the location of the file, when it has found that of the directory.
    fn index_beneath(&mut self, location: &Location<'t>, keys: &crate::keys::Keys) {
        let Some(directive) = location.directive else { return };
        let is_for_index =
            matches!(&location.paths, Paths::Regex(regex) if regex.matches("/a/index.html"));
        if is_for_index && keys.handler().is_none() {
            let what = "a directory keeps the settings of the location that matches it, except for `/`, also where this one is for its index file";
            self.context.report.differs(directive, what);
        }
    }

    /// Collects the locations of a level, and those within them.
    fn collect(
        &mut self,
        scope: &Scope<'t>,
        within: Option<&Location<'t>>,
        all: &mut Vec<Location<'t>>,
    ) {
        for directive in scope.own().iter().filter(|directive| directive.name == "location") {
            self.context.report.carried(directive);
            let (sign, text) = signed(directive);
            let inner = scope.within(directive.children());
            for include in inner.own().iter().filter(|directive| directive.name == "include") {
                self.context.report.carried(include);
            }
            let parent = within.map(|location| &location.paths);
            let mut also = within.and_then(|location| location.also.clone());
            let (mut paths, lost) = match (sign, parent) {
                ("@", _) => {
                    self.named.insert(text, (directive, inner));
                    continue;
                }
                ("=", _) => (Paths::Exact(decoded(text)), None),
                ("~" | "~*", Some(Paths::Regex(own))) => {
                    let is_restricted = restricts(directive.children());
                    match self.within_regex(own, text, (sign, is_restricted), &mut also) {
                        Ok(both) => (Paths::Regex(both), None),
                        Err(what) => {
                            let what = format!("{what}: requests for it get another location");
                            (Paths::Regex(own.clone()), Some(what))
                        }
                    }
                }
                ("~" | "~*", _) => match Expression::new(text, sign == "~*") {
                    Ok(expression) => match parent {
                        Some(Paths::Prefix(prefix)) => {
                            let own = expression.beneath(prefix);
                            self.nested.push((own.clone(), prefix.clone(), directive));
                            (Paths::Regex(own), None)
                        }
                        Some(Paths::Exact(path)) if !expression.matches(path) => continue,
                        Some(Paths::Exact(path)) => (Paths::Exact(path.clone()), None),
                        _ => (Paths::Regex(self.after_host(expression, &inner)), None),
                    },
                    Err(what) => {
                        let what = format!("{what}: requests for it get another location");
                        (parent.cloned().unwrap_or(Paths::Prefix("/".into())), Some(what))
                    }
                },
                _ if self.is_of_file(text, &inner) => {
                    let what = "the alias is a file: paths that only begin so are not looked for";
                    self.context.report.differs(directive, what);
                    (Paths::Exact(decoded(text)), None)
                }
                _ => (Paths::Prefix(decoded(text)), None),
            };
            if let (Paths::Prefix(prefix), Some(alias)) = (&mut paths, inner.own_directive("alias"))
                && !prefix.ends_with('/')
            {
                // The directory has the path of the location, and nothing else is in it.
                prefix.push('/');
                let what =
                    "a path that only begins with the text of the location belongs to another one";
                self.context.report.differs(alias, what);
            }
            // Within `^~`, expressions of the server are not tried either.
            let is_preferred = sign == "^~" || within.is_some_and(|outer| outer.is_preferred);
            let location = Location {
                paths,
                is_preferred,
                scope: inner.clone(),
                directive: Some(directive),
                also,
            };
            let at = all.len();
            if let Some(what) = lost {
                let closed = self.closed_location(directive, location, (text, sign == "~*"), &what);
                if let Some(location) = closed {
                    all.insert(first_regex(all, at), location);
                }
                continue;
            }
            self.collect(&inner, Some(&location), all);
            // Expressions within a location come before those of the server.
            match within {
                // They come right before those of the outer location, which is not in the list yet.
                Some(outer) if matches!(outer.paths, Paths::Regex(_)) => all.push(location),
                Some(_) if matches!(location.paths, Paths::Regex(_)) => {
                    all.insert(first_regex(all, at), location);
                }
                _ => all.push(location),
            }
        }
    }

    /// Returns the expression of a location that redirects to a host and a group right behind it. A text without a slash there would be
    /// a part of the host, which a client could choose.
    fn after_host(&mut self, expression: Expression, scope: &Scope<'t>) -> Expression {
        let own = scope.own_directive("return");
        let to = own.map_or("", |own| own.word(1));
        let is_behind = ["$host$1", "$http_host$1"].iter().any(|end| to.ends_with(end));
        let Some(start) = expression.text.strip_suffix("(.*)$").filter(|_| is_behind) else {
            return expression;
        };
        if start.ends_with('/') || start.contains('(') || !start.starts_with('^') {
            return expression;
        }
        let what = "a path in which something else than a slash follows is another location's: it would be a part of the host";
        own.into_iter().for_each(|own| self.context.report.differs(own, what));
        Expression { text: format!("{start}{AFTER_HOST}"), except: None }
    }

    /// Returns the expression of a location within another one. Where no expression is for what both match, `also` gets the
    /// condition that the outer one matches.
    ///
    /// # Errors
    /// The reason for which the expression has no counterpart.
    fn within_regex(
        &mut self,
        outer: &Expression,
        text: &str,
        (sign, is_restricted): (&str, bool),
        also: &mut Option<Value>,
    ) -> Result<Expression, String> {
        let inner = Expression::new(text, sign == "~*")?;
        let simple = within_regex(outer, &inner);
        if let Some(simple) = simple.filter(|simple| simple.text == text || !is_restricted) {
            return Ok(simple);
        }
        let holds = self.on_path(outer);
        *also = Some(match also.take() {
            Some(before) => both(&before, &holds)?,
            None => holds,
        });
        Ok(inner)
    }

    /// Returns `true` if the location of a prefix has the name of a file as its alias.
    fn is_of_file(&self, text: &str, scope: &Scope<'t>) -> bool {
        let alias = scope.own_directive("alias").map_or("", |alias| alias.word(0));
        if alias.is_empty() || alias.contains('$') || alias.ends_with('/') || text.ends_with('/') {
            return false;
        }
        let path = self.context.in_prefix(alias);
        let path = std::path::Path::new(&path);
        path.is_file() || path.extension().is_some() && !path.is_dir()
    }

    /// Reports a location that is lost, with all that is in it.
    pub(super) fn lose(&mut self, directive: &'t Directive, what: &str) {
        self.context.report.lost(directive, what);
        for child in directive.children() {
            self.context.report.not_needed(child, "its location is lost");
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<(&'t Directive, Scope<'t>)> {
        self.named.get(name.trim_start_matches('@')).cloned()
    }

    /// Returns the values of variables that do not depend on the request.
    pub(super) fn constants(&mut self, scope: &Scope<'t>) -> Constants {
        let mut constants = Constants::new();
        if !self.server_name.is_empty() {
            constants.insert("server_name".into(), self.server_name.clone());
        }
        if let Some(port) = &self.port {
            constants.insert("server_port".into(), port.clone());
        }
        let root = scope.word("root").map_or_else(|| "html".to_owned(), str::to_owned);
        if !root.contains('$') {
            let root = self.context.in_prefix(&root);
            constants.insert("document_root".into(), root.clone());
            constants.insert("realpath_root".into(), root);
        }
        if let Some(name) = &self.context.hostname {
            constants.insert("hostname".into(), name.clone());
        }
        let mut changed = scope.conditional_sets();
        // The last one is in force, where no directive before it uses the variable.
        let is_last = |set: &Directive| {
            let name = set.word(0);
            let of_name = |other: &&Directive| other.name == "set" && other.word(0) == name;
            let uses = |other: &Directive| matches!(&*other.name, "if" | "rewrite" | "return");
            scope.own().iter().rfind(of_name).is_some_and(|last| last.id == set.id)
                && (scope.own().iter().filter(of_name).count() == 1
                    || !scope.own().iter().any(uses))
        };
        for set in scope.sets() {
            let name = set.word(0).trim_start_matches('$');
            match constant(set.word(1), &constants) {
                Ok(value)
                    if is_last(set) || constants.get(name).is_none_or(|known| *known == value) =>
                {
                    changed.retain(|other| {
                        other != name || !is_last(set) || scope.conditional_sets().contains(other)
                    });
                    self.context.report.carried(set);
                    constants.insert(name.to_owned(), value);
                }
                _ => changed.push(name.to_owned()),
            }
        }
        changed.iter().for_each(|name| drop(constants.remove(name)));
        constants.extend(self.chosen.clone());
        constants
    }

    /// Directives of the server level that hold for the whole server here.
    fn only_here(&mut self, scope: &Scope<'t>) {
        for directive in scope.own() {
            match directive.name.as_str() {
                "client_header_timeout"
                | "client_body_timeout"
                | "send_timeout"
                | "keepalive_timeout"
                | "keepalive_requests"
                | "large_client_header_buffers" => {
                    let what =
                        "times and sizes of connections are those of [server.http1], for all sites";
                    self.context.report.not_needed(directive, what);
                }
                "server_tokens" => {
                    self.context.report.not_needed(directive, "`Server` has no version");
                }
                "resolver" | "resolver_timeout" => {
                    self.context.report.not_needed(
                        directive,
                        "`resolver` of [server], or the system, resolves names",
                    );
                }
                "set_real_ip_from" | "real_ip_header" | "real_ip_recursive" => {
                    let what = "proxies are trusted for the whole server: write `trusted_proxies` into [server]; until then clients have the address of the proxy";
                    if !self.context.report.has(directive) {
                        self.context.report.lost(directive, what);
                    }
                }
                "error_log" => self
                    .context
                    .report
                    .not_needed(directive, "there is one error log, whose lines name the site"),
                "disable_symlinks" => {}
                _ => {}
            }
        }
    }
}

/// The end of an expression whose group follows a host in a redirect.
pub(super) const AFTER_HOST: &str = "(?:/(.*))?$";

/// Returns `true` if a location of a level passes requests on to FastCGI.
fn runs_scripts(level: &[Directive]) -> bool {
    level.iter().any(|directive| {
        directive.name == "fastcgi_pass"
            || directive.name == "location" && runs_scripts(directive.children())
    })
}

fn first_regex(all: &[Location<'_>], at: usize) -> usize {
    all.iter().position(|location| matches!(location.paths, Paths::Regex(_))).unwrap_or(at)
}

/// Returns the expression for paths that both that of a location and that of one within it match; `None` if there is none that
/// is simple.
fn within_regex(outer: &Expression, inner: &Expression) -> Option<Expression> {
    if outer.text.starts_with('^') && inner.text.starts_with(outer.text.trim_end_matches('$')) {
        return Some(inner.clone());
    }
    let is_open = outer.text.starts_with('^') || outer.text.contains(['|', '$']);
    let anchored = match is_open {
        true => outer.clone(),
        false => Expression { text: format!("^.*{}", outer.text), ..outer.clone() },
    };
    // The groups are those of the inner expression.
    (!outer.has_group("1")).then(|| anchored.and(inner)).flatten()
}

/// A draft of the server level is for all paths.
fn everywhere(draft: Draft) -> Draft {
    match draft.paths {
        Paths::Prefix(_) => {
            let paths = Paths::Regex(Expression { text: "^/".into(), except: None });
            Draft { paths, ..draft }
        }
        _ => draft,
    }
}

/// Returns the sign of a location and its text.
fn signed(directive: &Directive) -> (&'static str, &str) {
    let (first, second) = (directive.word(0), directive.word(1));
    for sign in ["=", "^~", "~*", "~"] {
        if first == sign && !second.is_empty() {
            return (sign, second);
        }
        if let Some(text) = first.strip_prefix(sign).filter(|text| !text.is_empty()) {
            return (sign, text);
        }
    }
    match first.strip_prefix('@') {
        Some(name) => ("@", name),
        None => ("", first),
    }
}

/// Paths of locations are compared with decoded paths; encoded characters in them match nothing.
fn decoded(text: &str) -> String {
    match text.starts_with('/') {
        true => text.to_owned(),
        false => format!("/{text}"),
    }
}

/// Applications get the path as a whole from nginx, and the text after a pattern from here.
fn needs_expression(paths: &Paths, keys: &crate::keys::Keys) -> bool {
    let is_beneath = matches!(paths, Paths::Prefix(prefix) if prefix != "/");
    let is_application = keys.get("script").is_some_and(|script| script.get("root").is_none());
    is_beneath && is_application
}
