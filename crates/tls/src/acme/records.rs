//! The records of DNS-01 that an order needs (RFC 8555 §8.4).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use dunlin_config::{AcmeDns, DnsUpdates, Publisher, TsigAlgorithm, TsigKey, TsigSecret};
use dunlin_dns::{
    Change, KeyAlgorithm, TextRecord, UpdateKey, addresses, canonical_name, has_text, name_servers,
    update, zone_of,
};
use tokio::time::{Instant, sleep, timeout};

use super::hook;

/// Pauses between two queries for a record: the first one, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// After this time, servers that have never responded are ignored if others have the record.
const PATIENCE: Duration = Duration::from_secs(15);

/// The published records of an order.
pub(super) struct Records<'a> {
    dns: &'a AcmeDns,
    published: Vec<Published<'a>>,
}

struct Published<'a> {
    /// The name that it proves.
    domain: String,
    record: TextRecord,
    place: Place<'a>,
}

/// Where a record is.
enum Place<'a> {
    /// In this zone of a server that gets updates.
    Zone(SocketAddr, String, Option<UpdateKey>),
    /// Where a program publishes it, within this time.
    Program(&'a [String], Duration),
}

impl<'a> Records<'a> {
    pub(super) fn new(dns: &'a AcmeDns) -> Self {
        Self { dns, published: Vec::new() }
    }

    /// Publishes the record that proves `domain`, at the name to which CNAME records lead.
    ///
    /// # Errors
    /// The record was not published.
    pub(super) async fn add(&mut self, domain: &str, value: String) -> Result<(), String> {
        let name = format!("_acme-challenge.{domain}");
        let name = canonical_name(&self.dns.resolvers, &name).await?;
        let place = match &self.dns.publisher {
            Publisher::Updates(updates) => self.zone(updates, &name).await?,
            Publisher::Command(words, limit) => Place::Program(words, *limit),
        };
        let record = TextRecord { name, value };
        let published = Published { domain: domain.to_owned(), record, place };
        let added = published.change(Change::Add).await;
        if added.is_err() {
            // The response may be lost, or a program has failed after its last step.
            let _ = published.change(Change::Remove).await;
            return added;
        }
        self.published.push(published);
        Ok(())
    }

    /// Waits until the name servers of the zones have the records.
    ///
    /// # Errors
    /// A server does not have a record in time.
    pub(super) async fn propagate(&self) -> Result<(), String> {
        for Published { record, .. } in &self.published {
            let mut servers = self.servers(&record.name).await?;
            let limit = self.dns.propagation_timeout;
            if timeout(limit, has_spread(&mut servers, record)).await.is_err() {
                let lacks: Vec<_> = servers.iter().map(Server::to_string).collect();
                return Err(format!(
                    "the record {} is not published after {} s: {}",
                    record.name,
                    limit.as_secs_f64(),
                    lacks.join("; ")
                ));
            }
        }
        Ok(())
    }

    /// Removes all records. A failure is logged.
    pub(super) async fn remove(self) {
        for published in &self.published {
            if let Err(error) = published.change(Change::Remove).await {
                let record = published.record.name.as_str();
                tracing::warn!(record, "ACME: the record was not removed: {error}");
            }
        }
    }

    /// Returns the server that is updated, and the zone of the record.
    async fn zone(&self, updates: &DnsUpdates, name: &str) -> Result<Place<'a>, String> {
        let key = updates.key.as_ref().map(update_key).transpose()?;
        let addresses = self.resolve(&updates.server).await?;
        let mut failure = String::new();
        for server in addresses {
            let zone = match &updates.zone {
                Some(zone) => Ok(zone.clone()),
                None => zone_of(server, name).await,
            };
            match zone {
                Ok(zone) => return Ok(Place::Zone(server, zone, key)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Returns the servers that must have a record.
    async fn servers(&self, name: &str) -> Result<Vec<Server>, String> {
        let Some(configured) = &self.dns.nameservers else {
            let found = name_servers(&self.dns.resolvers, name).await?;
            let server = |server: dunlin_dns::NameServer| {
                let addresses = server.addresses.iter().map(|address| (*address, 53).into());
                Server::new(server.name, addresses.collect())
            };
            return Ok(found.into_iter().map(server).collect());
        };
        let mut servers = Vec::new();
        for server in configured {
            let name = format!("{} port {}", server.0, server.1);
            servers.push(Server::new(name, self.resolve(server).await?));
        }
        Ok(servers)
    }

    async fn resolve(&self, (host, port): &(String, u16)) -> Result<Vec<SocketAddr>, String> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, *port)]);
        }
        let found = addresses(&self.dns.resolvers, host).await?;
        Ok(found.items.into_iter().map(|address| SocketAddr::new(address, *port)).collect())
    }
}

impl Published<'_> {
    async fn change(&self, change: Change) -> Result<(), String> {
        let Self { domain, record, place } = self;
        match place {
            Place::Zone(server, zone, key) => {
                update(*server, zone, (change, record), key.as_ref()).await
            }
            Place::Program(words, limit) => {
                hook::run(words, *limit, domain, (change, record)).await
            }
        }
    }
}

/// A server that does not have a record yet.
struct Server {
    name: String,
    addresses: Vec<SocketAddr>,
    has_responded: bool,
    /// The last error.
    error: Option<String>,
}

impl Server {
    fn new(name: String, addresses: Vec<SocketAddr>) -> Self {
        Self { name, addresses, has_responded: false, error: None }
    }

    /// Returns `true` if one of its addresses has the record.
    async fn has(&mut self, record: &TextRecord) -> bool {
        for address in &self.addresses {
            match has_text(*address, record).await {
                Ok(true) => return true,
                Ok(false) => (self.has_responded, self.error) = (true, None),
                Err(error) => self.error = Some(error),
            }
        }
        false
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.error {
            Some(error) => f.write_str(error),
            None => write!(f, "name server {} does not have it", self.name),
        }
    }
}

/// Waits until all servers have the record, and removes those that have it from the list.
async fn has_spread(servers: &mut Vec<Server>, record: &TextRecord) {
    let (began, all) = (Instant::now(), servers.len());
    let (mut pause, longest) = PAUSES;
    loop {
        let mut index = 0;
        while index < servers.len() {
            if servers[index].has(record).await {
                servers.remove(index);
            } else {
                index += 1;
            }
        }
        let is_silent = |server: &Server| !server.has_responded;
        let others_have_it = servers.len() < all && servers.iter().all(is_silent);
        if servers.is_empty() || others_have_it && began.elapsed() > PATIENCE {
            for server in servers.iter() {
                tracing::warn!(record = record.name, "ACME: not verified everywhere: {server}");
            }
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Returns the key of updates with its secret.
///
/// # Errors
/// The name is not a domain name, or the file of the secret cannot be used; the message names the file.
pub(crate) fn update_key(key: &TsigKey) -> Result<UpdateKey, String> {
    let algorithm = match key.algorithm {
        TsigAlgorithm::HmacSha256 => KeyAlgorithm::HmacSha256,
        TsigAlgorithm::HmacSha384 => KeyAlgorithm::HmacSha384,
        TsigAlgorithm::HmacSha512 => KeyAlgorithm::HmacSha512,
    };
    let (place, text) = match &key.secret {
        TsigSecret::Text(secret) => ("secret".to_owned(), secret.reveal().to_owned()),
        TsigSecret::File(file) => {
            let place = format!("secret_file {}", file.display());
            let text = std::fs::read_to_string(file);
            let text = text.map_err(|error| format!("dns: {place}: {error}"))?;
            (place, text)
        }
    };
    match BASE64_STANDARD.decode(text.trim()) {
        Ok(secret) if !secret.is_empty() => UpdateKey::new(&key.name, algorithm, secret),
        Ok(_) => Err(format!("dns: {place}: it is empty")),
        Err(_) => Err(format!("dns: {place}: it is not in Base64")),
    }
}
