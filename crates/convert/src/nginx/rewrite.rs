//! The module `rewrite`: `return`, `rewrite`, `if` and `set`, in the order in which they stand.

use super::assemble::{Draft, Paths};
use super::condition;
use super::expression::{Expression, of_prefix};
use super::flow::{Flow, Rest};
use super::parse::Directive;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::variables::{APPENDED, Constants, Place, template};
use crate::keys::Keys;
use crate::value::Value;

/// A `rewrite` that is read.
enum Rewritten {
    /// It redirects or routes again.
    Keys(Keys),
    /// The same, for the paths of this expression.
    Beneath(Expression, Keys),
    /// It changes the path for the handler of the location.
    Prefix(String, String),
    /// The same, for paths other than its own.
    Except(Keys, String),
    /// It is lost.
    None,
}

/// The requests of a location that an expression matches.
pub(super) struct Narrowed {
    pub(super) paths: Paths,
    pub(super) expression: Expression,
    /// A condition that has to hold as well.
    pub(super) also: Option<Value>,
}

pub(super) const UNIVERSAL: [&str; 10] =
    ["^", "^/", "/", ".", ".*", "^.*$", "^(.*)$", "(.*)", "^(.*)", "(.*)$"];

impl<'t> Builder<'_, 't> {
    /// Reads the directives of a level in their order.
    pub(super) fn flow(&mut self, location: &Location<'t>) -> Flow<'t> {
        let mut flow = Flow::default();
        let constants = self.constants(&location.scope);
        for directive in location.scope.own() {
            match directive.name.as_str() {
                "return" => {
                    let keys = self.fixed(directive, &location.scope, &location.paths, &constants);
                    flow.end = Some(keys);
                    break;
                }
                "rewrite" if self.rewrite(directive, location, None, &constants, &mut flow) => {
                    break;
                }
                "if" if self.condition(directive, location, &constants, &mut flow) => {
                    break;
                }
                "set"
                    if !self.context.report.has(directive)
                        && !self.context.is_assigned(directive) =>
                {
                    let what = "the variable depends on the request: what uses it is judged there";
                    self.context.report.not_needed(directive, what);
                }
                "break" => {
                    self.context.report.carried(directive);
                    break;
                }
                _ => {}
            }
        }
        let settings = std::mem::take(&mut flow.settings);
        flow.before.extend(settings.into_iter().rev());
        for unused in flow.sets.iter().filter(|set| !set.is_used) {
            self.lost_sets(unused.directive);
        }
        if let Some(first) = flow.signed_from {
            let later = flow.before.iter_mut().skip(first).map(|draft| &mut draft.keys);
            later.chain(flow.end.as_mut()).for_each(|keys| self.sign(&location.scope, keys));
        }
        flow
    }

    /// Reads a `rewrite`, within an `if` with its condition. Returns `true` if nothing after it is reached.
    fn rewrite(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        when: Option<&Value>,
        constants: &Constants,
        flow: &mut Flow<'t>,
    ) -> bool {
        let expression = match Expression::new(directive.word(0), false) {
            Ok(expression) => expression,
            Err(what) => {
                self.context.report.lost(directive, format!("{what}: the path is not rewritten"));
                return false;
            }
        };
        let is_universal = UNIVERSAL.contains(&directive.word(0));
        let narrowed = self.narrowed(directive, location, expression, is_universal);
        let Some(Narrowed { paths, expression, mut also }) = narrowed else { return false };
        let read = self.rewritten(directive, location, &expression, is_universal, constants);
        let (paths, keys) = match read {
            Rewritten::Keys(keys) => (paths, keys),
            // Nothing is rewritten twice.
            Rewritten::Except(keys, own) => {
                let own = Expression { text: format!("^{}$", regex::escape(&own)), except: None };
                let others = self.off_path(&own);
                also = match also.as_ref().map(|also| condition::both(also, &others)) {
                    None => Some(others),
                    Some(Ok(both)) => Some(both),
                    Some(Err(what)) => {
                        self.context.report.lost(directive, what);
                        return false;
                    }
                };
                (paths, keys)
            }
            // What the expression matches is no longer that of the location.
            Rewritten::Beneath(narrow, keys) => (Paths::Regex(narrow), keys),
            Rewritten::Prefix(prefix, base) if when.is_none() => {
                flow.rest.replaced = Some((prefix, base));
                return false;
            }
            Rewritten::Prefix(..) => {
                self.context.report.lost(
                    directive,
                    "the path of some requests only is not changed for the upstream",
                );
                return false;
            }
            Rewritten::None => return false,
        };
        let covers_all = paths == location.paths && also.is_none();
        if covers_all && when.is_none() {
            flow.end = Some(keys);
            return true;
        }
        let when = match (when, also) {
            (Some(when), Some(also)) => match condition::both(when, &also) {
                Ok(when) => Some(when),
                Err(what) => {
                    self.context.report.lost(directive, what);
                    return false;
                }
            },
            (when, also) => when.cloned().or(also),
        };
        let comment = format!("{}: rewrite {}", directive.place.short(), directive.word(0));
        flow.before.push(Draft::new(comment, paths, when, keys));
        false
    }

    /// Returns the condition that the path matches an expression.
    pub(super) fn on_path(&mut self, expression: &Expression) -> Value {
        let mut holds = |text: &str| {
            let name = self.context.test("{path}".to_owned(), text);
            Value::table([("map", Value::Table(vec![(name, Value::Switch(true))]))])
        };
        let mut when = holds(&expression.text);
        if let Some(except) = &expression.except {
            when.set("not", holds(except));
        }
        when
    }

    /// Returns the condition that the path does not match an expression.
    fn off_path(&mut self, expression: &Expression) -> Value {
        let name = self.context.test("{path}".to_owned(), &expression.text);
        Value::table([("map", Value::Table(vec![(name, Value::Switch(false))]))])
    }

    /// Returns the paths of a location that an expression matches.
    pub(super) fn narrowed(
        &mut self,
        directive: &Directive,
        location: &Location<'t>,
        expression: Expression,
        is_universal: bool,
    ) -> Option<Narrowed> {
        let plain = |paths, expression| Some(Narrowed { paths, expression, also: None });
        match &location.paths {
            // `^(.*)$` has the path as its group, as has `{path}`.
            paths if is_universal => plain(paths.clone(), expression),
            Paths::Exact(path) if expression.matches(path) => {
                plain(location.paths.clone(), expression)
            }
            Paths::Exact(_) => {
                self.context.report.not_needed(
                    directive,
                    "the expression does not match the path of its location",
                );
                None
            }
            Paths::Prefix(prefix) => {
                let narrow = expression.beneath(prefix);
                let is_within = prefix == "/" || narrow != expression || narrow.begins_with(prefix);
                if !is_within && !narrow.may_match_beneath(prefix) {
                    let what = "the expression matches no path of its location";
                    self.context.report.not_needed(directive, what);
                    return None;
                }
                let own = Expression { text: of_prefix(prefix), except: None };
                let also = (!is_within).then(|| self.on_path(&own));
                Some(Narrowed { paths: Paths::Regex(narrow.clone()), expression: narrow, also })
            }
            Paths::Regex(own) => {
                let is_narrower = own.text.starts_with('^')
                    && expression.text.starts_with(own.text.trim_end_matches('$'))
                    || own.text == expression.text;
                if is_narrower {
                    return plain(Paths::Regex(expression.clone()), expression);
                }
                if let Some(both) = expression.and(own) {
                    return plain(Paths::Regex(both.clone()), both);
                }
                // No expression is for what both match: a map has that of the location.
                let also = Some(self.on_path(own));
                Some(Narrowed { paths: Paths::Regex(expression.clone()), expression, also })
            }
        }
    }

    fn rewritten(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        expression: &Expression,
        is_universal: bool,
        constants: &Constants,
    ) -> Rewritten {
        let (target, flag) = (directive.word(1), directive.word(2));
        let is_url =
            ["http://", "https://", "$scheme://"].iter().any(|start| target.starts_with(start));
        if flag == "redirect" || flag == "permanent" || is_url {
            let status = if flag == "permanent" { 301 } else { 302 };
            let target = with_query(target);
            return match self.target(&target, Place::Redirect, expression, is_universal, constants)
            {
                Ok(to) => {
                    self.context.report.carried(directive);
                    let mut keys = self.fixed_keys(&location.scope);
                    if let Paths::Exact(path) = &location.paths {
                        let to = relative_to(path, &expression.fill(&to, path));
                        keys.set("redirect", redirect(to, status));
                        return Rewritten::Keys(keys);
                    }
                    if let Some((narrow, to)) = expression.after_slash(&to) {
                        keys.set("redirect", redirect(to, status));
                        return Rewritten::Beneath(narrow, keys);
                    }
                    keys.set("redirect", redirect(to, status));
                    Rewritten::Keys(keys)
                }
                Err(name) => {
                    self.lost_variable(directive, &name, "the client is not redirected");
                    Rewritten::None
                }
            };
        }
        let target = with_query(target);
        let to = match self.target(&target, Place::Path, expression, is_universal, constants) {
            Ok(to) => to,
            Err(name) => {
                self.lost_variable(directive, &name, "the path is not rewritten");
                return Rewritten::None;
            }
        };
        let to = match &location.paths {
            Paths::Exact(path) => expression.fill(&to, path),
            _ => to,
        };
        let (narrow, to) = match expression.after_slash(&to) {
            Some((narrow, to)) if flag != "break" => (Some(narrow), to),
            _ => (None, to),
        };
        if flag == "break" && has_pass(&location.scope) {
            return self.passed(directive, location, expression, to);
        }
        if !["/", "{path}", "{map."].iter().any(|start| to.starts_with(start)) {
            self.context
                .report
                .lost(directive, "a new path begins with `/`: the path is not rewritten");
            return Rewritten::None;
        }
        if flag == "break" {
            return self.broken(directive, location, expression, &to);
        }
        if self.is_endless(&to, expression) && location.directive.is_none() {
            let path = to.split('?').next().unwrap_or_default();
            if !path.contains('{') {
                self.context.report.carried(directive);
                let mut keys = self.fixed_keys(&location.scope);
                keys.set("rewrite", Value::text(&to));
                return Rewritten::Except(keys, path.to_owned());
            }
            self.context.report.lost(
                directive,
                "the new path would be rewritten again, without an end: the path is not rewritten",
            );
            return Rewritten::None;
        }
        self.context.report.carried(directive);
        let mut keys = self.fixed_keys(&location.scope);
        keys.set("rewrite", Value::text(to));
        match narrow {
            Some(narrow) => Rewritten::Beneath(narrow, keys),
            None => Rewritten::Keys(keys),
        }
    }

    /// `rewrite … break` before a pass: the upstream gets another path.
    fn passed(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        expression: &Expression,
        to: String,
    ) -> Rewritten {
        let field = "{header.X-Forwarded-Proto}";
        match to.contains(field) {
            true => self
                .context
                .report
                .differs(directive, "the scheme is that of the client, which trusted proxies name"),
            false => self.context.report.carried(directive),
        }
        let to = to.replace(field, "{scheme}");
        let replaced = replaced_prefix(directive.word(0), directive.word(1));
        // The expression has to match every path of the location.
        let start = directive.word(0).trim_start_matches('^').split(['(', '?']).next();
        let is_whole = |own: &Paths| matches!((own, start), (Paths::Prefix(own), Some(start)) if own.starts_with(start));
        if let Some((prefix, base)) = replaced.filter(|_| is_whole(&location.paths)) {
            return Rewritten::Prefix(prefix, base);
        }
        let rest = Rest { path: Some(to), ..Rest::default() };
        let paths = Paths::Regex(expression.clone());
        Rewritten::Keys(self.settings_after(&location.scope, &paths, &rest))
    }

    /// `rewrite … break`: the handler of the location gets another path.
    fn broken(
        &mut self,
        directive: &'t Directive,
        location: &Location<'t>,
        expression: &Expression,
        to: &str,
    ) -> Rewritten {
        let has_script = ["fastcgi_pass", "uwsgi_pass", "scgi_pass"]
            .iter()
            .any(|name| location.scope.own_directive(name).is_some());
        if has_script {
            self.context.report.lost(directive, "the application gets the path of the request");
            return Rewritten::None;
        }
        self.context.report.carried(directive);
        let mut keys = self.settings_after(&location.scope, &location.paths, &Rest::default());
        let start = self.root_of_groups(&location.scope, &Paths::Regex(expression.clone()));
        let start = start.map_or_else(String::new, |(_, start)| start);
        keys.set("try", Value::list([format!("{start}{to}"), "=404".to_owned()]));
        Rewritten::Keys(keys)
    }

    pub(super) fn target(
        &mut self,
        text: &str,
        place: Place,
        expression: &Expression,
        is_universal: bool,
        constants: &Constants,
    ) -> Result<String, String> {
        let values = self.context.values_of(text);
        let group = |name: &str| expression.has_group(name);
        let target = template(text, place, constants, &values, group);
        target.map(|to| match is_universal {
            true => to.replace("/{1}", "{path}").replace("{1}", "{path}"),
            false => to,
        })
    }

    /// Returns `true` if the new path would match again.
    fn is_endless(&self, to: &str, expression: &Expression) -> bool {
        let path = to.split('?').next().unwrap_or_default();
        let mut example = String::new();
        let mut rest = path;
        while let Some((before, after)) = rest.split_once('{') {
            example.push_str(before);
            example.push('x');
            rest = after.split_once('}').map_or("", |(_, rest)| rest);
        }
        example.push_str(rest);
        expression.matches(&example)
    }

    pub(super) fn lost_variable(&mut self, directive: &Directive, name: &str, effect: &str) {
        self.context.report.lost(directive, format!("{effect}: {name} has no placeholder there"));
    }
}

/// Returns a table or the short form of a redirect.
pub(super) fn redirect(to: String, status: u64) -> Value {
    match status {
        302 => Value::text(to),
        _ => Value::table([("to", Value::text(to)), ("status", Value::Number(status))]),
    }
}

/// Returns the target of a redirect from a path: one without a slash is relative to its directory.
fn relative_to(path: &str, to: &str) -> String {
    let is_whole = to.starts_with(['/', '{']) || to.contains("://");
    let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
    if is_whole { to.to_owned() } else { format!("{folder}{to}") }
}

/// nginx adds the query of the request, unless the new path ends with `?`.
pub(super) fn with_query(target: &str) -> String {
    match (target.strip_suffix('?'), target.contains('?')) {
        (Some(plain), _) if plain.contains('?') => plain.to_owned(),
        (Some(plain), _) => format!("{plain}?"),
        // Without a query, this `&` is left out.
        (None, true) => format!("{target}&${{{APPENDED}}}"),
        (None, false) => format!("{target}$is_args$args"),
    }
}

/// Returns the prefix that `^/api/(.*)$` and `/$1` remove, and what takes its place.
pub(super) fn replaced_prefix(pattern: &str, target: &str) -> Option<(String, String)> {
    let pattern = pattern.trim_start_matches('^').trim_end_matches('$');
    let start = pattern.strip_suffix("(.*)").or_else(|| pattern.strip_suffix("(.+)"))?;
    let start = start.strip_suffix("/?").unwrap_or(start);
    let base = target.strip_suffix("$1")?;
    let is_plain = |text: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_'))
    };
    let prefix = start.trim_end_matches('/');
    let base = base.trim_end_matches('/');
    (is_plain(start)
        && is_plain(base)
        && start.starts_with('/')
        && (base.is_empty() || base.starts_with('/')))
    .then(|| (prefix.to_owned(), base.to_owned()))
}

fn has_pass(scope: &Scope<'_>) -> bool {
    ["proxy_pass", "grpc_pass"].iter().any(|name| scope.own_directive(name).is_some())
}
