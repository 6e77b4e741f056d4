//! A worker's life: its start, what it says, and its end. All of it on the thread of the workers.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until, timeout};

use super::code::Code;
use super::{Fitness, Kept, Order, Pool, Slot, Worker};
use crate::config::{Language, Local, ScriptKind};
use crate::handler::script::cgiplus::Streams;
use crate::handler::script::process::{self, Exit, GROUP_GRACE, WorkerProcess, WorkerStart};
use crate::handler::script::stderr::Stderr;
use crate::handler::script::{cgiplus, environment, host};
use crate::temp_files::lacks_descriptors;
use crate::worker::SharedState;

/// How long the loops may take to close the descriptors that the cache keeps.
const RELEASE: Duration = Duration::from_millis(50);

/// Starts a worker when it may be, and has it serve.
pub(super) async fn start(pool: Arc<Pool>, shared: Arc<SharedState>) {
    loop {
        let resumed = pool.resumed.notified();
        let not_before = pool.lock().not_before;
        if not_before <= Instant::now() {
            break;
        }
        tokio::select! {
            () = sleep_until(not_before.into()) => {}
            () = resumed => {}
        }
    }
    let stopping = pool.lock().stopping;
    let begun = match stopping {
        true => Ok(()),
        false => begin_worker(&pool, &shared, Fitness::Fit).await.map(drop),
    };
    let mut state = pool.lock();
    state.starting -= 1;
    match begun {
        Ok(()) => {
            drop(state);
            pool.serve_waiting();
        }
        Err(what) => {
            tracing::error!(scripts = pool.label, "{what}");
            state.fail(&pool.local, &what, true);
        }
    }
}

/// Starts a worker.
///
/// # Errors
/// Why it cannot be started.
pub(super) async fn begin_worker(
    pool: &Arc<Pool>,
    shared: &Arc<SharedState>,
    fitness: Fitness,
) -> Result<Arc<Worker>, String> {
    let number = {
        let mut state = pool.lock();
        state.next_number += 1;
        state.next_number
    };
    let socket = pool.directory.join(format!("{}-{number}", pool.number));
    let code = Code::of(pool);
    let mut begun = begin(pool, shared, &socket);
    if let Err(error) = &begun
        && lacks_descriptors(error)
    {
        shared.limiter.release_descriptors(&shared.cache);
        // It may have been made before it failed.
        let _ = std::fs::remove_file(&socket);
        sleep(RELEASE).await;
        begun = begin(pool, shared, &socket);
    }
    let (process, kept) = begun.map_err(|error| {
        // What was made for it before it failed.
        let _ = std::fs::remove_file(&socket);
        format!("a worker could not be started: {error}")
    })?;
    let (orders, received) = mpsc::unbounded_channel();
    let started = Instant::now();
    let pid = process.child.id();
    tracing::debug!(scripts = pool.label, pid, "a worker was started");
    let worker = Arc::new(Worker {
        number,
        pid,
        socket: socket.into(),
        started,
        orders,
        errors: pool.rules.show_errors.then(Arc::default),
        code,
        ready: watch::Sender::new(false),
        loaded: Mutex::default(),
    });
    let mut state = pool.lock();
    state.slots.push(Slot {
        worker: Arc::clone(&worker),
        fitness,
        holders: Vec::new(),
        requests: 0,
        served: 0,
        idle_since: started,
        kept,
    });
    let stopping = state.stopping;
    if stopping && let Some(slot) = state.slot(number) {
        slot.end();
    }
    drop(state);
    tokio::spawn(live(
        Arc::clone(pool),
        Arc::clone(shared),
        Arc::clone(&worker),
        process,
        received,
    ));
    Ok(worker)
}

/// Waits until the worker's host has reported that its application is loaded.
async fn report(pool: &Arc<Pool>, shared: &Arc<SharedState>, worker: &Worker) {
    if !pool.rules.kind.has_host() {
        return std::future::pending().await;
    }
    let reported = async {
        let mut stream = UnixStream::connect(&worker.socket).await?;
        host::read_report(&mut stream).await
    };
    match reported.await {
        Ok(files) => worker.note_loaded(files),
        // It has ended, which is noticed elsewhere.
        Err(_) => return std::future::pending().await,
    }
    let mut state = pool.lock();
    state.down = None;
    state.is_proven = true;
    pool.grow(&mut state, shared);
}

/// The process, with a socket of its own that it accepts from, or with streams.
fn begin(
    pool: &Pool,
    shared: &Arc<SharedState>,
    socket: &Path,
) -> io::Result<(WorkerProcess, Option<Kept>)> {
    let rules = &pool.rules;
    if rules.kind.is_by_streams() {
        return begin_with_streams(pool, shared, socket);
    }
    let listener = UnixListener::bind(socket)?;
    open_way(pool)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600))?;
    let mut environment = vec![("PATH".into(), environment::path())];
    if rules.kind == ScriptKind::FastCgi {
        // PHP's own: one request at a time, and as many as its worker is given.
        let requests = pool.local.requests.unwrap_or(0).to_string();
        environment.push(("PHP_FCGI_CHILDREN".into(), "0".into()));
        environment.push(("PHP_FCGI_MAX_REQUESTS".into(), requests.into()));
    }
    if rules.kind == ScriptKind::Psgi {
        // As plackup sets it: frameworks such as Mojolicious recognize a PSGI server by it.
        environment.push(("PLACK_ENV".into(), "deployment".into()));
    }
    for (name, value) in &rules.env {
        environment.retain(|(other, _)| other != name.as_str());
        environment.push((name.into(), value.into()));
    }
    let directory = match rules.directory.as_os_str().is_empty() {
        true => "/".into(),
        false => rules.directory.clone(),
    };
    let (program, arguments) =
        pool.local.command.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let mut arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
    if rules.kind.has_host() {
        let (text, name) = match rules.kind {
            ScriptKind::Asgi => (host::ASGI, "asgi-host.py"),
            ScriptKind::Psgi => (host::PSGI, "psgi-host.pl"),
            _ => (host::WSGI, "wsgi-host.py"),
        };
        if rules.kind != ScriptKind::Psgi {
            provide(pool, host::LOADING_NAME, host::LOADING.as_bytes())?;
        }
        if rules.kind == ScriptKind::Wsgi {
            provide(pool, host::WSGI_FAST_NAME, host::WSGI_FAST)?;
        }
        let host = provide(pool, name, text.as_bytes())?;
        let Local { application, threads, .. } = &pool.local;
        arguments = vec![host.into(), application.into(), threads.to_string().into()];
    }
    let process = process::start_worker(
        shared,
        WorkerStart {
            program: program.into(),
            directory,
            arguments,
            environment,
            stdin: listener.into(),
            stdout: None,
            rules: Arc::clone(rules),
        },
    )?;
    Ok((process, None))
}

/// A file of ours beside the sockets, which is written for the first worker that needs it.
fn provide(pool: &Pool, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = pool.directory.join(name);
    if !path.exists() {
        std::fs::write(&path, content).inspect_err(|_| {
            // Nobody is to take a part of it for the whole.
            let _ = std::fs::remove_file(&path);
        })?;
    }
    Ok(path)
}

/// The folder of the client libraries for CGIplus.
fn libraries(pool: &Pool) -> io::Result<PathBuf> {
    let folder = pool.directory.join(cgiplus::FOLDER);
    std::fs::create_dir_all(&folder)?;
    for (name, text) in cgiplus::LIBRARIES {
        provide(pool, &format!("{}/{name}", cgiplus::FOLDER), text.as_bytes())?;
    }
    Ok(folder)
}

/// Lets a worker that belongs to somebody else come to what is made for it. Others cannot read what
/// else there is, or connect to it.
fn open_way(pool: &Pool) -> io::Result<()> {
    if pool.rules.owner.is_some() {
        std::fs::set_permissions(&pool.directory, Permissions::from_mode(0o711))?;
    }
    Ok(())
}

/// The process of a program that reads its requests from streams.
fn begin_with_streams(
    pool: &Pool,
    shared: &Arc<SharedState>,
    path: &Path,
) -> io::Result<(WorkerProcess, Option<Kept>)> {
    let rules = &pool.rules;
    let (streams, ends) = Streams::new(path)?;
    open_way(pool)?;
    if let Some(owner) = &rules.owner {
        chown(path, owner.user, Some(owner.group))?;
    }
    let mut environment = vec![("PATH".into(), environment::path())];
    for (name, value) in &rules.env {
        environment.retain(|(other, _)| other != name.as_str());
        environment.push((name.into(), value.into()));
    }
    if rules.kind == ScriptKind::Cgiplus {
        cgiplus::add_to(&mut environment, &libraries(pool)?);
    }
    for (name, value) in streams.environment(path) {
        environment.retain(|(other, _)| other != name);
        environment.push((name.into(), value.into()));
    }
    let (program, arguments, directory) = match rules.kind {
        ScriptKind::Cgiplus => {
            let directory = pool.program.parent().unwrap_or(Path::new("/"));
            (pool.program.to_path_buf(), Vec::new(), directory.to_owned())
        }
        _ => {
            let interpreter = pool.local.command.first().map(String::as_str);
            let (name, text) = match Language::of(interpreter) {
                Some(Language::Perl) => ("rte-host.pl", cgiplus::PERL),
                _ => ("rte-host.py", cgiplus::PYTHON),
            };
            provide(pool, host::LOADING_NAME, host::LOADING.as_bytes())?;
            let host = provide(pool, name, text.as_bytes())?;
            let interpreter = interpreter.unwrap_or("python3").into();
            (interpreter, vec![host.into()], rules.directory.clone())
        }
    };
    let process = process::start_worker(
        shared,
        WorkerStart {
            program,
            directory,
            arguments,
            environment,
            stdin: ends.stdin,
            stdout: Some(ends.stdout),
            rules: Arc::clone(rules),
        },
    )?;
    Ok((process, Some(streams.into())))
}

/// Sees a worker through to its end.
async fn live(
    pool: Arc<Pool>,
    shared: Arc<SharedState>,
    worker: Arc<Worker>,
    process: WorkerProcess,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let WorkerProcess { child, stderr } = process;
    let mut stderr = Stderr::of_worker(stderr, &pool.label, worker.pid, worker.errors.clone());
    let (exit, wanted) = {
        let listening = stderr.listen();
        tokio::pin!(listening);
        let reporting = report(&pool, &shared, &worker);
        tokio::pin!(reporting);
        let (mut heard, mut reported, mut lost) = (false, false, false);
        loop {
            tokio::select! {
                biased;
                exit = child.exited() => break (Some(exit), false),
                () = &mut listening, if !heard => heard = true,
                () = &mut reporting, if !reported => reported = true,
                order = orders.recv() => match order {
                    Some(Order::Probe { holder }) => {
                        tokio::spawn(probe(Arc::clone(&pool), Arc::clone(&worker), holder));
                    }
                    Some(Order::Lost) => {
                        lost = true;
                        let orders = worker.orders.clone();
                        tokio::spawn(async move {
                            sleep(GROUP_GRACE).await;
                            // An error says that it has ended.
                            let _ = orders.send(Order::End);
                        });
                    }
                    Some(Order::End) | None => {
                        let ended = async {
                            child.end().await;
                            child.exit()
                        };
                        tokio::pin!(ended);
                        break loop {
                            tokio::select! {
                                // One that could not be loaded may take a while to end.
                                exit = &mut ended => break (exit, !(lost && pool.is_unready(&worker))),
                                () = &mut listening, if !heard => heard = true,
                            }
                        };
                    }
                },
            }
        }
    };
    gone(&pool, &shared, &worker, exit, wanted);
    // What was written before the end is there; what else holds the pipe open is not waited for.
    let _ = timeout(GROUP_GRACE, stderr.listen()).await;
    drop(stderr);
    if let Some(errors) = &worker.errors {
        errors.close();
    }
    if !wanted {
        child.end().await;
    }
    child.reap();
    // It may be gone with its directory.
    let _ = std::fs::remove_file(&worker.socket);
}

/// A worker has ended: its place is free.
fn gone(
    pool: &Arc<Pool>,
    shared: &Arc<SharedState>,
    worker: &Worker,
    exit: Option<Exit>,
    wanted: bool,
) {
    let mut state = pool.lock();
    let slot = state.slot(worker.number);
    let (requests, served, is_successor) = slot.map_or((0, 0, false), |slot| {
        (slot.requests, slot.served, slot.fitness == Fitness::Starting)
    });
    state.slots.retain(|slot| slot.worker.number != worker.number);
    if served > 0 {
        state.prove();
    }
    let limit = pool.local.requests.is_some_and(|limit| requests >= limit);
    let by_itself = exit == Some(Exit::Code(0)) && served > 0;
    // What becomes of a successor that is not ready, the replacement reports.
    if wanted || limit || by_itself || is_successor {
        tracing::debug!(scripts = pool.label, pid = worker.pid, requests, "a worker has ended");
    } else if !state.stopping {
        let how = match exit {
            Some(Exit::Code(code)) => format!("with exit status {code}"),
            Some(Exit::Signal(signal)) => format!("by signal {signal}"),
            None => "without an exit status".into(),
        };
        // Of others than hosts it is not known whether they were ready, and a signal may come from outside. These are
        // given up after several in a row.
        let cannot_start = pool.is_unready(worker) && matches!(exit, Some(Exit::Code(_)));
        let reason = format!("a worker ended {how}");
        let pause = state.fail(&pool.local, &reason, cannot_start);
        let then = match state.down.is_some() {
            true => {
                "the application cannot be started; requests get 502, and the first after a pause has it tried again, \
                     as does a reload"
            }
            false => "another is started after a pause",
        };
        tracing::error!(
            scripts = pool.label,
            pid = worker.pid,
            requests,
            pause_ms = pause.as_millis() as u64,
            "{reason}; {then}"
        );
    }
    if state.down.is_none() {
        pool.grow(&mut state, shared);
    }
}

/// Waits until a worker takes another connection: it has then done with the request that was
/// given up. One that does not within the script's own limits hangs, and is ended.
async fn probe(pool: Arc<Pool>, worker: Arc<Worker>, holder: u64) {
    let accepted = async {
        let mut stream = UnixStream::connect(&worker.socket).await?;
        rustix::net::shutdown(&stream, rustix::net::Shutdown::Write)?;
        // Nothing was asked, so that any answer is that it has looked.
        stream.read(&mut [0; 64]).await
    };
    let limit = pool.rules.timeout.or(pool.rules.idle_timeout);
    let result = match limit {
        Some(limit) => timeout(limit, accepted).await,
        None => Ok(accepted.await),
    };
    match result {
        Ok(Ok(_)) => {
            let mut state = pool.lock();
            if let Some(slot) = state.slot(worker.number) {
                slot.holders.retain(|other| other.id != holder);
                if slot.holders.is_empty() {
                    let limit = pool.local.requests;
                    match limit.is_some_and(|limit| slot.requests >= limit) {
                        true => slot.end(),
                        false => slot.fitness = Fitness::Fit,
                    }
                    slot.idle_since = Instant::now();
                }
            }
            drop(state);
            pool.serve_waiting();
        }
        Ok(Err(_)) => pool.lose(&worker),
        Err(_) => {
            tracing::error!(
                scripts = pool.label,
                pid = worker.pid,
                "a worker goes on with a request that was given up; it is ended"
            );
            pool.end(&worker);
        }
    }
}

/// Looks at the workers from time to time: at their age, their memory, and who has been idle.
pub(super) async fn tend(pool: Arc<Pool>, shared: Arc<SharedState>) {
    let local = &pool.local;
    let shortest = local.max_age.map_or(local.retire_idle, |age| age.min(local.retire_idle));
    let pause = (shortest / 2).clamp(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        sleep(pause).await;
        let mut state = pool.lock();
        if state.stopping {
            return;
        }
        let mut spare = state.slots.len().saturating_sub(local.min_processes);
        for slot in &mut state.slots {
            if slot.fitness == Fitness::Fit && pool.is_due(slot) {
                slot.fitness = Fitness::Due;
            }
            let is_in_use = !matches!(slot.fitness, Fitness::Fit | Fitness::Due);
            if is_in_use || !slot.holders.is_empty() {
                continue;
            }
            let idle = spare > 0 && slot.idle_since.elapsed() >= local.retire_idle;
            if idle || slot.fitness == Fitness::Due {
                slot.end();
                spare = spare.saturating_sub(1);
            }
        }
        if state.down.is_none() {
            pool.grow(&mut state, &shared);
        }
    }
}

impl Pool {
    /// Whether the worker's host has not reported that its application is loaded.
    fn is_unready(&self, worker: &Worker) -> bool {
        self.rules.kind.has_host() && !worker.is_ready()
    }

    fn is_due(&self, slot: &Slot) -> bool {
        let Worker { pid, started, .. } = &*slot.worker;
        let old = self.local.max_age.is_some_and(|age| started.elapsed() >= age);
        let resident =
            self.local.max_resident.and_then(|most| resident(*pid).filter(|bytes| *bytes >= most));
        if old || resident.is_some() {
            tracing::debug!(scripts = self.label, pid, old, resident, "a worker is replaced");
        }
        old || resident.is_some()
    }
}

/// Bytes of a process that are in memory.
fn resident(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
