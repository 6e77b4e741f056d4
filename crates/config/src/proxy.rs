//! The table `proxy`: forwards requests to other HTTP servers.

use std::path::PathBuf;
use std::time::Duration;

use super::fields::RequestField;
use super::file::{ForwardCertificate, ProxyProtocol};

mod address;
mod path;
mod read;
mod references;
mod sticky;

pub use self::address::{Service, UpstreamAddress};
pub(super) use self::address::{address, service_name};
pub use self::path::UpstreamPath;
pub(super) use self::read::read;
pub use self::references::{CookieFlags, References, Replacement};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{ProxyTable, ProxyTarget, ProxyTargets};
    use crate::map::Maps;
    use crate::pattern::Pattern;
    use crate::spanned::Spanned;

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
