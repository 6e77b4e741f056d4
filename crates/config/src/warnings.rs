//! Warnings about a configuration with which the server starts.

use std::net::IpAddr;

use super::address::Address;
use super::config::Config;
use super::error::{Problem, Source};
use super::file::{AcmeChallenge, ErrorPageTable};
use super::listen::Listen;
use super::proxy::{UpstreamAddress, address as upstream_address};
use super::script::{WorkerAddress, worker_address};
use super::settings::Settings;
use super::site_route::SiteRoute;
use super::sites::Site;
use super::spanned::{Span, Spanned};
use super::tries::TryStep;
use super::units::SizeLimit;

/// A name whose addresses the Domain Name System has.
#[derive(Debug)]
pub struct ResolvedName {
    /// The key that has it: `proxy` or `script`.
    pub key: &'static str,
    /// The name.
    pub name: String,
    /// The port at each of its addresses; `None` if SRV records name the servers.
    pub port: Option<u16>,
    /// The position of the name, with an empty message.
    pub problem: Problem,
}

/// Receives warnings.
type Warn<'a> = &'a mut dyn FnMut(Problem);

impl Config {
    /// Returns the warnings that follow from the configuration alone.
    pub fn warnings(&self) -> Vec<Problem> {
        let mut warnings = self.warnings.clone();
        warnings.extend(self.overlaps());
        let warn: Warn<'_> = &mut |problem| warnings.push(problem);
        let source = &self.source();
        for site in self.sites.iter() {
            self.acme_ports(site, warn);
            self.unserved(site, warn);
            for route in &site.routes {
                self.open_status(source, site, route, warn);
                self.open_dav(source, site, route, warn);
                error_pages(source, site, route, warn);
                body_size(source, route, warn);
            }
        }
        warnings
    }

    /// Warns if scripts would run as root because the server does.
    pub fn scripts_as_root(&self) -> Option<Problem> {
        let source = self.source();
        let mut scripts = self.sites.iter().flat_map(|site| site.routes.iter());
        let script = scripts.find_map(|route| {
            let script = route.route.script.as_ref()?;
            (script.connect.is_none() && script.user.is_none()).then_some(script)
        })?;
        let what = match script.kind.is_component() {
            true => {
                "components run as root: write user = \"www-data\" or another user into [server]"
            }
            false => {
                "scripts run as root: write user = \"www-data\" or another user into [server], or `user` into the \
                      script's table"
            }
        };
        Some(source.problem(script.span.as_ref(), what.into()))
    }

    /// Returns the names of upstreams and workers whose addresses the Domain Name System has.
    pub fn resolved_names(&self) -> Vec<ResolvedName> {
        let source = self.source();
        let found = |key, (name, port): (&str, _), span: &Span| {
            let problem = source.problem(span.as_ref(), String::new());
            ResolvedName { key, name: name.to_owned(), port, problem }
        };
        let mut names = Vec::new();
        for route in self.sites.iter().flat_map(|site| site.routes.iter()) {
            for target in route.route.proxy.iter().flat_map(|table| &table.to.0) {
                let Ok(address) = upstream_address(&target.url) else { continue };
                let name = name_of(&address).map(|name| found("proxy", name, &target.url.span));
                names.extend(name);
            }
            let workers = route.route.script.as_ref().and_then(|table| table.connect.as_ref());
            let Some(workers) = workers else { continue };
            for worker in &workers.0 {
                if let Some(WorkerAddress::Name { name, port }) = worker_address(worker) {
                    names.push(found("script", (&name, port), &workers.span));
                }
            }
        }
        names
    }

    /// Warns if no listener has the ports to which ACME authorities connect.
    fn acme_ports(&self, site: &Site, warn: Warn<'_>) {
        let Some(tls) = site.tls.as_ref() else { return };
        let Some(acme) = &tls.acme else { return };
        let has = |port: u16, with_tls: bool| {
            self.listen.iter().any(|listen| {
                let tcp = matches!(&listen.address, Address::Tcp(tcp) if tcp.port() == port);
                tcp && listen.tls == with_tls
            })
        };
        let reachable = acme.challenges.iter().any(|challenge| match challenge {
            AcmeChallenge::TlsAlpn01 => has(443, true),
            AcmeChallenge::Http01 => has(80, false),
            AcmeChallenge::Dns01 => true,
        });
        if !reachable {
            let wanted = match acme.challenges[..] {
                [AcmeChallenge::TlsAlpn01] => "port 443 with TLS",
                [AcmeChallenge::Http01] => "port 80 without TLS",
                _ => "port 443 with TLS or port 80 without",
            };
            let what = format!(
                "acme: the authority connects to {wanted}, where no [[listen]] is; unless that port is forwarded \
                 here, no certificate will be obtained"
            );
            warn(tls.problem.with_message(what));
        }
        if let Some(name) = acme.address_without_profile() {
            let what = format!(
                "acme: {name}: Let's Encrypt issues certificates for addresses with profile = \"shortlived\" only"
            );
            warn(tls.problem.with_message(what));
        }
    }

    /// Warns about a site that cannot be reached: without `tls` it needs a listener without TLS, with required client
    /// certificates one with TLS.
    fn unserved(&self, site: &Site, warn: Warn<'_>) {
        let has = |with_tls: bool| {
            self.listen.iter().any(|listen| !listen.admin && listen.tls == with_tls)
        };
        match &site.tls {
            None if has(true) && !has(false) => {
                let what = format!(
                    "site {}: it is not served, as every listener has TLS and the site has no `tls`; write \
                     tls = {{ certificate = \"FILE\", key = \"FILE\" }} into it",
                    site.name
                );
                warn(Problem::of_file(&self.path, &what));
            }
            Some(tls) if !has(true) && tls.clients.as_ref().is_some_and(|one| one.required) => {
                let what = "tls: the site is not served, as it requires certificates of its clients and no \
                            listener has TLS; write tls = true into a [[listen]]";
                warn(tls.problem.with_message(what.into()));
            }
            Some(tls) if !has(true) => {
                let what = "tls: it is not used, as no listener has TLS; write tls = true into the [[listen]] of port 443";
                warn(tls.problem.with_message(what.into()));
            }
            _ => {}
        }
    }

    /// Warns if every client can change files.
    fn open_dav(&self, source: &Source<'_>, site: &Site, route: &SiteRoute, warn: Warn<'_>) {
        let Some(dav) = &route.route.dav else { return };
        let settings = site.settings_of(route);
        if let Some(listen) = self.open_listener(settings).filter(|_| settings.dav.is_some()) {
            let what = format!(
                "dav: every client of {} can change the files; write `auth` or `allow` into this route",
                listen.address
            );
            warn(source.problem(dav.span.as_ref(), what));
        }
    }

    /// Returns a listener by which clients of other machines reach a route that is open to all of them.
    fn open_listener(&self, settings: &Settings) -> Option<&Listen> {
        let guarded = settings.internal
            || settings.check_rules.access.is_some()
            || settings.check_rules.auth.is_some()
            || !settings.check_rules.any.is_empty()
            || settings.check_rules.signed.is_some();
        let mut remote = self.listen.iter().filter(|listen| {
            !listen.admin && matches!(&listen.address, Address::Tcp(tcp) if !tcp.ip().is_loopback())
        });
        remote.next().filter(|_| !guarded)
    }

    /// Warns if the server's status is accessible to everyone.
    fn open_status(&self, source: &Source<'_>, site: &Site, route: &SiteRoute, warn: Warn<'_>) {
        let Some(status) = route.route.status.as_ref().filter(|status| status.value.is_on()) else {
            return;
        };
        if let Some(listen) = self.open_listener(site.settings_of(route)) {
            let what = format!(
                "status: the server's status is open to every client of {}; write allow = [\"127.0.0.1\", \"::1\"] or \
                 `auth` into this route",
                listen.address
            );
            warn(source.problem(status.span.as_ref(), what));
        }
    }
}

/// Statuses of requests that are rejected before a route is known.
const WITHOUT_ROUTE: [u16; 6] = [400, 414, 421, 425, 431, 505];

/// Reports error pages that are never used, and those whose files are missing.
fn error_pages(source: &Source<'_>, site: &Site, route: &SiteRoute, warn: Warn<'_>) {
    for (status, page) in route.route.error_pages.iter().flat_map(|pages| &pages.value) {
        if let Some(code) = status.value.parse().ok().filter(|code| WITHOUT_ROUTE.contains(code))
            && !has_other_source(site, (code, &page.value))
        {
            let what = format!(
                "error_pages: the page of status {code} is never used: such requests are rejected before they have a route"
            );
            warn(source.problem(status.span.as_ref(), what));
        }
        let path = page.to.split('?').next().unwrap_or_default();
        if !path.starts_with('/') || path.starts_with("//") || path.contains('{') {
            continue;
        }
        let settings = site.route(path.as_bytes());
        let is_file = settings.handler.is_files()
            && settings.try_files.is_empty()
            && settings.objects.is_none();
        if !is_file {
            continue;
        }
        let file = settings.root.join(path.trim_start_matches('/'));
        if !file.exists() {
            let what = format!(
                "error_pages: there is no file {} for the page {} of status {}",
                file.display(),
                page.to.value,
                status.value
            );
            let place = page.to.span.as_ref().or(page.span.as_ref());
            warn(source.problem(place, what));
        }
    }
}

/// Returns `true` if an upstream, a script or a `try` list can respond with the status, where it has that page.
fn has_other_source(site: &Site, (code, page): (u16, &ErrorPageTable)) -> bool {
    // More specific routes inherit the page.
    let has_page = |settings: &Settings| {
        settings.error_pages.get(&code).is_some_and(|other| other.is_of(page))
    };
    let mut settings = site.table().values().filter(|settings| has_page(settings));
    settings.any(|settings| {
        let proxy = settings.handler.proxy();
        proxy.is_some_and(|proxy| proxy.intercepts_errors)
            || settings.handler.script().is_some()
            || settings.try_files.contains(&TryStep::Status(code))
    })
}

/// Warns about a size without a unit that no body is likely to have.
fn body_size(source: &Source<'_>, route: &SiteRoute, warn: Warn<'_>) {
    const LIKELY: u64 = 1000;
    let Some(Spanned { value, span: Some(span) }) = &route.route.body_size else { return };
    let text = source.text.get(span.clone()).unwrap_or_default();
    let has_unit = text.contains(|letter: char| letter.is_ascii_alphabetic());
    if !has_unit && *value == SizeLimit::UNLIMITED {
        let what = "body_size: 0 sets no limit; write \"unlimited\" if that is meant, and reject requests with a body by \
                    `methods` if not";
        warn(source.problem(Some(span), what.into()));
    } else if !has_unit && value.0 < LIKELY {
        let bytes = value.0;
        let what = format!(
            "body_size: these are {bytes} bytes, and a request with a larger body gets 413; write \"{bytes}MB\" for \
             megabytes, or \"{bytes}B\" if bytes are meant"
        );
        warn(source.problem(Some(span), what));
    }
}

/// Returns the name of an upstream, and its port unless SRV records have it; `None` if it has an address.
fn name_of(address: &UpstreamAddress) -> Option<(&str, Option<u16>)> {
    if let Some(service) = address.service() {
        return Some((&service.name, service.port));
    }
    let url = address.url()?;
    let is_address = url.host().starts_with('[') || url.host().parse::<IpAddr>().is_ok();
    (!is_address).then(|| (url.host(), Some(url.port())))
}
