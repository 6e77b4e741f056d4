//! The directive `if`: its condition, and what its directives become under it.

use super::assemble::{Draft, Paths};
use super::condition::{self, Condition, Read};
use super::expression::Expression;
use super::file_condition::is_search;
use super::flow::{Flow, Rest};
use super::parse::Directive;
use super::restriction::restricts;
use super::rewrite::{Narrowed, UNIVERSAL, with_query};
use super::scope::Scope;
use super::server::{Builder, Location};
use super::variables::{Constants, Place};
use crate::value::Value;

impl<'t> Builder<'_, 't> {
    /// Reads an `if`. Returns `true` if nothing after it is reached.
    pub(super) fn condition(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        constants: &Constants,
        flow: &mut Flow<'t>,
    ) -> bool {
        if self.is_signature(directive, &location.scope) {
            for judged in [directive].into_iter().chain(directive.children()) {
                self.context.report.carried(judged);
            }
            flow.signed_from.get_or_insert(flow.before.len());
            return false;
        }
        if self.is_missing_script(directive, &location.scope) {
            for judged in [directive].into_iter().chain(directive.children()) {
                self.context.report.not_needed(judged, "a script that does not exist gets 404");
            }
            return false;
        }
        if splits_path(directive, &location.scope) {
            for judged in [directive].into_iter().chain(directive.children()) {
                let what = "the first file on the path is the script, and the rest is PATH_INFO";
                self.context.report.differs(judged, what);
            }
            return false;
        }
        if self.is_never_set(directive, location) {
            self.context.report.not_needed(directive, "nothing gives the variable such a value");
            for child in directive.children() {
                self.context.report.not_needed(child, "its condition never holds");
            }
            return false;
        }
        let referer = self.context.referer_condition(&directive.words, &location.scope);
        // Other spellings of a host must not get past a condition that rejects requests.
        let is_host = condition::terms(&directive.words).first() == Some(&"$host");
        let strict = match is_host && restricts(directive.children()) {
            true => self.context.map_condition(&directive.words, constants),
            false => None,
        };
        let read = match referer.or(strict) {
            Some(condition) => Ok(Read { condition, difference: None }),
            None => condition::read(&directive.words, constants),
        };
        let sets_alone = directive.children().iter().all(|child| child.name == "set");
        if read.is_err()
            && sets_alone
            && directive.children().iter().all(|set| self.context.is_assigned(set))
        {
            self.context.report.carried(directive);
            return false;
        }
        let of_file = self.file_condition(directive, location, constants);
        let read = match (read, of_file) {
            (Err(_), Some(condition)) => Read { condition, difference: None },
            (Ok(read), _) => read,
            (Err(what), None) => {
                // What conditions have set is theirs; only other values are those of a map.
                if let Some(conditions) = self.assigned(directive, location, flow) {
                    self.context.report.carried(directive);
                    return conditions.into_iter().any(|condition| {
                        self.apply(directive, location, condition, constants, flow)
                    });
                }
                match self.context.map_condition(&directive.words, constants) {
                    Some(condition) => Read { condition, difference: None },
                    None => return self.closed(directive, location, &what, constants, flow),
                }
            }
        };
        match read.difference {
            Some(difference) => self.context.report.differs(directive, difference),
            None => self.context.report.carried(directive),
        }
        if self.assigns(directive, &read.condition, constants, flow) {
            return false;
        }
        self.apply(directive, location, read.condition, constants, flow)
    }

    /// Returns `true` if an `if` rejects requests for scripts that do not exist, as the server does by itself.
    fn is_missing_script(&self, directive: &Directive, scope: &Scope<'t>) -> bool {
        let words = condition::terms(&directive.words);
        let is_script = matches!(
            words[..],
            [
                "!-f" | "!-e",
                "$document_root$fastcgi_script_name"
                    | "$document_root/$fastcgi_script_name"
                    | "$request_filename"
                    | "$document_root$uri"
            ]
        );
        let ends = |child: &Directive| child.name == "return" && child.word(0) == "404";
        is_script
            && matches!(directive.children(), [only] if ends(only))
            && scope.own_directive("fastcgi_pass").is_some()
            && scope.get("root").is_some()
    }

    /// Applies an `if` under a condition. Returns `true` if nothing after it is reached.
    fn apply(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        condition: Condition,
        constants: &Constants,
        flow: &mut Flow<'t>,
    ) -> bool {
        let scope = location.scope.within(directive.children());
        for include in scope.own().iter().filter(|directive| directive.name == "include") {
            self.context.report.carried(include);
        }
        let inner = Location { scope: scope.clone(), ..location.clone() };
        match condition {
            Condition::Fixed(false) => {
                for child in directive.children() {
                    self.context.report.not_needed(child, "its condition never holds");
                }
                false
            }
            Condition::Fixed(true) => {
                let own = self.flow(&inner);
                let is_end = own.end.is_some();
                flow.before.extend(own.before);
                flow.end = flow.end.take().or(own.end);
                is_end
            }
            Condition::File { exists } => {
                if is_search(directive, exists)
                    && self.files_condition(directive, exists, location, constants, flow)
                {
                    return false;
                }
                match self.file_condition(directive, location, constants) {
                    Some(condition) => self.apply(directive, location, condition, constants, flow),
                    None => self.closed(directive, location, "a file", constants, flow),
                }
            }
            Condition::When(when) => {
                self.conditional(directive, &inner, Some(&when), flow);
                false
            }
            Condition::Path(expression) => {
                // An exact path that the expression does not match has lost nothing.
                if let Some(Narrowed { paths, also, .. }) =
                    self.narrowed(directive, location, expression, false)
                {
                    let inner = Location { paths, ..inner };
                    self.conditional(directive, &inner, also.as_ref(), flow);
                }
                false
            }
        }
    }

    pub(super) fn lose_condition(&mut self, directive: &'t Directive, what: &str) {
        let effect = format!("its directives are left out, since no condition is like {what}");
        self.context.report.lost(directive, effect);
        for child in directive.children() {
            self.context.report.lost(child, "its condition is lost");
        }
    }

    /// The routes of an `if` with conditions besides the path.
    fn conditional(
        &mut self,
        directive: &'t Directive,
        inner: &Location<'t>,
        when: Option<&Value>,
        flow: &mut Flow<'t>,
    ) {
        let own = self.flow(inner);
        let comment = format!("{}: if {}", directive.place.short(), directive.words.join(" "));
        for draft in own.before {
            let both = match (&draft.when, when) {
                (Some(first), Some(second)) => condition::both(first, second),
                (first, second) => {
                    Ok(first.as_ref().or(second).cloned().unwrap_or(Value::Table(Vec::new())))
                }
            };
            match both {
                Ok(both) => {
                    let when = Some(both).filter(|when| !when.entries().is_empty());
                    flow.before.push(Draft { when, ..draft });
                }
                Err(what) => self.wider(directive, what, draft, when, flow),
            }
        }
        let is_end = own.end.is_some();
        let keys = match own.end {
            Some(keys) => keys,
            None => {
                let is_settings = |child: &&Directive| {
                    !matches!(child.name.as_str(), "set" | "rewrite" | "if" | "break" | "include")
                };
                if !directive.children().iter().any(|child| is_settings(&child)) {
                    return self.lost_sets(directive);
                }
                // Directives of `if` are at a level of their own, and passes are not inherited.
                let outer =
                    Rest { pass: own.rest.pass.or_else(|| outer_pass(&inner.scope)), ..own.rest };
                self.settings_after(&inner.scope, &inner.paths, &outer)
            }
        };
        let draft = Draft::new(comment, inner.paths.clone(), when.cloned(), keys);
        match is_end {
            true => flow.before.push(draft),
            false => flow.settings.push(draft),
        }
    }

    /// Two conditions that no table has: a route that rejects requests has the outer one alone.
    fn wider(
        &mut self,
        directive: &'t Directive,
        what: String,
        draft: Draft,
        when: Option<&Value>,
        flow: &mut Flow<'t>,
    ) {
        if !restricts(directive.children()) {
            return self.context.report.lost(directive, what);
        }
        let what = format!("{what}: the inner condition holds for every request");
        self.context.report.lost(directive, what);
        flow.before.push(Draft { when: when.cloned(), ..draft });
    }

    /// Variables that an `if` sets depend on the request.
    pub(super) fn lost_sets(&mut self, directive: &'t Directive) {
        for set in directive.children().iter().filter(|child| child.name == "set") {
            if self.context.is_assigned(set) {
                continue;
            }
            self.context
                .report
                .lost(set, "what depends on the variable is as if it were not set here");
        }
    }

    /// `if (!-e $request_filename)`: where there is no file. Returns `false` if the search for files does nothing like it.
    fn files_condition(
        &mut self,
        directive: &'t Directive,
        exists: bool,
        location: &Location<'t>,
        constants: &Constants,
        flow: &mut Flow<'t>,
    ) -> bool {
        let children = directive.children();
        let find = |name: &str| children.iter().find(|child| child.name == name);
        if exists {
            // `if (-f $request_filename) { break; }` sends files before what follows.
            children.iter().for_each(|child| self.context.report.carried(child));
            return true;
        }
        let difference = "a directory without an index file counts as if it were not there, and a script that is the index file gets other methods than GET, HEAD and POST; a location that rejects requests comes first";
        if let Some(rewrite) = find("rewrite") {
            let expression = Expression::new(rewrite.word(0), false);
            let is_universal = UNIVERSAL.contains(&rewrite.word(0))
                || rewrite.word(0) == "^/(.*)$"
                || rewrite.word(0) == "^/(.*)";
            let to = expression.and_then(|expression| {
                let target = with_query(rewrite.word(1));
                let to = self.target(&target, Place::Path, &expression, false, constants)?;
                if !is_universal
                    && to.contains('{')
                    && to.replace("{query}", "").replace("{path}", "").contains('{')
                {
                    return Err("a group of the expression".to_owned());
                }
                let has_slash = rewrite.word(0).starts_with("^/(");
                let value = if has_slash { "{rest}" } else { "{path}" };
                Ok(to
                    .replace("/{1}", if has_slash { "{path}" } else { "/{1}" })
                    .replace("{1}", value))
            });
            match to {
                Ok(to) if matches!(to.trim_start_matches('/'), "{path}" | "{path}?{query}") => {
                    self.context.report.lost(
                        rewrite,
                        "the new path is that of the request: a path without a file gets 404",
                    );
                }
                Ok(to) => {
                    self.context.report.carried(rewrite);
                    flow.rest.fallback = Some(to);
                }
                Err(_) => match self.missing_beneath(rewrite, location, constants) {
                    Some(draft) => {
                        self.context.report.carried(rewrite);
                        flow.before.push(draft);
                    }
                    None => return false,
                },
            }
            self.context.report.differs(directive, difference);
            children
                .iter()
                .filter(|child| child.name == "break")
                .for_each(|child| self.context.report.carried(child));
            return true;
        }
        self.context.report.differs(directive, difference);
        if let Some(pass) = find("proxy_pass") {
            flow.rest.pass = Some((pass, "proxy"));
            flow.rest.fallback = Some("=proxy".to_owned());
            children
                .iter()
                .filter(|child| child.name == "break")
                .for_each(|child| self.context.report.carried(child));
            return true;
        }
        match find("return").map(|end| (end, end.word(0))) {
            Some((end, status))
                if status.parse().is_ok_and(|status: u16| (400..600).contains(&status)) =>
            {
                self.context.report.carried(end);
                flow.rest.fallback = Some(format!("={status}"));
                true
            }
            _ => false,
        }
    }

    /// Returns a route for the paths of a location that a `rewrite` of paths without a file is about.
    fn missing_beneath(
        &mut self,
        rewrite: &'t Directive,
        location: &Location<'t>,
        constants: &Constants,
    ) -> Option<Draft> {
        // What the server has comes before all locations: a file could be that of another one.
        location.directive?;
        let expression = Expression::new(rewrite.word(0), false).ok()?;
        let narrowed = self.narrowed(rewrite, location, expression, false)?;
        let target = with_query(rewrite.word(1));
        let to = self.target(&target, Place::Path, &narrowed.expression, false, constants).ok()?;
        to.starts_with('/').then_some(())?;
        let rest = Rest { fallback: Some(to), ..Rest::default() };
        let paths = Paths::Regex(narrowed.expression);
        let keys = self.settings_after(&location.scope, &paths, &rest);
        let comment = format!("{}: rewrite {}", rewrite.place.short(), rewrite.word(0));
        Some(Draft::new(comment, paths, narrowed.also, keys))
    }
}

/// Returns `true` if an `if` splits the path of a script into its name and what follows, as the server does by itself.
fn splits_path(directive: &Directive, scope: &Scope<'_>) -> bool {
    let is_split = matches!(
        condition::terms(&directive.words)[..],
        ["$fastcgi_script_name" | "$uri" | "$document_uri", "~" | "~*", pattern] if pattern.contains(r"\.php")
    );
    let sets = directive.children();
    let is_group = |set: &Directive| {
        set.name == "set" && matches!(set.word(1), "$1" | "$2" | "$fastcgi_path_info")
    };
    is_split
        && scope.own_directive("fastcgi_pass").is_some()
        && !sets.is_empty()
        && sets.iter().all(is_group)
}

fn outer_pass<'t>(scope: &Scope<'t>) -> Option<(&'t Directive, &'static str)> {
    // nginx inherits the handler of the location into `if`.
    let names = [
        ("proxy_pass", "proxy"),
        ("fastcgi_pass", "fastcgi"),
        ("uwsgi_pass", "uwsgi"),
        ("scgi_pass", "scgi"),
        ("grpc_pass", "grpc"),
    ];
    names.into_iter().find_map(|(name, kind)| {
        let pass = scope.own_directive(name).or_else(|| scope.outer_directive(name))?;
        Some((pass, kind))
    })
}
