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
/// Addresses of a server that are tried for an update.
const MAX_ADDRESSES: usize = 4;
/// Time after which servers that have never responded are ignored.
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
        let record = TextRecord { name, value };
        let updates = match &self.dns.publisher {
            Publisher::Updates(updates) => updates,
            Publisher::Command(words, limit) => {
                return self.add_at(domain, record, Place::Program(words, *limit)).await;
            }
        };
        let key = updates.key.as_ref().map(update_key).transpose()?;
        let mut failure = String::new();
        for server in self.resolve(&updates.server).await?.into_iter().take(MAX_ADDRESSES) {
            let added = match zone(server, updates, &record.name).await {
                Ok(zone) => {
                    let place = Place::Zone(server, zone, key.clone());
                    self.add_at(domain, record.clone(), place).await
                }
                Err(error) => Err(error),
            };
            match added {
                Ok(()) => return Ok(()),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn add_at(
        &mut self,
        domain: &str,
        record: TextRecord,
        place: Place<'a>,
    ) -> Result<(), String> {
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
            if timeout(limit, has_spread(&mut servers, record, PATIENCE)).await.is_err() {
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

/// Returns the zone that is updated for the name.
async fn zone(server: SocketAddr, updates: &DnsUpdates, name: &str) -> Result<String, String> {
    match &updates.zone {
        Some(zone) => Ok(zone.clone()),
        None => zone_of(server, name).await,
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

/// Waits until all servers have the record, and removes those that have it from the list. After `patience`, servers that have never
/// responded are ignored if others have it.
async fn has_spread(servers: &mut Vec<Server>, record: &TextRecord, patience: Duration) {
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
        if servers.is_empty() || others_have_it && began.elapsed() > patience {
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

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    /// Responds to each query with the text, or with no record.
    async fn respond(socket: UdpSocket, text: Option<&str>) {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
            let query = &buffer[..length];
            let count = u8::from(text.is_some());
            let mut response = [&query[..2], &[0x84, 0, 0, 1, 0, count, 0, 0, 0, 0]].concat();
            response.extend(&query[12..]);
            if let Some(text) = text {
                let size = text.len() as u8;
                response.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60, 0, size + 1, size]);
                response.extend(text.as_bytes());
            }
            let _ = socket.send_to(&response, client).await;
        }
    }

    async fn server(text: Option<&'static str>) -> Server {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(respond(socket, text));
        Server::new("ns.example".to_owned(), vec![address])
    }

    /// Returns what is missing after a second, without patience for servers that do not respond.
    fn missing(make: impl AsyncFnOnce() -> Vec<Server>) -> Option<Vec<String>> {
        let record = TextRecord { name: "_acme-challenge.a.example".into(), value: "text".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut servers = make().await;
            let spread = has_spread(&mut servers, &record, Duration::ZERO);
            let ended = timeout(Duration::from_secs(1), spread).await;
            ended.is_err().then(|| servers.iter().map(Server::to_string).collect())
        })
    }

    #[test]
    fn every_server_that_responds_must_have_the_record() {
        let all = async || vec![server(Some("text")).await, server(Some("text")).await];
        assert_eq!(missing(all), None);
        for other in [None, Some("other")] {
            let some = async || vec![server(Some("text")).await, server(other).await];
            let without = "name server ns.example does not have it".to_owned();
            assert_eq!(missing(some), Some(vec![without]), "{other:?}");
        }
        assert_eq!(missing(async || Vec::new()), None);
    }

    #[test]
    fn a_server_that_never_responds_is_ignored_if_others_have_the_record() {
        let closed = async || {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            Server::new("closed.example".to_owned(), vec![socket.local_addr().unwrap()])
        };
        assert_eq!(missing(async || vec![server(Some("text")).await, closed().await]), None);
        let alone = missing(async || vec![closed().await]).unwrap();
        assert!(alone[0].starts_with("name server 127.0.0.1:"), "{alone:?}");
    }
}
