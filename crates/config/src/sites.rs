//! Lookup of the site by host, and of the settings by path.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::access_log::AccessLog;
use super::facts::Facts;
use super::file::{Route, RouteDictionary, ScriptKind, ScriptTable};
use super::handler::{Handler, HandlerKey};
use super::listen::Listen;
use super::map::Maps;
use super::merge::merge;
use super::object_root::{ObjectRoot, Stores};
use super::path_regex::{PathRegex, RegexList};
use super::pattern::Pattern;
use super::recent::Recent;
use super::report::Report;
use super::respond::Respond;
use super::route_table::{Found, Pair, RouteTable};
use super::script::Mapping;
use super::settings::{RouteLog, Settings};
use super::site_route::SiteRoute;
use super::sources::{SourceRule, Sources};
use super::spanned::Span;
use super::tls::Tls;
use super::units::SizeLimit;
use super::when::When;

/// All sites.
#[derive(Debug, Default)]
pub struct Sites {
    pub(super) all: Vec<Arc<Site>>,
    /// All of them by host. Of two for the same host, it has the one with `tls`, or the first.
    anywhere: Hosts,
    /// The sites of each listener, by its number; empty if all sites are served on all of them.
    listeners: Vec<(u64, Hosts)>,
}

/// Indexes of sites by host.
#[derive(Debug, Default)]
struct Hosts {
    /// By lower-case name.
    exact: HashMap<Vec<u8>, usize>,
    /// By the lower-case name after the `*`, including its dot.
    wildcard: HashMap<Vec<u8>, usize>,
    /// By the lower-case name before a `*` at the end, including its dot.
    any_end: HashMap<Vec<u8>, usize>,
    default: Option<usize>,
}

/// Name of the site for all other hosts.
pub(super) const DEFAULT_SITE: &str = "default";

/// A site.
#[derive(Debug)]
pub struct Site {
    /// Index in the file, from 0.
    pub index: usize,
    /// First host, or `default`; for the log.
    pub name: String,
    /// Hosts in lower case; empty for the site of all other hosts.
    pub(super) hosts: Vec<String>,
    /// Indexes of the tables `[[listen]]` on whose listeners it is served; `None` for all.
    listeners: Option<Vec<usize>>,
    /// Routes from general to specific.
    pub(super) routes: Vec<SiteRoute>,
    table: RouteTable<Settings>,
    /// The settings of pairs that the table has not.
    pairs: Recent<Pair, Settings>,
    /// The routes with conditions that apply, of a variant of a site, by their positions in the file.
    applying: Vec<usize>,
    /// Its scripts, as far as they are files.
    sources: Option<Arc<Sources>>,
    /// The settings of each route that the table does not have under its pattern, by index.
    alone: HashMap<usize, Arc<Settings>>,
    conditions: Option<Conditions>,
    defaults: Arc<Defaults>,
    /// Fields that name a user to scripts, in lower case.
    pub user_fields: Vec<String>,
    /// Certificates.
    pub tls: Option<Arc<Tls>>,
}

/// The routes of a site that a path alone does not decide about.
#[derive(Debug)]
struct Conditions {
    /// Indexes of those with patterns by the paths that they match.
    by_path: RouteTable<Vec<usize>>,
    /// Those with regular expressions: the index of each.
    regexes: Vec<usize>,
    list: RegexList,
    /// Settings that the table of a variant has at most.
    cells: usize,
}

/// A variant of a site has at most this many settings, unless there are few variants.
const MAX_CELLS: usize = 2_048;
/// All variants of a site have at most this many settings.
const MAX_VARIANT_CELLS: usize = 1 << 15;
/// A site keeps the settings of at most this many pairs that its table has not.
const MAX_PAIRS: usize = 1 << 11;

/// Defaults of all routes of a site.
#[derive(Debug)]
pub(super) struct Defaults {
    pub(super) root: PathBuf,
    pub(super) cache_file: u64,
    /// Text has no charset where a route states none.
    pub(super) is_without_charset: bool,
    pub(super) stores: Stores,
    pub(super) maps: Arc<Maps>,
    /// The name of the site, if it has TLS and versions of files are kept.
    pub(super) dictionaries: Option<Arc<str>>,
    /// Dictionaries are kept.
    pub(super) has_dictionaries: bool,
}

impl Sites {
    /// Adds a site. The error is about the first host that another site has on the same listener, and has the index of
    /// that site.
    pub(super) fn add(&mut self, site: Site) -> Result<(), (String, usize)> {
        let is_beside = |other: &&Arc<Site>| match (&site.listeners, &other.listeners) {
            (None, None) => true,
            (Some(own), Some(others)) => own.iter().any(|at| others.contains(at)),
            // The one that names the listener is served there.
            _ => false,
        };
        if site.hosts.is_empty() {
            let mut others = self.all.iter().filter(|other| other.hosts.is_empty());
            if let Some(other) = others.find(is_beside) {
                return Err(("two sites are without `host`".into(), other.index));
            }
        }
        let taken_by = |host: &String| {
            let mut others = self.all.iter().filter(is_beside);
            let find = || others.find(|other| other.hosts.contains(host));
            self.anywhere.has(host).then(find).flatten()
        };
        let taken = site.hosts.iter().find_map(|host| Some((host, taken_by(host)?)));
        if let Some((host, other)) = taken {
            return Err((format!("two sites have the host {host:?}"), other.index));
        }
        let is_better = |other: usize| {
            site.tls.is_some() && self.all.get(other).is_some_and(|other| other.tls.is_none())
        };
        self.anywhere.add(&site, is_better);
        self.all.push(Arc::new(site));
        Ok(())
    }

    /// Returns `true` if a site has this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.all.iter().any(|site| site.name == name)
    }

    /// Lists the sites of each listener; `tables` has the index of its table.
    pub(super) fn open_on(&mut self, listeners: &[Listen], tables: &[usize]) {
        if self.all.iter().all(|site| site.listeners.is_none()) {
            return;
        }
        let hosts = |table: &usize| {
            let mut hosts = Hosts::default();
            let names_it = |site: &Site| site.listeners.as_ref().map(|all| all.contains(table));
            let named = self.all.iter().filter(|site| names_it(site) == Some(true));
            let others = self.all.iter().filter(|site| names_it(site).is_none());
            named.chain(others).for_each(|site| hosts.add(site, |_| false));
            hosts
        };
        let all = listeners.iter().zip(tables).map(|(listen, table)| (listen.number, hosts(table)));
        self.listeners = all.collect();
    }

    /// Returns the only site, if it is for every host.
    #[inline]
    pub fn only(&self) -> Option<&Arc<Site>> {
        match (&self.all[..], self.anywhere.default) {
            ([site], Some(_)) if self.listeners.is_empty() => Some(site),
            _ => None,
        }
    }

    /// Returns the site for a host without port, case-insensitively: by exact name, the longest wildcard at the begin, then at
    /// the end, or the site for all other hosts.
    pub fn find(&self, host: &[u8]) -> Option<&Arc<Site>> {
        self.all.get(self.find_index(host)?)
    }

    /// Returns the site that names the host, exactly or by a wildcard.
    pub fn find_named(&self, host: &[u8]) -> Option<&Arc<Site>> {
        self.all.get(self.named(host)?.0)
    }

    /// Returns the index of the site of [`Sites::find`].
    pub fn find_index(&self, host: &[u8]) -> Option<usize> {
        self.anywhere.find(host)
    }

    /// Returns the index of the site for a host on a listener, by [`Listen::number`].
    #[inline]
    pub fn find_on(&self, listener: u64, host: &[u8]) -> Option<usize> {
        self.hosts_on(listener).find(host)
    }

    /// Returns the site of a listener that names the host, exactly or by a wildcard.
    pub fn find_named_on(&self, listener: u64, host: &[u8]) -> Option<&Arc<Site>> {
        self.all.get(self.hosts_on(listener).named(host)?.0)
    }

    /// Returns the indexes of the sites that are served on a listener, in the order of the file.
    pub fn on(&self, listener: u64) -> impl Iterator<Item = usize> {
        let hosts = self.hosts_on(listener);
        (0..self.all.len()).filter(move |index| hosts.has_site(*index))
    }

    fn hosts_on(&self, listener: u64) -> &Hosts {
        let own = self.listeners.iter().find(|(number, _)| *number == listener);
        // A connection of a listener that a reload has closed may still bring requests.
        own.map_or(&self.anywhere, |(_, hosts)| hosts)
    }

    /// Returns the index of the site that names the host, and whether a wildcard matched.
    fn named(&self, host: &[u8]) -> Option<(usize, bool)> {
        self.anywhere.named(host)
    }

    /// Describes how [`Self::find`] found the site of a host.
    pub fn how_found(&self, host: &[u8]) -> &'static str {
        match self.named(host) {
            Some((_, true)) => "by a wildcard",
            Some((_, false)) => "by its host",
            None => "any other host",
        }
    }

    /// Returns the name of a site by its index.
    pub fn name(&self, index: usize) -> &str {
        self.all.get(index).map_or("-", |site| &site.name)
    }

    /// Returns `true` if any site starts programs.
    pub(super) fn start_programs(&self) -> bool {
        let has_hook =
            |site: &Site| site.tls.as_ref().and_then(|tls| tls.acme.as_ref()?.program()).is_some();
        let starts = |site: &Site| site.scripts_started_here().next().is_some() || has_hook(site);
        self.all.iter().any(|site| starts(site))
    }

    /// Returns all sites, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Site>> {
        self.all.iter()
    }
}

impl Hosts {
    /// Adds a site, except for hosts that it has. `is_better` returns `true` if the site at an index gives way.
    fn add(&mut self, site: &Site, is_better: impl Fn(usize) -> bool) {
        let index = site.index;
        let put = |entry: &mut usize| {
            if is_better(*entry) {
                *entry = index;
            }
        };
        if site.hosts.is_empty() {
            put(self.default.get_or_insert(index));
        }
        for host in &site.hosts {
            let (names, name) = match (host.strip_prefix('*'), host.strip_suffix('*')) {
                (Some(rest), _) => (&mut self.wildcard, rest),
                (None, Some(start)) => (&mut self.any_end, start),
                (None, None) => (&mut self.exact, &**host),
            };
            put(names.entry(name.as_bytes().to_vec()).or_insert(index));
        }
    }

    /// Returns `true` if a site has this host, as the file names it.
    fn has(&self, host: &str) -> bool {
        match (host.strip_prefix('*'), host.strip_suffix('*')) {
            (Some(rest), _) => self.wildcard.contains_key(rest.as_bytes()),
            (None, Some(start)) => self.any_end.contains_key(start.as_bytes()),
            (None, None) => self.exact.contains_key(host.as_bytes()),
        }
    }

    /// Returns `true` if the site at an index has a host here.
    fn has_site(&self, index: usize) -> bool {
        let mut named = self.exact.values().chain(self.wildcard.values());
        self.default == Some(index) || named.any(|other| *other == index)
    }

    fn find(&self, host: &[u8]) -> Option<usize> {
        self.named(host).map(|(index, _)| index).or(self.default)
    }

    /// Returns the index of the site that names the host, and whether a wildcard matched.
    fn named(&self, host: &[u8]) -> Option<(usize, bool)> {
        let host = host.strip_suffix(b".").unwrap_or(host);
        // No host name (RFC 1035 §2.3.4) or address is longer.
        let mut lower = [0; 255];
        let lower = lower.get_mut(..host.len())?;
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        let lower = &*lower;
        if let Some(&index) = self.exact.get(lower) {
            return Some((index, false));
        }
        if self.wildcard.is_empty() && self.any_end.is_empty() {
            return None;
        }
        let by_end = memchr::memchr_iter(b'.', lower)
            .filter(|&dot| dot > 0)
            .find_map(|dot| self.wildcard.get(&lower[dot..]));
        let by_start = || {
            memchr::memrchr_iter(b'.', lower)
                .filter(|&dot| dot + 1 < lower.len())
                .find_map(|dot| self.any_end.get(&lower[..=dot]))
        };
        by_end.or_else(by_start).map(|&index| (index, true))
    }
}

impl Site {
    /// Serves the site on the listeners of these tables only. `apart` is a listener that is added to its name, if another site has the same.
    pub(super) fn listen_on(&mut self, listeners: Vec<usize>, apart: Option<String>) {
        self.listeners = Some(listeners);
        if let Some(listener) = apart {
            self.name = format!("{} on {listener}", self.name);
        }
    }

    /// Creates a site. Its routes are checked one by one, and errors in them are reported to
    /// `report`.
    pub(super) fn new(
        index: usize,
        hosts: Vec<String>,
        defaults: Defaults,
        mut routes: Vec<SiteRoute>,
        report: Report<'_>,
    ) -> Self {
        routes.sort_by(SiteRoute::specificity);
        let mut alone = HashMap::new();
        for (at, route) in routes.iter().enumerate() {
            let mut settings = settings([route], &defaults, report);
            if !route.is_plain() {
                settings.pattern.clone_from(&route.name.value);
                alone.insert(at, Arc::new(settings));
            }
        }
        let name = hosts.first().cloned().unwrap_or_else(|| DEFAULT_SITE.into());
        let first = routes.first().and_then(|route| route.place().clone());
        let conditions = Conditions::new(&routes).unwrap_or_else(|what| {
            report(&first, what);
            None
        });
        let sources = sources(&name, &routes, &defaults);
        let plain = |route: &SiteRoute| !route.is_conditional();
        let table = table(&routes, &defaults, &sources, plain).unwrap_or_else(|what| {
            report(&first, what);
            RouteTable::same_for_all(settings([], &defaults, &mut |_, _| {}))
        });
        let user_fields = user_fields(&routes);
        let defaults = Arc::new(defaults);
        Self {
            index,
            name,
            hosts,
            listeners: None,
            routes,
            table,
            pairs: Recent::new(MAX_PAIRS),
            applying: Vec::new(),
            sources,
            alone,
            conditions,
            defaults,
            user_fields,
            tls: None,
        }
    }

    /// Returns the routes with conditions that apply to some requests for a decoded path: their indexes, for
    /// [`Self::condition`] and [`Self::under`].
    pub fn conditional_routes(&self, path: &[u8]) -> Vec<usize> {
        let Some(Conditions { by_path, regexes, list, .. }) = &self.conditions else {
            return Vec::new();
        };
        let mut found = by_path.find_by_pattern(path).to_vec();
        found.extend(list.all(path).map(|at| regexes[at]));
        found
    }

    /// Returns the routes with conditions whose patterns match a decoded path, by their place in the file. A variant of the
    /// site has them, too.
    pub fn matching_conditional(&self, path: &[u8]) -> Vec<usize> {
        let routes = self.routes.iter().filter(|route| route.is_conditional());
        routes.filter(|route| route.pattern.matches(path)).map(|route| route.order).collect()
    }

    /// Returns the maximum of pairs, besides those of the table, whose settings are kept.
    pub fn max_pairs(&self) -> usize {
        self.pairs.max()
    }

    /// Returns how many variants of the site may exist at a time.
    pub fn max_variants(&self) -> usize {
        let cells = self.conditions.as_ref().map_or(1, |conditions| conditions.cells.max(1));
        (MAX_VARIANT_CELLS / cells).clamp(2, 128)
    }

    /// Returns the routes of [`Self::conditional_routes`].
    pub(super) fn conditional_at(&self, path: &[u8]) -> impl Iterator<Item = &SiteRoute> {
        self.conditional_routes(path).into_iter().filter_map(|at| self.routes.get(at))
    }

    /// Returns `true` if any route has conditions besides its path.
    #[inline]
    pub fn has_conditions(&self) -> bool {
        self.conditions.is_some()
    }

    /// Returns `true` if any route has a regular expression.
    pub fn has_regexes(&self) -> bool {
        self.routes.iter().any(|route| route.pattern.regex().is_some())
    }

    /// Returns the conditions of a route by its index.
    pub fn condition(&self, route: usize) -> Option<&When> {
        self.routes.get(route)?.when.as_deref()
    }

    /// Returns the site for the values that maps have for a request, without the routes whose conditions the file names; `None` if they
    /// do not matter for the path.
    pub fn for_maps(&self, facts: &Facts<'_>) -> Option<Self> {
        let conditional = self.conditional_routes(facts.path);
        let is_chosen = |when: &When| when.is_choice() && when.choice_holds(facts);
        let chosen =
            conditional.into_iter().filter(|at| self.condition(*at).is_some_and(is_chosen));
        let chosen: Vec<usize> = chosen.collect();
        (!chosen.is_empty()).then(|| self.under(&chosen))
    }

    /// Returns the site for requests for which the conditions of the routes at `applying` hold, and those of no other routes.
    pub fn under(&self, applying: &[usize]) -> Self {
        let order = |at: usize| self.routes[at].order;
        let applying: Vec<usize> = applying.iter().map(|&at| order(at)).collect();
        let applies = |route: &SiteRoute| applies(route, &applying);
        // The table of all routes was measured before, and this one has no more pairs. Without a table, nothing is served.
        let table = table(&self.routes, &self.defaults, &self.sources, applies);
        let table = table.unwrap_or_else(|_| {
            let made = settings([], &self.defaults, &mut |_, _| {});
            RouteTable::same_for_all(Settings {
                handler: Handler::Respond(Respond::FAILURE),
                ..made
            })
        });
        Self {
            index: self.index,
            name: self.name.clone(),
            hosts: self.hosts.clone(),
            listeners: self.listeners.clone(),
            routes: self.routes.clone(),
            table,
            // All variants together have no more than the site.
            pairs: Recent::new(MAX_PAIRS / self.max_variants()),
            applying,
            sources: self.sources.clone(),
            alone: self.alone.clone(),
            conditions: None,
            defaults: Arc::clone(&self.defaults),
            user_fields: self.user_fields.clone(),
            tls: self.tls.clone(),
        }
    }

    /// Returns the settings of one route: of a path of its pattern, or without those of other routes if its pattern does not
    /// decide alone.
    pub(super) fn settings_of(&self, route: &SiteRoute) -> &Arc<Settings> {
        let at = self.routes.iter().position(|other| std::ptr::eq(other, route));
        let alone = at.and_then(|at| self.alone.get(&at));
        alone.unwrap_or_else(|| self.table.find_by_pattern(route.pattern.prefix()))
    }

    /// Returns the settings of the routes that a path alone does not decide about, and of regular expressions, each without
    /// those of other routes.
    pub fn special_routes(&self) -> impl Iterator<Item = &Arc<Settings>> {
        self.alone.values()
    }

    pub(super) fn maps(&self) -> &Maps {
        &self.defaults.maps
    }

    /// Returns the hosts, in lower case; empty for the site of all other hosts.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Returns the settings of a decoded path: the merged settings of all routes that match it.
    #[inline]
    pub fn route(&self, path: &[u8]) -> Cow<'_, Arc<Settings>> {
        match self.table.find(path) {
            Found::Made(settings) => Cow::Borrowed(settings),
            Found::Pair(pair) => {
                Cow::Owned(self.pairs.find(pair, |_| Arc::new(self.merged_for(path))))
            }
        }
    }

    /// Returns `true` if the settings are those of a decoded path.
    pub fn has_settings(&self, path: &[u8], settings: &Arc<Settings>) -> bool {
        let found = self.route(path);
        // Those of a pair may have been made twice.
        Arc::ptr_eq(&found, settings) || matches!(found, Cow::Owned(_)) && **found == **settings
    }

    /// Merges the settings of all routes that match a decoded path.
    #[cold]
    fn merged_for(&self, path: &[u8]) -> Settings {
        let applying = || self.routes.iter().filter(|route| applies(route, &self.applying));
        let regexes = applying().filter_map(|route| route.pattern.regex());
        let first = regexes.filter(|regex| regex.matches(path)).map(PathRegex::order).min();
        let matching = applying().filter(|route| match route.pattern.regex() {
            Some(regex) => first == Some(regex.order()),
            None => route.pattern.matches(path),
        });
        let matching: Vec<&SiteRoute> = matching.collect();
        merged(matching.into_iter(), &self.defaults, &self.sources)
    }

    /// Returns the directories of warm scripts, and the `PATH` of their environment if the file sets it.
    pub fn warm_scripts(&self) -> impl Iterator<Item = (&Path, Option<&str>)> {
        let scripts = self.routes.iter().filter_map(|route| route.route.script.as_deref());
        scripts.filter(|script| script.kind.value == ScriptKind::Warm).filter_map(|script| {
            let mut variables = script.env.iter().flat_map(|env| &env.value);
            let path = variables.find(|(name, _)| name.value == "PATH");
            let directory = script.file.as_ref().or(script.directory.as_ref())?;
            Some((directory.as_path(), path.map(|(_, value)| value.value.as_str())))
        })
    }

    /// Returns `true` if a route has the server's status.
    pub(super) fn shows_status(&self) -> bool {
        self.routes.iter().any(|route| route.route.handler_key() == Some(HandlerKey::Status))
    }

    /// Returns the tables of its scripts.
    pub(super) fn scripts(&self) -> impl Iterator<Item = &ScriptTable> {
        self.routes.iter().filter_map(|route| Some(&route.route.script.as_ref()?.value))
    }

    /// Returns the directories of its files and scripts.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.all_settings().flat_map(|settings| {
            let others = settings.sendfile_roots.iter().map(|other| &*other.root);
            let scripts = settings.handler.script().into_iter();
            let scripts = scripts.filter(|script| script.mapping != Mapping::Program);
            let scripts = scripts.map(|script| &*script.directory);
            let root = Some(&*settings.root).filter(|_| settings.objects.is_none());
            root.into_iter().chain(others).chain(scripts)
        })
    }

    /// Returns the roots of its files that are in object storage.
    pub fn object_roots(&self) -> impl Iterator<Item = &Arc<ObjectRoot>> {
        let all = self.table.values().chain(self.special_routes());
        all.filter_map(|settings| settings.objects.as_ref())
    }

    fn all_settings(&self) -> impl Iterator<Item = &Arc<Settings>> {
        let of_routes = self.routes.iter().map(|route| self.settings_of(route));
        of_routes.chain([self.table.find_by_pattern(b"/")])
    }

    /// Returns the directories in which converted files are written beside their sources.
    pub(super) fn roots_with_records(&self) -> Vec<PathBuf> {
        let all = self.routes.iter().map(|route| self.settings_of(route));
        let written = |settings: &&Arc<Settings>| settings.records.is_some_and(|rules| rules.write);
        all.filter(written).map(|settings| settings.root.clone()).collect()
    }

    /// Returns the directories whose files clients can change.
    pub(super) fn roots_with_dav(&self) -> Vec<PathBuf> {
        let changed = self.all_settings().filter(|settings| settings.dav.is_some());
        changed.map(|settings| settings.root.clone()).collect()
    }

    /// Returns `true` if responses of a route are cached.
    pub fn caches_responses(&self) -> bool {
        let mut all = self.table.values().chain(self.special_routes());
        all.any(|settings| settings.cache.responses.is_some())
    }

    /// Returns `true` if dictionaries of a route are kept.
    pub fn keeps_dictionaries(&self) -> bool {
        let mut all = self.table.values().chain(self.special_routes());
        all.any(|settings| settings.dictionary.is_some() || settings.page_dictionary.is_some())
    }

    /// Returns the access logs of its routes; some occur more than once.
    pub fn access_logs(&self) -> impl Iterator<Item = &Arc<AccessLog>> {
        let all = self.table.values().chain(self.special_routes());
        all.filter_map(|settings| match &settings.access_log {
            RouteLog::Own(log) => Some(log),
            RouteLog::Off | RouteLog::Server => None,
        })
    }

    /// Returns the routes that redirect: a path that each matches, and its position in the file.
    pub fn redirects(&self) -> impl Iterator<Item = (Vec<u8>, &Span)> {
        self.routes.iter().filter(|route| route.is_plain()).filter_map(|route| {
            let place = &route.route.redirect.as_ref()?.span;
            Some((route.pattern.example(), place))
        })
    }

    /// Returns the largest limited `body_size` of its routes.
    pub fn largest_body(&self) -> Option<u64> {
        let sizes = self.routes.iter().filter_map(|route| Some(*route.route.body_size.as_deref()?));
        sizes.filter(|size| *size != SizeLimit::UNLIMITED).map(|size| size.0).max()
    }

    /// Returns the tables of its scripts with their names: site, route and kind.
    pub(super) fn named_scripts(&self) -> impl Iterator<Item = (&ScriptTable, String)> {
        self.routes.iter().filter_map(|SiteRoute { route, name, .. }| {
            let script = &route.script.as_ref()?.value;
            let kind = script.kind.value.as_str();
            Some((script, format!("{} {} ({kind})", self.name, name.value)))
        })
    }

    /// Returns names and tables of the scripts whose processes the server starts.
    pub(super) fn scripts_started_here(&self) -> impl Iterator<Item = (String, &ScriptTable)> {
        self.routes.iter().filter_map(|SiteRoute { route, name, .. }| {
            let script = &route.script.as_ref()?.value;
            let name = || format!("{} {} ({})", self.name, name.value, script.kind.value.as_str());
            let starts = script.connect.is_none() && !script.kind.is_component();
            starts.then(|| (name(), script))
        })
    }

    /// Returns the settings of every path, but for pairs that are made for requests.
    pub fn table(&self) -> &RouteTable<Settings> {
        &self.table
    }

    /// Returns the names of its routes, from general to specific.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        let first = |route: &&SiteRoute| {
            let same = self.routes.iter().find(|other| other.order == route.order);
            same.is_some_and(|same| std::ptr::eq(same, *route))
        };
        self.routes.iter().filter(first).map(|route| &*route.name.value)
    }

    /// Returns the number of its routes.
    pub fn route_count(&self) -> usize {
        self.routes.len()
    }
}

impl Conditions {
    /// Returns the routes with conditions; `None` if there are none.
    ///
    /// # Errors
    /// There are too many patterns.
    fn new(routes: &[SiteRoute]) -> Result<Option<Self>, String> {
        let conditional = || routes.iter().enumerate().filter(|(_, route)| route.is_conditional());
        if conditional().next().is_none() {
            return Ok(None);
        }
        let has_regex = |at: &usize| routes[*at].pattern.regex().is_some();
        let indexes = conditional().map(|(at, _)| at);
        let (regexes, plain): (Vec<usize>, Vec<usize>) = indexes.partition(has_regex);
        let patterns: Vec<&Pattern> = plain.iter().map(|&at| &routes[at].pattern).collect();
        let by_path: RouteTable<Vec<usize>> =
            RouteTable::new(&patterns, |matching| matching.iter().map(|&at| plain[at]).collect())?;
        let cells = cells(routes)?;
        // Of the routes for the values of a map, one applies.
        let is_choice =
            |at: &&usize| routes[**at].when.as_ref().is_some_and(|when| when.is_choice());
        let free = |all: &[usize]| all.iter().filter(|at| !is_choice(at)).count();
        let most = by_path.values().map(|routes| free(routes)).max().unwrap_or(0) + free(&regexes);
        let variants = 1_usize.checked_shl(most as u32).unwrap_or(usize::MAX);
        if cells > MAX_CELLS && cells.saturating_mul(variants) > MAX_VARIANT_CELLS {
            return Err(format!(
                "the patterns have {cells} pairs of a beginning and an end, and up to {most} routes with `when` apply to a path: \
                 write fewer patterns with text on both sides of `*`, or fewer conditions"
            ));
        }
        let list = RegexList::new(regexes.iter().filter_map(|&at| routes[at].pattern.regex()))?;
        Ok(Some(Self { by_path, regexes, list, cells }))
    }
}

/// Returns the number of settings that the table of all routes has.
///
/// # Errors
/// There are too many patterns.
fn cells(routes: &[SiteRoute]) -> Result<usize, String> {
    let all: Vec<&SiteRoute> = routes.iter().collect();
    let mounts = mounts(&all);
    let patterns: Vec<&Pattern> = all.iter().map(|route| &route.pattern).chain(&mounts).collect();
    Ok(RouteTable::new(&patterns, |_| ())?.values().count())
}

/// Returns `true` if a route has no conditions or is among those at `applying`, by its position in the file.
fn applies(route: &SiteRoute, applying: &[usize]) -> bool {
    !route.is_conditional() || applying.contains(&route.order)
}

/// Makes the settings of every path, of the routes that apply.
///
/// # Errors
/// There are too many patterns.
fn table(
    routes: &[SiteRoute],
    defaults: &Defaults,
    sources: &Option<Arc<Sources>>,
    applies: impl Fn(&SiteRoute) -> bool,
) -> Result<RouteTable<Settings>, String> {
    let routes: Vec<&SiteRoute> = routes.iter().filter(|route| applies(route)).collect();
    let mounts = mounts(&routes);
    let mut patterns: Vec<&Pattern> = routes.iter().map(|route| &route.pattern).collect();
    patterns.extend(&mounts);
    RouteTable::new(&patterns, |matching| {
        let own = matching.iter().filter_map(|&at| routes.get(at).copied());
        let mut made = merged(own, defaults, sources);
        if matching.iter().any(|&at| at >= routes.len()) {
            made.handler = Handler::AddSlash;
        }
        made
    })
}

/// Merges the settings of routes that match a path, from general to specific.
fn merged<'r>(
    mut own: impl DoubleEndedIterator<Item = &'r SiteRoute> + Clone,
    defaults: &'r Defaults,
    sources: &Option<Arc<Sources>>,
) -> Settings {
    // Each route was checked alone: no check depends on keys of two routes.
    let mut made = settings(own.clone(), defaults, &mut |_, _| {});
    let most_specific = own.next_back().map(|route| &route.name.value);
    made.pattern = most_specific.cloned().unwrap_or_default();
    made.guard(sources);
    made
}

/// Returns the fields in which authentication names users and what else it knows of them. Applications trust them, so that no
/// client may set them.
fn user_fields(routes: &[SiteRoute]) -> Vec<String> {
    let tables = routes.iter().flat_map(|route| route.route.auth_tables());
    let names = tables.flat_map(|table| {
        let copied = table.copy_to_request.iter().flat_map(|names| &names.value);
        let copied = copied.map(|name| name.value.as_str());
        let claims = table.jwt.iter().flat_map(|jwt| &jwt.value.claims);
        let claims = claims.flat_map(|claims| claims.value.keys().map(|name| name.value.as_str()));
        [table.user_field()].into_iter().chain(copied).chain(claims)
    });
    let mut names: Vec<String> =
        names.map(|name| name.to_ascii_lowercase().replace(['_', '.'], "-")).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the paths that lack only the last slash of a route with an application, a directory of scripts, a proxy or the status:
/// `/app` for `/app/*`, unless another route, which is not for every path, matches.
fn mounts(routes: &[&SiteRoute]) -> Vec<Pattern> {
    let is_mount = |route: &Route| match route.handler_key() {
        _ if route.alias.is_some() => true,
        Some(HandlerKey::Status | HandlerKey::Proxy) => true,
        Some(HandlerKey::Script) => {
            route.script.as_deref().is_some_and(|script| match script.mapping() {
                Mapping::Application | Mapping::Program => true,
                // The directory itself, whose index is a script.
                Mapping::Rest => script.is_by_extension(),
                Mapping::Path => false,
            })
        }
        _ => false,
    };
    let mut mounts: Vec<Pattern> = Vec::new();
    for SiteRoute { pattern, route, .. } in routes {
        let Some(path) = pattern.mount().filter(|_| is_mount(route)) else { continue };
        let is_taken = routes.iter().any(|other| {
            let takes = !other.pattern.is_everything() && other.pattern.matches(path.prefix());
            takes && (other.route.has_handler() || other.route.r#try.is_some())
        });
        if !is_taken && !mounts.contains(&path) {
            mounts.push(path);
        }
    }
    mounts
}

/// Returns the scripts of the routes, as far as they are files.
fn sources(site: &str, routes: &[SiteRoute], defaults: &Defaults) -> Option<Arc<Sources>> {
    let rules = routes.iter().filter_map(|route| {
        let settings = settings([route], defaults, &mut |_, _| {});
        SourceRule::new(&route.name, settings.handler.script()?)
    });
    let rules: Vec<_> = rules.collect();
    (!rules.is_empty()).then(|| Arc::new(Sources { site: site.to_owned(), rules }))
}

/// Merges the settings of these routes.
fn settings<'r>(
    routes: impl IntoIterator<Item = &'r SiteRoute>,
    defaults: &'r Defaults,
    report: Report<'_>,
) -> Settings {
    let merged = merge(routes, &defaults.maps, |_, _| {});
    let root = merged.route.root.as_deref().unwrap_or(&defaults.root).clone();
    let objects = defaults.stores.root(&root);
    let mut made = Settings::new(&merged.route, root, defaults.cache_file, merged.patterns, report);
    if defaults.is_without_charset && merged.route.charset.is_none() {
        made.charset.clear();
    }
    let has_files = merged.route.dictionary.as_deref().is_none_or(RouteDictionary::has_files);
    let dictionary = defaults.dictionaries.clone().filter(|_| has_files && made.are_files_public());
    let page_dictionary = made.page_dictionary.clone().filter(|_| defaults.has_dictionaries);
    Settings { objects, dictionary, page_dictionary, ..made }
}
