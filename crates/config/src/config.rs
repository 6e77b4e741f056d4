//! A checked configuration.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chroot::{self, Chroot};
use super::error::{Part, Problem, Source};
use super::file::{ProxyTable, ScriptTable};
use super::includes;
use super::listen::Listen;
use super::object_root::ObjectRoot;
use super::overrides::Overrides;
use super::secrets;
use super::server::{Calls, Server};
use super::shared::Shared;
use super::sites::Sites;
use super::spanned::{Span, Spanned};

/// A configuration that was read and checked.
#[derive(Debug)]
pub struct Config {
    /// Settings of the whole server.
    pub server: Server,
    /// Addresses to listen on.
    pub listen: Vec<Listen>,
    /// Number of `[[listen]]` tables.
    pub listener_count: usize,
    /// The sites.
    pub sites: Sites,
    /// The store of the state that several servers share; `None` if this one shares none.
    pub shared: Option<Shared>,
    pub(crate) directories: Vec<NamedPath>,
    /// Warnings about the file itself.
    pub(crate) warnings: Vec<Problem>,
    /// Path of the file; empty if there is none.
    pub(crate) path: PathBuf,
    pub(crate) users: Vec<NamedPath>,
    pub(crate) keys: Vec<NamedPath>,
    pub(crate) authorities: Vec<NamedPath>,
    /// Text of all files; empty if there is none.
    pub(crate) text: Box<str>,
    /// The files after the main one.
    pub(crate) parts: Vec<Part>,
    /// All files as one, if they are not one file without values from elsewhere.
    pub(crate) merged: Option<Merged>,
    /// A configuration in the directory that is served without it.
    pub(crate) unused: Option<PathBuf>,
    /// Settings of the command line that replace those of the file.
    pub(crate) overrides: Overrides,
}

/// All files of a configuration as one text in the form of TOML.
#[derive(Debug)]
pub(crate) struct Merged {
    /// With the names of values that stand elsewhere.
    named: Box<str>,
    /// With these values.
    whole: Box<str>,
}

impl Merged {
    /// Merges the files; `None` if there is one that has all values itself.
    pub(crate) fn of(source: &Source<'_>) -> Option<Self> {
        if source.parts.is_empty() && !includes::names_values(source.text) {
            return None;
        }
        let named = includes::merged(source, false);
        let whole = includes::merged(source, true);
        let is_needed = !source.parts.is_empty() || named != whole;
        is_needed.then(|| Self { named: named.into(), whole: whole.into() })
    }
}

/// A path in the configuration, which the server examines before it uses it.
#[derive(Debug)]
pub struct NamedPath {
    /// The key or table that names it.
    pub key: &'static str,
    /// The absolute path.
    pub path: PathBuf,
    /// The position in the file, with an empty message.
    pub problem: Problem,
}

/// The key of a file of users that may have weak hashes.
pub const WEAK_HASHES: &str = "weak_hashes";

impl Config {
    /// Files that are never sent: the configuration, users' files, keys of tokens and private keys.
    pub fn protected_files(&self) -> Vec<PathBuf> {
        let named = self.users.iter().chain(&self.keys);
        let mut files: Vec<PathBuf> = named.map(|file| file.path.clone()).collect();
        if let Some(path) = self.path() {
            files.extend(chroot::reach(path).ok().and_then(|path| std::path::absolute(path).ok()));
        }
        files.extend(self.unused.clone());
        files.extend(self.other_files().filter_map(|path| std::path::absolute(path).ok()));
        for tls in self.sites.iter().filter_map(|site| site.tls.as_ref()) {
            files.extend(tls.certificates.iter().map(|(_, key)| key.clone()));
            if let Some(acme) = &tls.acme {
                files.extend(acme.secret_files());
            }
        }
        files.extend(self.client_certificates().into_iter().map(|(_, key)| key));
        files.sort();
        files.dedup();
        files
    }

    /// Returns the files that the main one includes, and those whose content stands in values.
    pub(crate) fn other_files(&self) -> impl Iterator<Item = PathBuf> {
        let included = self.parts.iter().map(|part| part.path.clone());
        let all = included.chain(includes::value_files(&self.path, &self.text));
        all.filter_map(|path| chroot::reach(&path).ok())
    }

    /// Returns the certificates that upstreams get, each with the file of its key.
    pub fn client_certificates(&self) -> Vec<(NamedPath, PathBuf)> {
        let routes = self.sites.iter().flat_map(|site| site.routes.iter());
        let tables = routes.filter_map(|route| route.route.proxy.as_ref());
        let pairs = tables.filter_map(|table| table.client_certificate.as_ref());
        let named = pairs.map(|pair| {
            let problem = self.problem_at(&pair.certificate.span, String::new());
            let path = pair.certificate.value.clone();
            (NamedPath { key: "proxy", path, problem }, pair.key.value.clone())
        });
        named.collect()
    }

    /// Returns why a running server cannot switch to this configuration: it starts programs, but seccomp allows only
    /// the system calls of a server without programs.
    pub fn reload_conflict(&self, calls: Calls) -> Option<&'static str> {
        let conflicts = calls == Calls::Needed && self.sites.start_programs();
        conflicts.then_some(
            "the configuration starts scripts, and seccomp does not allow the system calls that they need; restart the \
             server",
        )
    }

    /// Returns the label of the first script with another user or group than the server.
    pub fn script_of_another_user(&self) -> Option<String> {
        let mut scripts = self.sites.iter().flat_map(|site| site.scripts_started_here());
        scripts.find_map(|(name, script)| script.has_owner().then_some(name))
    }

    /// Returns `true` if a route has persistent script processes that listen on sockets of the server.
    pub fn needs_sockets(&self) -> bool {
        let mut scripts = self.sites.iter().flat_map(|site| site.scripts_started_here());
        scripts.any(|(_, script)| !script.kind.value.is_cgi())
    }

    /// Returns `true` if a route runs WebAssembly components.
    pub fn has_components(&self) -> bool {
        self.sites.iter().flat_map(|site| site.scripts()).any(|script| script.kind.is_component())
    }

    /// Returns `true` if a route runs scripts.
    pub fn has_scripts(&self) -> bool {
        self.sites.iter().any(|site| site.scripts().next().is_some())
    }

    /// Returns `true` if metrics can be requested.
    pub fn is_counting(&self) -> bool {
        self.server.admin.is_some() || self.sites.iter().any(|site| site.shows_status())
    }

    /// Returns the indexes of the sites whose tables are equal in `before`, so that cached files and script pools
    /// remain valid.
    pub fn unchanged_sites(&self, before: &Self) -> HashSet<usize> {
        let (Ok(now), Ok(then)) = (self.whole_text().parse(), before.whole_text().parse()) else {
            return HashSet::new();
        };
        let (now, then): (toml::Table, toml::Table) = (now, then);
        // The objects of a site are those of one server or of a fleet.
        if self.shared.is_some() != before.shared.is_some() {
            return HashSet::new();
        }
        // These settings determine the content of cached responses, too.
        let server = |table: &toml::Table, key| table.get("server")?.get(key).cloned();
        if ["cache", "server_field"].iter().any(|key| server(&now, key) != server(&then, key)) {
            return HashSet::new();
        }
        if ["store", "map"].iter().any(|key| now.get(*key) != then.get(*key)) {
            return HashSet::new();
        }
        let site = |table: &toml::Table, index| table.get("site")?.get(index).cloned();
        let is_same = |&index: &usize| {
            site(&now, index).is_some_and(|table| Some(table) == site(&then, index))
        };
        (0..self.sites.iter().len().min(before.sites.iter().len())).filter(is_same).collect()
    }

    /// Returns a text for each site, by its index, that stays the same while the part of the file about the site does.
    pub fn site_texts(&self) -> Vec<String> {
        let table: toml::Table = self.whole_text().parse().unwrap_or_default();
        let has_field = table.get("server").and_then(|server| server.get("server_field"));
        let sites = table.get("site").and_then(toml::Value::as_array);
        let maps = table.get("map");
        let text = |site| format!("{site}\n{has_field:?}{maps:?}");
        sites.into_iter().flatten().map(text).collect()
    }

    /// Returns the path of the file; `None` if there is no file.
    pub fn path(&self) -> Option<&Path> {
        (!self.path.as_os_str().is_empty()).then_some(&*self.path)
    }

    /// Returns the absolute path of the file as it is named from outside of the chroot; `None` if there is no file.
    pub fn whole_path(&self) -> Option<PathBuf> {
        let path = self.path()?;
        Some(match Chroot::entered() {
            Some(chroot) => chroot.whole(path),
            None => std::path::absolute(path).unwrap_or_else(|_| path.into()),
        })
    }

    /// Returns the text of the files as one; empty if there is no file.
    pub fn text(&self) -> &str {
        self.merged.as_ref().map_or(&self.text, |merged| &merged.named)
    }

    /// Returns the same with the values that stand elsewhere.
    fn whole_text(&self) -> &str {
        self.merged.as_ref().map_or(&self.text, |merged| &merged.whole)
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source { path: &self.path, text: &self.text, parts: &self.parts }
    }

    /// Returns the text of the file without comments and with a hash in place of each secret, so that two texts can still be
    /// compared within this process.
    pub fn text_without_secrets(&self) -> String {
        secrets::hide(self.text())
    }

    /// Returns the chroot, if any.
    pub fn chroot(&self) -> Option<Chroot> {
        self.server.chroot.as_deref().map(Chroot::new)
    }

    /// Returns the settings of the command line that replace those of the file.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Returns the directories and files that have to exist, each with its key.
    pub fn directories(&self) -> &[NamedPath] {
        &self.directories
    }

    /// Returns the roots in object storage, each with the position of its site and an empty message.
    pub fn object_roots(&self) -> Vec<(Arc<ObjectRoot>, Problem)> {
        let mut all: Vec<(Arc<ObjectRoot>, Problem)> = Vec::new();
        for site in self.sites.iter() {
            for root in site.object_roots() {
                if all.iter().all(|(other, _)| other != root) {
                    // The text names the root once, unless another key has the same value.
                    let start = self.text.find(&root.to_string());
                    let problem = self.problem_at(&start.map(|at| at..at), String::new());
                    all.push((Arc::clone(root), problem));
                }
            }
        }
        all
    }

    /// Returns the files of users and passwords.
    pub fn users_files(&self) -> &[NamedPath] {
        &self.users
    }

    /// Returns the parameters of queries that prove access, which no log shows.
    pub fn secret_parameters(&self) -> Vec<String> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        let names = routes.flat_map(|route| {
            let tables = route.route.auth_tables().filter_map(|table| table.jwt.as_ref());
            let of_tokens = tables.filter_map(|jwt| jwt.value.query.as_ref());
            let of_tokens = of_tokens.map(|name| name.value.clone());
            let of_links = route.route.signed.iter().map(|table| table.value.signature_name());
            of_tokens.chain(of_links.map(str::to_owned)).collect::<Vec<_>>()
        });
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the files with keys of tokens.
    pub fn key_files(&self) -> &[NamedPath] {
        &self.keys
    }

    /// Returns the files of trusted authorities, each with its table.
    pub fn authorities(&self) -> &[NamedPath] {
        &self.authorities
    }

    /// Returns the tables of all scripts, with their positions.
    pub fn script_tables(&self) -> impl Iterator<Item = &Spanned<ScriptTable>> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.filter_map(|route| route.route.script.as_ref())
    }

    /// Returns the tables of all proxies, with their positions.
    pub fn proxy_tables(&self) -> impl Iterator<Item = &Spanned<ProxyTable>> {
        let routes = self.sites.iter().flat_map(|site| &site.routes);
        routes.filter_map(|route| route.route.proxy.as_ref())
    }

    /// Returns a problem at a position in the file, or with the file as a whole.
    pub fn problem_at(&self, place: &Span, what: String) -> Problem {
        let source = self.source();
        source.problem(place.as_ref(), what)
    }
}
