//! Starting and stopping: sockets, loops, signals.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cache::{Bounds, Store, Watch};
use crate::config::{Config, Listen};
use crate::event_loop::{Loop, Shared};
use crate::handler::file::Roots;
use crate::handler::script::Pools;
use crate::listen::{self, Gauge, Speech};
use crate::record::{AccessLog, AccessLogSettings, Format, ReverseDns, ReverseDnsSettings};
use crate::tls::Certificates;

/// Why the server did not start.
#[derive(Debug)]
pub struct StartError {
    what: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for StartError {}

/// A server whose sockets are open and whose loops run.
pub struct Server {
    shared: Arc<Shared>,
    urls: Vec<String>,
    loops: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    running: Arc<AtomicUsize>,
    control: Control,
}

/// Where signals are waited for.
struct Control {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    reopen: Signal,
}

impl Control {
    /// From here on signals are kept for later rather than ending the process.
    fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let reopen = signal(SignalKind::user_defined1())?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, reopen })
    }
}

impl Server {
    /// Opens everything that `config` names and begins to serve.
    ///
    /// # Errors
    /// One line for the first thing that failed: what, where, and what to do about it.
    pub fn start(config: Config) -> Result<Self, StartError> {
        raise_descriptor_limit();
        let control =
            Control::new().map_err(|error| fail(format!("receiving signals: {error}")))?;
        let shared = share(config)?;
        let threads = shared.config.server.threads;
        let listeners = bind_all(&shared.config.listen, threads)?;
        let urls = listeners[0].iter().filter_map(Listener::url).collect();
        let (stop, stopped) = watch::channel(false);
        let running = Arc::new(AtomicUsize::new(threads));
        let mut loops = Vec::new();
        for (number, listeners) in listeners.into_iter().enumerate() {
            let (shared, stopped, running) =
                (Arc::clone(&shared), stopped.clone(), Arc::clone(&running));
            let body = move || {
                run_loop(shared, listeners, stopped);
                running.fetch_sub(1, Ordering::Release);
            };
            let spawned = std::thread::Builder::new().name(format!("loop-{number}")).spawn(body);
            loops.push(spawned.map_err(|error| fail(format!("starting a loop: {error}")))?);
        }
        Ok(Self { shared, urls, loops, stop, running, control })
    }

    /// The addresses that are listened on, as URLs.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Serves until SIGTERM or SIGINT, then lets answers under way finish within the limit. A
    /// second such signal ends that. SIGUSR1 reopens the access log.
    pub fn run_until_signal(self) {
        let Self { shared, loops, stop, running, control, .. } = self;
        let Control { runtime, mut terminate, mut interrupt, mut reopen } = control;
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    _ = reopen.recv() => reopen_logs(&shared),
                }
            }
            tracing::info!("stopping; answers under way are finished");
            stop.send_replace(true);
            let limit = shared.config.server.stop_timeout;
            let began = Instant::now();
            while running.load(Ordering::Acquire) > 0 && began.elapsed() < limit {
                let pause = tokio::time::sleep(Duration::from_millis(10));
                tokio::select! {
                    () = pause => {}
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                }
            }
        });
        finish(&shared, loops);
    }
}

fn reopen_logs(shared: &Shared) {
    if let Some(log) = &shared.access_log {
        log.reopen();
    }
}

fn tell_of_cache(shared: &Shared) {
    let Shared { store, watch, .. } = shared;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (bytes, files, descriptors) = store.usage();
    tracing::info!(
        hits = count(&store.counters.hits),
        misses = count(&store.counters.misses),
        evictions = count(&store.counters.evictions),
        changes = watch.as_ref().map_or(0, |watch| count(&watch.ended)),
        bytes,
        files,
        descriptors,
        "the cache, at the end"
    );
}

fn finish(shared: &Shared, loops: Vec<JoinHandle<()>>) {
    tell_of_cache(shared);
    shared.pools.kill_all();
    let open = shared.gauge.open();
    if open > 0 {
        tracing::warn!("{open} connections were still open at the end of stop_timeout");
    }
    if let Some(log) = &shared.access_log {
        log.close(Duration::from_secs(2));
        let lost = log.lost();
        if lost > 0 {
            tracing::warn!("{lost} lines of the access log were lost since the start");
        }
    }
    for thread in loops {
        if thread.is_finished() && thread.join().is_err() {
            tracing::error!("a loop ended by a fault");
        }
    }
}

fn fail(what: impl Into<String>) -> StartError {
    StartError { what: what.into() }
}

fn share(config: Config) -> Result<Arc<Shared>, StartError> {
    let server = &config.server;
    let access_log = match &server.access_log {
        None => None,
        Some(log) => {
            let format = Format::parse(&log.format).map_err(|error| fail(error.to_string()))?;
            let opened =
                AccessLog::open(AccessLogSettings::new(&log.path, format)).map_err(|error| {
                    fail(format!(
                        "access log {}: {error}; check that the folder exists and may be written",
                        log.path.display()
                    ))
                })?;
            Some(opened)
        }
    };
    let reverse_dns = match &server.reverse_dns {
        None => None,
        Some(dns) => {
            let started = ReverseDns::new(ReverseDnsSettings {
                resolver: dns.resolver,
                timeout: dns.timeout,
                max_under_way: dns.concurrent,
                cache_entries: dns.entries,
                max_ttl: dns.ttl,
                ..Default::default()
            });
            Some(started.map_err(|error| fail(format!("reverse DNS: {error}")))?)
        }
    };
    let watch = server.cache.notify.then(Watch::new).and_then(|watch| {
        watch
            .inspect_err(|error| {
                tracing::warn!(
                    "changes on disk are not notified ({error}); files are checked once a second"
                );
            })
            .ok()
    });
    let limit = crate::config::descriptor_limit();
    let connections = server.connections.unwrap_or(limit / 2);
    if connections + server.cache.descriptors > limit {
        tracing::warn!(
            "{connections} connections and {} cached files may need more than the {limit} \
             descriptors that this process may have (ulimit -n)",
            server.cache.descriptors
        );
    }
    if config.listen.iter().any(|listen| listen.tls)
        && config.sites.iter().all(|site| site.tls.is_none())
    {
        return Err(fail(
            "a listener speaks TLS, and no site has a certificate; write tls = { certificate = \"FILE\", key = \"FILE\" } into [[site]]",
        ));
    }
    let certificates = Arc::new(Certificates::load(&config).map_err(fail)?);
    certificates.follow().map_err(|error| fail(format!("following certificates: {error}")))?;
    certificates
        .obtain(&config)
        .map_err(|error| fail(format!("obtaining certificates: {error}")))?;
    let bounds = Bounds {
        bytes: server.cache.size,
        entries: server.cache.entries,
        descriptors: server.cache.descriptors,
    };
    Ok(Arc::new(Shared {
        store: Store::new(bounds),
        watch,
        roots: Roots::default(),
        pools: Pools::default(),
        certificates,
        gauge: Arc::new(Gauge::new(connections, limit)),
        access_log,
        reverse_dns,
        serial: AtomicU64::new(0),
        config: Arc::new(config),
    }))
}

/// An open socket that is listened on.
struct Listener {
    socket: TcpListener,
    speech: Speech,
}

impl Listener {
    fn url(&self) -> Option<String> {
        let scheme = if self.speech.tls { "https" } else { "http" };
        Some(format!("{scheme}://{}/", self.socket.local_addr().ok()?))
    }
}

/// Opens every address once for each loop.
fn bind_all(listen: &[Listen], loops: usize) -> Result<Vec<Vec<Listener>>, StartError> {
    let mut all: Vec<Vec<Listener>> = (0..loops).map(|_| Vec::new()).collect();
    for Listen { address, backlog, tls, http2, proxy_protocol } in listen {
        let explain = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::AddrInUse => "; another program has it, choose another port",
                io::ErrorKind::PermissionDenied => {
                    "; ports below 1024 need root or CAP_NET_BIND_SERVICE"
                }
                io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
                _ => "",
            };
            fail(format!("listening on {address}: {error}{hint}"))
        };
        listen::probe(*address).map_err(explain)?;
        let mut address = *address;
        for listeners in &mut all {
            let listener = listen::bind(address, *backlog).map_err(explain)?;
            // Port 0 is chosen once, and then shared.
            address = listener.local_addr().map_err(explain)?;
            let speech = Speech { tls: *tls, http2: *http2, proxy_protocol: *proxy_protocol };
            listeners.push(Listener { socket: listener, speech });
        }
    }
    Ok(all)
}

/// One loop's life.
fn run_loop(shared: Arc<Shared>, listeners: Vec<Listener>, mut stopped: watch::Receiver<bool>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(16)
        // All that one look at the sockets has found is served before the next look.
        .event_interval(1024)
        .global_queue_interval(1024)
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("starting a loop: {error}");
            return;
        }
    };
    runtime.block_on(async move {
        let ctx = Rc::new(Loop::new(shared));
        tokio::task::spawn_local(Rc::clone(&ctx).follow_changes());
        tokio::task::spawn_local(Rc::clone(&ctx).tick());
        for Listener { socket, speech } in listeners {
            let accepting = listen::accept(Rc::clone(&ctx), socket, speech);
            tokio::task::spawn_local(async move {
                if let Err(error) = accepting.await {
                    tracing::error!("accepting: {error}");
                }
            });
        }
        // An error means that the sender is gone: the server was dropped.
        let _ = stopped.wait_for(|stopped| *stopped).await;
        ctx.begin_drain();
        while ctx.connections.len() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ctx.flush_log();
        ctx.sweep();
    });
}

/// As many descriptors as the administrator lets this process have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // What the hard limit allows needs no further permission.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
