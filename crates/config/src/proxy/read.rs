//! Checks the table `proxy` and fills in its defaults.

use std::path::PathBuf;
use std::time::Duration;

use dunlin_http::semantics::{is_field_value, is_token};
use rustls::pki_types::ServerName;

use super::references::{References, cookie_flags, replacements};
use super::{
    Balance, Buffer, Ejection, HashKey, HealthCheck, Proxy, Retries, Sticky, Upstream,
    UpstreamHost, UpstreamPath, address, split_path,
};
use crate::error::nearest;
use crate::fields::RequestField;
use crate::file::{BufferTable, EjectTable, ProxyTable, ReplacementTable, Retry, RetryTable};
use crate::forward_fields::HOP_BY_HOP;
use crate::map::Maps;
use crate::pattern::Pattern;
use crate::report::Report;
use crate::spanned::{Span, Spanned};
use crate::units::{DurationValue, Size};

/// Checks `table` and fills in its defaults.
///
/// `pattern` belongs to the route that has the table.
pub(crate) fn read(
    table: &Spanned<ProxyTable>,
    pattern: &Pattern,
    maps: &Maps,
    report: Report<'_>,
) -> Proxy {
    Reader { table, pattern, maps, report }.proxy()
}

impl Spanned<ProxyTable> {
    /// Gives texts without a position that of the table: a single text has none.
    pub(crate) fn set_places(&mut self) {
        let to = &mut self.value.to;
        let place: Span = to.span.take().or_else(|| self.span.clone());
        for target in &mut to.value.0 {
            let text = &mut target.url;
            text.span = text.span.take().or_else(|| place.clone());
        }
        to.span = place;
    }
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
