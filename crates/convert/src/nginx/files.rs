//! Files: roots, aliases, index files, and the lifetimes of responses.

use super::assemble::{ALIAS_STEPS, Draft, Paths};
use super::expression::{Expression, of_prefix};
use super::flow::Rest;
use super::parse::Directive;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::units::{shown_time, time};
use super::variables::{Constants, Place, template};
use crate::keys::Keys;
use crate::value::Value;

/// Returns the response where there are no files: nginx rejects other methods before it looks for one.
fn no_files() -> Value {
    Value::table([
        ("status", Value::Number(404)),
        ("methods", Value::list(["GET", "HEAD", "POST"])),
    ])
}

/// Returns `true` if a name of `index` is a path, whose variables are those of the request's path and query.
fn is_index_path(name: &str) -> bool {
    let plain = ["$request_uri", "$uri", "$args", "$is_args"]
        .iter()
        .fold(name.to_owned(), |text, known| text.replace(known, ""));
    name.starts_with('/') && !plain.contains('$')
}

/// Returns `true` if a level rejects every request.
fn denies_all(scope: &Scope<'_>) -> bool {
    matches!(scope.all(&["allow", "deny"])[..], [only] if only.name == "deny" && only.word(0) == "all")
}

/// The step of `try` that ends the list for directories.
pub(super) const DIRECTORY: &str = "=directory";

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
        if !is_alias && keys.get("root").is_none() {
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
        self.without_sources(scope);
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
        if scope.own_directive("try_files").is_some() || denies_all(scope) {
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
        if matches!(paths, Paths::Prefix(prefix) if prefix == "/") && !target.contains('{') {
            // It is the root of all paths.
            self.context.report.carried(directive);
            keys.set("root", Value::text(self.context.in_prefix(&target)));
            return false;
        }
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
