//! The names of clients: looked up beside the loops, remembered, and never waited for.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hashbrown::HashMap;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use tokio::sync::{Semaphore, mpsc};

use crate::config::ReverseDns as Settings;

/// What is known of clients' names.
#[derive(Debug)]
pub(crate) struct ReverseDns {
    settings: Settings,
    names: Mutex<Names>,
    wanted: mpsc::Sender<IpAddr>,
}

#[derive(Debug, Default)]
struct Names {
    known: HashMap<IpAddr, Known>,
    /// In order of entry; the oldest makes room.
    order: VecDeque<IpAddr>,
}

#[derive(Debug)]
struct Known {
    /// `None` while it is looked up, and when there is none.
    name: Option<Arc<str>>,
    since: Instant,
}

impl ReverseDns {
    /// Starts the thread that looks up.
    ///
    /// # Errors
    /// When the thread cannot be started or the system's resolver is not configured.
    pub(crate) fn new(settings: Settings) -> io::Result<Arc<Self>> {
        // What does not fit here is looked up when the client comes again.
        let (wanted, queue) = mpsc::channel(settings.concurrent * 4);
        let dns = Arc::new(Self { settings, names: Mutex::default(), wanted });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let resolver = {
            let _inside = runtime.enter();
            resolver(&dns.settings)?
        };
        let worker = Arc::downgrade(&dns);
        let concurrent = dns.settings.concurrent;
        std::thread::Builder::new().name("reverse-dns".into()).spawn(move || {
            runtime.block_on(work(queue, resolver, concurrent, move |address, name| {
                if let Some(dns) = worker.upgrade() {
                    dns.remember(address, name);
                }
            }));
        })?;
        Ok(dns)
    }

    /// The client's name if it is known by now. Never waits: a name that is not known is looked
    /// up for the next time.
    pub(crate) fn name(&self, address: IpAddr) -> Option<Arc<str>> {
        let mut names = self.lock();
        if let Some(known) = names.known.get(&address)
            && known.since.elapsed() < self.settings.ttl
        {
            return known.name.clone();
        }
        if self.wanted.try_send(address).is_ok() {
            names.put(address, None, self.settings.entries);
        }
        None
    }

    fn remember(&self, address: IpAddr, name: Option<Arc<str>>) {
        self.lock().put(address, name, self.settings.entries);
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    fn put(&mut self, address: IpAddr, name: Option<Arc<str>>, most: usize) {
        let known = Known { name, since: Instant::now() };
        if self.known.insert(address, known).is_none() {
            self.order.push_back(address);
        }
        while self.known.len() > most {
            let Some(oldest) = self.order.pop_front() else { return };
            self.known.remove(&oldest);
        }
    }
}

fn resolver(settings: &Settings) -> io::Result<TokioResolver> {
    let mut options = ResolverOpts::default();
    options.timeout = settings.timeout;
    options.attempts = 1;
    options.cache_size = 0;
    let failed = |error: hickory_resolver::net::NetError| io::Error::other(error.to_string());
    let provider = TokioRuntimeProvider::default();
    let builder = match settings.resolver {
        Some(address) => Resolver::builder_with_config(name_server(address), provider),
        None => Resolver::builder(provider).map_err(failed)?,
    };
    builder.with_options(options).build().map_err(failed)
}

fn name_server(address: SocketAddr) -> ResolverConfig {
    let mut connection = ConnectionConfig::udp();
    connection.port = address.port();
    let server = NameServerConfig::new(address.ip(), true, vec![connection]);
    ResolverConfig::from_parts(None, vec![], vec![server])
}

async fn work(
    mut queue: mpsc::Receiver<IpAddr>,
    resolver: TokioResolver,
    concurrent: usize,
    found: impl Fn(IpAddr, Option<Arc<str>>) + Clone + Send + 'static,
) {
    let places = Arc::new(Semaphore::new(concurrent));
    while let Some(address) = queue.recv().await {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (resolver, found) = (resolver.clone(), found.clone());
        tokio::spawn(async move {
            let _place = place;
            let name = look_up(&resolver, address).await;
            found(address, name);
        });
    }
}

async fn look_up(resolver: &TokioResolver, address: IpAddr) -> Option<Arc<str>> {
    let answer = resolver.lookup(reverse_name(address), RecordType::PTR).await.ok()?;
    let name = answer.answers().iter().find_map(|record| match &record.data {
        RData::PTR(name) => Some(name.to_string()),
        _ => None,
    })?;
    let name = name.trim_end_matches('.');
    // What a stranger's name server says goes into the log: nothing but names.
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (!name.is_empty() && name.len() < 256 && name.bytes().all(legal)).then(|| name.into())
}

/// The name under which an address is looked up (RFC 1035 §3.5, RFC 3596 §2.5).
fn reverse_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(address) => {
            let mut name = String::with_capacity(74);
            for octet in address.octets().iter().rev() {
                name.push_str(&format!("{:x}.{:x}.", octet & 15, octet >> 4));
            }
            name + "ip6.arpa."
        }
    }
}
