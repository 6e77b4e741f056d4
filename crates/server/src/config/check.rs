//! From the file as it is written to the configuration that the server works with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::Problem;
use super::file::{File, OneOrMany, Site as FileSite};
use super::pattern::Pattern;
use super::sites::{Site, SiteRoute, Sites};
use super::{AccessLog, Cache, Config, Http1, Listen, ReverseDns, Server, Span};
use crate::record::Format;

/// Checks `file`, which was read from `text`, the content of the file at `path`.
pub(super) fn check(file: File, text: &str, path: &Path) -> Result<Config, Vec<Problem>> {
    let mut checker = Checker { text, path, problems: Vec::new() };
    let server = checker.server(&file);
    let listen = checker.listen(&file);
    let sites = checker.sites(file, server.cache.file);
    if checker.problems.is_empty() {
        Ok(Config { server, listen, sites })
    } else {
        Err(checker.problems)
    }
}

struct Checker<'a> {
    text: &'a str,
    path: &'a Path,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn problem(&mut self, span: &Range<usize>, what: impl Into<String>) {
        self.problems.push(Problem::at(self.path, self.text, span, what.into()));
    }

    /// The place of a key that has no span of its own: where it is first written.
    fn place_of(&self, key: &str) -> Range<usize> {
        let at = self.text.find(key).unwrap_or_default();
        at..at
    }

    fn server(&mut self, file: &File) -> Server {
        let server = &file.server;
        let (http1, cache) = (&server.http1, &server.cache);
        let seconds =
            |span: Option<Span>, default| span.map_or(Duration::from_secs(default), |span| span.0);
        let head_size = http1.head_size.map_or(32 << 10, |size| size.0 as usize);
        if !(256..=65_535).contains(&head_size) {
            self.problem(
                &self.place_of("head_size"),
                "head_size is not between 256 and 65535 bytes",
            );
        }
        let fields = http1.fields.unwrap_or(100);
        if !(1..=254).contains(&fields) {
            self.problem(&self.place_of("fields"), "fields is not between 1 and 254");
        }
        let threads = server.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        if !(1..=1024).contains(&threads) {
            self.problem(&self.place_of("threads"), "threads is not between 1 and 1024");
        }
        if server.connections == Some(0) {
            self.problem(&self.place_of("connections"), "connections is 0: nobody could connect");
        }
        Server {
            threads,
            access_log: self.access_log(file),
            error_log: server.error_log.clone(),
            connections: server.connections,
            stop_timeout: seconds(server.stop_timeout, 30),
            server_field: server.server_field.unwrap_or(true),
            http1: Http1 {
                connection: http1.connection,
                idle_timeout: seconds(http1.idle_timeout, 75),
                head_timeout: seconds(http1.head_timeout, 10),
                body_timeout: seconds(http1.body_timeout, 30),
                body_rate: http1.body_rate.map_or(500, |rate| rate.0),
                send_timeout: seconds(http1.send_timeout, 30),
                head_size,
                target_size: http1
                    .target_size
                    .map_or(8 << 10, |size| size.0 as usize)
                    .min(head_size),
                fields,
                requests: http1.requests.unwrap_or(0),
            },
            cache: Cache {
                size: cache.size.map_or(128 << 20, |size| size.0 as usize),
                file: cache.file.map_or(256_000, |size| size.0),
                entries: cache.entries.unwrap_or(50_000),
                descriptors: cache.descriptors.unwrap_or_else(|| descriptor_limit() / 4),
                revalidate: seconds(cache.revalidate, 5),
                notify: cache.notify.unwrap_or(true),
            },
            reverse_dns: server.reverse_dns.as_ref().map(|dns| ReverseDns {
                resolver: dns.resolver,
                timeout: seconds(dns.timeout, 2),
                entries: dns.entries.unwrap_or(10_000),
                ttl: seconds(dns.ttl, 3600),
                concurrent: dns.concurrent.unwrap_or(64),
            }),
        }
    }

    fn access_log(&mut self, file: &File) -> Option<AccessLog> {
        let table = &file.server.access_log.as_ref()?.0;
        if table.path == Path::new("off") {
            return None;
        }
        let format = table.format.clone().unwrap_or_else(|| "combined".into());
        if let Err(error) = Format::parse(&format) {
            self.problem(&self.place_of("access_log"), format!("access_log: {error}"));
        }
        let path = if table.path == Path::new("-") {
            table.path.clone()
        } else {
            self.absolute(&table.path)
        };
        Some(AccessLog { path, format })
    }

    fn listen(&mut self, file: &File) -> Vec<Listen> {
        let mut all: Vec<Listen> = Vec::new();
        for listen in &file.listen {
            let span = listen.address.span();
            let text = listen.address.get_ref();
            let addresses = parse_address(text);
            if addresses.is_empty() {
                self.problem(
                    &span,
                    format!("{text:?} is not an address such as \"127.0.0.1:8080\" or \":8080\""),
                );
            }
            for address in addresses {
                if address.port() != 0 && all.iter().any(|other| other.address == address) {
                    self.problem(&span, format!("{address} is listened on twice"));
                }
                all.push(Listen { address, backlog: listen.backlog.map_or(4096, i32::from) });
            }
        }
        if file.listen.is_empty() {
            self.problems.push(Problem::of_file(
                self.path,
                "there is no address to listen on; write [[listen]] and address = \"127.0.0.1:8080\"",
            ));
        }
        all
    }

    fn sites(&mut self, file: File, cache_file: u64) -> Sites {
        let mut sites = Sites::default();
        if file.site.is_empty() {
            let what = "there is nothing to serve; write [[site]] and root = \"DIRECTORY\"";
            self.problems.push(Problem::of_file(self.path, what));
        }
        for (index, site) in file.site.into_iter().enumerate() {
            let span = site.host.as_ref().map_or(0..0, toml::Spanned::span);
            let site = self.site(index, site, cache_file);
            if let Err(what) = sites.add(site) {
                self.problem(&span, what);
            }
        }
        sites
    }

    fn site(&mut self, index: usize, site: FileSite, cache_file: u64) -> Site {
        let hosts = site.host.map_or_else(Vec::new, |host| {
            let span = host.span();
            self.hosts(&span, host.into_inner())
        });
        let root = site.root.map(|root| {
            let (span, path) = (root.span(), self.absolute(root.get_ref()));
            self.directory(&span, &path);
            path
        });
        let mut routes: Vec<SiteRoute> = Vec::new();
        for mut route in site.route {
            let span = route.path.span();
            let pattern = match Pattern::parse(route.path.get_ref()) {
                Ok(pattern) => pattern,
                Err(what) => {
                    self.problem(&span, what);
                    continue;
                }
            };
            if routes.iter().any(|other| other.pattern == pattern) {
                self.problem(&span, format!("the pattern {:?} stands twice", route.path.get_ref()));
            }
            if let Some(path) = &mut route.root {
                *path = self.absolute(path);
                self.directory(&span, &path.clone());
            }
            let line = self.text[..span.start.min(self.text.len())].matches('\n').count() + 1;
            routes.push(SiteRoute { pattern, line, route });
        }
        let everywhere = routes.iter().any(|SiteRoute { pattern, route, .. }| {
            let answers =
                route.root.is_some() || route.redirect.is_some() || route.respond.is_some();
            answers && (*pattern == Pattern::EVERYTHING || pattern.matches(b""))
        });
        if root.is_none() && !everywhere {
            let what = "a site has no root, and no route for \"/*\" that says what to answer";
            self.problems.push(Problem::of_file(self.path, what));
        }
        let site = Site::new(index, hosts, root.unwrap_or_default(), cache_file, routes);
        for SiteRoute { pattern, route, .. } in &site.routes {
            if let Err(what) = site.settings(route, Some(pattern)) {
                self.problem(&route.path.span(), format!("{}: {what}", route.path.get_ref()));
            }
        }
        site
    }

    fn hosts(&mut self, span: &Range<usize>, OneOrMany(hosts): OneOrMany<String>) -> Vec<String> {
        if hosts.is_empty() {
            self.problem(span, "the list of hosts is empty; leave `host` out for every other host");
        }
        for host in &hosts {
            let name = host.strip_prefix("*.").unwrap_or(host);
            let parsed = dunlin_http::semantics::host::parse(name.as_bytes());
            if !parsed.is_some_and(|host| host.port.is_none() && !host.name.is_empty())
                || name.contains('*')
            {
                self.problem(
                    span,
                    format!("{host:?} is not a host such as \"example.com\" or \"*.example.com\""),
                );
            }
        }
        hosts.iter().map(|host| host.to_ascii_lowercase()).collect()
    }

    fn directory(&mut self, span: &Range<usize>, path: &Path) {
        match std::fs::read_dir(path) {
            Ok(_) => {}
            Err(error) => self.problem(span, format!("root {}: {error}", path.display())),
        }
    }

    /// Paths in the file are relative to the file.
    fn absolute(&self, path: &Path) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let joined = folder.join(path);
        std::path::absolute(&joined).unwrap_or(joined)
    }
}

/// All addresses that the text stands for; none when it is not an address.
fn parse_address(text: &str) -> Vec<SocketAddr> {
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return vec![
            SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
            SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
        ];
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)];
    }
    text.parse().into_iter().collect()
}

/// How many descriptors this process may have.
pub(crate) fn descriptor_limit() -> usize {
    rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .map_or(65_536, |limit| limit as usize)
}
