//! Deterministic simulation. From a seed follow clients, their requests, the handlers' behaviour, faults and their order;
//! the invariants are checked after each step.
//!
//! `DUNLIN_SIMULATION=SEED` runs one seed and prints its steps, `DUNLIN_SIMULATION_SEEDS=NUMBER` that number of seeds from
//! `DUNLIN_SIMULATION_FROM` on.

mod client;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use dunlin_memory::thread as thread_memory;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use self::client::Client;
use super::handler::{MAX_DURATION, running};
use super::link::write_certificate;
use super::random::Random;
use super::{Http3, Record, TestServer, run_in, write_old};

/// Seeds of a run of all tests.
const SEEDS: u64 = 2_000;
/// Clients of a seed, requests of a client, and steps of a seed.
const CLIENTS: usize = 6;
const REQUESTS: usize = 6;
const STEPS: usize = 120;
/// Seconds in which connections of clients that obey the protocol end after a stop.
const SECONDS_TO_END: u64 = 150;
/// Bytes that a connection of HTTP/1 may hold, and each response of HTTP/2: bytes read ahead, a request body and a response
/// on their way, and a chunk of each.
const CONNECTION_BOUND: usize = 640 * 1024;
const RESPONSE_BOUND: usize = 256 * 1024;

#[test]
fn the_invariants_hold_for_every_seed() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let single: Option<u64> = number("DUNLIN_SIMULATION");
    let first = single.or_else(|| number("DUNLIN_SIMULATION_FROM")).unwrap_or(0);
    let count = single.map_or_else(|| number("DUNLIN_SIMULATION_SEEDS").unwrap_or(SEEDS), |_| 1);
    let next = AtomicU64::new(first);
    let failed = AtomicU64::new(u64::MAX);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let directory = directory();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failed.load(Ordering::Relaxed) != u64::MAX {
                        return;
                    }
                    let run = || simulate(seed, &directory, single.is_some());
                    if catch_unwind(AssertUnwindSafe(run)).is_err() {
                        failed.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert_eq!(
        failed,
        u64::MAX,
        "seed {failed} failed; its steps: DUNLIN_SIMULATION={failed} cargo test -p dunlin-server simulation"
    );
}

/// The keys of the site that name its certificate.
const CERTIFICATE: &str = "tls = { certificate = 'cert.pem', key = 'key.pem' }\n";

fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory for the test");
    std::fs::create_dir(directory.path().join("www")).expect("a root for the test");
    write_certificate(directory.path());
    for (name, content) in client::files() {
        write_old(&directory.path().join("www").join(name), &content);
    }
    directory
}

/// A configuration.
#[derive(Debug, Clone)]
struct Setup {
    server: String,
    routes: String,
    /// Open connections at once.
    connections: usize,
    /// Requests of the handler at once.
    concurrent: Option<usize>,
}

impl Setup {
    fn new(random: &mut Random) -> Self {
        let connections = random.one_of(&[2, 4, 100]);
        let concurrent = random.one_of(&[None, Some(1), Some(2)]);
        let connection = random.one_of(&["pipelined", "pipelined", "persistent", "close"]);
        let requests = random.one_of(&[0, 0, 2]);
        let proxies = random.one_of(&["", "trusted_proxies = ['203.0.113.1']"]);
        let server = format!(
            "connections = {connections}\n{proxies}\nhttp1 = {{ connection = '{connection}', requests = {requests}, \
             idle_timeout = '3s', head_timeout = '2s', body_timeout = '2s', send_timeout = '3s', body_rate = '1B/s' }}"
        );
        let cache = random.one_of(&["", "cache = false"]);
        let files = random.one_of(&[
            "",
            "throttle = { bandwidth = '50KB/s' }",
            "limit = { requests = '3/s' }",
        ]);
        let throttle = match concurrent {
            Some(concurrent) => {
                let queue = random.below(4);
                format!(
                    "throttle = {{ max_concurrent = {concurrent}, queue = {queue}, queue_timeout = '2s' }}"
                )
            }
            None => {
                let throttles = [
                    "",
                    "",
                    "throttle = { bandwidth = '100KB/s' }",
                    "throttle = { per_connection = '1MB/s' }",
                    "throttle = { bandwidth = '100MB/s', per_connection = '20MB/s' }",
                ];
                random.one_of(&throttles).to_owned()
            }
        };
        let routes = format!(
            "[[site.route]]\npath = '/*'\n{cache}\n{files}\n\
             [[site.route]]\npath = '/test'\nbody_size = '40KB'\n{throttle}\n"
        );
        Self { server, routes, connections, concurrent }
    }
}

fn simulate(seed: u64, directory: &TempDir, prints: bool) {
    // A seed that failed may have left some.
    thread_memory::forget();
    let mut random = Random::new(seed);
    let setup = Setup::new(&mut random);
    let (server, routes) = (setup.server.clone(), setup.routes.clone());
    let routes = format!("{CERTIFICATE}{routes}");
    run_in(directory, &server, &routes, async |server| {
        let mut world = World::new(server, directory, random, setup, prints);
        for _ in 0..STEPS {
            world.step().await;
            world.check();
        }
        world.finish().await;
    });
}

/// The simulation of one seed.
struct World<'a> {
    server: &'a TestServer,
    directory: &'a Path,
    random: Random,
    setup: Setup,
    /// The largest limit of connections so far.
    most_connections: usize,
    was_reloaded: bool,
    clients: Vec<Client>,
    requests: u64,
    records: BTreeMap<u64, Record>,
    stopped: Option<JoinHandle<()>>,
    /// Tasks besides those of connections and handlers.
    tasks: usize,
    prints: bool,
}

impl<'a> World<'a> {
    fn new(
        server: &'a TestServer,
        directory: &'a TempDir,
        random: Random,
        setup: Setup,
        prints: bool,
    ) -> Self {
        if prints {
            println!("{setup:?}");
        }
        Self {
            server,
            directory: directory.path(),
            random,
            most_connections: setup.connections,
            setup,
            was_reloaded: false,
            clients: Vec::new(),
            requests: 0,
            records: BTreeMap::new(),
            stopped: None,
            tasks: Handle::current().metrics().num_alive_tasks(),
            prints,
        }
    }

    async fn step(&mut self) {
        let kind = self.random.below(100);
        let number = self.random.below(self.clients.len().max(1));
        if self.clients.is_empty() || kind < 6 {
            self.connect();
        } else if kind < 16 {
            self.request(number);
        } else if kind < 40 {
            let max = self.random.size(100_000);
            self.print(|| format!("client {number} sends {max} bytes"));
            self.clients[number].transmit(max);
        } else if kind < 64 {
            let max = self.random.size(100_000);
            self.print(|| format!("client {number} takes {max} bytes"));
            self.clients[number].receive(max);
            self.print(|| format!("    {}", self.clients[number].describe()));
        } else if kind < 80 {
            let time = Duration::from_millis(self.random.size(4_000) as u64);
            self.print(|| format!("{time:?} pass"));
            self.server.advance(time).await;
        } else if kind < 96 {
            self.fault(number);
        } else if kind < 98 {
            self.reload();
        } else if self.random.once_in(4) {
            self.stop().await;
        }
        self.server.settle().await;
    }

    fn connect(&mut self) {
        if self.clients.len() < CLIENTS && self.stopped.is_none() {
            let number = self.clients.len() as u8 + 1;
            let address = Ipv4Addr::new(192, 0, 2, number);
            let client = if self.random.once_in(3) {
                let remote = SocketAddr::from((address, number.into()));
                let client = Http3::connect(self.server, self.directory, remote);
                Client::of_http3(address, client)
            } else {
                let end = self.server.connect_from(address, number.into());
                Client::new(address, end, &mut self.random)
            };
            self.clients.push(client);
            self.print(|| "a client connects".to_owned());
        }
    }

    fn request(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if client.requests.len() < REQUESTS && !client.has_ended {
            self.requests += 1;
            let description = client.request(self.requests, &mut self.random);
            self.print(|| format!("client {number} queues {description}"));
        }
    }

    /// Injects a fault or a delay between a client and the server.
    fn fault(&mut self, number: usize) {
        let Self { random, clients, .. } = self;
        let client = &mut clients[number];
        let Some(end) = client.end() else {
            let what = match random.below(16) {
                0..3 => {
                    client.change_stream(random);
                    "changes a stream"
                }
                3 => {
                    client.damage(random);
                    "damages a datagram"
                }
                _ => client.disturb(random),
            };
            return self.print(|| format!("client {number} {what}"));
        };
        let what = match random.below(16) {
            0 => {
                end.reset();
                client.has_ended = true;
                "resets"
            }
            1 => {
                end.end();
                client.has_ended = true;
                "ends its stream"
            }
            2 => {
                client.damage(random);
                "damages a byte"
            }
            3..6 => {
                client.change_stream(random);
                "changes a stream"
            }
            6..11 => {
                end.set_capacity(1 + random.size(100_000));
                "changes its buffer"
            }
            _ => {
                end.set_max(1 + random.size(10_000), 1 + random.size(10_000));
                "changes how much a call moves"
            }
        };
        self.print(|| format!("client {number} {what}"));
    }

    fn reload(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        self.setup = Setup::new(&mut self.random);
        self.most_connections = self.most_connections.max(self.setup.connections);
        self.was_reloaded = true;
        let setup = self.setup.clone();
        self.print(|| format!("a reload: {setup:?}"));
        self.server.reload(&setup.server, &format!("{CERTIFICATE}{}", setup.routes));
    }

    async fn stop(&mut self) {
        if self.stopped.is_none() {
            let grace = Duration::from_millis(self.random.one_of(&[0, 0, 1_000, 5_000]));
            self.print(|| format!("a stop with {grace:?} of grace"));
            self.stopped = Some(self.server.stop(grace).await);
        }
    }

    /// Invariants that hold at any time.
    fn check(&mut self) {
        self.check_memory();
        self.take_records();
        self.clients.iter().for_each(Client::check);
        let (permits, connections) = self.server.open();
        assert!(connections <= permits, "{connections} connections have {permits} permits");
        // A stop admits the connections that wait.
        if self.stopped.is_none() {
            assert!(permits <= self.most_connections, "{permits} connections are open");
        }
        assert!(self.server.has_buffers(), "a task still holds the worker's buffers");
        let (at_once, waiting) = self.server.admitted();
        if let Some(max) = self.setup.concurrent {
            assert!(at_once <= max, "{at_once} requests run at once, and {waiting} wait");
        }
    }

    /// Bounds what the connections hold, whatever clients take and handlers send.
    fn check_memory(&self) {
        let held = thread_memory::held();
        let bound: usize = self.clients.iter().map(Client::bound).sum();
        assert!((0..=bound as i64).contains(&held), "{held} bytes are held, of at most {bound}");
    }

    fn take_records(&mut self) {
        for record in self.server.records() {
            let id = record.target.split_once('?').and_then(|(_, query)| {
                query.split(',').next().and_then(|id| id.parse::<u64>().ok())
            });
            let Some(id) = id else { continue };
            let address = record.remote.parse();
            let client = self.clients.iter().find(|client| Ok(client.address) == address);
            let client = client.expect("the record of a client");
            if client.is_hostile {
                continue;
            }
            assert!(client.requests.iter().any(|sent| sent.id == id), "a record of no request");
            let again = self.records.insert(id, record);
            assert!(again.is_none(), "two records of request {id}: {again:?}");
        }
    }

    /// All clients receive until nothing arrives, and the server stops: no task or resource may remain.
    async fn finish(mut self) {
        self.stop().await;
        for client in &mut self.clients {
            if let Some(end) = client.end() {
                end.set_capacity(1 << 20);
                end.set_max(usize::MAX, usize::MAX);
            }
            client.open_windows();
        }
        let has_hostile = self.clients.iter().any(|client| client.is_hostile);
        let (mut second, mut end) = (0, SECONDS_TO_END);
        while second < end {
            // QUIC needs several round trips for what a byte stream takes at once.
            for _ in 0..5 {
                for client in &mut self.clients {
                    client.transmit(usize::MAX);
                }
                self.server.settle().await;
                self.clients.iter_mut().for_each(|client| client.receive(usize::MAX));
            }
            self.server.advance(Duration::from_secs(1)).await;
            self.check();
            second += 1;
            if running() == 0 && self.stopped.as_ref().is_some_and(JoinHandle::is_finished) {
                break;
            }
            // Only the plan of a hostile client may take longer.
            if has_hostile && running() > 0 && second < MAX_DURATION.as_secs() {
                end = second + SECONDS_TO_END;
            }
        }
        for client in &mut self.clients {
            client.receive(usize::MAX);
            client.give_up();
        }
        for client in &self.clients {
            self.print(|| client.describe());
        }
        let drained = self.stopped.take().expect("the server was stopped");
        assert!(drained.is_finished(), "a connection stays open: {:?}", self.server.open());
        assert_eq!(self.server.open(), (0, 0), "permits of connections are left");
        assert_eq!(running(), 0, "handlers are left");
        assert_eq!(self.server.admitted(), (0, 0), "permits of requests are left");
        let tasks = || Handle::current().metrics().num_alive_tasks();
        // Connections of QUIC that were closed respond to late packets for a while (RFC 9000 §10.2).
        for _ in 0..60 {
            if tasks() > self.tasks {
                self.server.advance(Duration::from_secs(1)).await;
            }
        }
        assert_eq!(tasks(), self.tasks, "tasks are left");
        assert_eq!(thread_memory::held(), 0, "memory is held by nothing");
        self.check();
        self.clients.iter().for_each(|client| client.check_records(&self.records));
    }

    fn print(&self, what: impl FnOnce() -> String) {
        if self.prints {
            println!("{}", what());
        }
    }
}
