//! Files: roots, index files, `try_files`, error pages, media types and compression.

use super::assemble::{ALIAS_STEPS, Draft, Paths};
use super::expression::{Expression, of_prefix};
use super::flow::Rest;
use super::location::passes;
use super::parse::Directive;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::units::{shown_time, time};
use super::variables::{Constants, Place, template};
use crate::keys::Keys;
use crate::value::Value;

/// Statuses that no server sends by itself.
const OF_RETURN: [&str; 10] =
    ["418", "419", "420", "430", "432", "440", "450", "460", "470", "480"];

/// Returns the response where there are no files: nginx rejects other methods before it looks for one.
fn no_files() -> Value {
    Value::table([
        ("status", Value::Number(404)),
        ("methods", Value::list(["GET", "HEAD", "POST"])),
    ])
}

/// Returns `true` if a block has a `return` of a status alone, also within an `if`.
fn has_bare_return(block: &[Directive]) -> bool {
    let is_bare = |child: &Directive| child.name == "return" && child.words.len() == 1;
    block
        .iter()
        .any(|child| is_bare(child) || child.name == "if" && has_bare_return(child.children()))
}

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

/// Returns `true` if a name of `index` is a path, whose variables are those of the request's path and query.
fn is_index_path(name: &str) -> bool {
    let plain = ["$request_uri", "$uri", "$args", "$is_args"]
        .iter()
        .fold(name.to_owned(), |text, known| text.replace(known, ""));
    name.starts_with('/') && !plain.contains('$')
}

/// How the media types of the server are different from those that come with nginx.
const OTHER_TYPES: &str = "files have the media types of the IANA: `js` text/javascript, `ico` image/vnd.microsoft.icon, `xml` application/xml, and so with rarer ones";

/// The step of `try` that ends the list for directories.
const DIRECTORY: &str = "=directory";

impl<'t> Builder<'_, 't> {
    /// Returns the root of a level; `None` if there is none.
    pub(super) fn root(&mut self, scope: &Scope<'t>) -> Option<String> {
        let Some(directive) = scope.get("root") else {
            // The default of nginx, if there is such a directory.
            let root = self.context.in_prefix("html");
            return std::path::Path::new(&root).is_dir().then_some(root);
        };
        let constants = self.constants_without_root(scope);
        let root = match self.context.choices_template(directive.word(0), &constants) {
            Some(root) => root,
            None => self.context.constant(
                directive,
                directive.word(0),
                &constants,
                "there are no files: the response is 404",
            )?,
        };
        self.context.report.carried(directive);
        Some(self.context.in_prefix(&root))
    }

    /// Returns the directory before the first group that a root has, and what follows as the begin of a path; `None` for others.
    pub(super) fn root_of_groups(
        &mut self,
        scope: &Scope<'t>,
        paths: &Paths,
    ) -> Option<(String, String)> {
        let Paths::Regex(own) = paths else { return None };
        let directive = scope.own_directive("root")?;
        let constants = self.constants_without_root(scope);
        let none = Constants::new();
        let group = |name: &str| own.has_group(name);
        let text = template(directive.word(0), Place::Path, &constants, &none, group).ok()?;
        let slash = text[..text.find('{')?].rfind('/')?;
        (!["{path}", "{rest}", "{query}"].iter().any(|name| text.contains(name))).then_some(())?;
        self.context.report.carried(directive);
        self.context.document.set("server", "nginx_statuses", Value::Switch(true));
        let folder = self.context.in_prefix(&text[..slash.max(1)]);
        Some((folder, text[slash..].trim_end_matches('/').to_owned()))
    }

    fn constants_without_root(&mut self, scope: &Scope<'t>) -> Constants {
        let mut constants = self.constants(scope);
        constants.remove("document_root");
        constants
    }

    /// Sends files.
    pub(super) fn files(
        &mut self,
        scope: &Scope<'t>,
        paths: &Paths,
        rest: &Rest<'t>,
        keys: &mut Keys,
    ) {
        self.context.document.set("server", "nginx_statuses", Value::Switch(true));
        let is_alias = self.alias(scope, paths, keys);
        if let Some((folder, start)) = self.root_of_groups(scope, paths).filter(|_| !is_alias) {
            keys.set("root", Value::text(folder));
            self.of_files(scope, keys);
            if let Some(tries) = scope.own_directive("try_files") {
                self.context
                    .report
                    .lost(tries, "the root depends on the path: its file alone is looked for");
            }
            let steps =
                [format!("{start}{{path}}"), format!("{start}{{path}}/"), "=404".to_owned()];
            keys.set("try", Value::list(steps));
            return self.caching(scope, keys);
        }
        if !is_alias {
            let Some(root) = self.root(scope) else {
                if let Some((directive, inner)) = self.without_files(scope) {
                    self.context.report.carried(directive);
                    *keys = self.settings_after(&inner, paths, &Rest::default());
                    return;
                }
                keys.set("respond", no_files());
                return;
            };
            keys.set("root", Value::text(root));
        }
        self.of_files(scope, keys);
        self.try_files(scope, paths, rest, is_alias, keys);
        self.caching(scope, keys);
    }

    /// Returns the named location of `try_files`, which gets every request where there are no files.
    fn without_files(&self, scope: &Scope<'t>) -> Option<(&'t Directive, Scope<'t>)> {
        let directive = scope.own_directive("try_files")?;
        let (_, inner) = self.named(directive.words.last()?.strip_prefix('@')?)?;
        Some((directive, inner))
    }

    /// Settings of files, of directories and of their responses.
    fn of_files(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        if let Some(directive) = scope.get("index") {
            let constants = self.constants(scope);
            let known = |word: &String| {
                self.context.choices_template(word, &constants).unwrap_or_else(|| word.clone())
            };
            let words: Vec<String> = directive.words.iter().map(known).collect();
            let (names, others): (Vec<&String>, Vec<&String>) =
                words.iter().partition(|name| !name.contains(['/', '$']));
            self.context.report.carried(directive);
            let tries = scope.own_directive("try_files");
            let last = tries.and_then(|tries| tries.words.last()).map_or("", |last| last.as_str());
            // What `try_files` ends with comes for directories, too.
            let is_last = |other: &&&String| {
                let script =
                    |text: &str| text.split(['?', '$']).next().unwrap_or_default().to_owned();
                other.starts_with('/') && !script(other).is_empty() && script(other) == script(last)
            };
            let has_route = scope.own_directive("try_files").is_none();
            for other in others.into_iter().filter(|other| !is_last(&other)) {
                if has_route && is_index_path(other) {
                    continue;
                }
                let what =
                    format!("{other}: an index file is a name in the directory of the request");
                match other.starts_with('/') && !has_route {
                    true => self.context.report.differs(
                        directive,
                        format!("a directory without an index file does not get {other}: the list of `try_files` goes on"),
                    ),
                    false => self.context.report.lost(directive, what),
                }
            }
            let names: Vec<String> = names.into_iter().cloned().collect();
            if names != ["index.html"] {
                keys.set("index", Value::list(names));
            }
        }
        if let Some(directive) = scope.get("autoindex") {
            match directive.word(0) {
                "on" => {
                    self.context.report.carried(directive);
                    keys.set("listing", Value::Switch(true));
                    self.listing_format(scope, keys);
                }
                _ => self
                    .context
                    .report
                    .not_needed(directive, "directories are not listed by default"),
            }
        }
        if let Some(directive) = scope.get("etag") {
            self.context.report.carried(directive);
            if directive.word(0) == "off" {
                keys.set("etag", Value::text("off"));
            }
        }
        if let Some(directive) = scope.get("max_ranges") {
            self.context.report.carried(directive);
            if let Ok(number) = directive.word(0).parse() {
                keys.set("ranges", Value::Number(number));
            }
        }
        if let Some(directive) = scope.get("disable_symlinks") {
            match directive.word(0) {
                "off" => self.context.report.carried(directive),
                _ => self
                    .context
                    .report
                    .differs(directive, "no symlink is followed, whatever its owner is"),
            }
        }
        self.types(scope, keys);
        self.compression(scope, keys);
    }

    /// `index` with a path as its last name: a directory without an index file gets what is there. Changes the keys of a location that is
    /// one directory, or returns what is for the directories beneath it.
    pub(super) fn directory_index(
        &mut self,
        location: &Location<'t>,
        keys: &mut Keys,
    ) -> Option<Draft> {
        let scope = &location.scope;
        let index = scope.get("index").filter(|_| keys.handler().is_none())?;
        let last = index.words.last().filter(|last| is_index_path(last))?;
        if scope.own_directive("try_files").is_some() {
            return None;
        }
        let constants = self.constants(scope);
        let is_searched = scope.own_directive("alias").is_some() || keys.get("try").is_some();
        let to = template(last, Place::Path, &constants, &Constants::new(), |_| false);
        let beneath = |text: String| Some(Paths::Regex(Expression { text, except: None }));
        let paths = match &location.paths {
            // Paths of directories end with a slash.
            Paths::Regex(own) if own.text.ends_with('$') && !own.text.ends_with("/$") => {
                return None;
            }
            Paths::Exact(path) if !path.ends_with('/') => return None,
            _ if is_searched => None,
            Paths::Prefix(prefix) if prefix.ends_with('/') => {
                beneath(format!("{}(?:.*/)?$", of_prefix(prefix)))
            }
            Paths::Prefix(prefix) => beneath(format!("{}.*/$", of_prefix(prefix))),
            Paths::Exact(_) => Some(location.paths.clone()),
            Paths::Regex(_) => None,
        };
        let (Some(paths), Ok(to)) = (paths, to) else {
            let what = format!("{last}: an index file is a name in the directory of the request");
            self.context.report.lost(index, what);
            return None;
        };
        let what = "a directory that does not exist gets the last path of the list, too";
        self.context.report.differs(index, what);
        let tries = Value::list(["{path}".to_owned(), to]);
        if matches!(paths, Paths::Exact(_)) {
            keys.set("try", tries);
            return None;
        }
        let mut keys = keys.clone();
        keys.set("try", tries);
        let comment = format!("{}: index", location.comment());
        Some(Draft::new(comment, paths, None, keys))
    }

    /// nginx sends hidden files and follows all symlinks.
    pub(super) fn links(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let is_limited = scope.word("disable_symlinks").is_some_and(|word| word != "off");
        keys.set("hidden", Value::Switch(true));
        keys.set("symlinks", Value::text(if is_limited { "deny" } else { "follow" }));
    }

    /// Returns `true` if the files are in a directory whose name takes the place of the location's.
    fn alias(&mut self, scope: &Scope<'t>, paths: &Paths, keys: &mut Keys) -> bool {
        let Some(directive) = scope.own_directive("alias") else { return false };
        let constants = self.constants(scope);
        let group = |name: &str| matches!(paths, Paths::Regex(regex) if regex.has_group(name));
        let target =
            match template(directive.word(0), Place::Path, &constants, &Constants::new(), group) {
                Ok(target) => target,
                Err(name) => {
                    self.lost_variable(directive, &name, "files are not found");
                    keys.set("respond", Value::table([("status", Value::Number(404))]));
                    return true;
                }
            };
        self.context.report.differs(directive, "a directory without an index file may get 404 instead of 403, and no redirect to its name with a slash");
        let (folder, rest) = match target.find('{') {
            None => (target.clone(), String::new()),
            Some(at) => {
                let slash = target[..at].rfind('/').map_or(0, |slash| slash + 1);
                (target[..slash].to_owned(), target[slash..].to_owned())
            }
        };
        keys.set("root", Value::text(self.context.in_prefix(&folder)));
        let steps = match paths {
            Paths::Prefix(_) => ALIAS_STEPS.map(str::to_owned).to_vec(),
            Paths::Exact(_) => {
                let (folder, name) = folder.rsplit_once('/').unwrap_or(("", ""));
                keys.set("root", Value::text(self.context.in_prefix(&format!("{folder}/"))));
                vec![format!("/{name}"), "=404".to_owned()]
            }
            Paths::Regex(_) => vec![format!("/{rest}"), format!("/{rest}/"), "=404".to_owned()],
        };
        keys.set("try", Value::list(steps));
        true
    }

    fn try_files(
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

    /// Adds an internal route for a named location, and returns the path that leads there.
    fn named_path(
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

    /// `error_page 404 = /index.php`: what is looked for where there is no file.
    pub(super) fn missing(&mut self, scope: &Scope<'t>, constants: &Constants) -> Option<String> {
        let pages = scope.all(&["error_page"]);
        let page = pages.into_iter().find(|page| {
            let is_missing = page.words.iter().any(|word| word == "404");
            let target = page.words.last().map_or("", String::as_str);
            let changes = page.words.iter().any(|word| matches!(word.as_str(), "=" | "=200"));
            is_missing && (changes || target.starts_with('@'))
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
        let mut pages = Vec::new();
        for directive in scope.all(&["error_page"]) {
            let Some((target, words)) = directive.words.split_last() else { continue };
            let (statuses, changes): (Vec<&String>, Vec<&String>) =
                words.iter().partition(|word| !word.starts_with('='));
            if target.starts_with('@') {
                // Only `return` has a status that no server sends by itself.
                let is_of_return = |status: &&String| OF_RETURN.contains(&status.as_str());
                let keeps_status = !changes.iter().any(|change| change.as_str() == "=");
                let is_known = |status: &&String| {
                    status.as_str() == "404" || is_of_return(status) && !keeps_status
                };
                match statuses.iter().all(is_known) {
                    true if statuses.iter().all(is_of_return) => {
                        self.context.report.carried(directive);
                    }
                    true => {}
                    false => self.context.report.lost(directive, "the errors have the page of the server: a named location is for missing files, and for statuses that only `return` sends"),
                }
                continue;
            }
            if !target.starts_with('/') {
                self.context.report.lost(
                    directive,
                    "the errors have the page of the server, since the page is elsewhere",
                );
                continue;
            }
            if let Some(change) = changes.first() {
                let is_missing = matches!(change.as_str(), "=" | "=200")
                    && statuses.iter().all(|status| *status == "404");
                if !is_missing {
                    self.context.report.lost(
                        directive,
                        format!("the page keeps the status of the error: {change} has no effect"),
                    );
                }
                let intercepts = ["proxy", "grpc", "fastcgi", "uwsgi", "scgi"]
                    .iter()
                    .any(|kind| scope.is_on(&format!("{kind}_intercept_errors")));
                if is_missing && intercepts && passes(scope).is_some() {
                    let what = format!(
                        "the page keeps the status of the upstream: {change} has no effect"
                    );
                    self.context.report.lost(directive, what);
                }
                if is_missing {
                    continue;
                }
            }
            if super::variables::has_variable(target) {
                self.context.report.lost(
                    directive,
                    "the page depends on the request: errors have the page of the server",
                );
                continue;
            }
            for status in statuses {
                match status.parse::<u16>() {
                    Ok(number) if matches!(number, 494..=499) => {
                        self.context
                            .report
                            .differs(directive, format!("{number} is a status of nginx alone"));
                    }
                    Ok(number) if (400..600).contains(&number) => {
                        pages.push((status.clone(), Value::text(target)));
                    }
                    _ => self
                        .context
                        .report
                        .lost(directive, format!("{status} is not the status of an error")),
                }
            }
            let what =
                "pages have the fields of the location of the request, not those of their own";
            match scope.all(&["add_header"]).is_empty() {
                true => self.context.report.carried(directive),
                false => self.context.report.differs(directive, what),
            }
        }
        if !pages.is_empty() {
            pages.dedup_by(|a, b| a.0 == b.0);
            keys.set("error_pages", Value::Table(pages));
        }
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

    fn types(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let mut types: Vec<(String, Value)> = Vec::new();
        for directive in scope.all(&["types"]) {
            let is_stock =
                directive.place.file.file_name().is_some_and(|name| name == "mime.types");
            if is_stock {
                self.context.report.differs(directive, OTHER_TYPES);
                continue;
            }
            self.context.report.carried(directive);
            for entry in directive.children().iter().filter(|entry| entry.name != "include") {
                types.extend(
                    entry.words.iter().map(|word| (word.clone(), Value::text(&entry.name))),
                );
            }
        }
        if !types.is_empty() {
            keys.set("types", Value::Table(types));
        }
        self.without_types(scope);
        if let Some(directive) = scope.get("default_type") {
            match directive.word(0) {
                "application/octet-stream" => self
                    .context
                    .report
                    .not_needed(directive, "unknown files are sent so by default"),
                kind if scope.all(&["types"]).iter().any(|types| types.children().is_empty()) => {
                    let what = format!("files are sent by their extension, not as {kind}");
                    self.context.report.lost(directive, what);
                }
                kind => {
                    let what = format!(
                        "files with unknown extensions are sent as application/octet-stream, not as {kind}"
                    );
                    self.context.report.differs(directive, what);
                }
            }
        }
        if let Some(directive) = scope.get("charset_types") {
            let what = "text has the charset, whatever its type; XML and JSON have none (RFC 7303, RFC 8259)";
            self.context.report.differs(directive, what);
        }
        if let Some(directive) = scope.get("charset") {
            match directive.word(0) {
                // It is the default with `nginx_statuses`.
                "off" => self.context.report.carried(directive),
                charset => {
                    let what = "text of every type has it, whatever its extension is";
                    self.context.report.differs(directive, what);
                    keys.set("charset", Value::text(charset));
                }
            }
        }
    }

    /// Reports media types that are not those of the defaults of nginx, where a configuration states none.
    fn without_types(&mut self, scope: &Scope<'t>) {
        let place = ["root", "alias", "index", "listen", "server_name"];
        let Some(place) = place.into_iter().find_map(|name| scope.get(name)) else { return };
        if scope.all(&["types"]).is_empty() {
            let what = "no `types` are in force: files have the media types of their extensions, not all but HTML and a few images `default_type`";
            return self.context.report.differs(place, what);
        }
        if scope.get("default_type").is_none() {
            let what = "no `default_type` is in force: files with unknown extensions are sent as application/octet-stream, not as text/plain";
            self.context.report.differs(place, what);
        }
    }

    fn compression(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        if let Some(directive) = scope.get("gzip") {
            match directive.word(0) {
                "on" => self
                    .context
                    .report
                    .not_needed(directive, "text files are compressed by default"),
                _ => {
                    self.context.report.carried(directive);
                    keys.set("compress", Value::Switch(false));
                }
            }
        }
        for name in ["gzip_types", "brotli", "brotli_types", "zstd", "zstd_types", "gzip_proxied"] {
            if let Some(directive) = scope.get(name) {
                self.context.report.not_needed(
                    directive,
                    "text files are compressed by default, in the coding that the client prefers",
                );
            }
        }
        for name in ["gzip_static", "brotli_static", "zstd_static"] {
            if let Some(directive) = scope.get(name) {
                match directive.word(0) {
                    "off" => self.context.report.differs(directive, "compressed files beside others are sent; `precompressed = false` ends that"),
                    _ => self.context.report.not_needed(directive, "compressed files beside others are sent by default"),
                }
            }
        }
    }

    /// `expires`, together with `Cache-Control` of `add_header`.
    pub(super) fn caching(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let control = match keys.remove("cache_control") {
            Some(Value::Text(control)) => Some(control),
            _ => None,
        };
        let Some(directive) = scope.get("expires") else {
            if let Some(control) = control {
                keys.set("cache_control", Value::text(control));
            }
            return;
        };
        let (word, second) = (directive.word(0), directive.word(1));
        let join = |own: &str| {
            control.as_ref().map_or_else(|| own.to_owned(), |control| format!("{own}, {control}"))
        };
        self.context.report.carried(directive);
        match (word, time(word)) {
            ("off", _) => {
                if let Some(control) = control {
                    keys.set("cache_control", Value::text(control));
                }
            }
            ("max", _) => {
                keys.set("expires", Value::text("3650d"));
                if control.is_some() {
                    keys.set("cache_control", Value::text(join("max-age=315360000")));
                }
            }
            ("epoch", _) => keys.set("cache_control", Value::text(join("no-cache"))),
            (word, _) if word.starts_with('-') => keys.set("cache_control", Value::text(join("no-cache"))),
            (_, Some(0)) => keys.set("cache_control", Value::text(join("max-age=0"))),
            (_, Some(milliseconds)) => {
                keys.set("expires", Value::text(shown_time(milliseconds)));
                if control.is_some() {
                    keys.set("cache_control", Value::text(join(&format!("max-age={}", milliseconds / 1000))));
                }
            }
            _ if word == "modified" => self.context.report.lost(directive, format!("{second}: a lifetime that begins with the change of a file; the response has none")),
            _ if word.starts_with('$') => match self.context.lifetimes(word, control.as_deref()) {
                Some(field) => {
                    self.context.report.differs(directive, "responses have `Cache-Control` of this lifetime, errors too, and no `Expires`");
                    let mut fields = keys.remove("set_fields").unwrap_or(Value::Table(Vec::new()));
                    fields.set("Cache-Control", Value::text(field));
                    keys.set("set_fields", fields);
                }
                None => self.context.report.lost(directive, format!("responses have no lifetime: {word} depends on the request")),
            },
            _ => self.context.report.lost(directive, format!("{word}: the response has no lifetime")),
        }
    }
}
