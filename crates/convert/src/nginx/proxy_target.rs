//! The address of `proxy_pass` and `grpc_pass`, and the path that upstreams get.

use super::assemble::Paths;
use super::condition::terms;
use super::context::Context;
use super::flow::Rest;
use super::parse::Directive;
use super::rewrite::replaced_prefix;
use super::scope::Scope;
use super::server::Builder;
use super::upstream::{Group, group};
use super::variables::{Constants, Place, constant, has_variable, template, with_constants};
use crate::value::Value;

/// The address of a pass.
pub(super) struct Target {
    pub(super) scheme: String,
    pub(super) host: String,
    /// The path of the URL, with its slash.
    pub(super) path: Option<String>,
    /// The path has variables: it replaces all of the request's path and query.
    pub(super) is_template: bool,
}

impl<'t> Builder<'_, 't> {
    /// Returns the prefix that a pass with `/$1` removes from the paths of `^/api/(.*)$`, and what takes its place.
    pub(super) fn replaced(
        &mut self,
        pass: &'t Directive,
        scope: &Scope<'t>,
        paths: &Paths,
    ) -> Option<(String, String)> {
        let Paths::Regex(own) = paths else { return None };
        let text = with_constants(pass.word(0), &self.constants(scope));
        let (_, rest) = text.split_once("://")?;
        let path = &rest[rest.find('/')?..];
        let plain = path.strip_suffix("${is_args}${args}");
        let target = plain.unwrap_or(path).replace("${1}", "$1");
        let is_anchored = own.text.starts_with('^') && own.except.is_none();
        let replaced = is_anchored.then(|| replaced_prefix(&own.text, &target)).flatten();
        if replaced.is_some() && plain.is_none() {
            self.context.report.differs(pass, "the upstream gets the query, too");
        }
        replaced
    }

    /// `is_replaced`: what takes the place of the path is known.
    pub(super) fn target_of(
        &mut self,
        pass: &'t Directive,
        is_replaced: bool,
        scope: &Scope<'t>,
    ) -> Option<Target> {
        let mut constants = self.constants(scope);
        if let Some((name, _)) = suffix_of_script(pass, scope) {
            constants.insert(name.to_owned(), String::new());
        }
        let mut text = with_constants(pass.word(0), &constants);
        if is_replaced && let Some(start) = text.find("://") {
            let end = text[start + 3..].find('/').map_or(text.len(), |at| start + 3 + at);
            text.truncate(end);
        }
        let has_variables = has_variable(pass.word(0));
        if let Some(target) = with_uri(&text) {
            return Some(target);
        }
        // A pass with variables sends the URI of the request, as one without a path does.
        if text.ends_with("${uri}") {
            self.context.report.differs(pass, "the upstream gets the query, too");
        }
        let text = ["${request_uri}", "${uri}${is_args}${args}", "${uri}"]
            .iter()
            .fold(text, |text, end| {
                text.strip_suffix(end).map_or_else(|| text.clone(), str::to_owned)
            });
        let text = match constant(&text, &constants) {
            Ok(text) => text,
            Err(name) => {
                let target = self.chosen(&text, &name).or_else(|| with_variables(&text));
                if target.is_none() {
                    self.lost_variable(
                        pass,
                        &name,
                        "the upstream depends on the request; the response is 502",
                    );
                }
                return target;
            }
        };
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_owned(), rest.to_owned()),
            None => ("grpc".to_owned(), text.clone()),
        };
        if let Some(socket) = rest.strip_prefix("unix:") {
            let (socket, path) = match socket.split_once(':') {
                Some((socket, path)) => {
                    (socket, Some(path.to_owned()).filter(|path| path.starts_with('/')))
                }
                None => (socket, None),
            };
            let is_template = has_variables && path.is_some();
            let host = format!("unix:{socket}");
            return Some(Target { scheme, host, path, is_template });
        }
        let (host, path) = match rest.find('/') {
            Some(at) => (rest[..at].to_owned(), Some(rest[at..].to_owned())),
            None => (rest.clone(), None),
        };
        // With variables, its path takes the place of all of the request's.
        let is_template = has_variables && path.is_some();
        Some(Target { scheme, host, path, is_template })
    }

    /// Returns the target of a pass whose host is the value of a map: an address, or the name of an upstream with one server.
    fn chosen(&mut self, text: &str, variable: &str) -> Option<Target> {
        let (scheme, rest) = text.split_once("://")?;
        let name = variable.trim_start_matches('$');
        if rest != format!("${{{name}}}") || !self.context.is_map(name) {
            return None;
        }
        let server = |context: &mut Context<'_>, value: &str| {
            let Group { servers, backups, .. } = group(value, context);
            match &servers[..] {
                _ if !backups.is_empty() => None,
                [(server, _)] if !server.is_empty() && !server.contains('/') => {
                    Some(server.clone())
                }
                _ => None,
            }
        };
        let has_empty = self.context.map(name).ok()?.fixed()?.contains(&"");
        let map = self.context.derived(name, "server", server).filter(|_| !has_empty)?;
        let (scheme, host) = (scheme.to_owned(), format!("{{map.{}}}", map.name));
        Some(Target { scheme, host, path: None, is_template: false })
    }

    /// Sets what is removed from the path, and returns what takes its place.
    pub(super) fn path(
        &mut self,
        pass: &Directive,
        target: &Target,
        paths: &Paths,
        rest: &Rest<'t>,
        (scope, is_unix): (&Scope<'t>, bool),
        proxy: &mut Value,
    ) -> String {
        if let Some((prefix, base)) = &rest.replaced {
            if !prefix.is_empty() {
                proxy.set("strip", Value::text(prefix.clone()));
                // `rewrite` leaves `Location` alone.
                proxy.set("rewrite_location", Value::Switch(false));
            }
            return base.clone();
        }
        if let Some(path) = &rest.path {
            proxy.set("path", Value::text(path));
            return String::new();
        }
        if let Some((_, script)) = suffix_of_script(pass, scope)
            && matches!(paths, Paths::Prefix(own) | Paths::Exact(own) if own == script)
        {
            // A URL that is a host and a query is that of `/`.
            if matches!(paths, Paths::Prefix(_)) {
                let what = "paths beneath that of the script are passed on as the script itself";
                self.context.report.differs(pass, what);
            }
            proxy.set("path", Value::text("/?{query}"));
            return String::new();
        }
        let Some(path) = &target.path else {
            self.context
                .report
                .differs(pass, "a path with `..` or empty segments is sent in its normal form");
            return String::new();
        };
        if target.is_template {
            self.path_of_template(pass, path, paths, proxy);
            return String::new();
        }
        let is_plain = !is_unix && !path.contains(['?', '#', '%', '{', '}']);
        match paths {
            Paths::Prefix(prefix) if prefix == path => String::new(),
            Paths::Prefix(prefix) if is_plain && prefix.ends_with('/') && path.ends_with('/') => {
                let plain = prefix.trim_end_matches('/');
                if !plain.is_empty() {
                    proxy.set("strip", Value::text(plain));
                    self.context.report.differs(pass, "a `Location` with the host of the client and no prefix gets the prefix of the route");
                }
                path.trim_end_matches('/').to_owned()
            }
            // The text of the location is replaced, whatever follows it.
            Paths::Prefix(_) => {
                self.set_path(pass, &format!("{path}{{rest}}"), proxy);
                String::new()
            }
            // All of the path is replaced.
            Paths::Exact(own) if path == own => String::new(),
            Paths::Exact(own) if is_plain && !own.ends_with('/') => path.clone(),
            Paths::Exact(_) => {
                self.set_path(pass, path, proxy);
                String::new()
            }
            Paths::Regex(_) => String::new(),
        }
    }

    /// Sets the path that upstreams get. A query in it comes before that of the request.
    fn set_path(&mut self, pass: &Directive, path: &str, proxy: &mut Value) {
        if path.contains(['#', '%']) {
            let what = format!("{path}: the path of an upstream has no encoded characters");
            return self.context.report.lost(pass, what);
        }
        let path = match path.contains('?') {
            true => format!("{path}&{{query}}"),
            false => path.to_owned(),
        };
        let what = "`Location` has the path that the upstream names, without its host";
        self.context.report.differs(pass, what);
        proxy.set("path", Value::text(path));
    }

    /// A path with variables is sent as it is, without the query of the request.
    fn path_of_template(&mut self, pass: &Directive, path: &str, paths: &Paths, proxy: &mut Value) {
        let group = |name: &str| matches!(paths, Paths::Regex(regex) if regex.has_group(name));
        let values = self.context.values_of(path);
        match template(path, Place::Path, &Constants::new(), &values, group) {
            Ok(path) if path.contains('?') => proxy.set("path", Value::text(path)),
            Ok(path) => proxy.set("path", Value::text(format!("{path}?"))),
            Err(name) => {
                let what = format!(
                    "the upstream gets the path of the request: {name} has no placeholder there"
                );
                self.context.report.lost(pass, what);
            }
        }
    }
}

/// Returns the variable at the end of a pass that is empty, but for the path of a script, where it is the query: `set $suffix "";
/// if ($uri = /index.php) { set $suffix ?$query_string; }`. `None` for others.
fn suffix_of_script<'t>(pass: &'t Directive, scope: &Scope<'t>) -> Option<(&'t str, &'t str)> {
    let (_, name) = pass.word(0).rsplit_once('$')?;
    let own = scope.own();
    let is_it = |set: &Directive| set.name == "set" && set.word(0).strip_prefix('$') == Some(name);
    let mut sets = own.iter().filter(|set| is_it(set));
    (sets.next().is_some_and(|set| set.word(1).is_empty()) && sets.next().is_none())
        .then_some(())?;
    let mut conditions = own.iter().filter(|other| other.children().iter().any(is_it));
    let condition = conditions.next().filter(|_| conditions.next().is_none())?;
    let is_query =
        |set: &Directive| is_it(set) && matches!(set.word(1), "?$query_string" | "?$args");
    match (&terms(&condition.words)[..], condition.children()) {
        (["$uri" | "$document_uri", "=", path], [set]) if is_query(set) => Some((name, path)),
        _ => None,
    }
}

/// Returns the target of a pass whose path ends with the URI of the request; `None` for others.
fn with_uri(text: &str) -> Option<Target> {
    let start = ["${request_uri}", "${uri}${is_args}${args}", "${uri}"]
        .iter()
        .find_map(|end| text.strip_suffix(end))?;
    let (_, rest) = start.split_once("://")?;
    rest.contains('/').then_some(())?;
    with_variables(&text.replace("${request_uri}", "${uri}${is_args}${args}"))
}

/// Returns the target of a pass whose path alone has variables.
fn with_variables(text: &str) -> Option<Target> {
    let (scheme, rest) = text.split_once("://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    let target = || Target {
        scheme: scheme.to_owned(),
        host: host.to_owned(),
        path: Some(path.to_owned()),
        is_template: true,
    };
    (!has_variable(host)).then(target)
}
