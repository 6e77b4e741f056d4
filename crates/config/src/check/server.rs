//! Checks of the table `[server]`.

use std::path::PathBuf;
use std::time::Duration;

use dunlin_http::semantics::Url;

use super::paths::absolute;
use super::{Checker, ROOT};
use crate::access::networks;
use crate::access_log::{self, AccessLog};
use crate::allowed_paths::AllowedPaths;
use crate::file;
use crate::forwarded_field::ForwardedField;
use crate::limits::{default_cache_size, default_memory, descriptor_limit};
use crate::log_format::AccessLogFormat;
use crate::server::{
    Cache, CacheDirectory, Calls, ErrorLog, ErrorLogTarget, Http1, Http3Settings, ResourceLimits,
    ReverseDns, Server, Traces,
};
use crate::sites::Sites;
use crate::spanned::{Span, Spanned};
use crate::units::{DurationValue, Size};

impl Checker<'_> {
    pub(super) fn server(&mut self, server: &file::ServerTable) -> Server {
        self.range("threads", &server.threads, 1, 1024);
        self.range("connections", &server.connections, 1, usize::MAX);
        let max = server.connections.as_deref().copied().unwrap_or(usize::MAX);
        self.range("evict_idle_above", &server.evict_idle_above, 1, max);
        self.range("connections_per_address", &server.connections_per_address, 1, usize::MAX);
        self.range("compress_share", &server.compress_share, 0, 100);
        let cache = &server.cache;
        Server {
            threads: server.threads.as_deref().copied().unwrap_or_else(|| {
                std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
            }),
            busy_poll: self.busy_poll(server),
            access_log: self.access_log(server),
            user: server.user.as_ref().map(|user| user.value.clone()),
            identity_places: [&server.user, &server.group]
                .map(|name| name.as_ref().and_then(|name| name.span.clone())),
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
            evict_idle_above: server.evict_idle_above.as_deref().copied(),
            connections_per_address: server.connections_per_address.as_deref().copied(),
            spool_size: server.spool_size.map(|size| size.0),
            memory: self.memory(server),
            drain: server.drain.map_or(Duration::ZERO, |span| span.0),
            stop_timeout: server.stop_timeout.map_or(Duration::from_secs(30), |span| span.0),
            upgrade_timeout: self.timeout("upgrade_timeout", &server.upgrade_timeout, 30),
            nginx_statuses: server.nginx_statuses.unwrap_or(false),
            compress_share: server.compress_share.as_deref().copied().unwrap_or(60),
            server_field: server.server_field.unwrap_or(true),
            state: server.state.as_ref().map_or_else(
                || self.paths.by_default("var/lib/dunlin"),
                |state| self.absolute(state),
            ),
            // It needs the tables of object stores.
            acme_storage: None,
            trusted_proxies: networks(
                "trusted_proxies",
                server.trusted_proxies.as_deref().unwrap_or_default(),
                &mut |place, what| self.problem(place, what),
            ),
            resolver: server.resolver.clone().unwrap_or_default(),
            forwarded_field: ForwardedField::read(server, &mut |place, what| {
                self.problem(place, what);
            }),
            http1: self.http1(&server.http1),
            http3: Http3Settings {
                congestion: server.http3.congestion,
                qlog: server.http3.qlog.as_ref().map(|path| self.absolute(path)),
            },
            cache: Cache {
                size: cache.size.map_or_else(default_cache_size, |size| size.0 as usize),
                disk: self.cache_directory(cache),
                dictionaries: cache.dictionaries.map_or_else(
                    || if cache.directory.is_some() { 256_000_000 } else { 32_000_000 },
                    |size| size.0,
                ),
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

    /// Reports a directory of the server whose files clients could request. `key` names it.
    pub(super) fn keep_from_clients(
        &mut self,
        key: &str,
        directory: Option<&Spanned<PathBuf>>,
        sites: &Sites,
    ) {
        let Some(directory) = directory else { return };
        let path = self.absolute(directory);
        let mut roots = sites.iter().flat_map(|site| site.directories());
        // A site without files has no root.
        let is_above =
            |root: &&std::path::Path| !root.as_os_str().is_empty() && path.starts_with(root);
        if let Some(root) = roots.find(is_above) {
            let (path, root) = (path.display(), root.display());
            let what = format!("{key} {path} is beneath {root}, whose files clients can request");
            self.problem(&directory.span, what);
        }
    }

    fn cache_directory(&mut self, cache: &file::CacheTable) -> Option<CacheDirectory> {
        let Some(directory) = &cache.directory else {
            if let Some(Spanned { span, .. }) = &cache.disk {
                self.problem(span, "cache: `disk` needs `directory`");
            }
            return None;
        };
        let size = cache.disk.as_deref().map_or(1_000_000_000, |size| size.0);
        Some(CacheDirectory { path: self.absolute(directory), size })
    }

    fn memory(&mut self, server: &file::ServerTable) -> u64 {
        let Some(Spanned { value: Size(memory), span }) = &server.memory else {
            return default_memory();
        };
        // A few connections need this much.
        const MIN: u64 = 1 << 20;
        if *memory < MIN {
            self.problem(span, "memory: the minimum is 1MiB");
        }
        *memory
    }

    fn busy_poll(&mut self, server: &file::ServerTable) -> Duration {
        let Some(Spanned { value: DurationValue(time), span }) = &server.busy_poll else {
            return Duration::ZERO;
        };
        // Longer than a sleep and a wake-up take on any machine.
        const MAX: Duration = Duration::from_millis(1);
        if *time > MAX {
            self.problem(span, "busy_poll: the maximum is 1ms");
        }
        *time
    }

    pub(super) fn traces(&mut self, traces: &file::TracesTable) -> Traces {
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

    pub(super) fn redact_query(&mut self, server: &file::ServerTable) -> Option<Vec<String>> {
        let keys = server.redact_query.as_ref()?;
        for key in keys {
            if key.is_empty() || key.contains(['=', '&', ';']) {
                let what =
                    format!("redact_query: {:?} is not the name of a query's key", key.value);
                self.problem(&key.span, what);
            }
        }
        Some(keys.iter().map(|key| key.value.clone()).collect())
    }

    pub(super) fn chroot(&mut self, server: &file::ServerTable) -> Option<PathBuf> {
        let path = server.chroot.as_ref()?;
        if server.user.as_deref().is_none_or(|user| user == ROOT) {
            let what = "root can leave a chroot; set `user` to another user";
            self.problem(&path.span, what);
        }
        let directory = absolute(self.source, path);
        self.look_up_later("chroot", &self.paths.translated(&directory), &path.span);
        Some(directory)
    }

    pub(super) fn limits(&mut self, limits: &file::Limits) -> ResourceLimits {
        self.range("limits.open_files", &limits.open_files, 32, MAX_RESOURCE_LIMIT);
        self.range("limits.processes", &limits.processes, 1, MAX_RESOURCE_LIMIT);
        if let Some(memory) = limits.memory.as_ref().filter(|memory| memory.0 == 0) {
            self.problem(&memory.span, "limits.memory is 0, so that nothing could start");
        }
        let number = |number: &Option<Spanned<usize>>| Some(number.as_deref().copied()? as u64);
        ResourceLimits {
            open_files: number(&limits.open_files),
            core: limits.core.map(|core| core.0),
            processes: number(&limits.processes),
            memory: limits.memory.as_deref().map(|memory| memory.0),
        }
    }

    pub(super) fn no_new_privs(&mut self, server: &file::ServerTable) -> bool {
        let needed = server.landlock.is_some() || server.seccomp.as_deref() == Some(&true);
        if let Some(set) = server.no_new_privs.as_ref().filter(|set| needed && !set.value) {
            self.problem(&set.span, "no_new_privs is needed by landlock and seccomp");
        }
        server.no_new_privs.as_deref().copied().unwrap_or(needed)
    }

    /// Missing paths are errors: the process could not use them when they are created later.
    pub(super) fn landlock(&mut self, table: &file::Landlock) -> AllowedPaths {
        let mut list = |paths: &[Spanned<PathBuf>]| {
            let absolute = |path: &Spanned<PathBuf>| self.absolute(path);
            let all: Vec<PathBuf> = paths.iter().map(absolute).collect();
            for (path, named) in all.iter().zip(paths) {
                self.look_up_later("landlock", path, &named.span);
            }
            all
        };
        let (read, write, execute) = (list(&table.read), list(&table.write), list(&table.execute));
        AllowedPaths { read, write, sockets: Vec::new(), execute }
    }

    pub(super) fn http1(&mut self, http1: &file::Http1Table) -> Http1 {
        let size = |size: &Option<Spanned<Size>>, default| {
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
            bare_lf: http1.bare_lf,
        }
    }

    pub(super) fn reverse_dns(&mut self, dns: &file::ReverseDnsTable) -> ReverseDns {
        self.range("concurrent", &dns.concurrent, 1, 65_536);
        ReverseDns {
            resolver: dns.resolver,
            timeout: self.timeout("timeout", &dns.timeout, 2),
            entries: dns.entries.unwrap_or(10_000),
            ttl: self.timeout("ttl", &dns.ttl, 3600),
            concurrent: dns.concurrent.as_deref().copied().unwrap_or(64),
        }
    }

    pub(super) fn access_log(&mut self, server: &file::ServerTable) -> Option<AccessLog> {
        let log = server.access_log.as_ref()?;
        self.log(&log.value.0, &log.span)
    }

    /// Checks the table of an access log; `None` if it is off. `place` stands for its short form.
    pub(super) fn log(&mut self, table: &file::AccessLogTable, place: &Span) -> Option<AccessLog> {
        let file::AccessLogTable { path, format, status, sample, also, .. } = table;
        let also = also.iter().flatten();
        let also: Vec<AccessLog> = also.filter_map(|log| self.log(&log.0, place)).collect();
        let statuses = status.as_ref().map_or_else(Vec::new, |status| self.statuses(status));
        let sample = sample.as_ref().and_then(|sample| {
            let share = access_log::share(sample);
            if share.is_none() {
                let what =
                    format!("access_log: sample: {:?} is not a share such as \"1%\"", sample.value);
                self.problem(&sample.span, what);
            }
            share
        });
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
        let place = path.span.clone().or_else(|| place.clone());
        match path.to_str() {
            Some("off") => return None,
            Some("-") => {
                return Some(AccessLog {
                    path: path.value.clone(),
                    format,
                    statuses,
                    sample,
                    also,
                });
            }
            Some("") => self.problem(&place, "access_log: the path is empty"),
            _ => {}
        }
        let path = self.absolute(path);
        if let Some(folder) = path.parent() {
            self.look_up_later("access_log", folder, &place);
        }
        Some(AccessLog { path, format, statuses, sample, also })
    }

    fn statuses(&mut self, statuses: &Spanned<file::Statuses>) -> Vec<(u16, u16)> {
        let mut ranges = Vec::new();
        for status in &statuses.value.0 {
            match access_log::statuses(status) {
                Some(range) => ranges.push(range),
                None => {
                    let place = status.span.as_ref().or(statuses.span.as_ref()).cloned();
                    let what = format!(
                        "access_log: {:?} is not a status such as 404 or \"5xx\"",
                        status.value
                    );
                    self.problem(&place, what);
                }
            }
        }
        ranges
    }

    pub(super) fn error_log(&mut self, log: &file::ErrorLogTable) -> ErrorLog {
        let target = match &log.path {
            None => ErrorLogTarget::Stderr,
            Some(path) => match path.to_str() {
                Some("-") => ErrorLogTarget::Stderr,
                Some("journald") => ErrorLogTarget::Journald,
                _ => {
                    if path.as_os_str().is_empty() {
                        self.problem(&path.span, "error_log: the path is empty");
                    }
                    let absolute = self.absolute(path);
                    if let Some(folder) = absolute.parent() {
                        self.look_up_later("error_log", folder, &path.span);
                    }
                    ErrorLogTarget::File(absolute)
                }
            },
        };
        ErrorLog { level: log.level, format: log.format, target }
    }
}

/// Maximum of a resource limit; a larger value would mean no limit.
const MAX_RESOURCE_LIMIT: usize = usize::MAX >> 1;
