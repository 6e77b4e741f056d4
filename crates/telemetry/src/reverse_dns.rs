//! Reverse DNS: names of clients, resolved in the background.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashMap};
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};
use hickory_resolver::{Resolver, ResolverBuilder, TokioResolver};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Settings of reverse DNS.
#[derive(Clone, Debug)]
pub struct ReverseDnsSettings {
    /// Address of the resolver; the system's by default.
    pub resolver: Option<SocketAddr>,
    /// Timeout of a lookup.
    pub timeout: Duration,
    /// Maximum of concurrent lookups. Beyond it, clients are logged without a name.
    pub max_under_way: usize,
    /// Approximate maximum of cached addresses. The oldest entry is evicted first.
    pub cache_entries: usize,
    /// Maximum time for which a name is cached; its TTL may be shorter.
    pub max_ttl: Duration,
    /// Time for which a negative result or a failure is cached.
    pub negative_ttl: Duration,
}

impl Default for ReverseDnsSettings {
    /// Returns the system's resolver, timeout 5 s, 64 concurrent lookups, 16,384 entries, one day, five minutes.
    fn default() -> Self {
        Self {
            resolver: None,
            timeout: Duration::from_secs(5),
            max_under_way: 64,
            cache_entries: 16 * 1024,
            max_ttl: Duration::from_secs(24 * 60 * 60),
            negative_ttl: Duration::from_secs(5 * 60),
        }
    }
}

/// Resolves names of clients by reverse DNS (PTR records, RFC 1035 §3.5), with a bounded cache.
///
/// Lookups run on a separate thread, which ends when this is dropped. The owner of the address
/// chooses the name. It is not verified by a forward lookup, so it is for logs only.
pub struct ReverseDns {
    cache: Arc<Cache>,
    requests: UnboundedSender<Ticket>,
}

impl ReverseDns {
    /// Reads the resolver's configuration and starts the thread.
    ///
    /// # Errors
    /// The system's resolver configuration cannot be read, or the thread cannot be started.
    pub fn new(settings: ReverseDnsSettings) -> io::Result<Self> {
        let builder = resolver_builder(&settings)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let resolver = {
            let _guard = runtime.enter();
            builder.build().map_err(explain)?
        };
        let timeout = settings.timeout;
        let (requests, received) = unbounded_channel();
        thread::Builder::new()
            .name("reverse-dns".into())
            .spawn(move || runtime.block_on(serve(resolver, timeout, received)))?;
        Ok(Self { cache: Arc::new(Cache::new(settings)), requests })
    }

    /// Returns the name of `address` if it is cached, and starts a lookup otherwise.
    ///
    /// Never blocks. An expired name is returned while it is looked up again.
    pub fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        let (name, ticket) = self.cache.get(address.to_canonical(), now());
        if let Some(ticket) = ticket {
            // If the thread has ended, the ticket is dropped and counts as failed.
            let _ = self.requests.send(ticket);
        }
        name
    }

    /// Returns the number of lookups in progress.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.cache.under_way.load(Ordering::Relaxed)
    }
}

/// Runs lookups until all senders are dropped. Lookups in progress then end with the runtime.
async fn serve(
    resolver: TokioResolver,
    timeout: Duration,
    mut requests: UnboundedReceiver<Ticket>,
) {
    while let Some(ticket) = requests.recv().await {
        let resolver = resolver.clone();
        tokio::spawn(async move {
            let lookup = resolver.reverse_lookup(ticket.address);
            if let Ok(Ok(answer)) = tokio::time::timeout(timeout, lookup).await {
                ticket.finish(found(&answer));
            }
        });
    }
}

fn resolver_builder(
    settings: &ReverseDnsSettings,
) -> io::Result<ResolverBuilder<TokioRuntimeProvider>> {
    let mut builder = match settings.resolver {
        None => TokioResolver::builder_tokio().map_err(explain)?,
        Some(address) => {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                connection.port = address.port();
            }
            let config = ResolverConfig::from_name_servers(vec![server]);
            let provider = TokioRuntimeProvider::default();
            let mut builder = Resolver::builder_with_config(config, provider);
            builder.options_mut().use_hosts_file = ResolveHosts::Never;
            builder
        }
    };
    let options = builder.options_mut();
    // Leave time for a second attempt, as datagrams get lost.
    options.timeout = settings.timeout / 2;
    options.attempts = 1;
    options.max_active_requests = settings.max_under_way.max(1);
    options.cache_size = 0; // this module has its own cache
    Ok(builder)
}

fn explain(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("reverse DNS: {error}"))
}

/// Returns the first name of a response, with its TTL in seconds.
fn found(answer: &Lookup) -> Option<(Arc<str>, u64)> {
    let (name, ttl) = answer.answers().iter().find_map(|record| match &record.data {
        RData::PTR(name) => Some((&name.0, record.ttl)),
        _ => None,
    })?;
    Some((host_name(name)?, u64::from(ttl)))
}

/// Returns the text of a name if it is safe in a log.
///
/// The owner of an address chooses its name. A name is rejected if it has other characters than
/// letters, digits, dots, hyphens and underscores, or if it looks like an address or like the mark
/// of an absent field.
fn host_name(name: &Name) -> Option<Arc<str>> {
    let fit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.iter().any(|label| !label.iter().all(fit)) {
        return None;
    }
    if name.iter().next_back()?.iter().all(u8::is_ascii_digit) || name.iter().next()? == b"-" {
        return None;
    }
    Some(name.to_ascii().trim_end_matches('.').into())
}

/// Cache of names, in shards with a lock each.
struct Cache {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    entries_per_shard: usize,
    under_way: AtomicUsize,
    settings: ReverseDnsSettings,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<IpAddr, Entry>,
    /// The addresses of `entries`, each once, in order of insertion.
    ages: VecDeque<IpAddr>,
}

struct Entry {
    name: Option<Arc<str>>,
    /// In seconds of [`now`].
    expires: u64,
    pending: bool,
}

impl Cache {
    fn new(settings: ReverseDnsSettings) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            entries_per_shard: settings.cache_entries.div_ceil(SHARDS).max(1),
            under_way: AtomicUsize::new(0),
            settings,
        }
    }

    /// Returns the cached name, and a ticket for a lookup if one is due.
    fn get(self: &Arc<Self>, address: IpAddr, now: u64) -> (Option<Arc<str>>, Option<Ticket>) {
        let mut shard = self.shard(address);
        if let Some(entry) = shard.entries.get_mut(&address) {
            let name = entry.name.clone();
            let due = !entry.pending && entry.expires <= now && self.take_place();
            entry.pending |= due;
            return (name, due.then(|| self.ticket(address)));
        }
        if !self.take_place() {
            return (None, None);
        }
        if !shard.make_room(self.entries_per_shard) {
            self.leave_place();
            return (None, None);
        }
        shard.entries.insert(address, Entry { name: None, expires: 0, pending: true });
        shard.ages.push_back(address);
        (None, Some(self.ticket(address)))
    }

    fn store(&self, address: IpAddr, found: Option<(Arc<str>, u64)>) {
        let (name, ttl) = match found {
            Some((name, ttl)) => {
                let ttl = ttl.max(SHORTEST_TTL_SECS).min(self.settings.max_ttl.as_secs());
                (Some(name), ttl)
            }
            None => (None, self.settings.negative_ttl.as_secs()),
        };
        if let Some(entry) = self.shard(address).entries.get_mut(&address) {
            // At least one second, so that a failing lookup is not repeated at once.
            *entry = Entry { name, expires: now() + ttl.max(1), pending: false };
        }
        self.leave_place();
    }

    /// Takes a permit for a lookup, if one is free.
    fn take_place(&self) -> bool {
        let limit = self.settings.max_under_way;
        if self.under_way.load(Ordering::Relaxed) >= limit {
            return false;
        }
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        if before >= limit {
            self.leave_place();
        }
        before < limit
    }

    fn leave_place(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    fn ticket(self: &Arc<Self>, address: IpAddr) -> Ticket {
        Ticket { address, cache: Some(Arc::clone(self)) }
    }

    fn shard(&self, address: IpAddr) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(address) as usize;
        self.shards[hash % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Evicts the oldest entries that have no lookup in progress. Returns `false` if there is no room.
    fn make_room(&mut self, limit: usize) -> bool {
        for _ in 0..self.ages.len() {
            if self.entries.len() < limit {
                break;
            }
            let Some(oldest) = self.ages.pop_front() else { break };
            if self.entries.get(&oldest).is_some_and(|entry| entry.pending) {
                self.ages.push_back(oldest);
            } else {
                self.entries.remove(&oldest);
            }
        }
        self.entries.len() < limit
    }
}

/// A requested lookup. It counts as failed if it is dropped without a result.
struct Ticket {
    address: IpAddr,
    /// `None` once the result is stored.
    cache: Option<Arc<Cache>>,
}

impl Ticket {
    fn finish(mut self, found: Option<(Arc<str>, u64)>) {
        if let Some(cache) = self.cache.take() {
            cache.store(self.address, found);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.take() {
            cache.store(self.address, None);
        }
    }
}

/// Returns the seconds of the coarse monotonic clock, which is cheap to read.
fn now() -> u64 {
    u64::try_from(clock_gettime(ClockId::MonotonicCoarse).tv_sec).unwrap_or(0)
}

const SHARDS: usize = 16;

/// Minimum time for which a name is cached, whatever its TTL.
const SHORTEST_TTL_SECS: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Instant;

    /// Returns a resolver on loopback. It responds with a name for 10.0.0.1, with a name that would forge a line for
    /// 10.0.0.2, with an address for 10.0.0.3, and with NXDOMAIN for others.
    fn start_resolver() -> (SocketAddr, Arc<AtomicUsize>) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let questions = Arc::new(AtomicUsize::new(0));
        let sent = Arc::clone(&questions);
        thread::spawn(move || {
            let mut packet = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                sent.fetch_add(1, Ordering::Relaxed);
                socket.send_to(&answer(&packet[..length]), peer).unwrap();
            }
        });
        (address, questions)
    }

    /// Returns the DNS message (RFC 1035 §4.1) that responds to `query`.
    fn answer(query: &[u8]) -> Vec<u8> {
        let name_length = query[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
        let question = &query[12..12 + name_length + 4];
        let labels: &[&[u8]] = match question[1] {
            b'1' => &[b"client-1", b"example", b"org"],
            b'2' => &[b"a\n10.0.0.9 - -", b"org"],
            b'3' => &[b"10", b"9", b"8", b"7"],
            _ => &[],
        };
        let mut message = query[..2].to_vec();
        let (code, answers) = if labels.is_empty() { (0x83, 0) } else { (0x80, 1) };
        message.extend_from_slice(&[0x81, code, 0, 1, 0, answers, 0, 0, 0, 0]);
        message.extend_from_slice(question);
        if answers == 1 {
            let mut data = Vec::new();
            for label in labels {
                data.push(label.len() as u8);
                data.extend_from_slice(label);
            }
            data.push(0);
            // The question's name, PTR, IN, one hour.
            message.extend_from_slice(&[0xc0, 12, 0, 12, 0, 1, 0, 0, 0x0e, 0x10]);
            message.extend_from_slice(&(data.len() as u16).to_be_bytes());
            message.extend_from_slice(&data);
        }
        message
    }

    fn wait_until_idle(names: &ReverseDns) {
        let began = Instant::now();
        while names.under_way() > 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "lookups do not end");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_name_is_cached_after_one_lookup() {
        let (resolver, questions) = start_resolver();
        let settings = ReverseDnsSettings { resolver: Some(resolver), ..Default::default() };
        let names = ReverseDns::new(settings).unwrap();
        let client = IpAddr::from([10, 0, 0, 1]);
        for _ in 0..100 {
            names.name(client);
        }
        wait_until_idle(&names);
        assert_eq!(names.name(client).as_deref(), Some("client-1.example.org"));
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(names.name(mapped).as_deref(), Some("client-1.example.org"));
        assert_eq!(questions.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn unsafe_and_missing_names_are_cached_as_none() {
        let (resolver, questions) = start_resolver();
        let settings = ReverseDnsSettings { resolver: Some(resolver), ..Default::default() };
        let names = ReverseDns::new(settings).unwrap();
        let mut before = 0;
        for last in [2, 3, 4] {
            let client = IpAddr::from([10, 0, 0, last]);
            assert_eq!(names.name(client), None);
            wait_until_idle(&names);
            let sent = questions.load(Ordering::Relaxed);
            assert!(sent > before, "10.0.0.{last} is looked up");
            assert_eq!(names.name(client), None);
            assert_eq!((names.under_way(), names.cache.get(client, now()).0), (0, None));
            before = sent;
        }
    }

    #[test]
    fn a_silent_resolver_blocks_nothing_and_lookups_are_bounded() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let names = ReverseDns::new(ReverseDnsSettings {
            resolver: Some(silent.local_addr().unwrap()),
            timeout: Duration::from_millis(300),
            max_under_way: 8,
            ..Default::default()
        })
        .unwrap();
        let began = Instant::now();
        for number in 0..100_000_u32 {
            assert_eq!(names.name(IpAddr::V4(Ipv4Addr::from(number))), None);
            assert!(names.under_way() <= 8);
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        wait_until_idle(&names);
    }

    #[test]
    fn without_its_thread_clients_have_no_name() {
        let (requests, received) = unbounded_channel();
        drop(received);
        let cache = Arc::new(Cache::new(ReverseDnsSettings::default()));
        let names = ReverseDns { cache, requests };
        assert_eq!(names.name(IpAddr::from([10, 0, 0, 1])), None);
        assert_eq!(names.under_way(), 0);
    }

    #[test]
    fn the_oldest_entry_is_evicted_unless_its_lookup_is_in_progress() {
        let settings =
            ReverseDnsSettings { cache_entries: 32, max_under_way: 1000, ..Default::default() };
        let cache = Arc::new(Cache::new(settings));
        let name = |number: u32| Some((Arc::from(format!("n{number}")), 3600));
        for number in 0..1000 {
            let address = IpAddr::V4(Ipv4Addr::from(number));
            let (_, ticket) = cache.get(address, now());
            ticket.unwrap().finish(name(number));
            assert!(cache.get(address, now()).0.is_some());
        }
        let entries = |cache: &Cache| -> usize {
            cache.shards.iter().map(|shard| shard.lock().unwrap().entries.len()).sum()
        };
        assert_eq!(entries(&cache), 32);

        let tickets: Vec<_> = (5000..6000)
            .filter_map(|number| cache.get(IpAddr::V4(Ipv4Addr::from(number)), now()).1)
            .collect();
        assert_eq!((tickets.len(), entries(&cache)), (32, 32));
        for ticket in &tickets {
            assert!(cache.get(ticket.address, now()).1.is_none(), "begun again");
        }
        drop(tickets);
        assert_eq!(cache.under_way.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_expired_name_is_returned_while_it_is_looked_up_again() {
        let cache = Arc::new(Cache::new(ReverseDnsSettings::default()));
        let address = IpAddr::from([10, 0, 0, 1]);
        let (_, ticket) = cache.get(address, now());
        ticket.unwrap().finish(Some((Arc::from("old"), 60)));
        assert!(cache.get(address, now() + 50).1.is_none());
        let (name, ticket) = cache.get(address, now() + 70);
        assert_eq!(name.as_deref(), Some("old"));
        assert!(cache.get(address, now() + 70).1.is_none(), "begun again");
        ticket.unwrap().finish(Some((Arc::from("new"), 60)));
        assert_eq!(cache.get(address, now()).0.as_deref(), Some("new"));
    }
}
