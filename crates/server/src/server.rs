//! Starting, changing and stopping: sockets, workers, signals and commands.

mod access;
mod handover;
mod listeners;
mod new_process;
mod notify;
mod pid_file;
mod prepare;
mod renew;
mod sandbox;
mod seccomp;
mod upgrade;
mod verify;

use std::collections::HashMap;
use std::fmt;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use tokio::runtime::{Builder, LocalOptions, Runtime};
use tokio::sync::{mpsc, oneshot};

pub use self::handover::Takeover;
use self::listeners::{Change, Listeners, Port};
use self::notify::Manager;
use self::pid_file::PidFile;
pub(crate) use self::prepare::Generation;
use self::prepare::Moved;
pub use self::sandbox::{Confined, confine, hindrances};
pub(crate) use self::sandbox::{check_identity, check_script_users};
use self::seccomp::Starter;
use self::upgrade::Upgrade;
pub(crate) use self::verify::{Again, Purpose};
pub use self::verify::{Findings, verify};
use crate::checks::{BandwidthCounts, ConcurrencyCounts, Limited, RateCounts, RouteCounts};
use crate::config::{Config, Problem, Site, StartupSettings};
use crate::control::{Action, Answer, Command, Control, Event};
use crate::listen::{self, ListenerHandle};
use crate::temp_files;
use crate::worker::{SharedState, Timer, Worker};

/// Why the server did not start, or did not change.
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

fn fail(what: impl Into<String>) -> StartError {
    StartError { what: what.into() }
}

/// Where the configuration comes from, for when it is to be read anew.
pub trait Origin: Send {
    /// Reads and checks it anew, for a server that goes by `before`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn read(&self, before: &Config) -> Result<Config, Vec<Problem>>;

    /// Is told of the configuration that is in force from now on.
    fn applied(&self, config: &Config);
}

/// A server whose sockets are open and whose workers run.
pub struct Server {
    runtime: Runtime,
    control: Control,
    running: Running,
}

/// What the control of a running server knows.
struct Running {
    origin: Box<dyn Origin>,
    manager: Manager,
    /// See [`Confined`].
    program: Option<PathBuf>,
    /// What starts a new process, where the workers' threads and this one cannot.
    starter: Option<Starter>,
    generation: Generation,
    listeners: Listeners,
    workers: Vec<WorkerHandle>,
    /// Loops that have not ended.
    alive: Arc<AtomicUsize>,
    /// The upgrade that is under way.
    upgrade: Option<Upgrade>,
}

/// A worker, from outside.
struct WorkerHandle {
    orders: mpsc::UnboundedSender<Order>,
    thread: JoinHandle<()>,
}

/// What a worker is to do.
enum Order {
    /// Go by another configuration.
    Apply { generation: Generation, ports: Vec<Port>, done: oneshot::Sender<()> },
    /// Accept nobody any more and end when all is answered; see [`Worker::drain`].
    Drain {
        grace: Duration,
        /// Those who have connected are accepted by another process.
        handed_over: bool,
    },
    /// Say that it is alive.
    Answer { done: oneshot::Sender<()> },
}

/// How long the workers may take to go over to another configuration.
const CHANGE: Duration = Duration::from_secs(10);
/// How long connections that wait for a request stay open after another process has taken over, so that
/// they are told of the end before they are closed.
const HANDED_OVER: Duration = Duration::from_secs(5);

impl Server {
    /// Opens everything that `config` names, but for what `takeover` brings, and begins to serve.
    ///
    /// # Errors
    /// One line for the first thing that failed: what, where, and what to do about it.
    pub fn start(
        mut config: Config,
        confined: Confined,
        origin: Box<dyn Origin>,
        takeover: Option<&mut Takeover>,
    ) -> Result<Self, StartError> {
        raise_descriptor_limit();
        block_child_signals();
        let manager = Manager::from_environment();
        let program = confined.program.clone();
        let is_first = takeover.is_none();
        let (mut inherited, startup) = match takeover {
            Some(takeover) => {
                let startup = takeover.startup(&mut config)?;
                (std::mem::take(&mut takeover.inherited), startup)
            }
            None => {
                let sockets = handover::from_systemd()
                    .map_err(|error| fail(format!("sockets that systemd passes: {error}")))?;
                (sockets, StartupSettings::of(&config))
            }
        };
        let (runtime, control) =
            Control::new().map_err(|error| fail(format!("receiving signals: {error}")))?;
        let starter = sandbox::confine_files_and_calls(&config, &confined)?;
        let generation = Generation::first(config, startup, control.commands())?;
        let config = Arc::clone(&generation.shared.config);
        let threads = config.server.threads;
        let mut listeners = Listeners::new(threads);
        let plan = listeners.plan(&config.listen, &mut inherited)?;
        for left in inherited {
            let address = left.address;
            tracing::warn!("a socket for {address} was handed over, and no [[listen]] names it");
        }
        let (ports, _) = listeners
            .change(plan)
            .map_err(|error| fail(format!("handing out listeners: {error}")))?;
        let pid_file = generation.shared.startup.pid_file.as_deref().map(PidFile::new);
        if let Some(file) = &pid_file {
            sandbox::place_pid_file(file, &confined, is_first)?;
        }
        let ready = sandbox::become_user(&config, confined)
            .and_then(|()| check_temporary_files(&config))
            .and_then(|()| check_descriptors(&config));
        if let Err(error) = ready {
            pid_file.iter().for_each(PidFile::remove);
            return Err(error);
        }
        let alive = Arc::new(AtomicUsize::new(threads));
        let mut workers = Vec::new();
        for number in 0..threads {
            let started = WorkerHandle::start(number, &alive);
            workers.push(started.map_err(|error| fail(format!("worker cannot start: {error}")))?);
        }
        let upgrade = None;
        let running = Running {
            origin,
            manager,
            program,
            starter,
            generation,
            listeners,
            workers,
            alive,
            upgrade,
        };
        runtime.block_on(running.hand_out(&running.generation, ports))?;
        Ok(Self { runtime, control, running })
    }

    /// The addresses that are listened on, as URLs that a browser on this machine can open: a line for each.
    pub fn urls(&self) -> Vec<String> {
        self.running.listeners.urls()
    }

    /// Logs what runs: version, configuration, sites, user and listeners.
    pub fn log_start(&self) {
        let config = &self.running.generation.shared.config;
        let by = config.whole_path().map_or_else(
            || "a directory without a configuration".to_owned(),
            |path| path.display().to_string(),
        );
        let sites = config.sites.iter().count();
        let plural = if sites == 1 { "" } else { "s" };
        let user = config.server.user.as_ref().map_or_else(
            || format!("uid {}", nix::unistd::geteuid()),
            |user| format!("user {user}"),
        );
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!("dunlin {version} started: {by}, {sites} site{plural}, {user}");
        tracing::info!("listening on {}", self.running.listeners.addresses().join(", "));
    }

    /// Serves until SIGTERM or SIGINT, then lets answers under way finish within the limit. A
    /// second such signal ends that. SIGHUP reads the configuration anew, SIGUSR2 has a new process
    /// take over, SIGUSR1 reopens the logs. `takeover` is told that this process serves.
    pub fn run_until_signal(self, takeover: Option<Takeover>) {
        let Self { runtime, mut control, mut running } = self;
        running.write_pid_file();
        if let Some(takeover) = takeover {
            takeover.ready();
        } else {
            running.manager.ready();
        }
        runtime.block_on(async {
            let mut watchdog = running.manager.watchdog.map(tokio::time::interval);
            let end = loop {
                let beat = async {
                    match &mut watchdog {
                        Some(watchdog) => watchdog.tick().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    event = control.next() => match event {
                        Event::Stop => break End::Stop,
                        Event::Command(command) => running.obey(command).await,
                    },
                    result = upgrade::end_of(&mut running.upgrade) => {
                        if let Some(pid) = running.upgraded(result) {
                            break End::HandedOver(pid);
                        }
                    }
                    _ = beat => running.beat().await,
                }
            };
            match end {
                End::Stop => {
                    tracing::info!("stopping; answers under way are finished");
                    // A new process that does not serve yet ends with this one.
                    running.upgrade = None;
                    running.manager.stopping();
                    running.listeners.close();
                    running.pid_file().iter().for_each(PidFile::remove);
                    running.drain(Duration::ZERO, end, &mut control).await;
                }
                End::HandedOver(_) => {
                    running.listeners.leave();
                    running.drain(HANDED_OVER, end, &mut control).await;
                }
            }
        });
        running.finish();
    }
}

/// Why a server ends.
#[derive(Clone, Copy)]
enum End {
    Stop,
    /// The process of that number serves.
    HandedOver(u32),
}

/// Writes the result of a command to the log, and sends it to whom the command came from.
fn report(result: Result<String, String>, answer: Answer) {
    match &result {
        Ok(text) => tracing::info!("{text}"),
        Err(text) => tracing::error!("{text}"),
    }
    if let Some(answer) = answer {
        // The client may have left.
        let _ = answer.send(result);
    }
}

impl Running {
    /// Carries out a command, and reports the result to the log and to whom it came from. An upgrade goes on
    /// by itself.
    async fn obey(&mut self, command: Command) {
        let result = match command.action {
            Action::Reload { workers } => {
                self.manager.reloading();
                let result = self.reload().await;
                self.manager.ready();
                match result {
                    Ok(text) => {
                        return renew::workers(&self.generation, workers, text, command.answer);
                    }
                    Err(why) => Err(why),
                }
            }
            Action::Upgrade => return self.begin_upgrade(command.answer),
            Action::Reopen => Ok(self.reopen_log()),
        };
        report(result, command.answer);
    }

    /// Tells the service manager that every worker is alive, when every one is.
    async fn beat(&self) {
        let mut waiting = Vec::new();
        for handle in &self.workers {
            let (done, answered) = oneshot::channel();
            let _ = handle.orders.send(Order::Answer { done });
            waiting.push(answered);
        }
        let all = futures_util::future::join_all(waiting);
        match tokio::time::timeout(self.manager.watchdog.unwrap_or(CHANGE), all).await {
            Ok(answers) if answers.iter().all(Result::is_ok) => self.manager.alive(),
            _ => tracing::error!("a worker does not answer"),
        }
    }

    fn pid_file(&self) -> Option<PidFile> {
        self.generation.shared.startup.pid_file.as_deref().map(PidFile::new)
    }

    fn write_pid_file(&self) {
        if let Some(file) = self.pid_file()
            && let Err(error) = file.write()
        {
            tracing::error!("pid_file {}: {error}", file.path().display());
        }
    }

    fn reopen_log(&self) -> String {
        crate::error_log::reopen();
        match &self.generation.access_log {
            Some(log) => {
                log.reopen();
                "the access log is opened anew".to_owned()
            }
            None => "there is no access log".to_owned(),
        }
    }

    /// Goes over to the configuration as it is now. Whatever is wrong with it, nothing has changed
    /// then.
    async fn reload(&mut self) -> Result<String, String> {
        let unchanged =
            |what: &dyn fmt::Display| format!("not reloaded, what was in force stays: {what}");
        let before = Arc::clone(&self.generation.shared.config);
        let config = self.origin.read(&before).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
            unchanged(&lines.join("\n"))
        })?;
        if let Some(why) = config.refused_after(before.server.calls) {
            return Err(unchanged(&why));
        }
        check_script_users(&config).map_err(|error| unchanged(&error))?;
        check_temporary_files(&config).map_err(|error| unchanged(&error))?;
        let restart = config.needs_restart(&self.generation.shared.startup);
        let next = self.generation.next(config).map_err(|error| unchanged(&error))?;
        let config = Arc::clone(&next.shared.config);
        let plan = self
            .listeners
            .plan(&config.listen, &mut Vec::new())
            .map_err(|error| unchanged(&error))?;
        let (ports, change) = self.listeners.change(plan).map_err(|error| unchanged(&error))?;
        let moved = next.moved(&self.generation);
        self.generation.look_again(&moved);
        self.hand_out(&next, ports).await.map_err(|error| error.to_string())?;
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.has_old_configuration = true;
        }
        let last = std::mem::replace(&mut self.generation, next);
        self.generation.takes_over(&last, &moved);
        self.origin.applied(&config);
        Ok(told(&config, &before, &change, &moved, &restart))
    }

    /// Has every worker go by `generation`, and waits until they do.
    async fn hand_out(
        &self,
        generation: &Generation,
        ports: Vec<Vec<Port>>,
    ) -> Result<(), StartError> {
        let mut waiting = Vec::new();
        for (handle, ports) in self.workers.iter().zip(ports) {
            let (done, applied) = oneshot::channel();
            // An error says that the worker has ended by a fault, which is told at the end.
            let _ =
                handle.orders.send(Order::Apply { generation: generation.clone(), ports, done });
            waiting.push(applied);
        }
        let all = futures_util::future::join_all(waiting);
        match tokio::time::timeout(CHANGE, all).await {
            Ok(results) if results.iter().all(Result::is_ok) => Ok(()),
            Ok(_) => Err(fail("a worker has ended")),
            Err(_) => Err(fail("a worker is busy and goes on by what was in force for now")),
        }
    }

    /// Lets responses under way finish, until the limit or a signal. Commands are not carried out any more.
    async fn drain(&self, grace: Duration, end: End, control: &mut Control) {
        let handed_over = matches!(end, End::HandedOver(_));
        for handle in &self.workers {
            let _ = handle.orders.send(Order::Drain { grace, handed_over });
        }
        let limit = self.generation.shared.config.server.stop_timeout;
        let began = Instant::now();
        while self.alive.load(Ordering::Acquire) > 0 && began.elapsed() < limit {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
                event = control.next() => match event {
                    Event::Stop => break,
                    Event::Command(command) => report(Err(match end {
                        End::Stop => "the server is stopping".into(),
                        End::HandedOver(pid) => format!(
                            "process {pid} serves now, and this one is ending; give the command again"
                        ),
                    }), command.answer),
                },
            }
        }
    }

    fn finish(self) {
        let Generation { shared, access_log, .. } = &self.generation;
        tell_of_cache(shared);
        tell_of_connections(shared);
        tell_of_limits(shared);
        shared.pools.kill_all();
        if let Some(tracer) = &shared.tracer {
            tracer.finish();
        }
        let open = shared.limiter.open();
        if open > 0 {
            tracing::warn!("{open} connections were still open at the end of stop_timeout");
        }
        if let Some(log) = access_log {
            log.close(Duration::from_secs(2));
            let lost = log.lost();
            if lost > 0 {
                tracing::warn!("{lost} lines of the access log were lost since it was opened");
            }
        }
        for WorkerHandle { thread, .. } in self.workers {
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("a worker ended by a fault");
            }
        }
    }
}

/// What a reload has changed, in a sentence.
fn told(
    config: &Config,
    before: &Config,
    change: &Change,
    moved: &[Moved],
    restart: &[&str],
) -> String {
    let file = config.path().map_or_else(String::new, |path| format!(" {}", path.display()));
    let sites = config.sites.iter().count();
    let has_moved =
        |site: &Site| site.directories().any(|path| moved.iter().any(|moved| moved.path == path));
    let is_as_before = |site: &&Arc<Site>| before.sites.has(site.serial) && !has_moved(site);
    let kept = config.sites.iter().filter(is_as_before).count();
    let mut text = format!("reloaded{file}: {kept} of {sites} sites as before");
    let added = if change.opened.len() == 1 { "added listener" } else { "added listeners" };
    for (what, which) in [(added, &change.opened), ("no longer on", &change.closed)] {
        if !which.is_empty() {
            text += &format!("; {what} {}", which.join(", "));
        }
    }
    for directory in moved {
        text += &format!("; {directory}");
    }
    if !restart.is_empty() {
        text += &format!("; in force after a restart only: {}", restart.join(", "));
    }
    text
}

fn tell_of_cache(shared: &SharedState) {
    let SharedState { cache, watch, .. } = shared;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (bytes, files, descriptors) = cache.usage();
    tracing::info!(
        hits = count(&cache.counters.hits),
        misses = count(&cache.counters.misses),
        evictions = count(&cache.counters.evictions),
        changes = watch.as_ref().map_or(0, |watch| count(&watch.invalidations)),
        bytes,
        files,
        descriptors,
        "the cache, at the end"
    );
}

/// Says how many connections the limits have cost, if any.
fn tell_of_connections(shared: &SharedState) {
    let evicted = shared.limiter.eviction.evicted();
    let refused = shared.limiter.per_address.refused();
    if evicted + refused > 0 {
        tracing::info!(evicted, refused, "connections that were closed because of limits");
    }
}

/// Says what the limits of routes have done, if anything.
fn tell_of_limits(shared: &SharedState) {
    for counts in shared.config.sites.iter().flat_map(|site| site.limits()) {
        let RouteCounts { site, route, concurrency, bandwidth, limits } = counts;
        if let Some(Limited { counts, .. }) = concurrency {
            let ConcurrencyCounts { served, queued, overdue, refused, expired, left, .. } = counts;
            tracing::info!(
                site,
                route,
                served,
                queued,
                overdue,
                refused,
                expired,
                left,
                "the throttle of requests, at the end"
            );
        }
        if let Some(Limited { counts: BandwidthCounts { sent, refused, .. }, .. }) = bandwidth {
            tracing::info!(site, route, sent, refused, "the throttle of bandwidth, at the end");
        }
        for Limited { rule: limit, counts, .. } in limits {
            let RateCounts { passed, refused } = counts;
            tracing::info!(site, route, limit, passed, refused, "a limit of requests, at the end");
        }
    }
}

impl WorkerHandle {
    fn start(number: usize, alive: &Arc<AtomicUsize>) -> std::io::Result<Self> {
        let (orders, received) = mpsc::unbounded_channel();
        let alive = Arc::clone(alive);
        let body = move || {
            run_worker(number, received);
            alive.fetch_sub(1, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name(format!("worker-{number}")).spawn(body)?;
        Ok(Self { orders, thread })
    }
}

/// One worker's life.
fn run_worker(number: usize, mut orders: mpsc::UnboundedReceiver<Order>) {
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
            tracing::error!("worker cannot start: {error}");
            return;
        }
    };
    runtime.block_on(async move {
        let timer = match Timer::new() {
            Ok(timer) => timer,
            Err(error) => {
                tracing::error!("worker cannot start: timer: {error}");
                return;
            }
        };
        let worker = Worker::new(number);
        tokio::task::spawn_local(Rc::clone(&worker).tick(timer));
        let mut doors: HashMap<u64, Rc<ListenerHandle>> = HashMap::new();
        // The end of the channel means that the server was dropped.
        while let Some(order) = orders.recv().await {
            match order {
                Order::Apply { generation: Generation { shared, access_log, .. }, ports, done } => {
                    let is_first = worker.current().is_none();
                    if is_first {
                        let limiter = Arc::clone(&shared.limiter);
                        tokio::task::spawn_local(Rc::clone(&worker).evict(Arc::clone(&limiter)));
                        tokio::task::spawn_local(Rc::clone(&worker).release_descriptors(limiter));
                    }
                    if let Some(watch) = shared.watch.clone().filter(|_| is_first) {
                        tokio::task::spawn_local(
                            Rc::clone(&worker).follow_changes(Arc::clone(&watch)),
                        );
                        tokio::task::spawn_local(Rc::clone(&worker).follow_mounts(watch));
                    }
                    worker.apply(shared, access_log.as_ref());
                    change_doors(&worker, &mut doors, ports);
                    // Nobody may be waiting any more.
                    let _ = done.send(());
                }
                Order::Answer { done } => {
                    // Nobody may be waiting any more.
                    let _ = done.send(());
                }
                Order::Drain { grace, handed_over } => {
                    if !handed_over {
                        doors.values().for_each(|handle| handle.close());
                    }
                    worker.drain(grace).await;
                    return;
                }
            }
        }
    });
}

/// Begins to accept from what is new, and ends to from what is gone.
fn change_doors(
    worker: &Rc<Worker>,
    doors: &mut HashMap<u64, Rc<ListenerHandle>>,
    ports: Vec<Port>,
) {
    doors.retain(|id, handle| {
        let stays = ports.iter().any(|port| port.id == *id);
        if !stays {
            handle.close();
        }
        stays
    });
    for Port { id, rules, sockets } in ports {
        if let Some(handle) = doors.get(&id) {
            handle.change(rules);
            continue;
        }
        let handle = ListenerHandle::new(rules);
        for socket in sockets {
            let accepting = listen::accept(Rc::clone(worker), Rc::clone(&handle), socket);
            tokio::task::spawn_local(async move {
                if let Err(error) = accepting.await {
                    tracing::error!("accepting: {error}");
                }
            });
        }
        doors.insert(id, handle);
    }
}

/// Checks that temporary files have a directory: sockets of workers need one, and long request bodies.
fn check_temporary_files(config: &Config) -> Result<(), StartError> {
    match temp_files::check_and_report() {
        Err(error) if config.needs_sockets() => {
            Err(fail(format!("{error}; the sockets of scripts need one")))
        }
        // The cache keeps its copies in memory then, and long request bodies are refused.
        Err(error) => {
            tracing::warn!("{error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Descriptors of one worker: its poller, timer and wakers, and a duplicate of the notification descriptor.
const PER_WORKER: usize = 6;
/// Descriptors for connections and files, and for two scripts at once with their pipes and sockets.
const OF_REQUESTS: usize = 8;
const OF_SCRIPTS: usize = 16;

/// Checks that the limit of descriptors leaves some for requests, once the sockets and logs are open.
fn check_descriptors(config: &Config) -> Result<(), StartError> {
    let limit = crate::config::descriptor_limit();
    let lacking = |open: usize, needed: usize| {
        fail(format!(
            "limits: {limit} open descriptors are too few: the server itself needs {open}, requests at least {needed} \
             more; raise `limits.open_files`, or ulimit -n"
        ))
    };
    let needed = OF_REQUESTS + if config.has_scripts() { OF_SCRIPTS } else { 0 };
    let own = config.server.threads * PER_WORKER;
    // The system gives out the lowest free number.
    let Ok((_, free)) = std::io::pipe() else { return Err(lacking(limit + own, needed)) };
    let open = usize::try_from(free.as_raw_fd()).unwrap_or(0) + own;
    match open + needed <= limit {
        true => Ok(()),
        false => Err(lacking(open, needed)),
    }
}

/// As many descriptors as the administrator lets this process have.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // What the hard limit allows needs no further permission.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Blocks SIGCHLD in this thread and in the threads that it starts. The server learns the end of a child process by a
/// pidfd. The kernel drops an ignored signal, but not while the receiving thread blocks all signals, as it does while it
/// starts a process: another thread would then be woken only to drop the signal. [`crate::spawn`] starts programs with
/// an empty mask.
fn block_child_signals() {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    // Without it the server works as well.
    let _ = child.thread_block();
}
