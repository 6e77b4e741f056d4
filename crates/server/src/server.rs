//! The server: start, reload, upgrade and stop; signals and commands.

mod listeners;
mod load;
mod prepare;
mod quic_sockets;
mod renew;
mod summary;
mod upgrade;
mod verify;
mod worker_thread;

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use self::listeners::{Listeners, WorkerListener};
pub use self::load::{load_directory, reload};
pub(crate) use self::prepare::Generation;
use self::quic_sockets::Succession;
use self::upgrade::Upgrade;
pub use self::verify::{Findings, certificates, http3_notes, unresolved_names, verify};
use dunlin_config::{Config, Problem, StartupSettings};
pub use dunlin_process::StartError;
use dunlin_process::fail;
use dunlin_process::handover;
pub use dunlin_process::handover::Takeover;
use dunlin_process::inheritance::Inheritance;
use dunlin_process::notify::Manager;
use dunlin_process::pid_file::PidFile;
use dunlin_process::preconditions::{
    block_child_signals, check_descriptors, check_temporary_files, raise_descriptor_limit,
};
use dunlin_process::sandbox;
pub use dunlin_process::sandbox::{Confined, confine, hindrances};
pub use dunlin_process::socket_remover::{REMOVE_SOCKETS, remove_sockets};

use self::worker_thread::{WorkerCommand, WorkerHandle};
use crate::component;
use crate::control::{Action, Command, Control, Event, ResultSender};
use crate::disk_cache::DiskCache;
use crate::handler;
use crate::listen::quic;
use crate::worker::SharedState;
use dunlin_process::start_program::Starter;

/// The source of the configuration, for reloads.
pub trait Origin: Send {
    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// All problems that were found.
    fn read(&self) -> Result<Config, Vec<Problem>>;

    /// Called after a reload with the configuration that is in use from now on.
    fn applied(&self, config: &Config);
}

/// A server whose sockets are open and whose workers run.
pub struct Server {
    runtime: Runtime,
    control: Control,
    running: Running,
}

/// The state of a running server.
struct Running {
    origin: Box<dyn Origin>,
    manager: Manager,
    /// See [`Confined`].
    program: Option<PathBuf>,
    /// Starts the new process of an upgrade where seccomp forbids it to all other threads.
    starter: Option<Starter>,
    generation: Generation,
    listeners: Listeners,
    workers: Vec<WorkerHandle>,
    /// Closed when all workers have ended.
    alive: watch::Sender<()>,
    /// The upgrade in progress.
    upgrade: Option<Upgrade>,
}

/// The time that workers may take to switch to another configuration.
const APPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which the end of the process waits for each of what is still written.
const FINISH: Duration = Duration::from_secs(2);
/// The time for which idle connections stay open after an upgrade, so that their next response can announce the close.
const HANDOVER_GRACE: Duration = Duration::from_secs(5);

impl Server {
    /// Opens everything that `config` names, except the sockets of `takeover`, and starts serving.
    ///
    /// # Errors
    /// The first failure, in one line: what failed, where, and what to do.
    pub fn start(
        mut config: Config,
        mut confined: Confined,
        origin: Box<dyn Origin>,
        takeover: Option<&mut Takeover>,
    ) -> Result<Self, StartError> {
        raise_descriptor_limit();
        block_child_signals();
        let manager = Manager::from_environment();
        let program = confined.program.clone();
        let is_first = takeover.is_none();
        let (mut inheritance, startup) = match takeover {
            Some(takeover) => {
                let startup = takeover.startup(&mut config)?;
                takeover.secrets.iter().for_each(quic::continue_identity);
                (std::mem::take(&mut takeover.inheritance), startup)
            }
            None => {
                let sockets = handover::from_systemd()
                    .map_err(|error| fail(format!("sockets passed by systemd: {error}")))?;
                (sockets, StartupSettings::of(&config))
            }
        };
        let (runtime, control) =
            Control::new().map_err(|error| fail(format!("receiving signals: {error}")))?;
        let starter = sandbox::restrict(&config, &confined)?;
        let components = component::new(program.clone(), starter.clone());
        let commands = control.commands();
        let generation = Generation::first(config, startup, commands, Arc::default(), components)?;
        let config = Arc::clone(&generation.shared.config);
        let threads = config.server.threads;
        let mut listeners = Listeners::new(threads);
        let plan = listeners.plan(&config.listen, &mut inheritance)?;
        for unused in inheritance.listeners {
            let address = unused.address;
            tracing::warn!("an inherited socket for {address} is closed: no [[listen]] names it");
        }
        let (per_worker, _) = listeners
            .change(plan)
            .map_err(|error| fail(format!("distributing listeners to workers: {error}")))?;
        listeners.removed_by(confined.remover.take());
        let pid_file = generation.shared.startup.pid_file.as_deref().map(PidFile::new);
        if let Some(file) = &pid_file {
            sandbox::place_pid_file(file, &confined, is_first)?;
        }
        let ready = sandbox::switch_user(&config, confined)
            .and_then(|()| check_temporary_files(&config))
            .and_then(|()| check_descriptors(&config))
            .and_then(|()| generation.shared.components.prepare(&config).map_err(fail));
        if let Err(error) = ready {
            pid_file.iter().for_each(PidFile::remove);
            return Err(error);
        }
        let (alive, receiver) = watch::channel(());
        let mut workers = Vec::new();
        for number in 0..threads {
            let started = WorkerHandle::start(number, receiver.clone());
            workers.push(
                started.map_err(|error| fail(format!("worker {number} cannot start: {error}")))?,
            );
        }
        drop(receiver);
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
        runtime.block_on(running.apply(&running.generation, per_worker))?;
        DiskCache::takes_over(running.generation.shared.disk.as_ref(), None);
        running.generation.joins_fleet(None);
        Ok(Self { runtime, control, running })
    }

    /// Returns the listening addresses, as URLs that a browser on this machine can open, one per line.
    pub fn urls(&self) -> Vec<String> {
        self.running.listeners.urls()
    }

    /// Logs the version, configuration, sites, user and listeners.
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
        let addresses = self.running.listeners.addresses().join(", ");
        let what = format!(
            "dunlin {version} started: {by}, {sites} site{plural}, {user}, listening on {addresses}"
        );
        self.running.note(&what);
    }

    /// Serves until SIGTERM or SIGINT and for `drain` from then on, then lets responses in progress finish within `stop_timeout`. A
    /// second such signal ends the one, and another the other. SIGHUP reloads the configuration, SIGUSR2 upgrades to a new process, SIGUSR1 reopens the logs. The
    /// process before `takeover` is notified that this one serves.
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
            running.listeners.follow();
            let (mut drained, mut following) = (None, Vec::new());
            let mut seconds = tokio::time::interval(Duration::from_secs(1));
            seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let end = loop {
                let due = async {
                    match &mut watchdog {
                        Some(watchdog) => watchdog.tick().await,
                        None => std::future::pending().await,
                    }
                };
                let stop = async {
                    match drained {
                        Some(drained) => tokio::time::sleep_until(drained).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    event = control.next() => match event {
                        Event::Stop => match running.begin_draining() {
                            Some(end) => drained = Some(end),
                            None => break End::Stop,
                        },
                        Event::Command(command) => running.execute(command).await,
                    },
                    () = stop => break End::Stop,
                    result = upgrade::end_of(&mut running.upgrade) => {
                        if let Some((pid, successions)) = running.upgraded(result) {
                            following = successions;
                            break End::Replaced(pid);
                        }
                    }
                    _ = due => running.send_watchdog().await,
                    _ = seconds.tick() => handler::status::sample(&running.generation.shared),
                }
            };
            match end {
                End::Stop => {
                    running.note("stopping: responses in progress are finished");
                    // A new process that does not serve yet ends with this one.
                    running.upgrade = None;
                    running.manager.stopping();
                    running.listeners.close();
                    running.pid_file().iter().for_each(PidFile::remove);
                    running.drain(Duration::ZERO, end, &mut control).await;
                }
                End::Replaced(_) => {
                    let successions = following.into_iter().map(Succession::begin);
                    futures_util::future::join_all(successions).await;
                    running.listeners.release();
                    if let Some(fleet) = &running.generation.shared.fleet {
                        // The other process has joined it.
                        fleet.leave();
                    }
                    // The other process uses the directory from now on.
                    DiskCache::takes_over(None, running.generation.shared.disk.as_ref());
                    running.drain(HANDOVER_GRACE, end, &mut control).await;
                }
            }
        });
        running.finish();
    }
}

/// Why the server ends.
#[derive(Clone, Copy)]
enum End {
    Stop,
    /// The process with this PID serves.
    Replaced(u32),
}

/// Logs the result of a command and sends it to the client that gave the command.
fn report(result: Result<String, String>, result_sender: ResultSender) {
    match &result {
        Ok(text) => tracing::info!("{text}"),
        Err(text) => tracing::error!("{text}"),
    }
    if let Some(result_sender) = result_sender {
        // The client may have left.
        let _ = result_sender.send(result);
    }
}

impl Running {
    /// Logs an event in the life of the process. A server of a directory without a configuration runs in a terminal, where its
    /// address is printed and its end is seen.
    fn note(&self, what: &str) {
        match self.generation.shared.config.path() {
            Some(_) => tracing::info!("{what}"),
            None => tracing::debug!("{what}"),
        }
    }

    /// Has routes with `readiness` report that the server stops. Returns when it does; `None` if it does at once.
    fn begin_draining(&mut self) -> Option<tokio::time::Instant> {
        let SharedState { config, draining, .. } = &*self.generation.shared;
        let (time, began) = (config.server.drain, draining.swap(true, Ordering::Relaxed));
        if time.is_zero() || began {
            return None;
        }
        // A new process would be ready.
        self.upgrade = None;
        tracing::info!("draining for {} s: the server is no longer ready", time.as_secs_f64());
        Some(tokio::time::Instant::now() + time)
    }

    /// Executes a command and reports the result. An upgrade continues in the background.
    async fn execute(&mut self, command: Command) {
        let result = match command.action {
            Action::Reload { workers } => {
                self.manager.reloading();
                let result = self.reload().await;
                self.manager.ready();
                match result {
                    Ok(text) => {
                        return renew::workers(&self.generation, workers, text, command.result);
                    }
                    Err(why) => Err(why),
                }
            }
            Action::Upgrade if self.generation.shared.draining.load(Ordering::Relaxed) => {
                Err("the server is stopping".to_owned())
            }
            Action::Upgrade => return self.begin_upgrade(command.result),
            Action::Reopen => Ok(self.reopen_log()),
        };
        report(result, command.result);
    }

    /// Sends the watchdog notification to the service manager if every worker responds.
    async fn send_watchdog(&self) {
        let mut waiting = Vec::new();
        for worker in &self.workers {
            let (done, pong) = oneshot::channel();
            worker.send(WorkerCommand::Ping { done });
            waiting.push(pong);
        }
        let all = futures_util::future::join_all(waiting);
        match tokio::time::timeout(self.manager.watchdog.unwrap_or(APPLY_TIMEOUT), all).await {
            Ok(pongs) if pongs.iter().all(Result::is_ok) => self.manager.alive(),
            _ => {
                tracing::error!("a worker does not respond; the watchdog notification is withheld");
            }
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
        self.generation.logs.reopen();
        match self.generation.logs.is_empty() {
            false => "the logs are reopened".to_owned(),
            true => "the error log is reopened; there is no access log".to_owned(),
        }
    }

    /// Switches to the configuration as it is on disk. On failure, the running configuration stays in use.
    async fn reload(&mut self) -> Result<String, String> {
        let unchanged = |what: &dyn fmt::Display| {
            format!("not reloaded, the running configuration stays in use: {what}")
        };
        let before = Arc::clone(&self.generation.shared.config);
        let config = self.origin.read().map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
            unchanged(&lines.join("\n"))
        })?;
        if let Some(why) = config.reload_conflict(before.server.calls) {
            return Err(unchanged(&why));
        }
        sandbox::check_script_users(&config).map_err(|error| unchanged(&error))?;
        check_temporary_files(&config).map_err(|error| unchanged(&error))?;
        let restart = config.needs_restart(&self.generation.shared.startup);
        let config = self.prepare_components(config).await.map_err(|why| unchanged(&why))?;
        let next = self.generation.next(config).map_err(|error| unchanged(&error))?;
        let config = Arc::clone(&next.shared.config);
        let plan = self
            .listeners
            .plan(&config.listen, &mut Inheritance::default())
            .map_err(|error| unchanged(&error))?;
        let (per_worker, change) =
            self.listeners.change(plan).map_err(|error| unchanged(&error))?;
        let moved = next.moved(&self.generation);
        self.generation.revalidate(&moved);
        self.apply(&next, per_worker).await.map_err(|error| error.to_string())?;
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.has_old_configuration = true;
        }
        let last = std::mem::replace(&mut self.generation, next);
        self.generation.takes_over(&last, &moved);
        self.origin.applied(&config);
        Ok(summary::describe_reload(&config, &before, &change, &moved, &restart))
    }

    /// Loads the components of `config`. Requests are handled meanwhile.
    async fn prepare_components(&self, config: Config) -> Result<Config, String> {
        if !config.has_components() {
            return Ok(config);
        }
        let components = Arc::clone(&self.generation.shared.components);
        let prepare = move || components.prepare(&config).map(|()| config);
        let prepared = tokio::task::spawn_blocking(prepare);
        prepared.await.map_err(|error| format!("loading components: {error}"))?
    }

    /// Switches every worker to `generation`, and waits until they have done so.
    async fn apply(
        &self,
        generation: &Generation,
        per_worker: Vec<Vec<WorkerListener>>,
    ) -> Result<(), StartError> {
        let config = &generation.shared.config;
        dunlin_memory::set_limit(config.server.memory);
        dunlin_fs::content::set_memory_copies(config.listen.iter().any(|listener| listener.tls));
        let mut waiting = Vec::new();
        for (worker, listeners) in self.workers.iter().zip(per_worker) {
            let (done, applied) = oneshot::channel();
            let generation = generation.clone();
            worker.send(WorkerCommand::Apply { generation, listeners, done });
            waiting.push(applied);
        }
        let all = futures_util::future::join_all(waiting);
        match tokio::time::timeout(APPLY_TIMEOUT, all).await {
            Ok(results) if results.iter().all(Result::is_ok) => Ok(()),
            Ok(_) => Err(fail("a worker has ended; restart the server")),
            Err(_) => Err(fail("a worker is busy: it switches to the new configuration later")),
        }
    }

    /// Lets responses in progress finish, until `stop_timeout` or a signal. Commands are rejected.
    async fn drain(&self, grace: Duration, end: End, control: &mut Control) {
        let is_replaced = matches!(end, End::Replaced(_));
        for worker in &self.workers {
            worker.send(WorkerCommand::Drain { grace, is_replaced });
        }
        let limit = self.generation.shared.config.server.stop_timeout;
        let mut ended = pin!(tokio::time::timeout(limit, self.alive.closed()));
        loop {
            tokio::select! {
                _ = &mut ended => break,
                event = control.next() => match event {
                    Event::Stop => break,
                    Event::Command(command) => report(Err(match end {
                        End::Stop => "the server is stopping".into(),
                        End::Replaced(pid) => format!(
                            "process {pid} serves now and this one is ending; repeat the command"
                        ),
                    }), command.result),
                },
            }
        }
    }

    fn finish(self) {
        let Generation { shared, logs, .. } = &self.generation;
        let left = shared.fleet.as_ref().map(|fleet| fleet.leave());
        summary::log_totals(shared);
        shared.scripts.pools.kill_all();
        if let Some(tracer) = &shared.tracer {
            tracer.finish();
        }
        if let Some(disk) = &shared.disk {
            disk.finish_writing(FINISH);
        }
        if let Some(left) = left {
            // It is dropped when this server has left.
            let _ = left.recv_timeout(FINISH);
        }
        let open = shared.limiter.open();
        if open > 0 {
            tracing::warn!("{open} connections were still open when stop_timeout expired");
        }
        let lost = logs.close(FINISH);
        if lost > 0 {
            tracing::warn!("{lost} lines of the access log were lost since it was opened");
        }
        self.workers.into_iter().for_each(WorkerHandle::join);
        self.listeners.finish(FINISH);
    }
}
