//! The runtime objects of routes, by site, route and table: limits, throttles, logins, upstreams, and the
//! numbers of script pools.
//!
//! The configuration is pure data. One table may be part of the settings of many paths, which share its object; and a
//! reload keeps the objects of the tables that it does not change: what clients have used up, who runs and who waits.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use dunlin_config::{
    AuthRules, BasicRules, CheckRules, DefinedBy, KeySource, PageDictionary, Proxy, RateRules,
    Script, Settings, ThrottleRules,
};
use dunlin_dictionary::route::{RouteDictionary, Terms};
use dunlin_limits::rate::RateLimit;
use dunlin_proxy::Group;

use crate::checks::{
    Alternative, Attempts, Auth, Basic, Checks, Forward, Jwt, Keys, Limited, Logins, RouteCounts,
    Throttle,
};
use crate::fleet::servers::servers;

/// The runtime objects of one generation of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    routes: HashMap<Key, Objects>,
    /// The dictionaries for pages, by the name of the site, which has one for each path.
    dictionaries: HashMap<String, Vec<Arc<RouteDictionary>>>,
    /// The number of the script pool that was allocated last.
    last_pool: usize,
}

/// The site by its name and the route by its pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    site: String,
    route: String,
}

/// The objects of one route, each with the rules that it was made of.
#[derive(Debug, Clone, Default)]
struct Objects {
    limits: Option<Limits>,
    throttle: Option<(ThrottleRules, Arc<Throttle>)>,
    /// By the file of users.
    logins: Vec<(PathBuf, Logins)>,
    /// By where the keys of tokens are.
    keys: Vec<(KeySource, Arc<Keys>)>,
    /// The number of the pool.
    script: Option<(Script, usize)>,
    proxy: Option<Arc<Group>>,
}

impl Objects {
    /// Returns how many requests its limits have rejected. Limits in a dry run reject nothing.
    fn rejected(&self) -> u64 {
        let throttle = self.throttle.as_ref().map(|(_, throttle)| throttle);
        let concurrency = throttle.and_then(|throttle| throttle.concurrency.as_ref());
        let bandwidth = throttle.and_then(|throttle| throttle.bandwidth.as_ref());
        let by_concurrency = concurrency.filter(|limit| !limit.rules().dry_run).map(|limit| {
            let counts = limit.counts();
            counts.rejected + counts.expired
        });
        let by_bandwidth = bandwidth.filter(|limit| !limit.rules().dry_run);
        let by_bandwidth = by_bandwidth.map(|limit| limit.counts().rejected);
        let rates = self.limits.iter().flatten().filter(|limit| !limit.rules().dry_run);
        let by_rates: u64 = rates.map(|limit| limit.counts().rejected).sum();
        by_concurrency.unwrap_or(0) + by_bandwidth.unwrap_or(0) + by_rates
    }
}

/// The limits of a route, in the order of the file.
type Limits = Vec<Arc<RateLimit>>;

/// A registry that is being filled.
pub(super) struct Builder<'a> {
    registry: Registry,
    /// That of the generation before.
    before: Option<&'a Registry>,
    /// The server shares its state with others.
    is_in_fleet: bool,
}

/// The objects of one site, from which further routes of the same tables are made.
#[derive(Debug, Default)]
pub(super) struct SiteObjects {
    registry: Registry,
    is_in_fleet: bool,
}

impl SiteObjects {
    pub(super) fn builder(&self) -> Builder<'_> {
        Builder::new(Some(&self.registry), self.is_in_fleet)
    }
}

impl<'a> Builder<'a> {
    pub(super) fn new(before: Option<&'a Registry>, is_in_fleet: bool) -> Self {
        let last_pool = before.map_or(0, |before| before.last_pool);
        Self { registry: Registry { last_pool, ..Registry::default() }, before, is_in_fleet }
    }

    pub(super) fn finish(self) -> Registry {
        self.registry
    }

    /// Returns the objects of the routes of a site, all of which were made.
    pub(super) fn objects_of(&self, site: &str) -> SiteObjects {
        let last_pool = self.registry.last_pool;
        let own = self.registry.routes.iter().filter(|(key, _)| key.site == site);
        let routes = own.map(|(key, objects)| (key.clone(), objects.clone())).collect();
        let dictionaries = self.registry.dictionaries.get_key_value(site);
        let dictionaries = dictionaries.map(|(name, own)| (name.clone(), own.clone()));
        let dictionaries = dictionaries.into_iter().collect();
        let registry = Registry { routes, dictionaries, last_pool };
        SiteObjects { registry, is_in_fleet: self.is_in_fleet }
    }

    /// Keeps every object of the site.
    pub(super) fn keep_site(&mut self, site: &str) {
        let Some(before) = self.before else { return };
        let kept = before.routes.iter().filter(|(key, _)| key.site == site);
        self.registry.routes.extend(kept.map(|(key, objects)| (key.clone(), objects.clone())));
        if let Some(own) = before.dictionaries.get(site) {
            self.registry.dictionaries.insert(site.to_owned(), own.clone());
        }
    }

    /// Returns the checks of a route of `site`; `None` when it has none.
    pub(super) fn checks(
        &mut self,
        site: &str,
        origins: &DefinedBy,
        checks: &CheckRules,
    ) -> Option<Arc<Checks>> {
        if checks.is_empty() {
            return None;
        }
        let auth = checks.auth.as_ref().map(|rules| self.auth(site, &origins.auth, rules));
        let any = checks.any.iter().map(|rules| Alternative {
            access: rules.access.clone(),
            auth: rules.auth.as_ref().map(|rules| self.auth(site, &origins.any, rules)),
        });
        let any: Vec<_> = any.collect();
        let throttle = checks.throttle.as_ref();
        Some(Arc::new(Checks {
            https: checks.https.clone(),
            access: checks.access.clone(),
            methods: checks.methods.clone(),
            auth,
            any: (!any.is_empty()).then(|| any.into()),
            fields: checks.fields.clone(),
            cors: checks.cors.clone(),
            signed: checks.signed.clone(),
            limits: self.limits(site, &origins.limit, &checks.limits),
            throttle: throttle.map(|rules| self.throttle(site, &origins.throttle, rules)),
            receives_body: checks.receives_body,
        }))
    }

    /// Returns the authentication of a route of `site`.
    fn auth(&mut self, site: &str, route: &str, rules: &AuthRules) -> Auth {
        match rules {
            AuthRules::Forward(forward) => Auth::Forward(Forward::new(forward.clone(), route)),
            AuthRules::Basic(basic) => {
                let logins = self.logins(site, route, basic);
                Auth::Basic(Basic::new(basic.clone(), logins))
            }
            AuthRules::Jwt(jwt) => {
                Auth::Jwt(Jwt::new(jwt.clone(), self.keys(site, route, &jwt.keys)))
            }
        }
    }

    /// Returns the number of the pool of a script.
    pub(super) fn pool(&mut self, site: &str, route: &str, script: &Script) -> usize {
        let (own, before) = self.objects(site, route);
        let kept = before.and_then(|before| before.script.clone());
        let made = own.script.clone().or(kept.filter(|(rules, _)| rules == script));
        let (script, id) = made.unwrap_or_else(|| {
            self.registry.last_pool += 1;
            (script.clone(), self.registry.last_pool)
        });
        self.objects(site, route).0.script = Some((script, id));
        id
    }

    /// Returns the upstreams of a proxy.
    pub(super) fn proxy(&mut self, site: &str, route: &str, rules: &Arc<Proxy>) -> Arc<Group> {
        let (own, before) = self.objects(site, route);
        let group = own.proxy.get_or_insert_with(|| {
            let kept = before.and_then(|before| before.proxy.clone());
            let kept = kept.filter(|group| group.rules() == rules);
            kept.unwrap_or_else(|| Arc::new(Group::new(rules)))
        });
        Arc::clone(group)
    }

    /// Returns the dictionary for the pages of a route with these settings.
    pub(super) fn page_dictionary(
        &mut self,
        site: &str,
        settings: &Settings,
    ) -> Option<Arc<RouteDictionary>> {
        PageDictionary::of(settings).map(|rules| self.dictionary(site, rules))
    }

    fn dictionary(&mut self, site: &str, rules: &PageDictionary) -> Arc<RouteDictionary> {
        let terms = Terms { path: rules.path.clone(), rotation: rules.rotation };
        let own = |registry: &Registry| {
            let mut of_site = registry.dictionaries.get(site)?.iter();
            of_site.find(|it| *it.terms() == terms).map(Arc::clone)
        };
        if let Some(dictionary) = own(&self.registry) {
            return dictionary;
        }
        let kept = self.before.and_then(own);
        let dictionary = kept.unwrap_or_else(|| Arc::new(RouteDictionary::new(site, &terms)));
        let of_site = self.registry.dictionaries.entry(site.to_owned()).or_default();
        of_site.push(Arc::clone(&dictionary));
        dictionary
    }

    /// Returns the dictionaries for the pages of a site, all of whose routes were made.
    pub(super) fn dictionaries(&self, site: &str) -> Vec<Arc<RouteDictionary>> {
        self.registry.dictionaries.get(site).cloned().unwrap_or_default()
    }

    fn limits(&mut self, site: &str, route: &str, rules: &[RateRules]) -> Vec<Arc<RateLimit>> {
        if rules.is_empty() {
            return Vec::new();
        }
        let (own, before) = self.objects(site, route);
        let limits = own.limits.get_or_insert_with(|| {
            let mut kept: Limits =
                before.and_then(|before| before.limits.clone()).unwrap_or_default();
            let limit = |rules: &RateRules| match kept.iter().position(|kept| kept.rules() == rules)
            {
                Some(at) => kept.remove(at),
                None if rules.shared => {
                    let scope = format!("{site}\n{route}");
                    Arc::new(RateLimit::shared(rules.clone(), &scope, servers()))
                }
                None => Arc::new(RateLimit::new(rules.clone())),
            };
            rules.iter().map(limit).collect()
        });
        limits.clone()
    }

    fn throttle(&mut self, site: &str, route: &str, rules: &ThrottleRules) -> Arc<Throttle> {
        let (own, before) = self.objects(site, route);
        let (_, throttle) = own.throttle.get_or_insert_with(|| {
            let kept = before.and_then(|before| before.throttle.clone());
            let kept = kept.filter(|(other, _)| other == rules);
            kept.unwrap_or_else(|| (rules.clone(), Arc::new(Throttle::new(rules))))
        });
        Arc::clone(throttle)
    }

    fn logins(&mut self, site: &str, route: &str, rules: &BasicRules) -> Logins {
        let path = &rules.path;
        let is_in_fleet = self.is_in_fleet;
        let (own, before) = self.objects(site, route);
        let of_file = |logins: &[(PathBuf, Logins)]| {
            let of_rules = |(other, logins): &&(PathBuf, Logins)| {
                other == path && logins.users.accepts_weak_hashes() == rules.accepts_weak_hashes
            };
            logins.iter().find(of_rules).map(|(_, logins)| logins.clone())
        };
        if let Some(logins) = of_file(&own.logins) {
            return logins;
        }
        let new = || match is_in_fleet {
            // Conditions of access may have further files.
            true if !own.logins.is_empty() => {
                Logins::of_fleet(rules, format!("{site}\n{route}\n{}", path.display()))
            }
            true => Logins::of_fleet(rules, format!("{site}\n{route}")),
            false => Logins::new(rules),
        };
        let logins = before.and_then(|before| of_file(&before.logins)).unwrap_or_else(new);
        // The users are known before the first request. The check of the configuration has reported errors.
        let _ = logins.users.refresh(path);
        own.logins.push((path.clone(), logins.clone()));
        logins
    }

    fn keys(&mut self, site: &str, route: &str, source: &KeySource) -> Arc<Keys> {
        let (own, before) = self.objects(site, route);
        let of_source = |keys: &[(KeySource, Arc<Keys>)]| {
            keys.iter().find(|(other, _)| other == source).map(|(_, keys)| Arc::clone(keys))
        };
        of_source(&own.keys).unwrap_or_else(|| {
            let kept = before.and_then(|before| of_source(&before.keys));
            let keys = kept.unwrap_or_else(|| Arc::new(Keys::new(source.clone())));
            own.keys.push((source.clone(), Arc::clone(&keys)));
            keys
        })
    }

    /// Returns the objects of a route, and those that it had before.
    fn objects(&mut self, site: &str, route: &str) -> (&mut Objects, Option<&'a Objects>) {
        let key = Key { site: site.to_owned(), route: route.to_owned() };
        let before = self.before.and_then(|before| before.routes.get(&key));
        (self.registry.routes.entry(key).or_default(), before)
    }
}

impl Registry {
    /// Returns how many requests the limits of all routes have rejected. Limits in a dry run reject nothing.
    pub(super) fn rejected(&self) -> u64 {
        self.routes.values().map(Objects::rejected).sum()
    }

    /// Returns the upstreams of all routes.
    pub(super) fn proxies(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.routes.values().filter_map(|objects| objects.proxy.as_ref())
    }

    /// Returns the limits of all routes that several servers share.
    pub(super) fn shared_limits(&self) -> impl Iterator<Item = &Arc<RateLimit>> {
        let limits = self.routes.values().flat_map(|objects| objects.limits.iter().flatten());
        limits.filter(|limit| limit.rules().shared)
    }

    /// Returns the failed attempts to log in of all routes.
    pub(super) fn attempts(&self) -> impl Iterator<Item = &Arc<Attempts>> {
        let logins = self.routes.values().flat_map(|objects| &objects.logins);
        logins.map(|(_, logins)| &logins.attempts)
    }

    /// Returns the upstreams of a route; `None` when it has none.
    pub(super) fn proxy(&self, site: &str, route: &str) -> Option<&Arc<Group>> {
        let key = Key { site: site.to_owned(), route: route.to_owned() };
        self.routes.get(&key)?.proxy.as_ref()
    }

    /// Returns the counts of the limits of a route; `None` when it has none.
    pub(super) fn counts(&self, site: &str, route: &str) -> Option<RouteCounts> {
        let key = Key { site: site.to_owned(), route: route.to_owned() };
        let objects = self.routes.get(&key)?;
        let throttle = objects.throttle.as_ref().map(|(_, throttle)| throttle);
        let limits: Vec<_> = objects
            .limits
            .iter()
            .flatten()
            .map(|limit| limited(limit.rules(), limit.rules().dry_run, limit.counts()))
            .collect();
        if throttle.is_none() && limits.is_empty() {
            return None;
        }
        let concurrency = throttle.and_then(|throttle| throttle.concurrency.as_ref());
        let bandwidth = throttle.and_then(|throttle| throttle.bandwidth.as_ref());
        Some(RouteCounts {
            site: key.site,
            route: key.route,
            concurrency: concurrency.map(|it| limited(it.rules(), it.rules().dry_run, it.counts())),
            bandwidth: bandwidth.map(|it| limited(it.rules(), it.rules().dry_run, it.counts())),
            limits,
        })
    }
}

fn limited<C>(rules: &impl Display, dry_run: bool, counts: C) -> Limited<C> {
    Limited { rule: rules.to_string(), dry_run, counts }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use dunlin_config::{Config, Overrides};

    use crate::route::sites::{Route, Sites};

    const ROUTES: &str = "
        [[site.route]]
        path = '/*'
        limit = [{ requests = '1/s' }, { requests = '2/s' }]
        throttle = { max_concurrent = 3 }
        [[site.route]]
        path = '/a/*'
        script = { kind = 'cgi', directory = '/cgi' }
    ";

    fn sites(routes: &str, before: Option<&Sites>) -> Sites {
        let text = format!("[[listen]]\naddress = ':1'\n[[site]]\nroot = '/'\n{routes}");
        let config = Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).unwrap();
        Sites::new(&Arc::new(config), before)
    }

    fn route(sites: &Sites, path: &str) -> Arc<Route> {
        sites.only().unwrap().route(path.as_bytes()).into_owned()
    }

    fn same_limit(a: &Route, b: &Route, index: usize) -> bool {
        let (a, b) = (a.checks.as_ref().unwrap(), b.checks.as_ref().unwrap());
        Arc::ptr_eq(&a.limits[index], &b.limits[index])
    }

    fn same_throttle(a: &Route, b: &Route) -> bool {
        let (a, b) = (a.checks.as_ref().unwrap(), b.checks.as_ref().unwrap());
        Arc::ptr_eq(a.throttle.as_ref().unwrap(), b.throttle.as_ref().unwrap())
    }

    fn pool(sites: &Sites) -> usize {
        route(sites, "/a/x").handler.script().unwrap().id
    }

    #[test]
    fn all_settings_with_a_table_share_its_objects() {
        let sites = sites(ROUTES, None);
        let (all, some) = (&route(&sites, "/x"), &route(&sites, "/a/x"));
        assert!(!Arc::ptr_eq(all, some));
        assert!(same_limit(all, some, 0) && same_limit(all, some, 1) && same_throttle(all, some));
        assert_eq!(sites.limits().count(), 1);
    }

    #[test]
    fn a_reload_keeps_the_objects_of_unchanged_tables() {
        let first = sites(ROUTES, None);
        let same = sites(ROUTES, Some(&first));
        assert!(Arc::ptr_eq(first.only().unwrap(), same.only().unwrap()));
        let second = sites(&ROUTES.replace("2/s", "3/s"), Some(&same));
        let (a, b) = (&route(&first, "/x"), &route(&second, "/x"));
        assert!(same_limit(a, b, 0) && !same_limit(a, b, 1) && same_throttle(a, b));
        assert_eq!(pool(&first), pool(&second));
        assert_ne!(first.only().unwrap().serial, second.only().unwrap().serial);
        let changed =
            ROUTES.replace("max_concurrent = 3", "max_concurrent = 4").replace("'/cgi'", "'/b'");
        let third = sites(&changed, Some(&second));
        let c = &route(&third, "/x");
        assert!(same_limit(b, c, 0) && !same_throttle(b, c));
        assert_ne!(pool(&second), pool(&third));
    }

    #[test]
    fn routes_that_requests_make_have_the_objects_of_their_tables() {
        let mut routes = ROUTES.to_owned();
        routes += "[[site.route]]\nregex = 'b$'\nlimit = [{ requests = '3/s' }]\nthrottle = { max_concurrent = 3 }\n";
        for n in 0..46 {
            routes +=
                &format!("[[site.route]]\npath = '/other{n}/*'\n[[site.route]]\nregex = 'x{n}z'\n");
        }
        let first = sites(&routes, None);
        assert!(!first.only().unwrap().table().is_complete());
        let (one, other) = (route(&first, "/other1/b"), route(&first, "/other2/b"));
        assert!(Arc::ptr_eq(&one, &route(&first, "/other1/xb")) && !Arc::ptr_eq(&one, &other));
        assert!(same_limit(&one, &other, 0) && same_throttle(&one, &other));
        assert_eq!(route(&first, "/a/b").handler.script().unwrap().id, pool(&first));
        let second = sites(&routes.replace("/other0/", "/new/"), Some(&first));
        assert!(same_limit(&one, &route(&second, "/other1/b"), 0));
        assert_eq!(route(&second, "/a/b").handler.script().unwrap().id, pool(&first));
    }
}
