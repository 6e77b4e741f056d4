//! The table `proxy`: forwards requests to other HTTP servers.

use std::path::PathBuf;
use std::time::Duration;

use dunlin_http::semantics::{is_field_value, is_token};
use rustls::pki_types::ServerName;

use super::error::nearest;
use super::fields::RequestField;
use super::file::{
    BufferTable, EjectTable, ForwardCertificate, ProxyProtocol, ProxyTable, ReplacementTable,
    Retry, RetryTable,
};
use super::forward_fields::HOP_BY_HOP;
use super::map::Maps;
use super::pattern::Pattern;
use super::report::Report;
use super::spanned::{Span, Spanned};
use super::units::{DurationValue, Size};

mod address;
mod path;
mod references;
mod sticky;

pub use self::address::{Service, UpstreamAddress};
pub(super) use self::address::{address, service_name};
pub use self::path::UpstreamPath;
pub use self::references::{CookieFlags, References, Replacement};
use self::references::{cookie_flags, replacements};
pub use self::sticky::Sticky;

/// A reverse proxy, with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Proxy {
    /// The upstreams.
    pub upstreams: Vec<Upstream>,
    /// The policy by which the upstream of a request is chosen.
    pub balance: Balance,
    /// The cookie that keeps the requests of a client at one upstream.
    pub sticky: Option<Sticky>,
    /// Time in which an upstream that is available again gets more and more requests.
    pub slow_start: Duration,
    /// When requests are sent again; `None` for never.
    pub retry: Option<Retries>,
    /// When upstreams get no further requests.
    pub eject: Ejection,
    /// The health check.
    pub health: Option<HealthCheck>,
    /// Prefix that is removed from paths, without a slash at its end.
    pub strip: Option<String>,
    /// What paths get in its place, without a slash at its end; empty for nothing.
    pub base: String,
    /// `Location` and cookies of upstreams get the prefix again.
    pub rewrites_location: bool,
    /// The method of requests to upstreams; `None` for that of the client.
    pub method: Option<String>,
    /// The body of requests to upstreams; `None` for that of the client.
    pub body: Option<String>,
    /// Upstreams get the fields of the client.
    pub passes_fields: bool,
    /// What is replaced in references of upstreams, and the flags of their cookies.
    pub references: References,
    /// The path that upstreams get in place of the request's.
    pub path: Option<UpstreamPath>,
    /// The host that upstreams get.
    pub host: UpstreamHost,
    /// Request fields to set; an empty value removes the field.
    pub set_request_fields: Vec<RequestField>,
    /// Upstreams get the credentials that the server has checked.
    pub passes_credentials: bool,
    /// Clients get the `Server` field of upstreams.
    pub passes_server_field: bool,
    /// The bodies that are collected in memory.
    pub buffer: Buffer,
    /// Error pages replace error responses of upstreams.
    pub intercepts_errors: bool,
    /// Maximum of connections to one upstream that are in use.
    pub connections: usize,
    /// Maximum of connections to one upstream that use another protocol.
    pub tunnels: usize,
    /// Maximum of requests that wait for a connection.
    pub queue: usize,
    /// Maximum wait for a connection.
    pub queue_timeout: Duration,
    /// Maximum of idle connections per worker and upstream.
    pub idle_connections: usize,
    /// Time after which an idle connection is closed.
    pub keep_alive: Duration,
    /// Maximum time for connecting.
    pub connect_timeout: Duration,
    /// Maximum wait for the head of a response; `None` for no limit.
    pub first_byte_timeout: Option<Duration>,
    /// Maximum time without progress of a body; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// Maximum time without a byte of another protocol; `None` for no limit.
    pub tunnel_timeout: Option<Duration>,
    /// Authorities that upstreams with TLS have their certificates from; those of the system if absent.
    pub authority: Option<PathBuf>,
    /// `false` accepts every certificate of upstreams with TLS.
    pub verify: bool,
    /// Name in the certificates of upstreams with TLS; the host of each URL if absent.
    pub server_name: Option<String>,
    /// Files of the certificate and the key that upstreams with TLS get.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The header with which connections begin.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The part of a client's certificate that upstreams get.
    pub forward_client_certificate: Option<ForwardCertificate>,
}

/// The host that upstreams get.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamHost {
    /// That of the client's request.
    Client,
    /// That of the upstream's URL, with its port.
    Upstream,
    /// Another one; that of the client if the value is no host.
    Named(RequestField),
}

/// An upstream as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The address of the upstream.
    pub address: UpstreamAddress,
    /// The share of the requests, relative to those of the others.
    pub weight: u32,
    /// It is used only while none of the others is available.
    pub backup: bool,
}

/// The policy by which the upstream of a request is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Balance {
    /// Of two at random, the one with the shorter response time and fewer requests.
    LeastLoaded,
    /// The one with the fewest requests.
    LeastConnections,
    /// Each in turn.
    RoundRobin,
    /// Requests with the same value have the same upstream.
    Hash(HashKey),
}

/// The value by which requests have the same upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashKey {
    /// The address of the client.
    Address,
    /// The value of a request field; the address of the client if the request has none.
    Field(String),
}

/// When requests are sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// Maximum of further attempts.
    pub attempts: u32,
    /// Time after which another attempt is made; `None` for that of the first byte.
    pub timeout: Option<Duration>,
    /// Maximum share of further attempts, in percent.
    pub budget: u32,
    /// Statuses of responses after which there is another attempt.
    pub statuses: Vec<u16>,
}

/// When an upstream whose requests fail gets no further requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ejection {
    /// Failures in a row; 0 for never.
    pub failures: u32,
    /// For how long.
    pub time: Duration,
    /// Maximum share of ejected upstreams, in percent.
    pub share: u32,
}

/// The bodies that are collected in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Bytes of a request body that is received before the request takes an upstream; `None` for the default.
    pub request: Option<u64>,
    /// Bytes of a response body that wait for the client.
    pub response: u64,
    /// Bytes of all bodies.
    pub total: u64,
}

/// A health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path and query.
    pub path: String,
    /// Time between two checks.
    pub interval: Duration,
    /// Maximum time of each part of a check.
    pub timeout: Duration,
    /// Status of a healthy upstream; `None` for 200 to 399.
    pub status: Option<u16>,
    /// Failed checks in a row after which the upstream gets no requests.
    pub failures: u32,
    /// Successful checks in a row after which it gets requests again.
    pub successes: u32,
}

impl Proxy {
    /// Returns the files that TLS to upstreams needs.
    pub fn tls_files(&self) -> impl Iterator<Item = &PathBuf> {
        let pair = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        self.authority.iter().chain(pair)
    }

    /// Describes the proxy in one line.
    pub(super) fn describe(&self) -> String {
        let names = self.upstreams.iter().map(|upstream| upstream.address.to_string());
        let mut text = names.collect::<Vec<_>>().join(", ");
        if self.upstreams.len() > 1 {
            text.push_str(match self.balance {
                Balance::LeastLoaded => ", least-loaded",
                Balance::LeastConnections => ", least-connections",
                Balance::RoundRobin => ", round-robin",
                Balance::Hash(_) => ", by hash",
            });
        }
        match (&self.strip, &*self.base) {
            (Some(prefix), "") => text.push_str(&format!(", without the prefix {prefix}")),
            (Some(prefix), base) => text.push_str(&format!(", with {base} in place of {prefix:?}")),
            (None, _) => {}
        }
        if let Some(path) = &self.path {
            text.push_str(&format!(", with the path {path}"));
        }
        text
    }

    /// Splits the prefix to remove from a path: the prefix, and the path that upstreams get. `None` if the path does not
    /// have the prefix.
    pub fn strip<'p>(&self, path: &'p [u8]) -> Option<(&'p [u8], &'p [u8])> {
        let prefix = self.strip.as_deref()?.as_bytes();
        let rest = path.strip_prefix(prefix)?;
        matches!(rest.first(), None | Some(b'/')).then(|| path.split_at(prefix.len()))
    }
}

/// Splits the URL of an upstream before its path. A single slash counts as none.
pub(super) fn split_path(url: &str) -> (&str, Option<&str>) {
    let start = match url.find("://") {
        Some(at) if !url.starts_with("srv+") => at + 3,
        _ => return (url, None),
    };
    match url[start..].find('/').map(|at| url.split_at(start + at)) {
        Some((address, path)) if path != "/" => (address, Some(path)),
        _ => (url, None),
    }
}

/// Checks `table` and fills in its defaults.
///
/// `pattern` belongs to the route that has the table.
pub(super) fn read(
    table: &Spanned<ProxyTable>,
    pattern: &Pattern,
    maps: &Maps,
    report: Report<'_>,
) -> Proxy {
    Reader { table, pattern, maps, report }.proxy()
}

struct Reader<'a> {
    table: &'a Spanned<ProxyTable>,
    pattern: &'a Pattern,
    maps: &'a Maps,
    report: Report<'a>,
}

impl<'a> Reader<'a> {
    fn proxy(mut self) -> Proxy {
        let table = self.table;
        let seconds = Duration::from_secs;
        let timeout = |value: Option<DurationValue>, default| {
            let time = value.map_or(seconds(default), |time| time.0);
            (!time.is_zero()).then_some(time)
        };
        Proxy {
            sticky: table.sticky.as_ref().map(|sticky| Sticky::read(sticky, self.report)),
            slow_start: table.slow_start.map_or(Duration::ZERO, |time| time.0),
            upstreams: self.upstreams(),
            balance: self.balance(),
            retry: self.retry(),
            eject: self.eject(),
            health: self.health(),
            strip: self.strip().or_else(|| self.replaced_prefix()),
            base: self.base().map_or_else(String::new, |base| match self.pattern.is_literal() {
                // All of the path is replaced.
                true => base.to_owned(),
                false => base.trim_end_matches('/').to_owned(),
            }),
            rewrites_location: table.rewrite_location.unwrap_or(true),
            method: self.method(),
            body: table.body.clone(),
            passes_fields: table.pass_fields.unwrap_or(true),
            references: self.references(),
            path: self.path(),
            host: self.host(),
            set_request_fields: self.set_request_fields(),
            passes_credentials: table.authorization.unwrap_or(false),
            passes_server_field: table.pass_server_field.unwrap_or(false),
            buffer: buffer(table.buffer.as_ref()),
            intercepts_errors: table.intercept_errors.unwrap_or(false),
            connections: self.connections(),
            tunnels: table.tunnels.unwrap_or(16384),
            queue: table.queue.unwrap_or(1024),
            queue_timeout: self.time("queue_timeout", &table.queue_timeout, seconds(30)),
            idle_connections: table.idle_connections.unwrap_or(32),
            keep_alive: self.time("keep_alive", &table.keep_alive, seconds(30)),
            connect_timeout: self.time("connect_timeout", &table.connect_timeout, seconds(5)),
            first_byte_timeout: timeout(table.first_byte_timeout, 60),
            idle_timeout: timeout(table.idle_timeout, 60),
            tunnel_timeout: timeout(table.tunnel_timeout, 3600),
            authority: self.authority(),
            verify: self.verify(),
            server_name: self.server_name(),
            client_certificate: self.client_certificate(),
            proxy_protocol: table.proxy_protocol,
            forward_client_certificate: table
                .forward_client_certificate
                .as_ref()
                .map(|how| how.value),
        }
    }

    fn upstreams(&mut self) -> Vec<Upstream> {
        let table = self.table;
        let place = table.to.span.clone().or_else(|| table.span.clone());
        if table.to.0.is_empty() {
            (self.report)(&place, "proxy: the list of upstreams is empty".into());
        }
        let mut upstreams: Vec<Upstream> = Vec::new();
        for target in &table.to.0 {
            let place = target.url.span.clone().or_else(|| place.clone());
            let weight = self.between("weight", &target.weight, 1, 1, 1000);
            let (text, base) = split_path(&target.url);
            if base != self.base() {
                let what = "proxy: all upstreams of a route have the same path";
                (self.report)(&place, what.into());
            }
            match address(text) {
                Ok(address) if upstreams.iter().any(|other| other.address == address) => {
                    let what = format!("proxy: the upstream {address} is listed twice");
                    (self.report)(&place, what);
                }
                Ok(address) => {
                    upstreams.push(Upstream { address, weight, backup: target.backup });
                }
                Err(what) => (self.report)(&place, format!("proxy: {what}")),
            }
        }
        upstreams
    }

    fn balance(&mut self) -> Balance {
        let Some(name) = &self.table.balance else { return Balance::LeastLoaded };
        match name.as_str() {
            "least-loaded" => Balance::LeastLoaded,
            "least-connections" => Balance::LeastConnections,
            "round-robin" => Balance::RoundRobin,
            "hash:address" => Balance::Hash(HashKey::Address),
            other => match other.strip_prefix("hash:").filter(|field| is_token(field.as_bytes())) {
                Some(field) => Balance::Hash(HashKey::Field(field.to_owned())),
                None => {
                    let names =
                        ["least-loaded", "least-connections", "round-robin", "hash:address"];
                    let hint = nearest(other, &names);
                    let hint = hint.map(|name| format!("; did you mean `{name}`?"));
                    let what = format!(
                        "proxy: balance: {other:?} is not one of `{}` and `hash:FIELD`{}",
                        names.join("`, `"),
                        hint.unwrap_or_default()
                    );
                    (self.report)(&name.span, what);
                    Balance::LeastLoaded
                }
            },
        }
    }

    fn retry(&mut self) -> Option<Retries> {
        let default = RetryTable::default();
        let table = match &self.table.retry {
            Some(Retry::Off) => return None,
            Some(Retry::Table(table)) => table,
            None => &default,
        };
        let timeout = table.timeout.as_ref().map(|time| time.value.0);
        for status in table.statuses.iter().flatten() {
            if !(400..600).contains(&status.value) {
                let what = format!("proxy: retry: {} is not the status of an error", status.value);
                (self.report)(&status.span, what);
            }
        }
        Some(Retries {
            attempts: self.between("retry: attempts", &table.attempts, 2, 1, 10),
            timeout: timeout.map(|time| self.time("retry: timeout", &table.timeout, time)),
            budget: self.between("retry: budget", &table.budget, 20, 1, 100),
            statuses: table.statuses.iter().flatten().map(|status| status.value).collect(),
        })
    }

    fn eject(&mut self) -> Ejection {
        let default = EjectTable::default();
        let table = self.table.eject.as_ref().unwrap_or(&default);
        Ejection {
            failures: table.failures.unwrap_or(3),
            time: self.time("eject: time", &table.time, Duration::from_secs(10)),
            share: self.between("eject: share", &table.share, 50, 0, 100),
        }
    }

    fn health(&mut self) -> Option<HealthCheck> {
        let table = self.table.health.as_ref()?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if !table.path.starts_with('/') || !table.path.bytes().all(is_plain) {
            let what =
                format!("proxy: health: {:?} is not a path such as \"/health\"", table.path.value);
            (self.report)(&table.path.span, what);
        }
        if let Some(status) =
            table.status.as_ref().filter(|status| !(200..600).contains(&status.value))
        {
            let what = format!("proxy: health: {} is not a response status", status.value);
            (self.report)(&status.span, what);
        }
        Some(HealthCheck {
            path: table.path.value.clone(),
            interval: self.time("health: interval", &table.interval, Duration::from_secs(10)),
            timeout: self.time("health: timeout", &table.timeout, Duration::from_secs(5)),
            status: table.status.as_ref().map(|status| status.value),
            failures: self.between("health: failures", &table.failures, 2, 1, 100),
            successes: self.between("health: successes", &table.successes, 1, 1, 100),
        })
    }

    fn between(
        &mut self,
        key: &str,
        number: &Option<Spanned<u32>>,
        default: u32,
        least: u32,
        most: u32,
    ) -> u32 {
        let Some(number) = number else { return default };
        if !(least..=most).contains(&number.value) {
            let what = format!("proxy: {key} is not between {least} and {most}");
            (self.report)(&number.span, what);
        }
        number.value
    }

    fn strip(&mut self) -> Option<String> {
        let strip = self.table.strip.as_ref()?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%');
        let has_dots = strip.split('/').any(|segment| matches!(segment, "." | ".."));
        if !strip.starts_with('/') || !strip.bytes().all(is_plain) || has_dots {
            let what = format!("proxy: strip: {:?} is not a prefix such as \"/app\"", strip.value);
            (self.report)(&strip.span, what);
        }
        let prefix = strip.trim_end_matches('/');
        (!prefix.is_empty()).then(|| prefix.to_owned())
    }

    /// Returns the path of the upstreams; `None` if their URLs have none.
    fn base(&self) -> Option<&'a str> {
        let table: &'a Spanned<ProxyTable> = self.table;
        table.to.0.first().and_then(|target| split_path(&target.url).1)
    }

    /// Returns the prefix of the route that the path of the upstreams replaces.
    fn replaced_prefix(&mut self) -> Option<String> {
        let base = self.base()?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%');
        let has_dots = base.split('/').any(|segment| matches!(segment, "." | ".."));
        let place = self.table.to.span.clone().or_else(|| self.table.span.clone());
        if !base.bytes().all(is_plain) || has_dots {
            let what = format!("proxy: {base:?} is not a path such as \"/base/\"");
            (self.report)(&place, what);
        }
        let prefix = String::from_utf8_lossy(self.pattern.prefix()).into_owned();
        let is_directory = prefix.is_empty() || prefix.ends_with('/');
        if self.pattern.regex().is_some()
            || !self.pattern.suffix().is_empty()
            || !self.pattern.is_literal() && !is_directory
        {
            let what = format!(
                "proxy: the path {base:?} replaces the text before the `*` of the route's pattern, which must end with `/*`; \
                 or name the prefix by `strip`"
            );
            (self.report)(&place, what);
        }
        Some(prefix.trim_end_matches('/').to_owned())
    }

    fn path(&mut self) -> Option<UpstreamPath> {
        let path = self.table.path.as_ref()?;
        let parsed = match self.table.strip.is_some() || self.base().is_some() {
            true => Err("it replaces `strip` and the paths of URLs".to_owned()),
            false => UpstreamPath::parse(path, self.pattern, self.maps),
        };
        parsed.map_err(|what| (self.report)(&path.span, format!("proxy: path: {what}"))).ok()
    }

    fn host(&mut self) -> UpstreamHost {
        let Some(host) = &self.table.host else { return UpstreamHost::Client };
        match host.as_str() {
            "preserve" => UpstreamHost::Client,
            "upstream" => UpstreamHost::Upstream,
            name => match RequestField::host(name, self.maps) {
                Ok(field) => UpstreamHost::Named(field),
                Err(what) => {
                    (self.report)(&host.span, format!("proxy: host: {what}"));
                    UpstreamHost::Client
                }
            },
        }
    }

    fn set_request_fields(&mut self) -> Vec<RequestField> {
        let mut fields = Vec::new();
        for (name, value) in self.table.set_request_fields.iter().flatten() {
            if let Err(what) = check_field(name, value) {
                (self.report)(&name.span, format!("proxy: set_request_fields: {what}"));
            }
            match RequestField::new(name, value, self.maps) {
                Ok(field) => fields.push(field),
                Err(what) => {
                    (self.report)(&value.span, format!("proxy: set_request_fields: {what}"));
                }
            }
        }
        fields
    }

    fn method(&mut self) -> Option<String> {
        let method = self.table.method.as_ref()?;
        // A response to HEAD has no body for the client.
        let is_valid = is_token(method.as_bytes()) && !matches!(&***method, "HEAD" | "CONNECT");
        if !is_valid {
            let what = format!("proxy: method: {:?} is not a method such as POST", method.value);
            (self.report)(&method.span, what);
        }
        Some(method.value.clone())
    }

    fn references(&mut self) -> References {
        let table = self.table;
        let mut read = |key: &str, list: &Option<Spanned<Vec<ReplacementTable>>>| {
            list.as_ref().map(|list| replacements(key, list, self.maps, self.report))
        };
        let location = read("replace_location", &table.replace_location);
        let cookie_domain = read("replace_cookie_domain", &table.replace_cookie_domain);
        let cookie_path = read("replace_cookie_path", &table.replace_cookie_path);
        let flags = table.cookie_flags.as_ref();
        References {
            location,
            cookie_domain: cookie_domain.unwrap_or_default(),
            cookie_path: cookie_path.unwrap_or_default(),
            cookie_flags: flags.map_or_else(Vec::new, |flags| cookie_flags(flags, self.report)),
        }
    }

    fn connections(&mut self) -> usize {
        let Some(connections) = &self.table.connections else { return 1024 };
        if connections.value == 0 {
            let what = "proxy: connections is 0, so that no request could be forwarded";
            (self.report)(&connections.span, what.into());
        }
        connections.value
    }

    fn authority(&mut self) -> Option<PathBuf> {
        let authority = self.table.authority.as_ref()?;
        self.needs_tls("authority", &authority.span);
        Some(authority.value.clone())
    }

    fn verify(&mut self) -> bool {
        let Some(verify) = &self.table.verify else { return true };
        self.needs_tls("verify", &verify.span);
        if !verify.value && self.table.authority.is_some() {
            let what = "proxy: with verify = false, no certificate has to be from `authority`";
            (self.report)(&verify.span, what.into());
        }
        verify.value
    }

    fn server_name(&mut self) -> Option<String> {
        let name = self.table.server_name.as_ref()?;
        self.needs_tls("server_name", &name.span);
        if ServerName::try_from(name.as_str()).is_err() {
            let what = format!("proxy: server_name: {:?} is not a host name", name.value);
            (self.report)(&name.span, what);
        }
        Some(name.value.clone())
    }

    fn client_certificate(&mut self) -> Option<(PathBuf, PathBuf)> {
        let table = self.table.client_certificate.as_ref()?;
        self.needs_tls("client_certificate", &table.span);
        Some((table.certificate.value.clone(), table.key.value.clone()))
    }

    /// Reports a key that does nothing, since no upstream has TLS.
    fn needs_tls(&mut self, key: &str, place: &Span) {
        let is_secure = |url: &str| {
            let scheme = url.split_once('+').map_or(url, |(_, url)| url);
            scheme.starts_with("https:") || scheme.starts_with("h2:")
        };
        if !self.table.to.0.iter().any(|to| is_secure(&to.url)) {
            let what = format!("proxy: {key} does nothing without an https upstream");
            (self.report)(place, what);
        }
    }

    fn time(
        &mut self,
        key: &str,
        value: &Option<Spanned<DurationValue>>,
        default: Duration,
    ) -> Duration {
        let Some(value) = value else { return default };
        if value.value.0.is_zero() {
            (self.report)(&value.span, format!("proxy: {key} is 0: write how long to wait"));
        }
        value.value.0
    }
}

impl Spanned<ProxyTable> {
    /// Gives texts without a position that of the table: a single text has none.
    pub(super) fn set_places(&mut self) {
        let to = &mut self.value.to;
        let place: Span = to.span.take().or_else(|| self.span.clone());
        for target in &mut to.value.0 {
            let text = &mut target.url;
            text.span = text.span.take().or_else(|| place.clone());
        }
        to.span = place;
    }
}

fn buffer(table: Option<&BufferTable>) -> Buffer {
    let bytes = |size: fn(&BufferTable) -> Option<Size>| Some(table.and_then(size)?.0);
    Buffer {
        request: bytes(|table| table.request),
        response: bytes(|table| table.response).unwrap_or(0),
        total: bytes(|table| table.total).unwrap_or(256 << 20),
    }
}

/// Checks a field to set in requests.
fn check_field(name: &str, value: &str) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    if !is_token(name.as_bytes()) {
        return Err(format!("{name:?} is not a field name"));
    }
    if !is_field_value(value.as_bytes()) {
        return Err(format!("the value of {name} contains a control character"));
    }
    if HOP_BY_HOP.contains(&&*lower) || matches!(&*lower, "content-length" | "expect") {
        return Err(format!("{name} is the server's to send"));
    }
    if lower == "host" {
        return Err("the host is chosen by `host`".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{ProxyTarget, ProxyTargets};

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let table = Spanned::detached(ProxyTable {
            strip: Some(Spanned::detached("/app/".into())),
            ..ProxyTable::to(ProxyTargets(vec![ProxyTarget::at("http://a".into())]))
        });
        let maps = Maps::default();
        let proxy = read(&table, &Pattern::EVERYTHING, &maps, &mut |_, what| panic!("{what}"));
        assert_eq!(proxy.strip(b"/app/x"), Some((&b"/app"[..], &b"/x"[..])));
        assert_eq!(proxy.strip(b"/app"), Some((&b"/app"[..], &b""[..])));
        assert_eq!(proxy.strip(b"/apple"), None);
    }
}
