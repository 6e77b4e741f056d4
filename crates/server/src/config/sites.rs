//! Finding the site by host, and the settings by path.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use super::file::Route;
use super::pattern::Pattern;
use super::settings::Settings;

/// All sites.
#[derive(Debug, Default)]
pub struct Sites {
    pub(super) all: Vec<Arc<Site>>,
    /// By lower-case name.
    exact: HashMap<Vec<u8>, usize>,
    /// By lower-case name behind the `*`, with its dot.
    wildcard: HashMap<Vec<u8>, usize>,
    default: Option<usize>,
}

/// What is served for some hosts.
#[derive(Debug)]
pub struct Site {
    /// Its number, from 0.
    pub index: usize,
    /// Its first host, or `default`; for the log.
    pub name: String,
    /// Lower-case; empty for the site of every other host.
    pub(super) hosts: Vec<String>,
    /// From general to specific.
    pub(super) routes: Vec<SiteRoute>,
    pub(super) root: PathBuf,
    pub(super) cache_file: u64,
    /// Settings by the set of routes that make them, one flag for each route.
    made: RwLock<HashMap<Vec<bool>, Arc<Settings>>>,
}

#[derive(Debug)]
pub(super) struct SiteRoute {
    pub(super) pattern: Pattern,
    /// Line in the file, from 1; 0 when there is no file.
    pub(super) line: usize,
    pub(super) route: Route,
}

impl Sites {
    /// Adds a site. The first whose host is already known is named in the error.
    pub(super) fn add(&mut self, site: Site) -> Result<(), String> {
        let index = site.index;
        if site.hosts.is_empty() && self.default.replace(index).is_some() {
            return Err("there are two sites without `host`".into());
        }
        for host in &site.hosts {
            let taken = match host.strip_prefix('*') {
                Some(rest) => self.wildcard.insert(rest.as_bytes().to_vec(), index),
                None => self.exact.insert(host.as_bytes().to_vec(), index),
            };
            if taken.is_some() {
                return Err(format!("the host {host:?} belongs to two sites"));
            }
        }
        self.all.push(Arc::new(site));
        Ok(())
    }

    /// The site when there is one only, for every host.
    #[inline]
    pub fn only(&self) -> Option<&Arc<Site>> {
        match (&self.all[..], self.default) {
            ([site], Some(_)) => Some(site),
            _ => None,
        }
    }

    /// The site for a host without its port, in any case of letters: an exact name, then the
    /// longest wildcard, then the site for every other host.
    pub fn find(&self, host: &[u8]) -> Option<&Arc<Site>> {
        let mut host = host.to_ascii_lowercase();
        if host.last() == Some(&b'.') {
            host.pop();
        }
        let dots = memchr::memchr_iter(b'.', &host);
        let index = self
            .exact
            .get(&host)
            .or_else(|| dots.into_iter().find_map(|dot| self.wildcard.get(&host[dot..])))
            .copied()
            .or(self.default)?;
        self.all.get(index)
    }

    /// The name of a site by its number.
    pub fn name(&self, index: usize) -> &str {
        self.all.get(index).map_or("-", |site| &site.name)
    }

    /// All sites, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.all.iter()
    }
}

impl Site {
    pub(super) fn new(
        index: usize,
        hosts: Vec<String>,
        root: PathBuf,
        cache_file: u64,
        mut routes: Vec<SiteRoute>,
    ) -> Self {
        routes.sort_by(|a, b| a.pattern.specificity(&b.pattern));
        let name = hosts.first().cloned().unwrap_or_else(|| "default".into());
        Self { index, name, hosts, routes, root, cache_file, made: RwLock::default() }
    }

    /// The settings that hold for a decoded path: those of every route that matches it, the more
    /// specific over the more general.
    pub fn route(&self, path: &[u8]) -> Arc<Settings> {
        let matching: Vec<bool> =
            self.routes.iter().map(|route| route.pattern.matches(path)).collect();
        if let Some(made) = self.made.read().unwrap_or_else(PoisonError::into_inner).get(&matching)
        {
            return Arc::clone(made);
        }
        let settings = Arc::new(self.make(&matching));
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(made.entry(matching).or_insert(settings))
    }

    fn make(&self, matching: &[bool]) -> Settings {
        let routes = self
            .routes
            .iter()
            .zip(matching)
            .filter_map(|(route, matches)| matches.then_some(route));
        let mut gathered = Route::default();
        let mut pattern = None;
        for route in routes {
            gathered.overlay(&route.route, |key| {
                if key == "redirect" {
                    pattern = Some(&route.pattern);
                }
            });
            // A route that answers by itself or from elsewhere ends what a more general one said.
            if route.route.respond.is_some() {
                gathered.redirect = None;
            } else if route.route.root.is_some() {
                (gathered.redirect, gathered.respond) = (route.route.redirect.clone(), None);
            }
        }
        self.settings(&gathered, pattern).unwrap_or_else(|error| {
            // Each route was checked by itself, and no check concerns two keys of different
            // routes; should that change, the site goes on with what holds everywhere.
            tracing::error!("site {}: {error}", self.name);
            Settings::fallback(self.root.clone())
        })
    }

    /// Checks one route's settings by themselves.
    pub(super) fn settings(
        &self,
        route: &Route,
        pattern: Option<&Pattern>,
    ) -> Result<Settings, String> {
        let root = route.root.clone().unwrap_or_else(|| self.root.clone());
        Settings::new(route, root, self.cache_file, pattern.unwrap_or(&Pattern::EVERYTHING))
    }
}
