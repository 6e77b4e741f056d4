//! One server: its sections as regions, and the settings of a region.

use super::builder::{
    Alias, Builder, End, EndKind, Front, Php, Section, comment, extensions, is_beneath,
};
use super::context::Context;
use super::scope::{Scope, is};
use super::sections::sections;
use crate::directive::Directive;
use crate::keys::Keys;
use crate::model::Site;
use crate::regions::{Paths, Region, Settings, implies, routes};

/// Returns the site of a server with these levels.
pub(super) fn site(levels: Vec<&[Directive]>, context: &mut Context) -> Site {
    let server = Scope::new(levels.clone());
    let mut builder = Builder {
        context,
        server,
        document_root: None,
        aliases: Vec::new(),
        sections: Vec::new(),
        ends: Vec::new(),
        fronts: Vec::new(),
        php: Vec::new(),
        pages: Vec::new(),
        has_authorization: false,
        env: Vec::new(),
    };
    builder.document_root();
    builder.aliases();
    builder.sections = sections(&levels, &mut builder);
    builder.workers();
    builder.rewrites();
    builder.redirects();
    builder.proxies();
    builder.default_worker();
    builder.build()
}

impl<'t> Builder<'_, 't> {
    fn document_root(&mut self) {
        let given = self.context.htaccess_root.clone();
        self.document_root = match self.server.get("DocumentRoot") {
            Some(directive) => {
                self.context.report.differs(
                    directive,
                    "names that begin with a dot get 404, symlinks are followed within the root unless `Options` names them, and other methods than GET and HEAD get 405",
                );
                Some(self.context.in_root(directive.word(0)))
            }
            None => given,
        };
    }

    fn build(&mut self) -> Site {
        let regions = self.regions();
        let (mut keys, mut all) = routes(&regions, |region| self.settings(region));
        self.lifetimes(&mut keys, &mut all);
        self.programs(&mut all);
        // Their expressions come before others that match their paths, too.
        all.splice(0..0, self.pages.drain(..));
        Site { keys, routes: all, ..Site::default() }
    }

    fn regions(&self) -> Vec<Region> {
        let of_section = |section: &Section<'t>| {
            let comment = comment(section.directive);
            let when = section.when.clone();
            let region = move |paths: &Paths| Region {
                comment: comment.clone(),
                paths: paths.clone(),
                when: when.clone(),
            };
            section.paths.iter().map(region).collect::<Vec<_>>()
        };
        let mut regions: Vec<Region> = self.sections.iter().flat_map(of_section).collect();
        for alias in &self.aliases {
            let comment = comment(alias.directive);
            regions.extend(alias.paths.iter().map(|paths| Region {
                comment: comment.clone(),
                paths: paths.clone(),
                when: None,
            }));
        }
        regions.extend(self.fronts.iter().map(|front| Region {
            comment: "front controller".into(),
            paths: Paths::beneath(&front.directory),
            when: None,
        }));
        regions.extend(self.fronts.iter().flat_map(|front| &front.except).map(|paths| Region {
            comment: "not to the front controller".into(),
            paths: paths.clone(),
            when: None,
        }));
        regions.extend(self.ends.iter().map(|end| end.region.clone()));
        regions
    }

    /// Returns the levels that are in force in a region. Sections of directories are not for what is passed on.
    pub(super) fn scope(&self, region: &Region, has_files: bool) -> Scope<'t> {
        let mut scope = self.server.clone();
        for (at, section) in self.sections.iter().enumerate() {
            if (has_files || !section.is_of_files()) && self.applies(at, region) {
                scope.push(section.level);
            }
        }
        scope
    }

    pub(super) fn applies(&self, at: usize, region: &Region) -> bool {
        let section = &self.sections[at];
        let in_parent = section.within.is_none_or(|parent| self.applies(parent, region));
        let holds = implies(region.when.as_ref(), section.when.as_ref());
        let is_there = match &section.directory {
            Some(directory) => {
                self.file_path(&region.paths).is_some_and(|path| is_beneath(&path, directory))
            }
            None => section.paths.iter().any(|paths| paths.contains(&region.paths)),
        };
        in_parent && holds && is_there
    }

    /// Returns the path in the file system with which the files of all paths begin.
    pub(super) fn file_path(&self, paths: &Paths) -> Option<String> {
        let text = match paths {
            Paths::All => "/".to_owned(),
            Paths::Exact(path) => path.clone(),
            Paths::Pattern(before, _) => folder(before),
            Paths::Regex(regex) => folder(&regex.whole_prefix()),
        };
        match self.alias_of(paths) {
            Some(alias) => {
                let rest = text.strip_prefix(alias.url.trim_end_matches('/')).unwrap_or_default();
                Some(format!("{}{rest}", alias.target.trim_end_matches('/')))
            }
            None => {
                let root = self.document_root.as_ref()?;
                Some(format!("{}{text}", root.trim_end_matches('/')))
            }
        }
    }

    /// Returns the alias for the paths.
    pub(super) fn alias_of(&self, paths: &Paths) -> Option<&Alias<'t>> {
        let has = |alias: &&Alias<'t>| alias.paths.iter().any(|own| own.contains(paths));
        self.aliases.iter().filter(has).max_by_key(|alias| alias.url.len())
    }

    /// Returns the complete settings of a region.
    fn settings(&mut self, region: &Region) -> Settings {
        let is_there = |end: &&End<'t>| end.region.contains(region);
        let end = self.ends.iter().filter(is_there).min_by_key(|end| end.order).cloned();
        let Some(End { order, kind, region: own }) = end else {
            let scope = self.scope(region, true);
            let mut keys = Keys::default();
            self.common(&scope, &mut keys, true);
            self.access(&scope, &mut keys);
            let tries = self.tries(region);
            self.files(region, &scope, &mut keys, tries);
            self.closed(&mut keys);
            return Settings { keys, end: usize::MAX };
        };
        let mut keys = Keys::default();
        match kind {
            EndKind::Fixed(own) => {
                self.common(&self.server.clone(), &mut keys, false);
                own.iter().for_each(|(key, value)| keys.set(key, value.clone()));
            }
            EndKind::Checked(own) => {
                let scope = self.scope(region, true);
                self.common(&scope, &mut keys, false);
                self.access(&scope, &mut keys);
                own.iter().for_each(|(key, value)| keys.set(key, value.clone()));
            }
            EndKind::Proxy(pass) => {
                let scope = self.scope(region, false);
                self.common(&scope, &mut keys, true);
                self.access(&scope, &mut keys);
                self.body_size(&scope, &mut keys);
                self.pass(&pass, &own.paths, &scope, &mut keys);
            }
            EndKind::Pass => {
                let scope = self.scope(region, true);
                self.common(&scope, &mut keys, true);
                self.access(&scope, &mut keys);
                self.files(region, &scope, &mut keys, None);
            }
            EndKind::Tries(tries) => {
                let scope = self.scope(region, true);
                self.common(&scope, &mut keys, true);
                self.access(&scope, &mut keys);
                self.files(region, &scope, &mut keys, Some(tries));
            }
        }
        self.closed(&mut keys);
        Settings { keys, end: order }
    }

    /// Closes a site whose restrictions are not known.
    fn closed(&self, keys: &mut Keys) {
        if self.context.is_closed {
            keys.close();
        }
    }

    /// Returns the paths that are tried in a region.
    fn tries(&self, region: &Region) -> Option<Vec<String>> {
        let alias =
            self.alias_of(&region.paths).map(|alias| alias.url.trim_end_matches('/').to_owned());
        let applies = |front: &&Front| {
            let is_there = Paths::beneath(&front.directory).contains(&region.paths);
            let is_in_alias =
                alias.as_ref().is_none_or(|url| front.directory.starts_with(url.as_str()));
            is_there
                && is_in_alias
                && !front.except.iter().any(|except| except.contains(&region.paths))
        };
        let all = self.fronts.iter().filter(applies);
        let length = |front: &&Front| (front.directory.len(), front.is_rule);
        let longest = all.clone().map(|front| length(&front)).max()?;
        let mut all = all.filter(|front| length(front) == longest);
        all.next().map(|front| front.tries.clone())
    }

    /// Adds a rule after which no other applies.
    pub(super) fn end(&mut self, order: usize, region: Region, kind: EndKind<'t>) {
        self.ends.push(End { order, region, kind });
    }

    /// `Alias`, `AliasMatch`, `ScriptAlias` and `ScriptAliasMatch`.
    fn aliases(&mut self) {
        let names = ["Alias", "AliasMatch", "ScriptAlias", "ScriptAliasMatch"];
        let server = self.server.clone();
        for directive in server.all(&names) {
            let is_script = directive.name.to_ascii_lowercase().starts_with("script");
            let is_expression = directive.name.to_ascii_lowercase().ends_with("match");
            let (url, target) = match is_expression {
                false => (directive.word(0).to_owned(), directive.word(1).to_owned()),
                true => match literal_alias(directive.word(0), directive.word(1)) {
                    Some(literal) => literal,
                    None => {
                        self.context.report.lost(
                            directive,
                            "the file depends on an expression: its paths are those of the document root",
                        );
                        continue;
                    }
                },
            };
            match is_script {
                true => self.context.report.differs(directive, "a directory of programs gets 404"),
                false if is_expression => self.context.report.differs(
                    directive,
                    "its path without the slash at its end is redirected to it",
                ),
                false => self.context.report.carried(directive),
            }
            let target = self.context.in_root(&target);
            let paths = match url.ends_with('/') || url.is_empty() {
                true => vec![Paths::beneath(&url)],
                false if std::path::Path::new(&target).is_file() => vec![Paths::Exact(url.clone())],
                false => vec![Paths::beneath(&format!("{url}/"))],
            };
            self.aliases.push(Alias { directive, paths, url, target, is_script });
        }
    }

    /// `SetHandler` and `AddHandler` that pass PHP files on to workers.
    fn workers(&mut self) {
        let mut found = Vec::new();
        for (at, section) in self.sections.iter().enumerate() {
            for directive in section.level {
                let Some(connect) = php_handler(directive) else { continue };
                if is(directive, "SetHandler") && section.is_php() {
                    let extensions = section.php_extensions();
                    let directive = Some(directive);
                    found.push(Php { directive, within: section.within, connect, extensions });
                } else if !is(directive, "SetHandler") {
                    let extensions = extensions(&directive.words[1..]);
                    found.push(Php {
                        directive: Some(directive),
                        within: Some(at),
                        connect,
                        extensions,
                    });
                }
            }
        }
        for directive in self.server.clone().all(&["AddHandler", "AddType"]) {
            if let Some(connect) = php_handler(directive) {
                let extensions = extensions(&directive.words[1..]);
                found.push(Php { directive: Some(directive), within: None, connect, extensions });
            }
        }
        self.php = found;
    }

    /// Apache has its handler for PHP in another file: without one here, sources would be sent.
    fn default_worker(&mut self) {
        let has_worker = !self.php.is_empty();
        let is_passed =
            |end: &End<'_>| matches!(end.kind, EndKind::Proxy(_)) && end.region.paths == Paths::All;
        let Some(root) = self.document_root.as_ref().filter(|_| !has_worker) else { return };
        let is_named = |text: &str| text.contains(".php");
        let is_used = self.fronts.iter().any(|front| front.tries.iter().any(|step| is_named(step)))
            || self
                .server
                .get("DirectoryIndex")
                .is_some_and(|index| index.words.iter().any(|word| is_named(word)))
            || std::path::Path::new(root).join("index.php").is_file()
            || self.sections.iter().any(|section| !section.php_extensions().is_empty());
        if is_used && !self.ends.iter().any(is_passed) {
            let extensions = vec!["php".to_owned()];
            self.php.push(Php { directive: None, within: None, connect: None, extensions });
        }
    }

    /// Returns the worker of PHP files in a region.
    pub(super) fn php_of(&self, region: &Region) -> Option<&Php<'t>> {
        self.php.iter().rev().find(|php| php.within.is_none_or(|at| self.applies(at, region)))
    }
}

/// Returns the address of the workers that a directive passes PHP files on to; `Some(None)` for PHP within Apache.
fn php_handler(directive: &Directive) -> Option<Option<String>> {
    if !["SetHandler", "AddHandler", "AddType"].iter().any(|name| is(directive, name)) {
        return None;
    }
    let word = directive.word(0);
    let is_inside =
        ["application/x-httpd-php", "php-script", "php5-script", "php7-script", "php-fastcgi"];
    if is_inside.iter().any(|name| word.starts_with(name))
        && word != "application/x-httpd-php-source"
    {
        return Some(None);
    }
    super::proxy::fastcgi_address(word).map(Some)
}

/// Returns the beginning up to the last slash.
fn folder(text: &str) -> String {
    text.rfind('/').map_or_else(|| "/".to_owned(), |at| text[..=at].to_owned())
}

/// Returns the path and the directory of an `AliasMatch` that replaces a beginning: `^/icons/(.*)$ /usr/share/icons/$1`.
fn literal_alias(pattern: &str, target: &str) -> Option<(String, String)> {
    let start = pattern.strip_prefix('^')?;
    let start = ["(.*)$", "(.*)", "(.+)$"].iter().find_map(|end| start.strip_suffix(end))?;
    let target = target.strip_suffix("$1")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    (start.starts_with('/')
        && start.chars().all(is_plain)
        && start.ends_with('/') == target.ends_with('/'))
    .then(|| (start.to_owned(), target.to_owned()))
}
