//! `try_files`, and the named locations at the end of its list.

use super::assemble::{Draft, Paths};
use super::expression::{Expression, of_prefix};
use super::files::DIRECTORY;
use super::flow::Rest;
use super::parse::Directive;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::variables::{Place, template};
use crate::keys::Keys;
use crate::value::Value;

/// Returns a route of a named location, beneath the path of its name; `None` if it needs the path of the request.
fn beneath_name(draft: &Draft, prefix: &str) -> Option<Draft> {
    let needs_path = |(_, value): (&'static str, &Value)| {
        ["{path}", "{rest}", "{target}"].iter().any(|name| value.to_string().contains(name))
    };
    let paths = match &draft.paths {
        Paths::Regex(own) if own.except.is_none() && !own.text.contains("(?i)") => {
            let prefix = of_prefix(prefix);
            let text = match own.text.strip_prefix('^') {
                Some(rest) if !own.text.contains('|') => format!("{prefix}{rest}"),
                Some(_) => return None,
                None => format!("{prefix}.*(?:{})", own.text),
            };
            Paths::Regex(Expression { text, except: None })
        }
        Paths::Prefix(own) => Paths::Prefix(format!("{prefix}{own}")),
        Paths::Regex(_) | Paths::Exact(_) => return None,
    };
    let keys = draft.keys.clone();
    (!keys.iter().any(needs_path)).then_some(())?;
    Some(Draft { paths, ..draft.clone() })
}

/// Returns a proxy whose upstreams do not get the name of the location before the path.
fn beneath_path(proxy: Value, prefix: &str) -> Value {
    let mut table = match proxy {
        Value::Table(entries) => Value::Table(entries),
        to => Value::table([("to", to)]),
    };
    if table.get("path").is_none() && table.get("strip").is_none() {
        table.set("strip", Value::text(prefix));
        table.set("rewrite_location", Value::Switch(false));
    }
    table
}

impl<'t> Builder<'_, 't> {
    pub(super) fn try_files(
        &mut self,
        scope: &Scope<'t>,
        paths: &Paths,
        rest: &Rest<'t>,
        is_alias: bool,
        keys: &mut Keys,
    ) {
        let constants = self.constants(scope);
        let own = scope.own_directive("try_files");
        if let Some(directive) = own.filter(|_| rest.fallback.is_some()) {
            // The rewriting comes first.
            self.context.report.carried(directive);
        }
        let Some(directive) = own.filter(|_| rest.fallback.is_none()) else {
            if let Some(fallback) =
                rest.fallback.clone().or_else(|| self.missing(scope, &constants))
            {
                let steps = if is_alias { ["/{rest}", "/{rest}/"] } else { ["{path}", DIRECTORY] };
                keys.set(
                    "try",
                    Value::list(steps.into_iter().map(str::to_owned).chain([fallback])),
                );
            }
            return;
        };
        self.tries(directive);
        let Some((last, files)) = directive.words.split_last() else { return };
        let last = &self.without_slash_maps(last);
        let group = |name: &str| matches!(paths, Paths::Regex(regex) if regex.has_group(name));
        let mut steps = Vec::new();
        for file in files {
            let values = self.context.choices_of(file);
            match template(file, Place::Path, &constants, &values, group) {
                Ok(step) if step.starts_with(['/', '{']) => steps.push(step),
                Ok(step) if is_alias => steps.push(format!("/{step}")),
                Ok(step) => {
                    let what = format!(
                        "{step}: the name of the root and this text have no slash between them, and name no file"
                    );
                    self.context.report.differs(directive, what);
                }
                Err(name) => {
                    self.lost_variable(directive, &name, &format!("{file} is not looked for"));
                }
            }
        }
        if is_alias {
            steps.iter_mut().for_each(|step| *step = step.replacen("{path}", "/{rest}", 1));
        }
        match last.strip_prefix('@') {
            _ if last == "=444" => steps.push(self.closing()),
            Some(name) => self.try_named(directive, name, scope, paths, &mut steps, keys),
            None => {
                match template(last, Place::Path, &constants, &self.context.choices_of(last), group)
                {
                    Ok(step) if !step.starts_with(['/', '{', '=']) => {
                        let what = format!(
                            "{step}: the path has no slash, and no file: the response is 404"
                        );
                        self.context.report.differs(directive, what);
                        steps.push("=404".to_owned());
                    }
                    Ok(step) => steps.push(step),
                    Err(name) => {
                        self.lost_variable(directive, &name, "a path without a file gets 404");
                        steps.push("=404".to_owned());
                    }
                }
            }
        }
        if steps.last().is_some_and(|last| last == "=404")
            && let Some(page) = self.missing(scope, &constants)
        {
            steps.pop();
            steps.push(page);
        }
        if !steps.iter().any(|step| step.ends_with('/')) && !is_alias {
            // `$uri` stands for files alone.
            keys.set("index", Value::List(Vec::new()));
        }
        let is_usual = steps == ["{path}", "{path}/", "=404"];
        // A directory without an index file ends the list, too, unless an index file has a path of its own.
        let index = scope.get("index");
        let has_path =
            index.is_some_and(|index| index.words.iter().any(|name| name.starts_with('/')));
        if let Some((_, before)) = steps.split_last_mut().filter(|_| !has_path) {
            let slashes = before.iter_mut().filter(|step| *step == "{path}/");
            slashes.for_each(|step| *step = DIRECTORY.into());
        }
        if has_path && !is_usual && steps.iter().any(|step| step == "{path}/") {
            let what =
                "a directory without an index file is passed over, for the next path of the list";
            self.context.report.differs(directive, what);
        }
        // The search without a list does the same.
        if !is_usual {
            keys.set("try", Value::list(steps));
        }
    }

    /// Reports what is different about every list of files.
    fn tries(&mut self, directive: &'t Directive) {
        let what = "other methods than GET, HEAD and POST get 405 also where there is no file, and reach a script that is the index file";
        self.context.report.differs(directive, what);
        let query = directive.words.last().and_then(|last| last.split_once('?'));
        let has = |name: &str| query.is_some_and(|(_, query)| query.contains(name));
        if has("$request_uri") {
            let what = "$request_uri in the query is the path alone, encoded for it";
            self.context.report.differs(directive, what);
        } else if has("$uri") || has("$document_uri") {
            let what = "values in the query are encoded for it, which nginx leaves out";
            self.context.report.differs(directive, what);
        }
    }

    /// The last step of `try_files` is a named location.
    fn try_named(
        &mut self,
        directive: &'t Directive,
        name: &str,
        scope: &Scope<'t>,
        paths: &Paths,
        steps: &mut Vec<String>,
        keys: &mut Keys,
    ) {
        let Some((named, inner)) = self.named(name) else {
            self.context.report.lost(
                directive,
                format!("there is no location @{name}: a path without a file gets 404"),
            );
            return steps.push("=404".to_owned());
        };
        let pass =
            ["proxy_pass", "grpc_pass"].into_iter().find_map(|pass| inner.own_directive(pass));
        if let Some(pass) = pass {
            // The proxy of the route itself responds to what is no file.
            let kind = if pass.name == "proxy_pass" { "proxy" } else { "grpc" };
            let mut own = Keys::default();
            self.common(&inner, &mut own);
            let merged = [scope, &inner].map(|scope| scope.all(&["add_header"]).len());
            if merged[0] != merged[1] && own.get("set_fields") != keys.get("set_fields") {
                self.context.report.differs(named, "responses of the upstream have the fields of the location that tries the files");
            }
            let lifetime = scope.word("expires");
            if lifetime.is_some() && lifetime != inner.word("expires") {
                let what = "responses of the upstream have the lifetime of the location that tries the files";
                self.context.report.differs(named, what);
            }
            self.pass(pass, kind, &inner, paths, &Rest::default(), keys);
            return steps.push("=proxy".to_owned());
        }
        steps.push(self.named_path(name, named, &inner, scope));
    }

    /// Adds an internal route that closes the connection, and returns its path.
    fn closing(&mut self) -> String {
        let path = "/@close".to_owned();
        let mut keys = Keys::default();
        keys.set("internal", Value::Switch(true));
        keys.set("close", Value::Switch(true));
        let comment = "try_files … =444".to_owned();
        if !self.drafts.internal.iter().any(|draft| draft.comment == comment) {
            let paths = Paths::Exact(path.clone());
            self.drafts.internal.push(Draft::new(comment, paths, None, keys));
        }
        path
    }

    /// Returns a text with the URI of the request in place of a slash and the map that has this URI without its slash.
    fn without_slash_maps(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, map) in &self.context.maps {
            let (map, [entry]) = (*map, map.children()) else { continue };
            let group = |start: &str| {
                let inner = entry.name.strip_prefix(start)?;
                let (name, rest) = inner.split_once('>').unwrap_or(("1", inner));
                matches!(rest, ".*)$" | ".+)$" | ".*)" | ".+)").then(|| format!("${name}"))
            };
            let starts = ["~^/(?P<", "~^/(?<", "~^/("];
            let is_rest =
                starts.iter().find_map(|start| group(start)).as_deref() == Some(entry.word(0));
            if is_rest && matches!(map.word(0), "$request_uri" | "$uri") {
                for variable in [format!("/${name}"), format!("/${{{name}}}")] {
                    if text.ends_with(&variable) {
                        text.truncate(text.len() - variable.len());
                        text.push_str("$uri");
                        if map.word(0) == "$request_uri" {
                            text.push_str("$is_args$args");
                        }
                    }
                }
            }
        }
        text
    }

    /// Adds an internal route for a named location, and returns the path that leads there.
    pub(super) fn named_path(
        &mut self,
        name: &str,
        named: &'t Directive,
        inner: &Scope<'t>,
        caller: &Scope<'t>,
    ) -> String {
        let prefix = format!("/@{name}");
        let location = Location {
            paths: Paths::Prefix("/".into()),
            is_preferred: false,
            scope: inner.clone(),
            directive: Some(named),
            also: None,
        };
        let flow = self.flow(&location);
        let is_new = !self.drafts.internal.iter().any(|draft| draft.comment == location.comment());
        // A rewrite for all paths leads on by itself.
        let rewrite = flow.end.as_ref().and_then(|keys| keys.get("rewrite").cloned());
        if let Some(Value::Text(to)) = rewrite {
            return to;
        }
        if let [only] = &flow.before[..]
            && let (Some(Value::Text(to)), Paths::Regex(regex)) =
                (only.keys.get("rewrite"), &only.paths)
            && matches!(regex.text.as_str(), "^/(.*)$" | "^/(.*)" | "^/(.+)$")
        {
            return to.replace("/{1}", "{path}").replace("{1}", "{rest}");
        }
        let mut keys = match flow.end {
            Some(keys) => keys,
            None => self.settings_after(inner, &Paths::Prefix("/".into()), &flow.rest),
        };
        if let Some(mut script) = keys.remove("script") {
            // The name of the location is no part of the application's path.
            let mut env = script.get("env").cloned().unwrap_or(Value::Table(Vec::new()));
            if script.get("root").is_none() {
                env.set("SCRIPT_NAME", Value::text(""));
                script.set("env", env);
            }
            keys.set("script", script);
        }
        if let Some(proxy) = keys.get("proxy").cloned() {
            keys.set("proxy", beneath_path(proxy, &prefix));
        }
        if keys.handler().is_none()
            && let Some(Value::List(steps)) = keys.get("try")
        {
            // The name of the location is no part of the path of a file.
            let step = |step: &Value| match step {
                Value::Text(step) if step == DIRECTORY => Value::text("/{rest}/"),
                Value::Text(step) => Value::text(step.replacen("{path}", "/{rest}", 1)),
                other => other.clone(),
            };
            let steps = Value::List(steps.iter().map(step).collect());
            keys.set("try", steps);
        }
        let what =
            "clients reach it at {prefix}/, too, with the access of the locations that lead there";
        self.context.report.differs(named, what.replace("{prefix}", &prefix));
        if is_new {
            for draft in flow.before {
                match beneath_name(&draft, &prefix) {
                    Some(draft) => self.drafts.internal.push(draft),
                    None => self
                        .context
                        .report
                        .lost(named, format!("{}: a rewrite of some paths only", draft.comment)),
                }
            }
            let paths = Paths::Prefix(format!("{prefix}/"));
            self.drafts.internal.push(Draft::new(location.comment(), paths, None, keys));
        }
        // What restricts access to the location that leads here holds here, too.
        let mut access = Keys::default();
        self.access(caller, &mut access);
        let mut drafts = self.drafts.internal.iter_mut();
        if let Some(draft) = drafts.find(|draft| draft.comment == location.comment()) {
            for key in ["allow", "deny", "auth", "any", "signed"] {
                if let (None, Some(value)) = (draft.keys.get(key), access.get(key)) {
                    draft.keys.set(key, value.clone());
                }
            }
        }
        format!("{prefix}{{path}}")
    }
}
