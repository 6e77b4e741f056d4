//! The runtime objects of routes, by site, route and table: limits, throttles, logins, upstreams, and the
//! numbers of script pools.
//!
//! The configuration is pure data. One table may be part of the settings of many paths, which share its object; and a
//! reload keeps the objects of the tables that it does not change: what clients have used up, who runs and who waits.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use dunlin_config::{AuthRules, CheckRules, DefinedBy, Proxy, RateRules, Script, ThrottleRules};
use dunlin_limits::rate::RateLimit;
use dunlin_proxy::Group;

use crate::checks::{
    Attempts, Auth, Basic, Checks, Forward, Limited, Logins, RouteCounts, Throttle,
};
use crate::fleet::servers::servers;

/// The runtime objects of one generation of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    routes: HashMap<Key, Objects>,
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
    logins: Option<(PathBuf, Logins)>,
    /// The number of the pool.
    script: Option<(Script, usize)>,
    proxy: Option<Arc<Group>>,
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

impl<'a> Builder<'a> {
    pub(super) fn new(before: Option<&'a Registry>, is_in_fleet: bool) -> Self {
        let last_pool = before.map_or(0, |before| before.last_pool);
        Self { registry: Registry { last_pool, ..Registry::default() }, before, is_in_fleet }
    }

    pub(super) fn finish(self) -> Registry {
        self.registry
    }

    /// Keeps every object of the site.
    pub(super) fn keep_site(&mut self, site: &str) {
        let Some(before) = self.before else { return };
        let kept = before.routes.iter().filter(|(key, _)| key.site == site);
        self.registry.routes.extend(kept.map(|(key, objects)| (key.clone(), objects.clone())));
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
        let auth = checks.auth.as_ref().map(|auth| match auth {
            AuthRules::Forward(forward) => {
                Auth::Forward(Forward::new(forward.clone(), &origins.auth))
            }
            AuthRules::Basic(basic) => {
                let logins = self.logins(site, &origins.auth, &basic.path);
                Auth::Basic(Basic::new(basic.clone(), logins))
            }
        });
        let throttle = checks.throttle.as_ref();
        Some(Arc::new(Checks {
            https: checks.https.clone(),
            access: checks.access.clone(),
            methods: checks.methods.clone(),
            auth,
            limits: self.limits(site, &origins.limit, &checks.limits),
            throttle: throttle.map(|rules| self.throttle(site, &origins.throttle, rules)),
            receives_body: checks.receives_body,
        }))
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

    fn logins(&mut self, site: &str, route: &str, path: &PathBuf) -> Logins {
        let is_in_fleet = self.is_in_fleet;
        let (own, before) = self.objects(site, route);
        let (_, logins) = own.logins.get_or_insert_with(|| {
            let kept = before.and_then(|before| before.logins.clone());
            let kept = kept.filter(|(other, _)| other == path);
            let new = || match is_in_fleet {
                true => Logins::of_fleet(format!("{site}\n{route}")),
                false => Logins::default(),
            };
            let (path, logins) = kept.unwrap_or_else(|| (path.clone(), new()));
            // The users are known before the first request. The check of the configuration has reported errors.
            let _ = logins.users.refresh(&path);
            (path, logins)
        });
        logins.clone()
    }

    /// Returns the objects of a route, and those that it had before.
    fn objects(&mut self, site: &str, route: &str) -> (&mut Objects, Option<&'a Objects>) {
        let key = Key { site: site.to_owned(), route: route.to_owned() };
        let before = self.before.and_then(|before| before.routes.get(&key));
        (self.registry.routes.entry(key).or_default(), before)
    }
}

impl Registry {
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
        let logins = self.routes.values().filter_map(|objects| objects.logins.as_ref());
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

    fn route<'s>(sites: &'s Sites, path: &str) -> &'s Arc<Route> {
        sites.only().unwrap().route(path.as_bytes())
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
        let (all, some) = (route(&sites, "/x"), route(&sites, "/a/x"));
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
        let (a, b) = (route(&first, "/x"), route(&second, "/x"));
        assert!(same_limit(a, b, 0) && !same_limit(a, b, 1) && same_throttle(a, b));
        assert_eq!(pool(&first), pool(&second));
        assert_ne!(first.only().unwrap().serial, second.only().unwrap().serial);
        let changed =
            ROUTES.replace("max_concurrent = 3", "max_concurrent = 4").replace("'/cgi'", "'/b'");
        let third = sites(&changed, Some(&second));
        let c = route(&third, "/x");
        assert!(same_limit(b, c, 0) && !same_throttle(b, c));
        assert_ne!(pool(&second), pool(&third));
    }
}
