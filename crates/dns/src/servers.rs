//! The name servers of a zone, and the name that stands for another one.

use std::net::{IpAddr, SocketAddr};

use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::{RData, RecordType};

use crate::resolve::{addresses, domain, reason, resolver};
use crate::update::text;

/// A name server of a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameServer {
    /// Its name.
    pub name: String,
    /// Its addresses; not empty.
    pub addresses: Vec<IpAddr>,
}

/// CNAME records that are followed at most.
const MAX_ALIASES: usize = 8;
/// Name servers of a zone at most.
const MAX_SERVERS: usize = 16;

/// Returns the name to which the CNAME records of `name` lead; `name` itself if it has none.
///
/// # Errors
/// No name server has responded, or there are too many records.
pub async fn canonical_name(servers: &[SocketAddr], name: &str) -> Result<String, String> {
    let resolver = resolver(servers).await?;
    let mut name = name.to_owned();
    for _ in 0..MAX_ALIASES {
        let found = records(&resolver, &name, RecordType::CNAME).await?;
        let Some(target) = found.into_iter().find_map(|data| match data {
            RData::CNAME(target) => Some(text(&target.0)),
            _ => None,
        }) else {
            return Ok(name);
        };
        name = target;
    }
    Err(format!("{name}: there are more than {MAX_ALIASES} CNAME records"))
}

/// Returns the name servers of the zone that `name` is in.
///
/// # Errors
/// The resolver has not responded, or no name server of the zone has an address.
pub async fn name_servers(servers: &[SocketAddr], name: &str) -> Result<Vec<NameServer>, String> {
    let resolver = resolver(servers).await?;
    let mut zone = name;
    loop {
        let found = records(&resolver, zone, RecordType::NS).await?;
        let names: Vec<_> = found
            .into_iter()
            .filter_map(|data| match data {
                RData::NS(name) => Some(text(&name.0)),
                _ => None,
            })
            .take(MAX_SERVERS)
            .collect();
        if !names.is_empty() {
            return with_addresses(servers, zone, names).await;
        }
        match zone.split_once('.') {
            Some((_, parent)) => zone = parent,
            None => return Err(format!("no zone of {name} has NS records")),
        }
    }
}

async fn with_addresses(
    servers: &[SocketAddr],
    zone: &str,
    names: Vec<String>,
) -> Result<Vec<NameServer>, String> {
    let mut found = Vec::new();
    let mut failure = String::new();
    for name in names {
        match addresses(servers, &name).await {
            Ok(records) => found.push(NameServer { name, addresses: records.items }),
            Err(error) => failure = error,
        }
    }
    match found.is_empty() {
        true => Err(format!("no name server of {zone} has an address: {failure}")),
        false => Ok(found),
    }
}

/// Returns the records of this type; none if there is no such name.
async fn records(
    resolver: &TokioResolver,
    name: &str,
    kind: RecordType,
) -> Result<Vec<RData>, String> {
    // Without the domains that /etc/resolv.conf would append.
    match resolver.lookup(domain(name)?, kind).await {
        Ok(found) => Ok(found.answers().iter().map(|record| record.data.clone()).collect()),
        Err(error) if error.is_nx_domain() || error.is_no_records_found() => Ok(Vec::new()),
        Err(error) => Err(format!("the {kind} records of {name}: {}", reason(&error))),
    }
}
