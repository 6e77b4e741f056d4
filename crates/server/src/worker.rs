//! A worker: a thread with its own listeners, connections, buffers and worker cache.
//!
//! [`Worker`] has the state of the thread, [`WorkerContext`] the state that depends on the configuration. Each reload creates
//! a new [`WorkerContext`]. Requests in progress keep the one that they started with; connections switch to the current one
//! before their next request.

pub(crate) mod busy_poll;
pub(crate) mod memory;
mod pending;
mod record;
mod thread;
mod tunnel_meter;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use dunlin_client::Client;
use dunlin_http::{Head, Limits};
pub(crate) use dunlin_net::deadlines::Deadlines;
pub(crate) use dunlin_net::timer::Timer;

pub(crate) use self::pending::{CountedResponse, DeferredRecord, Output, OutputRange, Pending};
pub(crate) use self::record::{Completion, ResponseOutcome};
pub(crate) use self::thread::Worker;
pub(crate) use self::tunnel_meter::TunnelMeter;
use crate::component::{Components, WorkerComponents};
use crate::control::Commands;
use crate::disk_cache::DiskCache;
use crate::exchange::coding::{CodingBudget, CodingCounts};
use crate::fleet::Fleet;
use crate::handler::response_cache::ready::ReadyHits;
use crate::handler::response_cache::shared::ResponseCache;
use crate::maintenance::Maintenance;
use crate::route::conditions::FastPathConditions;
use crate::route::router::Router;
use crate::route::sites::{CacheEntry, Route, Sites};
use dunlin_config::{Config, Persistence, Server, StartupSettings};
use dunlin_exchange::BodyRate;
use dunlin_fs::roots::Root;
use dunlin_net::blocking;
use dunlin_net::clock::Clock;
use dunlin_net::connection_limits::limiter::ConnectionLimiter;
use dunlin_net::connections::Connections;
use dunlin_proxy::WorkerProxy;
use dunlin_script::context::Context;
use dunlin_script::state::{Scripts, WorkerScripts};
use dunlin_status::{Collectors, History};
use dunlin_telemetry::live::LiveTap;
use dunlin_telemetry::metrics::{Metrics, WorkerMetrics};
use dunlin_telemetry::redact::Redactor;
use dunlin_telemetry::traces::Tracer;
use dunlin_telemetry::{AccessLogs, ReverseDns, TimeCache, WorkerLogs};
use dunlin_tls::Certificates;

/// The state that all workers share. A request for a cached file takes no lock of it.
pub(crate) struct SharedState {
    pub(crate) config: Arc<Config>,
    /// The sites of the configuration, with the runtime objects of their routes.
    pub(crate) sites: Sites,
    /// The file cache, the root directories and change notification.
    pub(crate) files: Arc<dunlin_files::shared::Shared>,
    /// The response cache; `None` if no route has one.
    pub(crate) responses: Option<Arc<ResponseCache>>,
    /// The responses and objects on disk; `None` if there is no directory for them.
    pub(crate) disk: Option<Arc<DiskCache>>,
    /// What was compressed for one request each.
    pub(crate) coding: Arc<CodingCounts>,
    /// Threads for work that may block.
    pub(crate) blocking: Arc<blocking::Pools>,
    /// Processes of scripts, and the state that scripts share.
    pub(crate) scripts: Scripts,
    /// WebAssembly components.
    pub(crate) components: Arc<Components>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) limiter: Arc<ConnectionLimiter>,
    pub(crate) reverse_dns: Option<Arc<ReverseDns>>,
    /// Serial number of the last accepted connection.
    pub(crate) serial: Arc<AtomicU64>,
    /// The servers with which this one shares its state; `None` if there are none.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// Sites under maintenance.
    pub(crate) maintenance: Arc<Maintenance>,
    /// The queue of commands to the server.
    pub(crate) commands: Commands,
    /// The server has been signalled to stop, and still serves.
    pub(crate) draining: Arc<AtomicBool>,
    /// Settings that only a restart changes.
    pub(crate) startup: Arc<StartupSettings>,
    /// Time when the configuration was read.
    pub(crate) loaded: SystemTime,
    /// Time of the start.
    pub(crate) started: SystemTime,
    pub(crate) metrics: Arc<Metrics>,
    /// The last minutes, for the status page.
    pub(crate) history: Arc<History>,
    /// Requests are counted.
    pub(crate) is_counting: bool,
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Subscribers of the live view.
    pub(crate) live: Arc<LiveTap>,
    /// Sums of the status of several servers.
    pub(crate) collectors: Arc<Collectors>,
    pub(crate) redactor: Redactor,
}

/// The state of a worker in one generation of the configuration. Connections and handlers have access to all state through
/// it.
pub(crate) struct WorkerContext {
    pub(crate) router: &'static dyn Router,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) clock: Rc<Clock>,
    pub(crate) connections: Rc<Connections>,
    pub(crate) http1: Http1Settings,
    pub(crate) fast_path: FastPathConditions,
    /// The worker cache.
    pub(crate) files: dunlin_files::worker::Worker<Route>,
    /// The client for requests to other servers.
    pub(crate) client: Client,
    /// Connections to upstreams.
    pub(crate) proxy: Rc<WorkerProxy>,
    /// The state of scripts.
    pub(crate) scripts: WorkerScripts,
    /// The state of WebAssembly components.
    pub(crate) components: WorkerComponents,
    pub(crate) metrics: Rc<WorkerMetrics>,
    /// The time for content codings.
    pub(crate) coding: Rc<CodingBudget>,
    /// Responses of the response cache that are ready to be sent again.
    pub(crate) ready_hits: ReadyHits,
    logs: RefCell<WorkerLogs>,
    is_logging: bool,
    /// Access logs contain the timings of requests.
    logs_timings: bool,
    /// Access logs contain fields of responses.
    pub(crate) logs_response_fields: bool,
    time: RefCell<TimeCache>,
    worker: Rc<Worker>,
    /// A reload has created a newer context.
    superseded: Cell<bool>,
    /// A request since the last tick was neither for a program nor for a file.
    others: Cell<bool>,
    /// A request in the tick before was not for a program.
    had_others: Cell<bool>,
}

/// The settings of HTTP/1, in the units of the adapter. Times are in milliseconds.
pub(crate) struct Http1Settings {
    pub(crate) persistence: Persistence,
    pub(crate) limits: Limits,
    pub(crate) idle_timeout: u64,
    pub(crate) head_timeout: u64,
    pub(crate) body: BodyRate,
    pub(crate) send_timeout: u64,
    /// Maximum of requests per connection; 0 for no limit.
    pub(crate) requests: u64,
    pub(crate) server_field: bool,
}

/// The buffers of a worker, which one connection uses at a time.
pub(crate) struct Buffers {
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Output,
    pub(crate) head: Head,
    pub(crate) path: Vec<u8>,
    /// The text of `head`, if it is not in `input`.
    pub(crate) text: Vec<u8>,
}

/// Size of the buffer for input, and so the maximum of bytes per read.
const INPUT: usize = 80 * 1024;
/// Initial size of the buffer for output in bytes.
const OUTPUT: usize = 128 * 1024;

impl Default for Buffers {
    fn default() -> Self {
        Self {
            input: vec![0; INPUT].into(),
            output: Output { bytes: Vec::with_capacity(OUTPUT), ..Output::default() },
            head: Head::default(),
            path: Vec::with_capacity(1024),
            text: Vec::with_capacity(1024),
        }
    }
}

impl SharedState {
    /// Returns the directory at `path`, a path in the configuration.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub(crate) fn root(&self, path: &Path) -> io::Result<Arc<Root>> {
        self.files.root(path)
    }
}

impl Http1Settings {
    fn new(server: &Server) -> Self {
        let http1 = &server.http1;
        let millis = |time: Duration| time.as_millis() as u64;
        Self {
            persistence: http1.connection,
            limits: Limits {
                head_size: http1.head_size,
                target_size: http1.target_size,
                fields: http1.fields,
                bare_lf: http1.bare_lf,
            },
            idle_timeout: millis(http1.idle_timeout),
            head_timeout: millis(http1.head_timeout),
            body: BodyRate { timeout: millis(http1.body_timeout), minimum: http1.body_rate },
            send_timeout: millis(http1.send_timeout),
            requests: http1.requests,
            server_field: server.server_field,
        }
    }
}

impl WorkerContext {
    fn new(worker: &Rc<Worker>, shared: Arc<SharedState>, logs: &AccessLogs) -> Rc<Self> {
        let server = &shared.config.server;
        Rc::new_cyclic(|this: &Weak<Self>| Self {
            router: worker.router,
            clock: Rc::clone(&worker.clock),
            connections: Rc::clone(&worker.connections),
            http1: Http1Settings::new(server),
            fast_path: FastPathConditions::new(&shared.config, &shared.sites, &shared.certificates),
            files: dunlin_files::worker::Worker::new(
                Arc::clone(&shared.files),
                Rc::clone(&worker.clock),
                server.cache.entries,
            ),
            client: worker.client.clone(),
            proxy: Rc::clone(&worker.proxy),
            components: WorkerComponents::new(&shared.components, &worker.client),
            scripts: WorkerScripts::new(
                &shared.scripts,
                &worker.scripts,
                Context::new(
                    &shared.scripts.shared,
                    &worker.clock,
                    &worker.deadlines,
                    &worker.scripts.buffer,
                    this.clone(),
                ),
            ),
            metrics: Rc::clone(worker.metrics.get_or_init(|| Rc::new(shared.metrics.for_worker()))),
            time: RefCell::new(TimeCache::new()),
            ready_hits: ReadyHits::default(),
            coding: CodingBudget::new(&shared.coding, server.compress_share, &shared.files),
            is_logging: !logs.is_empty(),
            logs_timings: logs.has_timings(),
            logs_response_fields: logs.has_response_fields(),
            logs: RefCell::new(logs.worker_logs()),
            worker: Rc::clone(worker),
            superseded: Cell::new(false),
            others: Cell::new(false),
            had_others: Cell::new(false),
            shared: Arc::clone(&shared),
        })
    }

    /// Returns the current context if this one is superseded.
    #[inline]
    pub(crate) fn superseded_by(&self) -> Option<Rc<Self>> {
        if !self.superseded.get() {
            return None;
        }
        self.worker.current()
    }

    /// Takes the worker's buffers. The caller returns them with [`Self::give_buffers`] within the same poll.
    pub(crate) fn take_buffers(&self) -> Box<Buffers> {
        busy_poll::record_activity();
        self.worker.buffers.take().unwrap_or_default()
    }

    /// Returns the buffers to the worker.
    pub(crate) fn give_buffers(&self, mut buffers: Box<Buffers>) {
        buffers.output.bytes.clear();
        buffers.output.pending.clear();
        self.worker.buffers.set(Some(buffers));
    }

    /// Returns the serial number of a new connection.
    pub(crate) fn next_serial(&self) -> u64 {
        self.shared.serial.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns `true` if the worker is stopping.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.worker.draining.get()
    }

    /// Resolves when idle connections have to close.
    pub(crate) async fn closing(&self) {
        loop {
            let notified = self.worker.drain.notified();
            if self.closes_idle() {
                return;
            }
            notified.await;
        }
    }

    /// Returns `true` if idle connections have to close.
    pub(crate) fn closes_idle(&self) -> bool {
        self.worker.closes_idle.get()
    }

    /// Counts a response from the file cache.
    #[inline]
    pub(crate) fn count_hit(&self, entry: &CacheEntry) {
        self.files.count_hit(entry);
    }

    /// Publishes the counters of the cache and removes invalidated entries.
    pub(crate) fn sweep(&self) {
        self.files.sweep();
    }

    /// Records a request that is neither for a file nor for a program to start.
    pub(crate) fn count_other(&self) {
        self.others.set(true);
    }

    /// Returns `true` if all requests of the last one to two ticks were for programs to start.
    pub(crate) fn has_programs_alone(&self) -> bool {
        !self.had_others.get() && !self.has_others()
    }

    fn has_others(&self) -> bool {
        self.others.get() || self.files.has_counts()
    }

    /// Moves the requests of the current tick to the previous one. Called once a tick.
    fn look_back(&self) {
        self.coding.begin_tick();
        self.had_others.set(self.has_others());
        self.others.set(false);
    }

    /// Returns the number of lines that were lost since the access logs were opened.
    pub(crate) fn lost_lines(&self) -> u64 {
        self.logs.borrow().lost()
    }

    /// Restarts the ticks of the clock, which stop while there are no connections.
    pub(crate) fn wake_ticker(&self) {
        if self.connections.is_empty() {
            self.clock.update();
            self.worker.ticker.notify_one();
        }
    }

    /// Reads pending change notifications now. The kernel reports descriptors in the order in which they became ready, so
    /// that a worker sees a change before a request that came after it. But a socket that became ready for another reason
    /// (it was accepted, or has room again) keeps its position when a request arrives later, which would then precede the change.
    pub(crate) fn look_for_changes(&self) {
        self.shared.files.read_changes();
    }

    /// Returns `true` if a request that was just read may have overtaken a change that another worker reads: the kernel
    /// does not report a notification that was taken.
    #[inline]
    pub(crate) fn is_reading_changes(&self) -> bool {
        self.shared.files.is_reading_changes()
    }

    /// Reads pending notifications of mounts and unmounts now.
    pub(crate) fn look_for_mounts(&self) {
        self.shared.files.read_mounts();
    }

    /// Queues the buffered lines of the access logs.
    pub(crate) fn flush_log(&self) {
        self.logs.borrow_mut().flush();
    }
}
