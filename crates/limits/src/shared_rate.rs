//! A rate limit that several servers share: the [`lease`](crate::lease)s of all clients of this server, and the exchange of
//! reports and grants with the store, which a task outside makes. No request waits for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use crate::lease::{Granted, RateLease, Report, Terms};
use crate::names::ClientId;
use crate::prehashed::Prehashed;
use crate::rate::{RateCounts, RateStatus};
use dunlin_config::RateRules;

/// The number of servers that share their state, as far as this one has seen lately; at least one. Its clones are the same.
#[derive(Debug, Clone)]
pub struct Servers(Arc<AtomicU32>);

/// A report about one client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientReport {
    /// The client.
    pub client: ClientId,
    /// The report to the store.
    pub report: Report,
    key: u64,
}

/// The leases of one limit.
#[derive(Debug)]
pub(crate) struct Leases {
    terms: Terms,
    name: String,
    servers: Servers,
    shards: Box<[Mutex<Shard>]>,
}

/// A part of the table, in two generations: when `young` is full it becomes `old`, and the clients that were idle longest are
/// dropped.
#[derive(Debug, Default)]
struct Shard {
    young: HashMap<u64, Client, Prehashed>,
    old: HashMap<u64, Client, Prehashed>,
    /// Clients that the store has to know about, each once.
    due: Vec<u64>,
    counts: RateCounts,
}

#[derive(Debug)]
struct Client {
    id: ClientId,
    lease: RateLease,
    /// It is in `due`.
    is_due: bool,
}

const SHARDS: usize = 16;
/// Maximum of clients in one generation of a shard.
const GENERATION: usize = 4_096;

impl Default for Servers {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(1)))
    }
}

impl Servers {
    /// Returns the number of servers.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the number of servers.
    pub fn set(&self, count: u32) {
        self.0.store(count.max(1), Ordering::Relaxed);
    }

    #[inline]
    fn divisor(&self) -> f64 {
        f64::from(self.count())
    }
}

impl Leases {
    /// Creates the leases of the limit with these rules. `scope` names its site and route.
    pub(crate) fn new(rules: &RateRules, scope: &str, servers: &Servers) -> Self {
        let rate = f64::from(rules.requests.max(1)) / rules.period.as_nanos().max(1) as f64;
        let terms = Terms { rate, burst: f64::from(rules.burst.max(1)) };
        // Servers whose rules differ do not share a bucket.
        let name = short_hash(format!("{scope}\n{rules}\n{:?}", rules.period).as_bytes());
        let name = name.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { terms, name, servers: servers.clone(), shards }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Counts a request. `key` is a keyed hash of the client, and `id` its name in the store.
    pub(crate) fn request(&self, key: u64, id: impl FnOnce() -> ClientId, now: u64) -> RateStatus {
        let (terms, servers) = (&self.terms, self.servers.divisor());
        let Shard { young, old, due, counts } = &mut *self.shard(key);
        let client = young.entry(key).or_insert_with(|| {
            let new =
                || Client { id: id(), lease: RateLease::new(terms, servers, now), is_due: false };
            old.remove(&key).unwrap_or_else(new)
        });
        let allowed = client.lease.request(terms, servers, now);
        if !client.is_due {
            client.is_due = true;
            due.push(key);
        }
        let status = RateStatus {
            allowed,
            remaining: if allowed { client.lease.remaining() } else { 0 },
            retry: if allowed { 0 } else { (1.0 / terms.rate) as u64 },
            reset: client.lease.reset(terms, now),
        };
        if allowed {
            counts.passed += 1;
        } else {
            counts.rejected += 1;
        }
        if young.len() >= GENERATION {
            *old = std::mem::take(young);
        }
        status
    }

    /// Takes the reports that are due.
    pub(crate) fn reports(&self, now: u64) -> Vec<ClientReport> {
        let mut reports = Vec::new();
        let servers = self.servers.divisor();
        self.for_each_due(|key, client| {
            let report = client.lease.report(&self.terms, servers, now);
            reports.push(ClientReport { client: client.id, report, key });
            client.lease.is_due()
        });
        reports
    }

    /// Takes the store's response to a report.
    pub(crate) fn apply(&self, report: &ClientReport, granted: Granted, now: u64) {
        let servers = self.servers.divisor();
        self.settle(report, |lease| lease.apply(granted, &self.terms, servers, now));
    }

    /// Takes back a report that the store may not have received.
    pub(crate) fn take_back(&self, report: &ClientReport) {
        self.settle(report, |lease| lease.take_back(&report.report));
    }

    /// Changes the lease that a report is of, if its client has not been dropped since.
    fn settle(&self, report: &ClientReport, change: impl FnOnce(&mut RateLease)) {
        let mut shard = self.shard(report.key);
        let Shard { young, old, .. } = &mut *shard;
        let client = young.get_mut(&report.key).or_else(|| old.get_mut(&report.key));
        let Some(client) = client else { return };
        change(&mut client.lease);
        if client.lease.is_due() && !client.is_due {
            client.is_due = true;
            shard.due.push(report.key);
        }
    }

    /// Continues without the store.
    pub(crate) fn disconnect(&self) {
        let servers = self.servers.divisor();
        self.for_each_due(|_, client| {
            client.lease.disconnect(&self.terms, servers);
            false
        });
    }

    pub(crate) fn counts(&self) -> RateCounts {
        let mut sum = RateCounts::default();
        for shard in &self.shards {
            let RateCounts { passed, rejected } = lock(shard).counts;
            sum.passed += passed;
            sum.rejected += rejected;
        }
        sum
    }

    /// Calls `visit` for each client that is due; it returns whether the client still is.
    fn for_each_due(&self, mut visit: impl FnMut(u64, &mut Client) -> bool) {
        for shard in &self.shards {
            let Shard { young, old, due, .. } = &mut *lock(shard);
            // A client may have been dropped since.
            due.retain(|key| {
                let client = young.get_mut(key).or_else(|| old.get_mut(key));
                client.is_some_and(|client| {
                    client.is_due = visit(*key, client);
                    client.is_due
                })
            });
        }
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(key >> 60) as usize % SHARDS])
    }
}

/// Returns the ID of the client with that key. The store has it keyed by a secret.
pub(crate) fn client_id(key: &[u8]) -> ClientId {
    short_hash(key)
}

fn short_hash(bytes: &[u8]) -> [u8; 16] {
    let digest = Sha256::digest(bytes);
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    short
}

/// Ignores poisoning: a shard is consistent after every statement.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
