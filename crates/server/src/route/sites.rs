//! The sites and routes that serve requests: their configuration, and the runtime objects that belong to it.

use std::borrow::Cow;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin_config::{Config, DefinedBy, Found, Handler, Pair, Recent, RouteLog, Settings};
use dunlin_dictionary::route::RouteDictionary;
use dunlin_http::semantics::host;
use dunlin_limits::rate::RateLimit;
use dunlin_proxy::{Group, UpstreamReport};
use dunlin_telemetry::metrics::{Label, label};
use dunlin_telemetry::{LogChoice, RouteTelemetry};

use super::registry::{Builder, Registry, SiteObjects};
use crate::checks::{Attempts, Checks, RouteCounts};
use crate::exchange::coding::RouteCodings;
use dunlin_files::cache::worker_cache;

/// All sites of one generation of the configuration.
#[derive(Debug)]
pub(crate) struct Sites {
    all: Vec<Arc<Site>>,
    /// The only site serves every host.
    is_only: bool,
    config: Arc<Config>,
    registry: Registry,
}

/// The serial number of the site that was made last in the process.
static LAST_SERIAL: AtomicUsize = AtomicUsize::new(0);

/// A site.
#[derive(Debug)]
pub(crate) struct Site {
    config: Arc<dunlin_config::Site>,
    /// No other site of the process has or had this number.
    pub(crate) serial: usize,
    table: dunlin_config::RouteTable<Route>,
    /// Routes that the table does not have alone.
    special: Vec<Arc<Route>>,
    /// Routes of pairs that the table has not.
    pairs: Recent<Pair, Route>,
    /// The dictionaries for pages of its routes.
    pub(crate) dictionaries: Vec<Arc<RouteDictionary>>,
    /// The objects of all routes, if there are such pairs.
    objects: SiteObjects,
    /// What the site serves depends on the conditions that hold for a request: for each set of them that occurs, a variant has the
    /// routes that apply, by their indexes, as if there were no conditions. It has a serial number of its own, so that files and
    /// responses that are cached for it are not those of others.
    variants: Recent<Vec<usize>, Self>,
}

/// The settings of a path, with the runtime objects that belong to them.
#[derive(Debug)]
pub(crate) struct Route {
    settings: Settings,
    /// The settings as the configuration has them: without the numbers of the scripts' pools.
    configured: Arc<Settings>,
    /// The checks before the handler; `None` when there are none.
    pub(crate) checks: Option<Arc<Checks>>,
    /// The upstreams, if the handler is a proxy.
    pub(crate) proxy: Option<Arc<Group>>,
    /// The site and the route, by which requests are counted.
    pub(crate) label: Label,
    log: LogChoice,
    /// The content codings of responses that are made for one request.
    pub(super) codings: RouteCodings,
    /// It has a page for a request that is rejected because of its body.
    pub(crate) has_body_pages: bool,
    /// How files are served that a script or an upstream names by `X-Sendfile`, for each of its directories.
    pub(crate) sendfile_routes: Vec<Arc<Route>>,
}

/// An entry of a worker's cache, with its route.
pub(crate) type CacheEntry = worker_cache::CacheEntry<Route>;

/// The cache of a worker.
pub(crate) type WorkerCache = worker_cache::WorkerCache<Route>;

impl Sites {
    /// Creates the sites of `config`. Those that did not change since `before` are kept as they are, and the objects of
    /// tables that did not change are.
    pub(crate) fn new(config: &Arc<Config>, before: Option<&Self>) -> Self {
        let unchanged =
            before.map(|before| config.unchanged_sites(&before.config)).unwrap_or_default();
        let mut builder =
            Builder::new(before.map(|before| &before.registry), config.shared.is_some());
        let mut all = Vec::with_capacity(config.sites.iter().len());
        for site in config.sites.iter() {
            let kept = before.and_then(|before| before.all.get(site.index));
            if let Some(kept) = kept.filter(|_| unchanged.contains(&site.index)) {
                builder.keep_site(&site.name);
                all.push(Arc::clone(kept));
                continue;
            }
            all.push(Arc::new(Site::new(site, &mut builder)));
        }
        Self {
            all,
            is_only: config.sites.only().is_some(),
            config: Arc::clone(config),
            registry: builder.finish(),
        }
    }

    /// Creates the variant of a site for requests for which the conditions of the routes at `applying` hold.
    pub(super) fn under(&self, site: &Site, applying: &[usize]) -> Site {
        // All objects of its routes exist.
        let mut builder = Builder::new(Some(&self.registry), self.config.shared.is_some());
        Site::new(&Arc::new(site.config.under(applying)), &mut builder)
    }

    /// Returns the site without conditions that `site` is, or of which it is a variant.
    pub(super) fn base(&self, site: &Site) -> Option<&Arc<Site>> {
        self.all.get(site.index)
    }

    /// Returns the serial numbers of a site and of its variants.
    pub(crate) fn serials(&self, site: &Site) -> Vec<usize> {
        self.base(site).map_or_else(|| site.serials(), |base| base.serials())
    }

    /// Returns the site when there is one only, for every host.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Arc<Site>> {
        self.all.first().filter(|_| self.is_only)
    }

    /// Returns the site for the authority of a request that came by a listener.
    #[inline]
    pub(crate) fn of_authority(
        &self,
        listener: u64,
        authority: Option<&[u8]>,
    ) -> Option<&Arc<Site>> {
        self.only().or_else(|| {
            let host = authority.and_then(host::parse).map_or(&b""[..], |host| host.name);
            self.all.get(self.config.sites.find_on(listener, host)?)
        })
    }

    /// Returns `true` if the site with that serial number is among them.
    pub(crate) fn has(&self, serial: usize) -> bool {
        self.all.iter().any(|site| site.serial == serial || site.serials().contains(&serial))
    }

    /// Returns all sites, in the order of the file.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Site>> {
        self.all.iter()
    }

    /// Returns the limits of all routes that several servers share.
    pub(crate) fn shared_limits(&self) -> impl Iterator<Item = &Arc<RateLimit>> {
        self.registry.shared_limits()
    }

    /// Returns the failed attempts to log in of all routes.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = &Arc<Attempts>> {
        self.registry.attempts()
    }

    /// Returns how many requests the limits of all routes have rejected.
    pub(crate) fn rejected(&self) -> u64 {
        self.registry.rejected()
    }

    /// Returns the counts of the limits of all routes.
    pub(crate) fn limits(&self) -> impl Iterator<Item = RouteCounts> {
        self.all.iter().flat_map(|site| {
            site.patterns().filter_map(|route| self.registry.counts(&site.name, route))
        })
    }
}

impl Sites {
    /// Returns the upstreams of all routes.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.registry.proxies()
    }

    /// Returns the state of the upstreams of all routes, each with its site and the route's pattern.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = (&str, &str, UpstreamReport)> {
        self.all.iter().flat_map(move |site| {
            site.patterns().flat_map(move |route| {
                let group = self.registry.proxy(&site.name, route);
                let reports = group.into_iter().flat_map(|group| group.reports());
                reports.map(move |report| (&*site.name, route, report))
            })
        })
    }
}

impl Site {
    fn new(site: &Arc<dunlin_config::Site>, builder: &mut Builder<'_>) -> Self {
        let mut route = |settings: &Arc<Settings>| Route::new(&site.name, settings, builder);
        let table = site.table().map(&mut route);
        let special = site.special_routes().map(|settings| Arc::new(route(settings))).collect();
        Self {
            config: Arc::clone(site),
            serial: LAST_SERIAL.fetch_add(1, Ordering::Relaxed) + 1,
            table,
            special,
            pairs: Recent::new(site.max_pairs()),
            dictionaries: builder.dictionaries(&site.name),
            objects: match site.table().is_complete() {
                true => SiteObjects::default(),
                false => builder.objects_of(&site.name),
            },
            variants: Recent::new(site.max_variants()),
        }
    }

    /// Returns the serial numbers of the site and of its variants.
    pub(crate) fn serials(&self) -> Vec<usize> {
        let variants = if self.has_conditions() { self.variants.all() } else { Vec::new() };
        [self.serial].into_iter().chain(variants.iter().map(|site| site.serial)).collect()
    }

    /// Returns the variants of the site for requests for which conditions of its routes hold.
    pub(super) fn variants(&self) -> &Recent<Vec<usize>, Self> {
        &self.variants
    }

    /// Returns the route of a decoded path.
    #[inline]
    pub(crate) fn route(&self, path: &[u8]) -> Cow<'_, Arc<Route>> {
        match self.table.find(path) {
            Found::Made(route) => Cow::Borrowed(route),
            Found::Pair(pair) => Cow::Owned(self.pairs.find(pair, |_| {
                let settings = self.config.route(path);
                Arc::new(Route::new(&self.name, &settings, &mut self.objects.builder()))
            })),
        }
    }

    /// Returns the configuration of the site.
    pub(crate) fn config(&self) -> &Arc<dunlin_config::Site> {
        &self.config
    }

    /// Returns the numbers of its scripts' pools; see [`Script::id`](dunlin_config::Script::id).
    pub(crate) fn script_ids(&self) -> impl Iterator<Item = usize> {
        self.routes().filter_map(|route| Some(route.handler.script()?.id))
    }

    /// Returns the numbers of the pools of its scripts in `directory`.
    pub(crate) fn scripts_in(&self, directory: &Path) -> impl Iterator<Item = usize> {
        let scripts = self.routes().filter_map(|route| route.handler.script());
        scripts.filter(move |script| script.directory == directory).map(|script| script.id)
    }

    fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.table.values().chain(&self.special)
    }
}

impl Deref for Site {
    type Target = dunlin_config::Site;

    fn deref(&self) -> &dunlin_config::Site {
        &self.config
    }
}

impl Route {
    /// Returns the telemetry settings of the route.
    #[inline]
    pub(crate) fn telemetry(&self) -> RouteTelemetry {
        RouteTelemetry { label: self.label, server_timing: self.server_timing, log: self.log }
    }

    fn new(site: &str, settings: &Arc<Settings>, builder: &mut Builder<'_>) -> Self {
        Self::of(site, settings, &settings.origins, builder)
    }

    /// Creates the route of `settings`, whose tables come from the routes `origins`.
    fn of(
        site: &str,
        configured: &Arc<Settings>,
        origins: &DefinedBy,
        builder: &mut Builder<'_>,
    ) -> Self {
        let mut settings = Settings::clone(configured);
        if let Handler::Script(script) = &mut settings.handler {
            let id = builder.pool(site, &origins.script, script);
            Arc::make_mut(script).id = id;
        }
        let proxy =
            settings.handler.proxy().map(|rules| builder.proxy(site, &origins.proxy, rules));
        let roots = settings.sendfile_roots.iter();
        let sendfile_routes =
            roots.map(|root| Arc::new(Self::of(site, root, origins, builder))).collect();
        Self {
            sendfile_routes,
            checks: builder.checks(site, origins, &settings.check_rules),
            proxy,
            label: label(site, &settings.pattern),
            codings: RouteCodings::new(&settings, builder.page_dictionary(site, &settings)),
            log: match &settings.access_log {
                RouteLog::Off => LogChoice::Off,
                RouteLog::Server => LogChoice::Server,
                RouteLog::Own(log) => LogChoice::Own(log.number()),
            },
            has_body_pages: [408, 413]
                .iter()
                .any(|status| settings.error_pages.contains_key(status)),
            settings,
            configured: Arc::clone(configured),
        }
    }
}

impl Route {
    /// Returns the settings as the configuration has them, which the path's [`dunlin_config::Site::route`] returns.
    pub(crate) fn configured(&self) -> &Arc<Settings> {
        &self.configured
    }
}

impl Deref for Route {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}
