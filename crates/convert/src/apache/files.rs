//! Files: roots, index files, options, media types, and the programs among them.

use super::builder::{Builder, respond};
use super::scope::{Scope, is};
use crate::directive::Directive;
use crate::keys::Keys;
use crate::model::{Matching, Route};
use crate::regions::{Paths, Region};
use crate::units::shown_size;
use crate::value::Value;

/// What `Options` has.
#[derive(Debug, Default)]
struct Options {
    indexes: bool,
    links: bool,
    programs: bool,
    includes: bool,
}

/// Media types that files have without a setting.
const KNOWN_TYPES: [(&str, &str); 34] = [
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "text/javascript"),
    ("mjs", "text/javascript"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("svg", "image/svg+xml"),
    ("svgz", "image/svg+xml"),
    ("ico", "image/vnd.microsoft.icon"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("avif", "image/avif"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("ttf", "font/ttf"),
    ("otf", "font/otf"),
    ("eot", "application/vnd.ms-fontobject"),
    ("mp4", "video/mp4"),
    ("webm", "video/webm"),
    ("ogg", "audio/ogg"),
    ("mp3", "audio/mpeg"),
    ("wasm", "application/wasm"),
    ("webmanifest", "application/manifest+json"),
    ("rss", "application/rss+xml"),
    ("atom", "application/atom+xml"),
    ("pdf", "application/pdf"),
    ("txt", "text/plain"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("cur", "image/vnd.microsoft.icon"),
];

impl<'t> Builder<'_, 't> {
    /// Sends files, or runs the programs among them.
    pub(super) fn files(
        &mut self,
        region: &Region,
        scope: &Scope<'t>,
        keys: &mut Keys,
        tries: Option<Vec<String>>,
    ) {
        let handler = scope.get("SetHandler");
        if let Some(directive) =
            handler.filter(|directive| directive.word(0).eq_ignore_ascii_case("server-status"))
        {
            match &region.paths {
                Paths::Pattern(_, behind) if behind.is_empty() => {
                    self.context.report.differs(directive, "the page has another form");
                    keys.set("status", Value::Switch(true));
                }
                _ => keys.set("respond", respond(404)),
            }
            return;
        }
        let options = self.options(scope);
        let mut php_root = None;
        if let Some((root, alias)) = self.place(region, tries.is_some()) {
            if alias.as_ref().is_some_and(|(_, is_script)| *is_script) {
                let mut script = Value::table([("kind", Value::text("cgi"))]);
                if let Some((target, _)) = alias {
                    script.set("directory", Value::text(target));
                }
                self.script_settings(scope, &mut script);
                self.body_size(scope, keys);
                keys.set("script", script);
                return;
            }
            match alias {
                Some((target, _)) => keys.set("alias", Value::text(target)),
                None => {
                    php_root = Some(root.clone());
                    keys.set("root", Value::text(root));
                }
            }
        } else {
            keys.set("respond", respond(404));
            return;
        }
        self.switches(scope, &options, keys);
        self.script(region, scope, &options, php_root, keys);
        self.index(scope, keys);
        if let Some(mut tries) = tries {
            if !tries.iter().any(|step| step == "{path}/") && keys.get("script").is_some() {
                // Directories belong to the last path, too.
                keys.set("index", Value::List(Vec::new()));
            }
            if let Some(last) = tries.last_mut()
                && last.starts_with('/')
                && let Some(Value::Text(root)) = keys.get("root")
            {
                *last = last.replacen(&format!("{root}/"), "/", 1);
            }
            keys.set("try", Value::list(tries));
        }
    }

    /// Returns the root of a region, with the directory of its alias; `None` without files. Paths that are tried are those beneath
    /// a root.
    fn place(
        &mut self,
        region: &Region,
        has_tries: bool,
    ) -> Option<(String, Option<(String, bool)>)> {
        let Some(alias) = self.alias_of(&region.paths) else {
            return self.document_root.clone().map(|root| (root, None));
        };
        let (url, target) = (alias.url.trim_end_matches('/'), alias.target.trim_end_matches('/'));
        let is_file = alias.paths.iter().any(|paths| matches!(paths, Paths::Exact(_)));
        let (target, is_script) = (target.to_owned(), alias.is_script);
        match target.strip_suffix(url) {
            Some(root)
                if has_tries && !is_script && !is_file && !root.is_empty() && !url.is_empty() =>
            {
                Some((root.to_owned(), None))
            }
            _ => Some((target.clone(), Some((target, is_script)))),
        }
    }

    /// Merges `Options` from the server to the innermost section.
    fn options(&mut self, scope: &Scope<'t>) -> Options {
        let mut options = Options::default();
        for directive in scope.all(&["Options"]) {
            let is_relative = directive.words.iter().all(|word| word.starts_with(['+', '-']));
            if !is_relative {
                options = Options::default();
            }
            self.context.report.carried(directive);
            for word in &directive.words {
                let (is_on, name) = match word.strip_prefix('-') {
                    Some(name) => (false, name),
                    None => (true, word.trim_start_matches('+')),
                };
                match name.to_ascii_lowercase().as_str() {
                    "indexes" => options.indexes = is_on,
                    "followsymlinks" => options.links = is_on,
                    "symlinksifownermatch" if is_on && !options.links => {
                        let what = "symlinks are followed within the root, whatever their owner is";
                        self.context.report.differs(directive, what);
                    }
                    "execcgi" => options.programs = is_on,
                    "includes" | "includesnoexec" => options.includes = is_on,
                    "all" => {
                        options = Options {
                            indexes: is_on,
                            links: is_on,
                            programs: is_on,
                            includes: is_on,
                        };
                    }
                    "multiviews" if is_on => {
                        let what =
                            "MultiViews: names need their extensions, content is not negotiated";
                        self.context.report.lost(directive, what);
                    }
                    _ => {}
                }
            }
        }
        options
    }

    fn switches(&mut self, scope: &Scope<'t>, options: &Options, keys: &mut Keys) {
        if options.indexes {
            keys.set("listing", Value::Switch(true));
        }
        if options.links {
            keys.set("symlinks", Value::text("follow"));
        }
        if let Some(directive) = scope.get("FileETag") {
            self.context.report.carried(directive);
            if directive.word(0).eq_ignore_ascii_case("none") {
                keys.set("etag", Value::text("off"));
            }
        }
        if let Some(directive) = scope
            .get("DirectorySlash")
            .filter(|directive| directive.word(0).eq_ignore_ascii_case("off"))
        {
            self.context
                .report
                .lost(directive, "directories are redirected to their names with a slash");
        }
        if let Some(directive) = scope.get("MaxRanges") {
            self.context.report.carried(directive);
            match directive.word(0).parse() {
                Ok(number) => keys.set("ranges", Value::Number(number)),
                Err(_) if directive.word(0).eq_ignore_ascii_case("none") => {
                    keys.set("ranges", Value::Number(0));
                }
                Err(_) => {}
            }
        }
        let filters: Vec<_> = scope.all(&["AddOutputFilter", "SetOutputFilter"]).collect();
        for directive in filters {
            let word = directive.word(0).to_ascii_uppercase();
            match (word.contains("INCLUDES"), word.contains("DEFLATE") || word.contains("BROTLI")) {
                (true, _) if options.includes => {
                    self.context
                        .report
                        .differs(directive, "documents are those of the type text/html");
                    keys.set("ssi", Value::Switch(true));
                }
                (true, _) => {
                    self.context.report.not_needed(directive, "`Options` has no `Includes` here");
                }
                (_, true) => {
                    self.context.report.not_needed(directive, "text is compressed by default");
                }
                _ => self
                    .context
                    .report
                    .lost(directive, format!("{word}: bodies pass without this filter")),
            }
        }
        self.types(scope, keys);
        if let Some(directive) =
            scope.get("Dav").filter(|directive| directive.word(0).eq_ignore_ascii_case("on"))
        {
            self.context.report.carried(directive);
            keys.set("dav", Value::Switch(true));
        }
    }

    fn types(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        for directive in scope.all(&["AddType"]) {
            let kind = directive.word(0);
            if kind.starts_with("application/x-httpd-php") {
                continue;
            }
            self.context.report.carried(directive);
            let (kind, charset) = kind.split_once(';').unwrap_or((kind, ""));
            if !charset.is_empty() && !charset.to_ascii_lowercase().contains("utf-8") {
                self.context.report.differs(directive, "the charset is that of the route");
            }
            for extension in directive.words.iter().skip(1) {
                let extension = extension.trim_start_matches('.');
                let is_known =
                    KNOWN_TYPES.iter().any(|(name, known)| *name == extension && *known == kind);
                if !is_known {
                    keys.set_entry("types", extension, Value::text(kind.trim()));
                }
            }
        }
        if let Some(directive) = scope.get("ForceType") {
            self.context.report.lost(directive, "files are sent with the type of their extension");
        }
        if let Some(directive) = scope.get("DefaultType") {
            self.context.report.not_needed(directive, "Apache 2.4 ignores it, too");
        }
    }

    fn index(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let Some(directive) = scope.get("DirectoryIndex") else { return };
        self.context.report.carried(directive);
        if directive.word(0).eq_ignore_ascii_case("disabled") {
            return keys.set("index", Value::List(Vec::new()));
        }
        let (names, others): (Vec<&String>, Vec<&String>) =
            directive.words.iter().partition(|name| !name.contains('/'));
        for other in others {
            let what = format!("{other}: an index file is a name in the directory of the request");
            self.context.report.lost(directive, what);
        }
        let names: Vec<String> = names.into_iter().cloned().collect();
        let default: &[&str] = match keys.get("script").is_some() {
            true => &["index.php", "index.html"],
            false => &["index.html"],
        };
        if names != default {
            keys.set("index", Value::list(names));
        }
    }

    /// Runs PHP files, or the programs of `AddHandler cgi-script`.
    fn script(
        &mut self,
        region: &Region,
        scope: &Scope<'t>,
        options: &Options,
        root: Option<String>,
        keys: &mut Keys,
    ) {
        let is_off = self.is_php_off(scope);
        let php = self.php_of(region).filter(|_| !is_off);
        let found = php.map(|php| (php.directive, php.connect.clone(), php.extensions.clone()));
        let mut script = Value::table([("kind", Value::text("fastcgi"))]);
        if let Some((directive, connect, extensions)) = found {
            match connect {
                Some(connect) => {
                    script.set("connect", Value::text(connect));
                    if let Some(directive) = directive {
                        self.context.report.differs(directive, "the source of a script is never sent, what follows a script in the path is PATH_INFO, and a directory without an index file gets 404");
                    }
                }
                None => {
                    script.set("command", Value::list(["php-cgi"]));
                    if let Some(directive) = directive {
                        self.context.report.differs(directive, "php-cgi runs the files; `connect` in place of `command` names the socket of PHP-FPM");
                    }
                }
            }
            if let Some(root) = root {
                script.set("root", Value::text(root));
            }
            if extensions != ["php"] && !extensions.is_empty() {
                script.set("extensions", Value::list(extensions));
            }
        } else if let Some(extensions) = self.cgi(scope, options) {
            script = Value::table([("kind", Value::text("cgi"))]);
            match region.paths {
                Paths::Exact(_) if extensions.is_empty() => {}
                _ if extensions == ["cgi"] => {
                    script.set("root", Value::text(root.unwrap_or_default()));
                }
                _ => script.set("extensions", Value::list(extensions)),
            }
        } else {
            return;
        }
        self.script_settings(scope, &mut script);
        self.body_size(scope, keys);
        keys.set("script", script);
    }

    /// Returns `true` if PHP files are not run here.
    fn is_php_off(&mut self, scope: &Scope<'t>) -> bool {
        let mut is_off = false;
        for directive in
            scope.all(&["php_admin_flag", "php_flag", "RemoveHandler", "RemoveType", "SetHandler"])
        {
            let word = directive.word(0).to_ascii_lowercase();
            let is_end = match directive.name.to_ascii_lowercase().as_str() {
                "removehandler" | "removetype" => {
                    directive.words.iter().any(|word| word.trim_start_matches('.') == "php")
                }
                "sethandler" => matches!(word.as_str(), "none" | "default-handler"),
                _ => word == "engine" && directive.word(1).eq_ignore_ascii_case("off"),
            };
            if is_end {
                self.context.report.differs(
                    directive,
                    "scripts are not run, and get 404: their source is never sent",
                );
                is_off = true;
            }
        }
        is_off
    }

    /// Returns the extensions of programs.
    fn cgi(&mut self, scope: &Scope<'t>, options: &Options) -> Option<Vec<String>> {
        let mut found: Option<Vec<String>> = None;
        for directive in scope.all(&["AddHandler"]) {
            if directive.word(0).eq_ignore_ascii_case("cgi-script") {
                self.context.report.carried(directive);
                let names = super::builder::extensions(&directive.words[1..]);
                found.get_or_insert_default().extend(names);
            }
        }
        found.filter(|_| options.programs)
    }

    /// Programs beside PHP files have routes of their own.
    pub(super) fn programs(&mut self, routes: &mut Vec<Route>) {
        if self.php.is_empty() {
            return;
        }
        let region = Region { comment: String::new(), paths: Paths::All, when: None };
        let scope = self.scope(&region, true);
        let options = self.options(&scope);
        let Some(extensions) = self.cgi(&scope, &options) else { return };
        let mut keys = Keys::default();
        keys.set(
            "script",
            Value::table([
                ("kind", Value::text("cgi")),
                ("root", Value::text(self.document_root.clone().unwrap_or_default())),
                ("extensions", Value::list(extensions.clone())),
            ]),
        );
        let paths = extensions.iter().map(|extension| format!("*.{extension}")).collect();
        let comment = "programs beside PHP files".to_owned();
        routes.push(Route { comment, matching: Matching::Paths(paths), when: None, keys });
    }

    /// Sets what scripts get besides the request.
    pub(super) fn script_settings(&mut self, scope: &Scope<'t>, script: &mut Value) {
        let mut env = Value::Table(Vec::new());
        for directive in scope.all(&["SetEnv", "PassEnv", "UnsetEnv"]) {
            if is(directive, "PassEnv") {
                for name in &directive.words {
                    env.set(name, Value::text(format!("{{env.{name}}}")));
                }
            } else if is(directive, "SetEnv") {
                env.set(directive.word(0), Value::text(directive.word(1)));
            }
            self.context.report.carried(directive);
        }
        for (name, value) in &self.env {
            env.set(name, Value::text(value));
        }
        for (name, value) in self.request_fields(scope).entries() {
            let name = format!("HTTP_{}", name.to_ascii_uppercase().replace('-', "_"));
            if matches!(value, Value::Text(text) if !text.is_empty() && !text.contains('{')) {
                env.set(&name, value.clone());
            }
        }
        let mut passes = self.has_authorization;
        for directive in scope.all(&["CGIPassAuth"]) {
            passes = directive.word(0).eq_ignore_ascii_case("on");
            self.context.report.carried(directive);
        }
        for directive in scope.all(&["SetEnvIf", "SetEnvIfNoCase"]) {
            if is_authorization(directive) {
                passes = true;
                self.context.report.carried(directive);
            }
        }
        if passes {
            script.set("authorization", Value::Switch(true));
        }
        if !env.entries().is_empty() {
            script.set("env", env);
        }
        if let Some(directive) = scope.get("ProxyTimeout").or(scope.get("Timeout"))
            && let Ok(seconds) = directive.word(0).parse::<u64>()
            && seconds != 60
            && seconds > 0
        {
            self.context.report.carried(directive);
            script.set(
                "idle_timeout",
                Value::text(crate::units::shown_time(seconds.min(86_400 * 30) * 1000)),
            );
        }
    }

    /// The largest body of a request. Apache permits 1 GiB by default.
    pub(super) fn body_size(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let size = match scope.get("LimitRequestBody") {
            Some(directive) => match directive.word(0).parse::<u64>() {
                Ok(bytes) => {
                    self.context.report.carried(directive);
                    bytes
                }
                Err(_) => {
                    self.context
                        .report
                        .lost(directive, "it is no size: bodies of 1 GiB are permitted");
                    1 << 30
                }
            },
            None => 1 << 30,
        };
        let shown = if size == 0 { "unlimited".to_owned() } else { shown_size(size) };
        if shown != "1MiB" {
            keys.set("body_size", Value::text(shown));
        }
    }
}

/// `SetEnvIf Authorization "(.*)" HTTP_AUTHORIZATION=$1`
pub(super) fn is_authorization(directive: &Directive) -> bool {
    directive.word(0).eq_ignore_ascii_case("authorization")
        && directive.word(2).contains("AUTHORIZATION=")
}
