//! A worker's life: its start, what it says, and its end. All of it on the thread of the workers.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};

use super::{Fitness, Kept, LONGEST_BACKOFF, Order, Pool, Slot, Version, Worker};
use crate::config::{Language, Local, ScriptKind};
use crate::event_loop::Shared;
use crate::handler::script::cgiplus::Streams;
use crate::handler::script::process::{self, Exit, GROUP_GRACE, WorkerProcess, WorkerStart};
use crate::handler::script::stderr::Stderr;
use crate::handler::script::{cgiplus, environment, host};

/// Starts a worker when it may be, and has it serve.
pub(super) async fn start(pool: Arc<Pool>, shared: Arc<Shared>) {
    loop {
        let not_before = pool.lock().not_before;
        if not_before <= Instant::now() {
            break;
        }
        sleep_until(not_before.into()).await;
    }
    let number = {
        let mut state = pool.lock();
        if state.stopping {
            state.starting -= 1;
            return;
        }
        state.next_number += 1;
        state.next_number
    };
    let socket = pool.directory.join(format!("{}-{number}", pool.number));
    let version = Version::of(&pool.program);
    let process = begin(&pool, &shared, &socket);
    let (orders, received) = mpsc::unbounded_channel();
    let mut state = pool.lock();
    state.starting -= 1;
    match process {
        Ok((process, kept)) => {
            let started = Instant::now();
            let pid = process.child.id();
            tracing::debug!(scripts = pool.label, pid, "a worker was started");
            let errors = pool.rules.show_errors.then(Arc::default);
            let socket = socket.into();
            let worker = Arc::new(Worker { number, pid, socket, started, orders, errors });
            state.slots.push(Slot {
                worker: Arc::clone(&worker),
                fitness: Fitness::Fit,
                version,
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
            tokio::spawn(live(Arc::clone(&pool), shared, worker, process, received));
            pool.serve_waiting();
        }
        Err(error) => {
            let what = format!("a worker could not be started: {error}");
            tracing::error!(scripts = pool.label, "{what}");
            // What was made for it before it failed.
            let _ = std::fs::remove_file(&socket);
            state.failures = state.failures.saturating_add(1);
            state.not_before = Instant::now() + pause(pool.local.backoff, state.failures);
            for waiter in std::mem::take(&mut state.waiting) {
                drop(waiter.give.send(Err(what.clone())));
            }
        }
    }
}

/// The process, with a socket of its own that it accepts from, or with streams.
fn begin(
    pool: &Pool,
    shared: &Arc<Shared>,
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
    shared: &Arc<Shared>,
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
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    process: WorkerProcess,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let WorkerProcess { child, stderr } = process;
    let mut stderr = Stderr::of_worker(stderr, &pool.label, worker.pid, worker.errors.clone());
    let (exit, wanted) = {
        let listening = stderr.listen();
        tokio::pin!(listening);
        let mut heard = false;
        loop {
            tokio::select! {
                biased;
                exit = child.exited() => break (Some(exit), false),
                () = &mut listening, if !heard => heard = true,
                order = orders.recv() => match order {
                    Some(Order::Probe { holder }) => {
                        tokio::spawn(probe(Arc::clone(&pool), Arc::clone(&worker), holder));
                    }
                    Some(Order::Lost) => {
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
                                exit = &mut ended => break (exit, true),
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
fn gone(pool: &Arc<Pool>, shared: &Arc<Shared>, worker: &Worker, exit: Option<Exit>, wanted: bool) {
    let mut state = pool.lock();
    let slot = state.slot(worker.number);
    let (requests, served) = slot.map_or((0, 0), |slot| (slot.requests, slot.served));
    state.slots.retain(|slot| slot.worker.number != worker.number);
    if served > 0 {
        state.failures = 0;
    }
    let limit = pool.local.requests.is_some_and(|limit| requests >= limit);
    let by_itself = exit == Some(Exit::Code(0)) && served > 0;
    if wanted || limit || by_itself {
        tracing::debug!(scripts = pool.label, pid = worker.pid, requests, "a worker has ended");
    } else if !state.stopping {
        state.failures = state.failures.saturating_add(1);
        let pause = pause(pool.local.backoff, state.failures);
        state.not_before = Instant::now() + pause;
        let how = match exit {
            Some(Exit::Code(code)) => format!("with exit status {code}"),
            Some(Exit::Signal(signal)) => format!("by signal {signal}"),
            None => "somehow".into(),
        };
        tracing::error!(
            scripts = pool.label,
            pid = worker.pid,
            requests,
            pause_ms = pause.as_millis() as u64,
            "a worker ended {how}; another is started after a pause"
        );
    }
    pool.grow(&mut state, shared);
}

/// The first pause, doubled with each failure after it.
fn pause(first: Duration, failures: u32) -> Duration {
    let factor = 1 << failures.saturating_sub(1).min(16);
    first.saturating_mul(factor).min(LONGEST_BACKOFF.max(first))
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
        // Its end is noticed by who waits for it.
        Ok(Err(_)) => pool.end(&worker),
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
pub(super) async fn tend(pool: Arc<Pool>, shared: Arc<Shared>) {
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
            if slot.fitness == Fitness::Unfit || !slot.holders.is_empty() {
                continue;
            }
            let idle = spare > 0 && slot.idle_since.elapsed() >= local.retire_idle;
            if idle || slot.fitness == Fitness::Due {
                slot.end();
                spare = spare.saturating_sub(1);
            }
        }
        pool.grow(&mut state, &shared);
    }
}

impl Pool {
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
