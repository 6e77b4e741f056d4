//! From the file as it is written to the configuration that the server works with.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dunlin_http::semantics::Url;

use super::access::networks;
use super::address::{Address, not_an_address, parse_address};
use super::at::{At, Place};
use super::config::{Config, NamedPath};
use super::confinement::Places;
use super::error::{Problem, Source};
use super::file::{self, File, OneOrMany, Site as FileSite, TlsTable};
use super::forwarded_field::ForwardedField;
use super::jail::Jail;
use super::limits::descriptor_limit;
use super::listen::Listen;
use super::log_format::AccessLogFormat;
use super::overrides::Overrides;
use super::pattern::Pattern;
use super::server::{
    AccessLog, Cache, Calls, ErrorLog, ErrorLogPlace, Http1, Limits, REDACTED_QUERY_KEYS,
    ReverseDns, Server, Traces,
};
use super::site_route::SiteRoute;
use super::sites::{Defaults, Site, Sites};
use super::tls::{self, Surroundings, Tls};
use super::units::{Size, Span};

/// Checks `file`, which was read from `source`. Nothing is looked up on the disk.
/// `inside`: paths are to mean what they do inside the directory that the file names, if any.
pub(super) fn check(file: File, source: &Source<'_>, inside: bool) -> Result<Config, Vec<Problem>> {
    let configured = file.server.chroot.as_deref().map(|path| absolute(source, path));
    let jail = Jail::entered().cloned().or_else(|| configured.as_deref().map(Jail::new));
    let paths = &Paths { source, jail, inside, outside: RefCell::default() };
    let mut checker = Checker {
        source,
        paths,
        problems: Vec::new(),
        warnings: Vec::new(),
        directories: Vec::new(),
        users: Vec::new(),
        authorities: Vec::new(),
        leaves_root_for: None,
    };
    let server = checker.server(&file.server);
    checker.leaves_root_for = server.user.clone().filter(|user| user != ROOT);
    let listen = checker.listen(&file);
    let speaks_tls = file.listen.iter().find(|listen| listen.tls.as_deref() == Some(&true));
    let speaks_tls = speaks_tls.and_then(|listen| Some(listen.tls.as_ref()?.span.clone()));
    let around = Around {
        cache_file: server.cache.file,
        state: &server.state,
        tls: listen.iter().any(|listen| listen.tls),
        plain: listen.iter().any(|listen| !listen.tls),
    };
    if let Some(place) = speaks_tls
        && file.site.iter().all(|site| site.tls.is_none())
    {
        let what = "a listener speaks TLS, and no site has a certificate; write tls = { certificate = \"FILE\", key = \
                    \"FILE\" } into [[site]]";
        checker.problem(&place, what);
    }
    let sites = checker.sites(file.site, &around);
    let calls = match file.server.seccomp.as_deref() {
        Some(true) if sites.start_programs() => Calls::Harmless,
        Some(true) => Calls::Needed,
        _ => Calls::Any,
    };
    checker.tell_of_paths_outside();
    let Checker { problems, warnings, directories, users, authorities, .. } = checker;
    if problems.is_empty() {
        Ok(Config {
            server: Server { calls, ..server },
            listen,
            listener_count: file.listen.len(),
            sites,
            directories,
            users,
            authorities,
            warnings,
            path: source.path.to_owned(),
            unused: None,
            text: source.text.into(),
            overrides: Overrides::default(),
        })
    } else {
        Err(problems)
    }
}

/// What sites depend on besides themselves.
struct Around<'a> {
    cache_file: u64,
    state: &'a Path,
    /// Whether some listener speaks TLS.
    tls: bool,
    /// Whether some listener does not.
    plain: bool,
}

struct Checker<'a> {
    source: &'a Source<'a>,
    paths: &'a Paths<'a>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    directories: Vec<NamedPath>,
    users: Vec<NamedPath>,
    authorities: Vec<NamedPath>,
    /// The user that the server becomes, if it ceases to be root by that.
    leaves_root_for: Option<String>,
}

impl Checker<'_> {
    fn problem(&mut self, place: &Place, what: impl Into<String>) {
        self.problems.push(self.source.problem(place.as_ref(), what.into()));
    }

    fn warn(&mut self, place: &Place, what: impl Into<String>) {
        self.warnings.push(self.source.problem(place.as_ref(), what.into()));
    }

    fn server(&mut self, server: &file::Server) -> Server {
        self.range("threads", &server.threads, 1, 1024);
        self.range("connections", &server.connections, 1, usize::MAX);
        let most = server.connections.as_deref().copied().unwrap_or(usize::MAX);
        self.range("connections_soft", &server.connections_soft, 1, most);
        self.range("connections_per_address", &server.connections_per_address, 1, usize::MAX);
        let cache = &server.cache;
        Server {
            threads: server.threads.as_deref().copied().unwrap_or_else(|| {
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
            }),
            access_log: self.access_log(server),
            user: server.user.as_ref().map(|user| user.value.clone()),
            group: server.group.as_ref().map(|group| group.value.clone()),
            chroot: self.chroot(server),
            limits: self.limits(&server.limits),
            no_new_privs: self.no_new_privs(server),
            landlock: server.landlock.as_ref().map(|table| self.landlock(table)),
            calls: Calls::Any,
            pid_file: server.pid_file.as_ref().map(|path| {
                let path = (self.absolute(path), &path.span);
                if let Some(folder) = path.0.parent() {
                    self.look_up_later("pid_file", folder, path.1);
                }
                path.0
            }),
            admin: server.admin.as_ref().map(|path| self.socket_path("admin", path)),
            error_log: self.error_log(&server.error_log),
            connections: server.connections.as_deref().copied(),
            connections_soft: server.connections_soft.as_deref().copied(),
            connections_per_address: server.connections_per_address.as_deref().copied(),
            spool_size: server.spool_size.map(|size| size.0),
            stop_timeout: server.stop_timeout.map_or(Duration::from_secs(30), |span| span.0),
            upgrade_timeout: self.timeout("upgrade_timeout", &server.upgrade_timeout, 30),
            server_field: server.server_field.unwrap_or(true),
            state: server.state.as_ref().map_or_else(
                || self.paths.by_default("var/lib/dunlin"),
                |state| self.absolute(state),
            ),
            trusted_proxies: networks(
                "trusted_proxies",
                server.trusted_proxies.as_deref().unwrap_or_default(),
                &mut |place, what| self.problem(place, what),
            ),
            forwarded_field: ForwardedField::read(server, &mut |place, what| {
                self.problem(place, what);
            }),
            http1: self.http1(&server.http1),
            cache: Cache {
                size: cache.size.map_or(128 << 20, |size| size.0 as usize),
                file: cache.file.map_or(256_000, |size| size.0),
                entries: cache.entries.unwrap_or(50_000),
                descriptors: cache.descriptors.unwrap_or_else(|| {
                    let limit = server.limits.open_files.as_deref();
                    limit.copied().unwrap_or_else(descriptor_limit) / 4
                }),
                revalidate: cache.revalidate.map_or(Duration::from_secs(5), |span| span.0),
                notify: cache.notify.unwrap_or(true),
            },
            traces: server.traces.as_ref().map(|traces| self.traces(traces)),
            redact_query: self.redact_query(server),
            reverse_dns: server.reverse_dns.as_ref().map(|dns| self.reverse_dns(dns)),
        }
    }

    fn traces(&mut self, traces: &file::Traces) -> Traces {
        if let Err(what) = Url::parse(&traces.endpoint) {
            self.problem(&traces.endpoint.span, format!("traces: {what}"));
        }
        let sample = traces.sample.as_deref().copied().unwrap_or(1.0);
        if let Some(at) = traces.sample.as_ref().filter(|_| !(0.0..=1.0).contains(&sample)) {
            self.problem(&at.span, format!("traces: sample is {sample}, and not from 0 to 1"));
        }
        Traces {
            endpoint: traces.endpoint.value.clone(),
            authority: traces
                .authority
                .as_ref()
                .map(|path| self.authority("traces", "authority", path)),
            sample,
            service: traces.service.clone().unwrap_or_else(|| "dunlin".into()),
        }
    }

    fn redact_query(&mut self, server: &file::Server) -> Vec<String> {
        let Some(keys) = &server.redact_query else {
            return REDACTED_QUERY_KEYS.map(String::from).into();
        };
        for key in keys {
            if key.is_empty() || key.contains(['=', '&', ';']) {
                let what =
                    format!("redact_query: {:?} is not the name of a query's key", key.value);
                self.problem(&key.span, what);
            }
        }
        keys.iter().map(|key| key.value.clone()).collect()
    }

    fn chroot(&mut self, server: &file::Server) -> Option<PathBuf> {
        let path = server.chroot.as_ref()?;
        if server.user.as_deref().is_none_or(|user| user == ROOT) {
            let what = "chroot holds nobody who is root; set `user` to another";
            self.problem(&path.span, what);
        }
        let directory = absolute(self.source, path);
        self.look_up_later("chroot", &self.paths.translated(&directory), &path.span);
        Some(directory)
    }

    fn limits(&mut self, limits: &file::Limits) -> Limits {
        self.range("limits.open_files", &limits.open_files, 32, MOST_OF_A_LIMIT);
        self.range("limits.processes", &limits.processes, 1, MOST_OF_A_LIMIT);
        if let Some(memory) = limits.memory.as_ref().filter(|memory| memory.0 == 0) {
            self.problem(&memory.span, "limits.memory is 0, so that nothing could start");
        }
        let number = |number: &Option<At<usize>>| Some(number.as_deref().copied()? as u64);
        Limits {
            open_files: number(&limits.open_files),
            core: limits.core.map(|core| core.0),
            processes: number(&limits.processes),
            memory: limits.memory.as_deref().map(|memory| memory.0),
        }
    }

    /// Files that a server in a directory of its own could not come by.
    fn tell_of_paths_outside(&mut self) {
        let outside = self.paths.outside.take();
        let Some(jail) = &self.paths.jail else { return };
        let directory = jail.directory().display();
        for path in outside {
            let start = self.source.text.find(&format!("{:?}", path.display().to_string()));
            let what = format!(
                "{} is outside of chroot {directory}; what the configuration names has to be inside",
                path.display()
            );
            self.problem(&start.map(|start| start..start), what);
        }
    }

    fn no_new_privs(&mut self, server: &file::Server) -> bool {
        let needed = server.landlock.is_some() || server.seccomp.as_deref() == Some(&true);
        if let Some(set) = server.no_new_privs.as_ref().filter(|set| needed && !set.value) {
            self.problem(&set.span, "no_new_privs is needed by landlock and seccomp");
        }
        server.no_new_privs.as_deref().copied().unwrap_or(needed)
    }

    /// Paths that are not there are told: they would be out of reach when they come.
    fn landlock(&mut self, table: &file::Landlock) -> Places {
        let mut list = |paths: &[At<PathBuf>]| {
            let absolute = |path: &At<PathBuf>| self.absolute(path);
            let all: Vec<PathBuf> = paths.iter().map(absolute).collect();
            for (path, named) in all.iter().zip(paths) {
                self.look_up_later("landlock", path, &named.span);
            }
            all
        };
        let (read, write, execute) = (list(&table.read), list(&table.write), list(&table.execute));
        Places { read, write, sockets: Vec::new(), execute }
    }

    fn http1(&mut self, http1: &file::Http1) -> Http1 {
        let size = |size: &Option<At<Size>>, default| {
            size.as_deref().map_or(default, |size| usize::try_from(size.0).unwrap_or(usize::MAX))
        };
        let head_size = size(&http1.head_size, 32 << 10);
        if let (Some(at), false) = (&http1.head_size, (256..=65_535).contains(&head_size)) {
            self.problem(&at.span, "head_size is not between 256 and 65535 bytes");
        }
        let target_size = size(&http1.target_size, head_size.min(8 << 10));
        if let (Some(at), false) = (&http1.target_size, (1..=head_size).contains(&target_size)) {
            let what = format!("target_size is not between 1 and head_size, {head_size} bytes");
            self.problem(&at.span, what);
        }
        self.range("fields", &http1.fields, 1, 254);
        Http1 {
            connection: http1.connection,
            idle_timeout: self.timeout("idle_timeout", &http1.idle_timeout, 75),
            head_timeout: self.timeout("head_timeout", &http1.head_timeout, 10),
            body_timeout: self.timeout("body_timeout", &http1.body_timeout, 30),
            body_rate: http1.body_rate.map_or(500, |rate| rate.0),
            send_timeout: self.timeout("send_timeout", &http1.send_timeout, 30),
            head_size,
            target_size,
            fields: http1.fields.as_deref().copied().unwrap_or(100),
            requests: http1.requests.unwrap_or(0),
        }
    }

    fn reverse_dns(&mut self, dns: &file::ReverseDns) -> ReverseDns {
        self.range("concurrent", &dns.concurrent, 1, 65_536);
        ReverseDns {
            resolver: dns.resolver,
            timeout: self.timeout("timeout", &dns.timeout, 2),
            entries: dns.entries.unwrap_or(10_000),
            ttl: self.timeout("ttl", &dns.ttl, 3600),
            concurrent: dns.concurrent.as_deref().copied().unwrap_or(64),
        }
    }

    fn range(&mut self, key: &str, number: &Option<At<usize>>, least: usize, most: usize) {
        let Some(number) = number else { return };
        if number.value < least {
            self.problem(&number.span, format!("{key} is less than {least}"));
        } else if number.value > most {
            self.problem(&number.span, format!("{key} is more than {most}"));
        }
    }

    /// A time for which 0 would mean that nothing ever succeeds.
    fn timeout(&mut self, key: &str, span: &Option<At<Span>>, default: u64) -> Duration {
        let Some(span) = span else { return Duration::from_secs(default) };
        if span.0.is_zero() {
            self.problem(&span.span, format!("{key} is 0: write how long to wait"));
        }
        span.0
    }

    fn access_log(&mut self, server: &file::Server) -> Option<AccessLog> {
        let log = server.access_log.as_ref()?;
        let file::AccessLogTable { path, format } = &log.0;
        let format = match format {
            Some(format) => {
                let parsed = AccessLogFormat::parse(format);
                parsed.unwrap_or_else(|error| {
                    self.problem(&format.span, format!("access_log: {error}"));
                    AccessLogFormat::Combined
                })
            }
            None => AccessLogFormat::Combined,
        };
        let place = path.span.clone().or_else(|| log.span.clone());
        match path.to_str() {
            Some("off") => return None,
            Some("-") => return Some(AccessLog { path: path.value.clone(), format }),
            Some("") => self.problem(&place, "access_log: the path is empty"),
            _ => {}
        }
        let path = self.absolute(path);
        if let Some(folder) = path.parent() {
            self.look_up_later("access_log", folder, &place);
        }
        Some(AccessLog { path, format })
    }

    fn error_log(&mut self, log: &file::ErrorLog) -> ErrorLog {
        let place = match &log.path {
            None => ErrorLogPlace::Stderr,
            Some(path) => match path.to_str() {
                Some("-") => ErrorLogPlace::Stderr,
                Some("journald") => ErrorLogPlace::Journald,
                _ => {
                    if path.as_os_str().is_empty() {
                        self.problem(&path.span, "error_log: the path is empty");
                    }
                    let absolute = self.absolute(path);
                    if let Some(folder) = absolute.parent() {
                        self.look_up_later("error_log", folder, &path.span);
                    }
                    ErrorLogPlace::File(absolute)
                }
            },
        };
        ErrorLog { level: log.level, format: log.format, place }
    }

    fn listen(&mut self, file: &File) -> Vec<Listen> {
        let mut all: Vec<Listen> = Vec::new();
        for listen in &file.listen {
            let place = &listen.address.span;
            let addresses = parse_address(&listen.address);
            if addresses.is_empty() {
                self.problem(place, not_an_address(&listen.address));
            }
            let tls = listen.tls.as_deref().copied().unwrap_or(false);
            let is_tcp = addresses.iter().any(|address| matches!(address, Address::Tcp(_)));
            let proxies = file.server.trusted_proxies.as_deref().unwrap_or_default();
            if listen.proxy_protocol == Some(true) && is_tcp && proxies.is_empty() {
                let what = "proxy_protocol without trusted_proxies: every client of this port can choose its address; \
                            write trusted_proxies = [\"ADDRESS\"] into [server]";
                self.warn(place, what);
            }
            for address in addresses {
                let address = self.endpoint(listen, address);
                let chosen_later = matches!(&address, Address::Tcp(tcp) if tcp.port() == 0);
                if !chosen_later && all.iter().any(|other| other.address == address) {
                    self.problem(place, format!("{address} is listened on twice"));
                }
                all.push(Listen {
                    address,
                    mode: self.mode(listen),
                    backlog: listen.backlog.map_or(4096, i32::from),
                    tls,
                    http2: listen.http2.unwrap_or(true),
                    admin: false,
                    proxy_protocol: listen.proxy_protocol.unwrap_or(false),
                });
            }
        }
        if let Some(path) = &file.server.admin {
            let address = Address::Unix(self.absolute(path));
            if all.iter().any(|other| other.address == address) {
                self.problem(&path.span, format!("{address} is listened on twice"));
            }
            let commands = Listen {
                address,
                mode: 0o600,
                backlog: 128,
                tls: false,
                http2: false,
                proxy_protocol: false,
                admin: true,
            };
            all.push(commands);
        }
        if file.listen.is_empty() {
            let what = "there is no address to listen on; write [[listen]] and address = \"127.0.0.1:8080\"";
            self.problem(&None, what);
        }
        all
    }

    /// The address, with what is wrong about the rest of its table told.
    fn endpoint(&mut self, listen: &file::Listen, address: Address) -> Address {
        let Address::Unix(path) = address else {
            if let Some(mode) = &listen.mode {
                self.problem(&mode.span, "mode belongs to a Unix socket");
            }
            return address;
        };
        if let Some(tls) = listen.tls.as_ref().filter(|tls| tls.value) {
            self.problem(&tls.span, "tls: a Unix socket does not speak TLS");
        }
        let path = At { value: path, span: listen.address.span.clone() };
        Address::Unix(self.socket_path("address", &path))
    }

    fn socket_path(&mut self, key: &'static str, path: &At<PathBuf>) -> PathBuf {
        let absolute = self.absolute(path);
        let length = absolute.as_os_str().len();
        if path.as_os_str().is_empty() {
            self.problem(&path.span, format!("{key}: the path is empty"));
        } else if length > LONGEST_SOCKET_PATH {
            let what = format!(
                "{key}: the path has {length} bytes; that of a socket has {LONGEST_SOCKET_PATH} at most"
            );
            self.problem(&path.span, what);
        }
        if let Some(folder) = absolute.parent() {
            self.look_up_later(key, folder, &path.span);
        }
        absolute
    }

    fn mode(&mut self, listen: &file::Listen) -> u32 {
        let Some(text) = &listen.mode else { return 0o660 };
        let octal = text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
        mode.unwrap_or_else(|| {
            let what = format!("mode: {:?} is not octal digits such as \"0660\"", text.value);
            self.problem(&text.span, what);
            0
        })
    }

    fn sites(&mut self, file: Vec<At<FileSite>>, around: &Around<'_>) -> Sites {
        let mut sites = Sites::default();
        if file.is_empty() {
            self.problem(
                &None,
                "there is nothing to serve; write [[site]] and root = \"DIRECTORY\"",
            );
        }
        for (index, site) in file.into_iter().enumerate() {
            let place = site.place().or_else(|| site.span.clone());
            let site = self.site(index, site, around);
            if let Err(what) = sites.add(site) {
                self.problem(&place, what);
            }
        }
        sites
    }

    fn site(&mut self, index: usize, site: At<FileSite>, around: &Around<'_>) -> Site {
        // The span of a table is that of its header.
        let place = site.span.clone().or_else(|| site.place());
        let site = site.value;
        let hosts = site.host.map_or_else(Vec::new, |host| self.hosts(host));
        let root = site.root.map(|root| self.root(&root));
        let mut routes: Vec<SiteRoute> = Vec::new();
        for mut route in site.route {
            let pattern = match Pattern::parse(&route.path) {
                Ok(pattern) => pattern,
                Err(what) => {
                    self.problem(&route.path.span, what);
                    continue;
                }
            };
            if routes.iter().any(|other| other.pattern == pattern) {
                let what = format!("the pattern {:?} stands twice", route.path.value);
                self.problem(&route.path.span, what);
            }
            if let Some(root) = &mut route.root {
                root.value = self.root(root);
            }
            if let Some(redirect) = &mut route.redirect {
                // One that is written as a text is without a place of its own.
                let to = &mut redirect.value.to;
                to.span = to.span.take().or_else(|| redirect.span.clone());
            }
            if let Some(At { value: file::Auth::Table(table), .. }) = &mut route.auth
                && let Some(path) = &mut table.basic
            {
                path.value = self.users(path);
            }
            if let Some(At { value: file::Auth::Table(table), .. }) = &mut route.auth
                && let Some(forward) = &mut table.forward
            {
                self.socket_in(&mut forward.value);
                if let Some(path) = &mut table.forward_authority {
                    path.value = self.authority("auth", "forward_authority", path);
                }
            }
            if let Some(script) = &mut route.script {
                let files = route.root.as_ref().map(|root| &root.value).or(root.as_ref());
                self.script(&mut script.value, files.map(PathBuf::as_path));
                self.script_user(&script.value);
            }
            routes.push(SiteRoute { pattern, route });
        }
        let everywhere = routes
            .iter()
            .any(|SiteRoute { pattern, route, .. }| route.has_handler() && pattern.is_everything());
        if root.is_none() && !everywhere {
            let what = "a site has no root, and no route for \"/*\" that says what to answer";
            self.problem(&place, what);
        }
        let defaults = Defaults { root: root.unwrap_or_default(), cache_file: around.cache_file };
        let tls = site.tls.map(|table| Arc::new(self.tls(&table, &hosts, around)));
        let mut report = |place: &Place, what| self.problem(place, what);
        let mut site = Site::new(index, hosts, &defaults, routes, &mut report);
        site.tls = tls;
        site
    }

    fn tls(&mut self, table: &At<TlsTable>, hosts: &[String], around: &Around<'_>) -> Tls {
        let around =
            Surroundings { hosts, state: around.state, listeners: (around.tls, around.plain) };
        let problem = self.source.problem(table.span.as_ref(), String::new());
        let paths = self.paths;
        tls::read(table, &around, |path| paths.absolute(path), problem, &mut |place, what| {
            self.problem(place, what);
        })
    }

    /// `files`: the directory of the files beside the scripts, if there is one.
    fn script(&mut self, script: &mut file::ScriptTable, files: Option<&Path>) {
        let by_extension = script.kind.is_cgi() && script.extensions.is_some();
        let file::ScriptTable { directory, root, file: program, .. } = script;
        if let (true, None, None, None) = (by_extension, &*directory, &*root, &*program) {
            *root = files.map(|files| At::nowhere(files.to_owned()));
        }
        if let Some(program) = program {
            if program.as_os_str().is_empty() {
                self.problem(&program.span, "script: file is empty");
            }
            program.value = self.absolute(program);
            self.look_up_later("file", &program.value, &program.span);
        }
        let file::ScriptTable { directory, root, command, interpreter, .. } = script;
        if let Some(roots) = &mut script.sendfile_root {
            for root in &mut roots.value.0 {
                let place = root.span.clone().or_else(|| roots.span.clone());
                if root.is_empty() {
                    self.problem(&place, "script: sendfile_root is empty");
                }
                let path = self.absolute(Path::new(&root.value));
                self.look_up_later("sendfile_root", &path, &place);
                root.value = path.display().to_string();
            }
        }
        if script.kind.value.has_host() && directory.is_none() {
            *directory = Some(At::nowhere(self.absolute(Path::new(""))));
        }
        if let Some(connect) = &mut script.connect {
            let place = connect.span.clone();
            for address in &mut connect.value.0 {
                // A single address is without a place of its own.
                address.span = address.span.take().or_else(|| place.clone());
                self.socket_in(&mut address.value);
            }
        }
        // A bare name is looked for where programs are.
        let program = command.as_mut().and_then(|command| command.value.first_mut());
        for program in program.into_iter().chain(interpreter) {
            if program.contains('/') {
                program.value = self.absolute(Path::new(&program.value)).display().to_string();
            }
        }
        for (key, directory) in [("directory", directory), ("root", root)] {
            let Some(directory) = directory else { continue };
            if directory.as_os_str().is_empty() {
                self.problem(&directory.span, format!("script: {key} is empty"));
            }
            directory.value = self.absolute(directory);
            self.look_up_later(key, &directory.value, &directory.span);
        }
    }

    /// Tells of a user that a server which is not root any more could not give to its scripts.
    fn script_user(&mut self, script: &file::ScriptTable) {
        let Some(server) = &self.leaves_root_for else { return };
        let user = script.user.as_ref().map(|user| ("user", &user.span));
        let asked = user.or(script.group.as_ref().map(|group| ("group", &group.span)));
        let Some((key, place)) = asked else { return };
        let what = format!(
            "script: `{key}` takes a server that stays root, and [server] has user = {server:?}"
        );
        self.problem(place, what);
    }

    fn hosts(&mut self, hosts: At<OneOrMany<String>>) -> Vec<String> {
        let At { value: OneOrMany(hosts), span: place } = hosts;
        if hosts.is_empty() {
            let what = "the list of hosts is empty; leave `host` out for every other host";
            self.problem(&place, what);
        }
        let mut names: Vec<String> = Vec::new();
        for host in hosts {
            let place = host.span.clone().or_else(|| place.clone());
            let name = host.strip_prefix("*.").unwrap_or(&host);
            let parsed = dunlin_http::semantics::host::parse(name.as_bytes());
            if !parsed.is_some_and(|host| host.port.is_none() && !host.name.is_empty())
                || name.contains('*')
                || name.len() > 253
            {
                let what = format!(
                    "{:?} is not a host such as \"example.com\" or \"*.example.com\"",
                    host.value
                );
                self.problem(&place, what);
            }
            let name = host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase();
            if names.contains(&name) {
                self.problem(&place, format!("the host {name:?} stands twice"));
            } else {
                names.push(name);
            }
        }
        names
    }

    fn users(&mut self, path: &At<PathBuf>) -> PathBuf {
        let absolute = self.absolute(path);
        let problem = self.source.problem(path.span.as_ref(), String::new());
        self.users.push(NamedPath { key: "auth", path: absolute.clone(), problem });
        absolute
    }

    /// A file of trusted authorities, which `table.key` names.
    fn authority(&mut self, table: &'static str, key: &'static str, path: &At<PathBuf>) -> PathBuf {
        let authority = self.absolute(path);
        if let Some(folder) = authority.parent() {
            self.look_up_later(key, folder, &path.span);
        }
        let problem = self.source.problem(path.span.as_ref(), String::new());
        self.authorities.push(NamedPath { key: table, path: authority.clone(), problem });
        authority
    }

    fn root(&mut self, root: &At<PathBuf>) -> PathBuf {
        if root.as_os_str().is_empty() {
            self.problem(&root.span, "root is empty; write \".\" for the folder of this file");
        }
        let path = self.absolute(root);
        self.look_up_later("root", &path, &root.span);
        path
    }

    fn look_up_later(&mut self, key: &'static str, path: &Path, place: &Place) {
        let problem = self.source.problem(place.as_ref(), String::new());
        self.directories.push(NamedPath { key, path: path.to_owned(), problem });
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        self.paths.absolute(path)
    }

    /// The path in an address such as `unix:/run/app.sock`; others stay as they are.
    fn socket_in(&self, address: &mut String) {
        if let Some(rest) = address.strip_prefix("unix:")
            && self.paths.jail.is_some()
        {
            let (path, more) = rest.split_once(':').map_or((rest, None), |(p, m)| (p, Some(m)));
            let path = self.absolute(Path::new(path));
            let more = more.map_or(String::new(), |more| format!(":{more}"));
            *address = format!("unix:{}{more}", path.display());
        }
    }
}

/// What paths mean.
struct Paths<'a> {
    source: &'a Source<'a>,
    /// The directory that the server is or will be in.
    jail: Option<Jail>,
    /// Whether they are to be called as they are in there.
    inside: bool,
    /// Those that are not in it.
    outside: RefCell<Vec<PathBuf>>,
}

impl Paths<'_> {
    /// Paths in the file are relative to the file.
    fn absolute(&self, path: &Path) -> PathBuf {
        let whole = absolute(self.source, path);
        let Some(jail) = &self.jail else { return whole };
        if jail.within(&whole).is_none() {
            self.outside.borrow_mut().push(path.to_owned());
        }
        self.translated(&whole)
    }

    /// What a path of outside is called here.
    fn translated(&self, whole: &Path) -> PathBuf {
        let jail = self.jail.as_ref().filter(|_| self.inside);
        jail.and_then(|jail| jail.within(whole)).unwrap_or_else(|| whole.to_owned())
    }

    /// A path that the file does not name: it is inside, if there is an inside.
    fn by_default(&self, path: &str) -> PathBuf {
        let root = self.jail.as_ref().map_or(Path::new("/"), Jail::directory);
        self.translated(&root.join(path))
    }
}

/// A path of the file, from outside.
fn absolute(source: &Source<'_>, path: &Path) -> PathBuf {
    // A file that is named without a folder is in the working directory, which has no empty name.
    let folder = source.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let joined = folder.unwrap_or(Path::new(".")).join(path);
    match Jail::entered() {
        Some(jail) => jail.whole(&joined),
        None => std::path::absolute(&joined).unwrap_or(joined),
    }
}

/// What the system takes, without meaning no limit at all.
const MOST_OF_A_LIMIT: usize = usize::MAX >> 1;

impl FileSite {
    /// A place by which to find it.
    fn place(&self) -> Place {
        let host = self.host.as_ref().and_then(|host| host.span.clone());
        let root = || self.root.as_ref().and_then(|root| root.span.clone());
        let route = || self.route.first().and_then(|route| route.path.span.clone());
        host.or_else(root).or_else(route)
    }
}

/// The user that may become every other.
const ROOT: &str = "root";

/// Bytes of the path of a Unix socket: the system's structure holds one more, a NUL.
const LONGEST_SOCKET_PATH: usize = 107;
