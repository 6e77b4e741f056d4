//! Lookup of the site by host, and of the settings by path.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use self::conditions::{Conditions, MAX_VARIANT_CELLS};
use self::hosts::Hosts;
use self::merging::{applies, merged, settings, sources, table, user_fields};
use super::facts::Facts;
use super::handler::{Handler, HandlerKey};
use super::listen::Listen;
use super::map::Maps;
use super::object_root::Stores;
use super::path_regex::PathRegex;
use super::recent::Recent;
use super::report::Report;
use super::respond::Respond;
use super::route_table::{Found, Pair, RouteTable};
use super::settings::Settings;
use super::site_route::SiteRoute;
use super::sources::Sources;
use super::tls::Tls;
use super::when::When;

mod conditions;
mod contents;
mod hosts;
mod merging;

/// All sites.
#[derive(Debug, Default)]
pub struct Sites {
    pub(super) all: Vec<Arc<Site>>,
    /// All of them by host. Of two for the same host, it has the one with `tls`, or the first.
    anywhere: Hosts,
    /// The sites of each listener, by its number; empty if all sites are served on all of them.
    listeners: Vec<(u64, Hosts)>,
}

/// The text that stands for every host that no other site names.
pub(super) const EVERY_HOST: &str = "*";
/// Name of the site for all other hosts.
pub(super) const DEFAULT_SITE: &str = "default";

/// A site.
#[derive(Debug)]
pub struct Site {
    /// Index in the file, from 0.
    pub index: usize,
    /// First host, or `default`; for the log.
    pub name: String,
    /// Hosts in lower case.
    pub(super) hosts: Vec<String>,
    /// The site serves every other host.
    pub(super) is_default: bool,
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
    /// A route runs scripts.
    runs_scripts: bool,
    /// The settings of each route that the table does not have under its pattern, by index.
    alone: HashMap<usize, Arc<Settings>>,
    conditions: Option<Conditions>,
    defaults: Arc<Defaults>,
    /// Fields that name a user to scripts, in lower case.
    pub user_fields: Vec<String>,
    /// Certificates.
    pub tls: Option<Arc<Tls>>,
}

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
        if site.is_default {
            let mut others = self.all.iter().filter(|other| other.is_default);
            if let Some(other) = others.find(is_beside) {
                let what = match site.hosts.is_empty() && other.hosts.is_empty() {
                    true => "two sites are without `host`",
                    false => "two sites serve every other host",
                };
                return Err((what.into(), other.index));
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
        let is_script = |route: &SiteRoute| route.route.handler_key() == Some(HandlerKey::Script);
        let runs_scripts = routes.iter().any(is_script);
        Self {
            index,
            name,
            is_default: hosts.is_empty(),
            hosts,
            listeners: None,
            routes,
            table,
            pairs: Recent::new(MAX_PAIRS),
            applying: Vec::new(),
            sources,
            runs_scripts,
            alone,
            conditions,
            defaults,
            user_fields,
            tls: None,
        }
    }

    /// Returns `true` if a route of the site runs scripts.
    pub fn runs_scripts(&self) -> bool {
        self.runs_scripts
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
            is_default: self.is_default,
            listeners: self.listeners.clone(),
            routes: self.routes.clone(),
            table,
            // All variants together have no more than the site.
            pairs: Recent::new(MAX_PAIRS / self.max_variants()),
            applying,
            sources: self.sources.clone(),
            runs_scripts: self.runs_scripts,
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

    /// Returns the hosts that the site names, in lower case.
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
