//! A server in memory for tests: one worker made of a configuration text, connections in memory, time that the test moves on.
//!
//! Everything runs on the thread of the test and in the same order in each run. A test sends bytes, calls
//! [`Server::settle`] until no task has anything left to do, and looks at the result.

pub(crate) mod handler;
mod handshake;
pub(crate) mod http1;
mod http2;
mod http3;
pub(crate) mod link;
mod message;
mod parity;
pub(crate) mod polls;
pub(crate) mod random;
mod simulation;

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::panic;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use dunlin_net::stream::Stream;
use dunlin_net::stream::memory::{self, ClientEnd};
use tempfile::TempDir;
use tokio::runtime::{Builder, LocalOptions};

pub(crate) use self::http1::Http1;
pub(crate) use self::http2::Http2;
pub(crate) use self::http3::Http3;
pub(crate) use self::message::{End, Message, TestReply};
use dunlin_config::{AccessLogFormat, Config, Listen, Overrides, StartupSettings};
use dunlin_net::address::{Peer, SocketAddresses};
use dunlin_net::blocking;
use dunlin_net::clock::{TICK, manual};
use dunlin_quic::Endpoint;
use dunlin_telemetry::{AccessLog, AccessLogs};

use crate::control::Commands;
use crate::listen::{self, ListenerHandle};
use crate::route::dispatch;
use crate::server::Generation;
use crate::worker::{SharedState, Worker, WorkerContext};

thread_local! {
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// A server with one worker.
pub(crate) struct TestServer {
    directory: PathBuf,
    generation: RefCell<Generation>,
    worker: Rc<Worker>,
    listener: Rc<ListenerHandle>,
    log: Arc<AccessLog>,
    clients: Cell<u16>,
    /// The endpoint of QUIC, once there was a client.
    quic: RefCell<Option<Rc<Endpoint>>>,
}

/// Default number of bytes that the server can send before the client reads some.
const CAPACITY: usize = 256 * 1024;

/// One access record, in the words of [`RECORD`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) connection: u64,
    pub(crate) remote: String,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) protocol: String,
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    /// Site, cache, content coding and user.
    pub(crate) rest: [String; 4],
}

const RECORD: &str = "{connection}\t{remote}\t{method}\t{target}\t{protocol}\t{status}\t{bytes}\t{site}\t{cache}\t{coding}\t{user}";

/// Runs `test` with a server. `config` is the text behind `[server]`, a listener and a site with the root `www`:
/// routes, for the most part. `files` are created in `www`.
pub(crate) fn run<T>(
    config: &str,
    files: &[(&str, &[u8])],
    test: impl AsyncFnOnce(&TestServer) -> T,
) -> T {
    run_with("", config, files, test)
}

/// As [`run`], with keys of `[server]`.
pub(crate) fn run_with<T>(
    server: &str,
    config: &str,
    files: &[(&str, &[u8])],
    test: impl AsyncFnOnce(&TestServer) -> T,
) -> T {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let root = directory.path().join("www");
    fs::create_dir(&root).expect("a root for the test");
    for (name, content) in files {
        write_old(&root.join(name), content);
    }
    run_in(&directory, server, config, test)
}

/// As [`run_with`], in a directory that has a root.
pub(crate) fn run_in<T>(
    directory: &TempDir,
    server: &str,
    config: &str,
    test: impl AsyncFnOnce(&TestServer) -> T,
) -> T {
    let _stopped = manual::stop();
    note_panics();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .event_interval(1024)
        .build_local(LocalOptions::default())
        .expect("a runtime starts");
    runtime.block_on(async {
        let server = TestServer::start(&configuration(server, config), directory.path());
        let result = test(&server).await;
        server.settle().await;
        result
    })
}

/// Writes a file with an old modification time: a file that has just changed is not cached.
pub(crate) fn write_old(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a path")).expect("directories for the file");
    fs::write(path, content).expect("the file is written");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_modified(old))
        .expect("its time is set");
}

/// Has panics of tasks noted, which the runtime catches.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            HAS_PANICKED.set(true);
            before(info);
        }));
    });
    HAS_PANICKED.set(false);
}

fn configuration(server: &str, config: &str) -> String {
    format!(
        "[server]\ncache.notify = false\n{server}\n[[listen]]\naddress = '127.0.0.1:1'\n[[site]]\nroot = 'www'\n{config}"
    )
}

impl TestServer {
    fn start(config: &str, directory: &Path) -> Self {
        let config = parse(config, directory);
        let startup = StartupSettings::of(&config);
        let rules = config.listen[0].clone();
        let pools = Arc::new(blocking::Pools::inline());
        let components = crate::component::new(None, None);
        let generation = Generation::first(config, startup, Commands::closed(), pools, components);
        let generation = generation.expect("a server");
        let worker = Worker::new(0, &dispatch::ROUTER);
        let limiter = Arc::clone(&generation.shared.limiter);
        tokio::task::spawn_local(Rc::clone(&worker).evict(limiter));
        let log = AccessLog::in_memory(AccessLogFormat::parse(RECORD).expect("a format"));
        worker.apply(Arc::clone(&generation.shared), &AccessLogs::of(&log));
        Self {
            directory: directory.to_owned(),
            generation: RefCell::new(generation),
            worker,
            listener: ListenerHandle::new(rules),
            log,
            clients: Cell::new(0),
            quic: RefCell::default(),
        }
    }

    /// Reads another configuration, as a reload does; see [`run_with`].
    pub(crate) fn reload(&self, server: &str, config: &str) {
        let before = self.generation.borrow().clone();
        let path = self.directory.join("dunlin.toml");
        fs::write(&path, configuration(server, config)).expect("the configuration is written");
        let config = crate::server::reload(&path, &Overrides::default())
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        let next = before.next(config).expect("a configuration that can follow");
        let moved = next.moved(&before);
        next.revalidate(&moved);
        self.worker.apply(Arc::clone(&next.shared), &AccessLogs::of(&self.log));
        next.takes_over(&before, &moved);
        self.generation.replace(next);
    }

    /// Changes the settings of the listener, for new connections.
    pub(crate) fn change_listener(&self, change: impl FnOnce(&mut Listen)) {
        let mut rules = self.shared().config.listen[0].clone();
        change(&mut rules);
        self.listener.change(rules);
    }

    /// Returns the context of the worker.
    pub(crate) fn context(&self) -> Rc<WorkerContext> {
        self.worker.current().expect("a worker at work")
    }

    /// Returns a new connection.
    pub(crate) fn connect(&self) -> ClientEnd {
        self.clients.set(self.clients.get() + 1);
        self.connect_from(Ipv4Addr::new(192, 0, 2, 1), self.clients.get())
    }

    /// Returns a new connection from that address.
    pub(crate) fn connect_from(&self, address: Ipv4Addr, port: u16) -> ClientEnd {
        let remote = SocketAddr::from((address, port));
        let local = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 254), 80));
        let (server, client) = memory::pair(SocketAddresses { remote, local }, CAPACITY);
        let (worker, listener) = (Rc::clone(&self.worker), Rc::clone(&self.listener));
        tokio::task::spawn_local(async move {
            listen::admit(&worker, &listener, Stream::Memory(server), Peer::of(remote)).await;
            polls::count_poll();
        });
        client
    }

    /// Returns the address of a new client.
    pub(crate) fn client_address(&self) -> SocketAddr {
        self.clients.set(self.clients.get() + 1);
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), self.clients.get()))
    }

    /// Returns the endpoint of QUIC.
    pub(crate) fn quic(&self) -> Rc<Endpoint> {
        let mut quic = self.quic.borrow_mut();
        Rc::clone(quic.get_or_insert_with(|| {
            let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 254), 80));
            listen::quic::serve_in_memory(&self.worker, &self.listener, address)
                .expect("an endpoint")
        }))
    }

    /// Lets all tasks run until none has anything left to do without time or the clients.
    pub(crate) async fn settle(&self) {
        let mut idle = 0;
        for _ in 0..10_000 {
            let before = polls::count();
            tokio::task::yield_now().await;
            assert!(!HAS_PANICKED.get(), "a task has panicked");
            idle = if polls::count() == before { idle + 1 } else { 0 };
            if idle == 3 {
                return;
            }
        }
        panic!("a task is always ready to run: it waits for nothing");
    }

    /// Moves the time on, tick by tick.
    pub(crate) async fn advance(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(TICK);
            left -= step;
            manual::advance(step);
            if let Some(endpoint) = &*self.quic.borrow() {
                endpoint.tick();
            }
            self.settle().await;
            self.worker.tick_once().into_iter().for_each(Waker::wake);
            self.settle().await;
        }
    }

    /// Begins a graceful stop, which closes idle connections after `grace`. The task ends when no connection is left.
    pub(crate) async fn stop(&self, grace: Duration) -> tokio::task::JoinHandle<()> {
        self.listener.close();
        let worker = Rc::clone(&self.worker);
        let drained = tokio::task::spawn_local(async move { worker.drain(grace).await });
        self.settle().await;
        drained
    }

    /// Returns the access records since the last call, in the order of the log.
    pub(crate) fn records(&self) -> Vec<Record> {
        if let Some(ctx) = self.worker.current() {
            ctx.flush_log();
        }
        let lines = self.log.take_lines();
        lines.iter().map(|line| Record::parse(line)).collect()
    }

    /// Requests that run and that wait, by the concurrency limits of the current configuration.
    pub(crate) fn admitted(&self) -> (usize, usize) {
        let shared = self.shared();
        let limits = shared.sites.limits();
        let counts = limits.filter_map(|limits| Some(limits.concurrency?.counts));
        counts.fold((0, 0), |sum, counts| (sum.0 + counts.running, sum.1 + counts.waiting))
    }

    /// Returns `true` if the buffers of the worker are where they belong between two runs of tasks.
    pub(crate) fn has_buffers(&self) -> bool {
        self.worker.has_buffers()
    }

    pub(crate) fn shared(&self) -> Arc<SharedState> {
        Arc::clone(&self.generation.borrow().shared)
    }

    /// Open connections: by the limit of connections, and in the table of the worker.
    pub(crate) fn open(&self) -> (usize, usize) {
        let connections = self.worker.current().map_or(0, |ctx| ctx.connections.len());
        (self.shared().limiter.open(), connections)
    }
}

fn parse(text: &str, directory: &Path) -> Config {
    Config::parse(text, &directory.join("dunlin.toml"), &Overrides::default())
        .unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))
}

impl Record {
    fn parse(line: &str) -> Self {
        let fields: Vec<&str> = line.split('\t').collect();
        let [connection, remote, method, target, protocol, status, bytes, rest @ ..] = &fields[..]
        else {
            panic!("a record is malformed: {line}")
        };
        Self {
            connection: connection.parse().expect("a number"),
            remote: (*remote).to_owned(),
            method: (*method).to_owned(),
            target: (*target).to_owned(),
            protocol: (*protocol).to_owned(),
            status: status.parse().unwrap_or(0),
            bytes: bytes.parse().unwrap_or(0),
            rest: std::array::from_fn(|at| rest[at].to_owned()),
        }
    }
}
