//! Checks of the tables `[[site]]` and `[[site.route]]`.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Around, Checker};
use crate::file::{
    self, AuthTable, ClientCertificateTable, ListenTable, OneOrMany, ProxyTarget, RedirectHttps,
    Route, SiteTable, Symlinks, TlsTable,
};
use crate::map::Maps;
use crate::object_root;
use crate::path_regex::PathRegex;
use crate::pattern::Pattern;
use crate::proxy::split_path;
use crate::punycode::ascii_name;
use crate::redirect::PLACEHOLDERS;
use crate::site_route::SiteRoute;
use crate::sites::{DEFAULT_SITE, Defaults, EVERY_HOST, Site, Sites};
use crate::spanned::{Span, Spanned};
use crate::tls::{self, Surroundings, Tls};
use crate::tries::PROXY as PROXY_STEP;
use crate::when::When;

impl Checker<'_> {
    pub(super) fn sites(
        &mut self,
        file: Vec<Spanned<SiteTable>>,
        around: &Around<'_>,
        listeners: &[ListenTable],
    ) -> Sites {
        let mut sites = Sites::default();
        let mut places: Vec<Span> = Vec::new();
        if file.is_empty() {
            self.problem(
                &None,
                "there is nothing to serve; write [[site]] and root = \"DIRECTORY\"",
            );
        }
        for (index, site) in file.into_iter().enumerate() {
            let place = site.place().or_else(|| site.span.clone());
            let names = site.value.listen.clone();
            let mut site = self.site(index, site, around);
            if let Some(names) = names {
                let found = self.listeners_of_site(&names, listeners);
                let first = names.value.0.first().map(|name| name.value.clone());
                site.listen_on(found, first.filter(|_| sites.has_name(&site.name)));
            }
            if let Err((what, other)) = sites.add(site) {
                let other = places.get(other).and_then(|place| self.source.line(place.as_ref()));
                let other = other.map_or_else(String::new, |(_, line)| {
                    format!(", the other one in line {line}")
                });
                self.problem(&place, format!("{what}{other}"));
            }
            places.push(place);
        }
        sites
    }

    pub(super) fn site(
        &mut self,
        index: usize,
        site: Spanned<SiteTable>,
        around: &Around<'_>,
    ) -> Site {
        // The span of a table is that of its header.
        let place = site.span.clone().or_else(|| site.place());
        let mut site = site.value;
        let is_every = |host: &Spanned<String>| host.value == EVERY_HOST;
        let has_every = site.host.as_ref().is_some_and(|hosts| hosts.0.iter().any(is_every));
        let hosts = site.host.take().map_or_else(Vec::new, |host| self.hosts(host));
        let root = site.root.take().map(|root| self.root(&root));
        let mut routes: Vec<SiteRoute> = Vec::new();
        if let Some(tls) = site.tls.as_ref().filter(|_| around.are_listeners_implied) {
            // Port 80 is there for those who do not know of the other.
            let port = Spanned { value: RedirectHttps(Some(443)), span: tls.span.clone() };
            site.redirect_https.get_or_insert(port);
        }
        let general = site.take_settings();
        let general = general.map(|route| (Matching::of_site(&site, &place), route));
        let mut expressions = Vec::new();
        let mut own = Vec::with_capacity(site.route.len());
        for route in std::mem::take(&mut site.route) {
            own.push((self.matching(&route, (&around.maps, &hosts), &mut expressions), route));
        }
        for (order, (matching, mut route)) in general.into_iter().chain(own).enumerate() {
            if let Some(root) = &mut route.root {
                root.value = self.root(root);
            }
            if let Some(alias) = &route.alias {
                if let Some(root) = &route.root {
                    self.problem(&root.span, "a route has either `root` or `alias`");
                }
                route.root =
                    Some(Spanned { value: self.alias(alias, &matching), span: alias.span.clone() });
            }
            if let Some(Spanned { value: file::RouteLogValue::Own(table), span }) =
                &mut route.access_log
            {
                table.checked = self.log(table, span).map(Arc::new);
            }
            if let Some(redirect) = &mut route.redirect {
                // The short form, a text, has no span.
                let to = &mut redirect.value.to;
                to.span = to.span.take().or_else(|| redirect.span.clone());
            }
            route.auth_tables_mut().for_each(|table| self.auth_files(table));
            if let Some(proxy) = &mut route.proxy {
                proxy.set_places();
                for upstream in &mut proxy.value.to.value.0 {
                    self.socket_in(&mut upstream.url.value);
                }
                self.sendfile_root("proxy", &mut proxy.value.sendfile_root);
                if let Some(path) = &mut proxy.value.authority {
                    path.value = self.authority("proxy", "authority", path);
                }
                if let Some(pair) = &mut proxy.value.client_certificate {
                    let ClientCertificateTable { certificate, key } = &mut pair.value;
                    for path in [certificate, key] {
                        path.value = self.absolute(path);
                        if let Some(folder) = path.value.clone().parent() {
                            self.look_up_later("client_certificate", folder, &path.span);
                        }
                    }
                }
            }
            if let Some(script) = &mut route.script {
                if let Some(alias) = route.alias.as_ref().and(route.root.as_ref()) {
                    script.value.stand_in(alias);
                }
                let files = route.root.as_ref().map(|root| &root.value).or(root.as_ref());
                let files = files.filter(|root| !object_root::is_url(root));
                self.script(&mut script.value, files.map(PathBuf::as_path));
                self.script_user(&script.value);
            }
            self.add_route(matching, (order, Arc::new(route)), &mut routes);
        }
        let applies = |route: &SiteRoute| route.when.as_ref().is_none_or(|when| when.is_choice());
        let everywhere = routes.iter().any(|route| {
            route.route.has_handler() && route.pattern.is_everything() && applies(route)
        });
        if root.is_none() && !everywhere {
            let what = "the site has no root, and no route for \"/*\" with a handler";
            self.problem(&place, what);
        }
        let defaults = Defaults {
            root: root.unwrap_or_default(),
            cache_file: around.cache_file,
            is_without_charset: around.is_without_charset,
            stores: around.stores.clone(),
            maps: Arc::clone(&around.maps),
            dictionaries: (site.tls.is_some() && around.has_dictionaries)
                .then(|| hosts.first().map_or(DEFAULT_SITE, String::as_str).into()),
            has_dictionaries: around.has_dictionaries,
        };
        let tls = site.tls.take().map(|table| Arc::new(self.tls(&table, &hosts, around)));
        let mut report = |place: &Span, what| self.problem(place, what);
        let mut site = Site::new(index, hosts, defaults, routes, &mut report);
        site.tls = tls;
        site.is_default |= has_every;
        self.proxy_steps(&site);
        self.object_settings(&site);
        self.dav_routes(&site);
        self.forwarded_certificates(&site);
        site
    }

    /// Reports routes with WebDAV that have no files, or follow symlinks.
    fn dav_routes(&mut self, site: &Site) {
        for route in site.routes.iter().map(|route| &route.route) {
            let Some(dav) = route.dav.as_ref().filter(|dav| dav.is_on()) else { continue };
            if route.alias.is_some() {
                self.problem(&dav.span, "dav: a route with it has a `root`, and no `alias`");
            }
            if let Some(symlinks) = route.symlinks.as_ref().filter(|of| of.value != Symlinks::Deny)
            {
                let what = "symlinks: a route with `dav` follows none; write \"deny\", or leave the key out";
                self.problem(&symlinks.span, what);
            }
            if let Some(handler) = route.handler_key() {
                let what =
                    format!("dav: it is for files, and the route has `{}`", handler.as_str());
                self.problem(&dav.span, what);
            }
        }
    }

    /// Makes the paths of files absolute that authentication needs.
    fn auth_files(&mut self, table: &mut AuthTable) {
        let is_weak = table.weak_hashes.as_ref().is_some_and(|weak| weak.value);
        if let Some(path) = &mut table.basic {
            path.value = self.users(path, is_weak);
        }
        if let Some(forward) = &mut table.forward {
            self.socket_in(&mut forward.value);
            if let Some(path) = &mut table.forward_authority {
                path.value = self.authority("auth", "forward_authority", path);
            }
        }
        let Some(jwt) = &mut table.jwt else { return };
        if let Some(path) = &mut jwt.value.key_file {
            path.value = self.keys(path);
        }
        if let Some(path) = &mut jwt.value.authority {
            path.value = self.authority("auth", "authority", path);
        }
    }

    /// Reads what requests a route applies to. `expressions` has the regular expressions of the site so far.
    fn matching(
        &mut self,
        route: &Route,
        around: (&Maps, &[String]),
        expressions: &mut Vec<String>,
    ) -> Matching {
        let when = route.when.as_ref().map(|table| {
            Arc::new(When::read(table, around, &mut |place, what| self.problem(place, what)))
        });
        let place = route.path_place();
        let mut patterns = Vec::new();
        let expression;
        let mut texts = Vec::new();
        match (&route.path, &route.regex) {
            (Some(path), Some(_)) => {
                self.problem(&path.span, "a route has either `path` or `regex`");
            }
            (Some(path), None) => {
                if path.value.0.is_empty() {
                    self.problem(&path.span, "the list of patterns is empty");
                }
                for text in &path.value.0 {
                    match Pattern::parse(text) {
                        Ok(pattern) => patterns.push(pattern),
                        Err(what) => self.problem(&text.span.clone().or(place.clone()), what),
                    }
                    texts.push(text.value.as_str());
                }
            }
            (None, Some(text)) => {
                // Routes for the values of a map are one route of the file.
                let is_of_map = route.when.as_ref().is_some_and(|when| when.choice.is_some());
                if !is_of_map || expressions.last() != Some(&text.value) {
                    expressions.push(text.value.clone());
                }
                match PathRegex::parse(text, expressions.len() - 1) {
                    Ok(regex) => {
                        let taken = |name: &String| PLACEHOLDERS.contains(&name.as_str());
                        if let Some(name) = regex.names().into_iter().find(taken) {
                            let what = format!(
                                "regex: a group cannot be named {name}: {{{name}}} is another value"
                            );
                            self.problem(&place, what);
                        }
                        patterns.push(Pattern::of_regex(regex));
                    }
                    Err(what) => self.problem(&place, format!("regex {:?}: {what}", text.value)),
                }
                expression = format!("~ {}", text.value);
                texts.push(&expression);
            }
            (None, None) if when.is_some() => {
                patterns.push(Pattern::EVERYTHING);
                texts.push("/*");
            }
            (None, None) => {
                self.problem(&place, "[[site.route]] lacks the key `path`");
            }
        }
        let mut name = texts.join(", ");
        if let Some(when) = &when {
            name.push_str(&format!(" when {when}"));
        }
        Matching { patterns, name: Spanned { value: name, span: place }, when }
    }

    /// Adds a route, once for each of its patterns.
    fn add_route(
        &mut self,
        matching: Matching,
        (order, route): (usize, Arc<Route>),
        routes: &mut Vec<SiteRoute>,
    ) {
        let Matching { patterns, mut name, when } = matching;
        // Limits, logins, upstreams and processes belong to the name.
        let own = name.value.clone();
        let is_taken = |name: &str| routes.iter().any(|other| other.name.value == name);
        let mut number = 2;
        while is_taken(&name.value) {
            name.value = format!("{own} ({number})");
            number += 1;
        }
        let has_path = |target: &ProxyTarget| split_path(&target.url).1.is_some();
        let proxy = route.proxy.as_ref().filter(|proxy| proxy.strip.is_none());
        if patterns.len() > 1 && proxy.is_some_and(|proxy| proxy.to.0.iter().any(has_path)) {
            let what = "proxy: a path in the URL of an upstream needs a route with one pattern, or `strip`";
            self.problem(&name.span, what);
        }
        for pattern in patterns {
            let is_same = |other: &&SiteRoute| other.pattern == pattern && other.when == when;
            if let Some(other) = routes.iter().find(is_same) {
                let first = self.first(other.place());
                let what = format!("two routes have the path {own:?}{first}");
                self.problem(&name.span, what);
            }
            let (name, when, route) = (name.clone(), when.clone(), Arc::clone(&route));
            routes.push(SiteRoute { pattern, name, when, order, route });
        }
    }

    /// Returns the directory of an `alias`, or the file of one for a path without `*`.
    fn alias(&mut self, alias: &Spanned<PathBuf>, matching: &Matching) -> PathBuf {
        if object_root::is_url(alias) {
            self.problem(&alias.span, "alias: it is a directory, and not a URL");
        }
        match matching.patterns.iter().all(Pattern::is_literal) {
            true => self.absolute(alias),
            false => self.root(alias),
        }
    }

    /// Reports `try` lists that end with a proxy, of routes that have none.
    fn proxy_steps(&mut self, site: &Site) {
        for of in &site.routes {
            let SiteRoute { pattern, route, .. } = of;
            let steps = route.r#try.iter().flat_map(|steps| &steps.value);
            let Some(step) = steps.clone().find(|step| step.value == PROXY_STEP) else { continue };
            // No pattern contains a NUL, so that no longer one matches this path.
            let mut path = pattern.prefix().to_vec();
            if !pattern.is_literal() {
                path.push(0);
                path.extend_from_slice(pattern.suffix());
            }
            let is_forwarded = match of.is_plain() {
                true => site.route(&path).tries_files(),
                false => site.settings_of(of).tries_files() || inherits_proxy(site, of),
            };
            if !is_forwarded {
                self.problem(&step.span, "try: \"=proxy\" stands in a route without `proxy`");
            }
        }
    }

    /// Reports proxies that forward certificates of clients, where no certificates of clients are requested.
    fn forwarded_certificates(&mut self, site: &Site) {
        if site.tls.as_ref().is_some_and(|tls| tls.clients.is_some()) {
            return;
        }
        for SiteRoute { route, .. } in &site.routes {
            let proxy = route.proxy.as_ref();
            if let Some(how) = proxy.and_then(|proxy| proxy.forward_client_certificate.as_ref()) {
                let what = "proxy: forward_client_certificate does nothing without `client_authority` in the site's tls";
                self.problem(&how.span, what);
            }
        }
    }

    pub(super) fn tls(
        &mut self,
        table: &Spanned<TlsTable>,
        hosts: &[String],
        around: &Around<'_>,
    ) -> Tls {
        let around = Surroundings {
            hosts,
            state: around.state,
            resolver: around.resolver,
            listeners: (around.tls, around.plain),
        };
        let problem = self.source.problem(table.span.as_ref(), String::new());
        let paths = self.paths;
        tls::read(table, &around, |path| paths.absolute(path), problem, &mut |place, what| {
            self.problem(place, what);
        })
    }

    pub(super) fn hosts(&mut self, hosts: Spanned<OneOrMany<String>>) -> Vec<String> {
        let Spanned { value: OneOrMany(hosts), span: place } = hosts;
        if hosts.is_empty() {
            let what = "the list of hosts is empty; leave `host` out for every other host";
            self.problem(&place, what);
        }
        let mut names: Vec<String> = Vec::new();
        let is_alone = hosts.len() == 1;
        for host in hosts.into_iter().filter(|host| is_alone || host.value != EVERY_HOST) {
            let place = host.span.clone().or_else(|| place.clone());
            let ends = host.strip_prefix("*.").or_else(|| host.strip_suffix(".*"));
            let name = ends.unwrap_or(&host);
            let parsed = dunlin_http::semantics::host::parse(name.as_bytes());
            if !parsed.is_some_and(|host| host.port.is_none() && !host.name.is_empty())
                || name.contains('*')
                || name.len() > 253
            {
                let given = &host.value;
                let ascii = Some(name).filter(|name| !name.is_ascii()).and_then(ascii_name);
                let advice = match ascii {
                    Some(ascii) => {
                        let ascii = host.replace(name, &ascii);
                        format!("; write it as clients send it, {ascii:?}")
                    }
                    None if name == "*" => "; leave `host` out for every other host".to_owned(),
                    None => String::new(),
                };
                let what = format!(
                    "{given:?} is not a host such as \"example.com\" or \"*.example.com\"{advice}"
                );
                self.problem(&place, what);
            }
            let name = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
            if names.contains(&name) {
                self.problem(&place, format!("the host {name:?} is listed twice"));
            } else {
                names.push(name);
            }
        }
        names
    }
}

/// The requests that a route applies to.
struct Matching {
    patterns: Vec<Pattern>,
    name: Spanned<String>,
    when: Option<Arc<When>>,
}

impl Matching {
    /// Returns the matching of the settings that stand in the site itself.
    fn of_site(site: &SiteTable, place: &Span) -> Self {
        let is_everything = |route: &Route| {
            let patterns = route.path.iter().flat_map(|path| &path.value.0);
            route.when.is_none() && patterns.into_iter().any(|path| path.value == "/*")
        };
        // The route for all paths has the name otherwise.
        let name = if site.route.iter().any(is_everything) { "*" } else { "/*" };
        let name = Spanned { value: name.to_owned(), span: place.clone() };
        Self { patterns: vec![Pattern::SITE], name, when: None }
    }
}

impl Route {
    /// Returns a position by which a reader finds the route.
    fn path_place(&self) -> Span {
        let path = self.path.as_ref().and_then(|path| path.span.clone());
        let regex = || self.regex.as_ref().and_then(|regex| regex.span.clone());
        path.or_else(regex).or_else(|| self.when.as_ref().and_then(|when| when.span.clone()))
    }
}

impl SiteTable {
    /// Returns a position by which a reader finds the site.
    fn place(&self) -> Span {
        let host = self.host.as_ref().and_then(|host| host.span.clone());
        let root = || self.root.as_ref().and_then(|root| root.span.clone());
        let route = || self.route.first().and_then(Route::path_place);
        host.or_else(root).or_else(route)
    }
}

/// Returns `true` if a route without a handler of its own has the proxy of a route for all paths.
fn inherits_proxy(site: &Site, route: &SiteRoute) -> bool {
    let has_proxy =
        |other: &SiteRoute| other.pattern.is_everything() && other.route.proxy.is_some();
    !route.route.replaces_handler() && site.routes.iter().any(has_proxy)
}
