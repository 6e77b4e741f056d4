//! Questions to the Domain Name System, and their answers.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};
use hickory_resolver::{Resolver, TokioResolver};

/// An answer, and how long it may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The records that were found; not empty.
    pub items: Vec<T>,
    /// The time to live, within bounds.
    pub time: Duration,
}

/// A server of a service: of an SRV record (RFC 2782), or at an address of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Those with the lowest number are used first.
    pub priority: u16,
    /// The target's part of the requests among those with the same priority.
    pub weight: u16,
    /// The name of the target.
    pub host: String,
    /// The port of the target.
    pub port: u16,
    /// The address; `None` if `host` is to be resolved.
    pub address: Option<IpAddr>,
}

/// An answer is used for at least this long, whatever its TTL.
const MIN_TIME: Duration = Duration::from_secs(1);
/// An answer is used for at most this long: /etc/hosts has no TTL.
const MAX_TIME: Duration = Duration::from_secs(60);
/// Maximum wait for one response of a name server.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Targets of a service at most.
const MAX_TARGETS: usize = 256;

/// Returns why names cannot be resolved: that of a server, whose port is known, or those that the SRV records of a name have.
pub async fn unresolved(servers: &[SocketAddr], name: &str, port: Option<u16>) -> Vec<String> {
    let hosts = match (port, records(servers, name)) {
        (Some(_), _) => vec![name.to_owned()],
        (None, records) => match records.await {
            Ok(answer) => answer.items.into_iter().map(|target| target.host).collect(),
            Err(reason) => return vec![reason],
        },
    };
    let mut reasons = Vec::new();
    for host in hosts.into_iter().collect::<BTreeSet<_>>() {
        reasons.extend(addresses(servers, &host).await.err());
    }
    reasons.sort();
    reasons.dedup();
    reasons
}

/// Returns the addresses of the servers that the SRV records of `name` have, without duplicates and in order.
///
/// # Errors
/// The name has no records, or none of them has an address.
pub async fn replicas(servers: &[SocketAddr], name: &str) -> Result<Vec<SocketAddr>, String> {
    let (mut found, mut failure) = (BTreeSet::new(), None);
    for Target { host, port, .. } in records(servers, name).await?.items {
        match addresses(servers, &host).await {
            // One address of each: a server may have several.
            Ok(answer) => {
                found.extend(answer.items.first().map(|address| SocketAddr::new(*address, port)));
            }
            Err(reason) => failure = Some(reason),
        }
    }
    match (found.is_empty(), failure) {
        (true, Some(reason)) => Err(reason),
        _ => Ok(found.into_iter().collect()),
    }
}

/// Returns the addresses of a name: from /etc/hosts, or from the name servers, which are those of /etc/resolv.conf if
/// `servers` is empty.
///
/// # Errors
/// The name has no address, or no name server has responded.
pub async fn addresses(servers: &[SocketAddr], host: &str) -> Result<Answer<IpAddr>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("resolving {host} failed: {error}");
    let resolver = resolver(servers).await.map_err(|error| failed(&error))?;
    let found = resolver.lookup_ip(host).await.map_err(|error| failed(&reason(&error)))?;
    let items: Vec<_> = found.iter().collect();
    if items.is_empty() {
        return Err(format!("{host} has no address"));
    }
    Ok(Answer { items, time: time(found.valid_until()) })
}

/// Returns why a question has no answer. The names of a resolver's types mean nothing to those who read it.
pub(crate) fn reason(error: &NetError) -> String {
    match error {
        _ if error.is_nx_domain() => "there is no such name".to_owned(),
        _ if error.is_no_records_found() => "the name has no such records".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the targets of a service: with a port, each address of the name, in their order; otherwise those that the records
/// of a name such as `_http._tcp.example.com` have.
///
/// # Errors
/// The name has none, or no name server has responded.
pub async fn targets(
    servers: &[SocketAddr],
    name: &str,
    port: Option<u16>,
) -> Result<Answer<Target>, String> {
    let Some(port) = port else { return records(servers, name).await };
    let Answer { mut items, time } = addresses(servers, name).await?;
    items.sort();
    items.dedup();
    let target = |address| Target {
        priority: 0,
        weight: 1,
        host: name.to_owned(),
        port,
        address: Some(address),
    };
    let items = items.into_iter().take(MAX_TARGETS).map(target).collect();
    Ok(Answer { items, time })
}

async fn records(servers: &[SocketAddr], name: &str) -> Result<Answer<Target>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("resolving {name} failed: {error}");
    let resolver = resolver(servers).await.map_err(|error| failed(&error))?;
    let found = resolver.srv_lookup(name).await.map_err(|error| failed(&reason(&error)))?;
    let targets = found.answers().iter().filter_map(|record| match &record.data {
        // The name `.` means that there is no such service.
        RData::SRV(srv) if !srv.target.is_root() && srv.port != 0 => Some(Target {
            priority: srv.priority,
            weight: srv.weight,
            host: srv.target.to_ascii().trim_end_matches('.').to_owned(),
            port: srv.port,
            address: None,
        }),
        _ => None,
    });
    let items: Vec<_> = targets.take(MAX_TARGETS).collect();
    if items.is_empty() {
        return Err(format!("{name} has no SRV record"));
    }
    Ok(Answer { items, time: time(found.valid_until()) })
}

/// Returns the domain name of a text, with or without a dot at its end.
pub(crate) fn domain(text: &str) -> Result<Name, String> {
    let mut name = Name::from_ascii(text).map_err(|error| format!("{text:?}: {error}"))?;
    name.set_fqdn(true);
    Ok(name)
}

fn time(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).clamp(MIN_TIME, MAX_TIME)
}

/// Returns a resolver with the present content of /etc/hosts and /etc/resolv.conf.
pub(crate) async fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, String> {
    let servers = servers.to_vec();
    // Reading files may block.
    let made = tokio::task::spawn_blocking(move || make(&servers)).await;
    made.map_err(|error| error.to_string())?
}

fn make(servers: &[SocketAddr]) -> Result<TokioResolver, String> {
    let mut builder = if servers.is_empty() {
        TokioResolver::builder_tokio().map_err(|error| format!("/etc/resolv.conf: {error}"))?
    } else {
        let server = |address: &SocketAddr| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                connection.port = address.port();
            }
            server
        };
        let config = ResolverConfig::from_name_servers(servers.iter().map(server).collect());
        Resolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    let options = builder.options_mut();
    options.timeout = TIMEOUT;
    options.attempts = 2;
    // What is known is kept by the upstream.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Always;
    builder.build().map_err(|error| error.to_string())
}
