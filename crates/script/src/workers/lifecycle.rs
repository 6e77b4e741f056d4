//! Watches a worker from its start to its end, on the supervisor thread.

use std::sync::Arc;
use std::time::Instant;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::super::app_server::report::read_report;
use super::super::process::{Child, Exit, GROUP_GRACE, WorkerProcess};
use super::super::stderr::Stderr;
use super::pool::Pool;
use super::state::WorkerStatus;
use super::worker::{Command, Worker};
use crate::context::Shared;

/// The end of a worker.
struct Ending {
    exit: Option<Exit>,
    /// The pool has ended it.
    is_wanted: bool,
}

/// Watches a worker: reads its standard error, carries out the pool's commands, and notes its end.
pub(super) async fn watch(
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    process: WorkerProcess,
    commands: mpsc::UnboundedReceiver<Command>,
) {
    let WorkerProcess { child, stderr } = process;
    let mut stderr = Stderr::of_worker(stderr, &pool.label, worker.pid, worker.errors.clone());
    let ending = {
        let reading_stderr = stderr.log();
        let reporting = wait_for_report(&pool, &shared, &worker);
        until_end(&pool, &worker, &child, commands, reading_stderr, reporting).await
    };
    let is_wanted = ending.is_wanted;
    note_end(&pool, &shared, &worker, ending);
    // What was written before the end is there; the end of the pipe is not waited for if another process holds it open.
    let _ = timeout(GROUP_GRACE, stderr.log()).await;
    drop(stderr);
    if let Some(errors) = &worker.errors {
        errors.close();
    }
    if !is_wanted {
        child.end().await;
    }
    child.reap();
    // It may be gone with its directory.
    let _ = std::fs::remove_file(&worker.socket);
}

/// Carries out commands until the process has ended, by itself or by a command.
async fn until_end(
    pool: &Arc<Pool>,
    worker: &Arc<Worker>,
    child: &Child,
    mut commands: mpsc::UnboundedReceiver<Command>,
    reading_stderr: impl Future<Output = ()>,
    reporting: impl Future<Output = ()>,
) -> Ending {
    tokio::pin!(reading_stderr, reporting);
    let (mut is_silent, mut is_reported, mut is_lost) = (false, false, false);
    loop {
        tokio::select! {
            biased;
            exit = child.exited() => return Ending { exit: Some(exit), is_wanted: false },
            () = &mut reading_stderr, if !is_silent => is_silent = true,
            () = &mut reporting, if !is_reported => is_reported = true,
            command = commands.recv() => match command {
                Some(Command::Probe(request)) => {
                    tokio::spawn(probe(Arc::clone(pool), Arc::clone(worker), request));
                }
                Some(Command::Lost) => {
                    is_lost = true;
                    let worker = Arc::clone(worker);
                    tokio::spawn(async move {
                        sleep(GROUP_GRACE).await;
                        worker.command(Command::End);
                    });
                }
                Some(Command::End) | None => break,
            },
        }
    }
    let ended = async {
        child.end().await;
        child.exit()
    };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            exit = &mut ended => {
                // An application server that could not load its application may take a while to end after its connection.
                let is_wanted = !(is_lost && is_unready(pool, worker));
                return Ending { exit, is_wanted };
            }
            () = &mut reading_stderr, if !is_silent => is_silent = true,
        }
    }
}

/// Waits for an application server's report that its application is loaded.
async fn wait_for_report(pool: &Arc<Pool>, shared: &Arc<Shared>, worker: &Worker) {
    if !pool.is_application() {
        return std::future::pending().await;
    }
    let reported = async {
        let mut stream = UnixStream::connect(&worker.socket).await?;
        read_report(&mut stream).await
    };
    match reported.await {
        Ok(files) => worker.note_loaded(files),
        // It has ended, which the pidfd reports.
        Err(_) => return std::future::pending().await,
    }
    {
        let mut state = pool.lock();
        state.down = None;
        state.is_proven = true;
        if let Some(slot) = state.slot(worker)
            && slot.status == WorkerStatus::Loading
        {
            slot.status = WorkerStatus::Available;
            slot.idle_since = Instant::now();
        }
    }
    pool.serve_queue();
    pool.grow(&mut pool.lock(), shared);
}

/// Removes a worker that has ended, and notes whether it has failed.
fn note_end(pool: &Arc<Pool>, shared: &Arc<Shared>, worker: &Worker, ending: Ending) {
    let Ending { exit, is_wanted } = ending;
    let mut state = pool.lock();
    let slot = state.slot(worker);
    let (requests, served, is_starting) = slot.map_or((0, 0, false), |slot| {
        (slot.given, slot.served, slot.status == WorkerStatus::Starting)
    });
    state.slots.retain(|slot| slot.worker.number != worker.number);
    worker.note_ended();
    if served > 0 {
        state.note_success();
    }
    let is_spent = pool.local.requests.is_some_and(|limit| requests >= limit);
    let by_itself = exit == Some(Exit::Code(0)) && served > 0;
    // The replacement of workers reports the failure of a new worker that was still starting.
    if is_wanted || is_spent || by_itself || is_starting {
        tracing::debug!(scripts = pool.label, pid = worker.pid, requests, "a worker has ended");
    } else if !state.is_stopping {
        let how = match exit {
            Some(Exit::Code(code)) => format!("with exit status {code}"),
            Some(Exit::Signal(signal)) => format!("by signal {signal}"),
            None => "without an exit status".into(),
        };
        // Only application servers report that they are ready, and a signal may come from outside. Other workers are given up after several
        // failures in a row.
        let cannot_start = is_unready(pool, worker) && matches!(exit, Some(Exit::Code(_)));
        let reason = format!("a worker ended {how}");
        let pause = state.note_failure(&pool.local, &reason, cannot_start);
        let then = match state.down.is_some() {
            true => {
                "the application cannot be started; requests get 502; the first request after a pause starts it again, \
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
    match state.down().cloned() {
        Some(reason) => state.fail_waiting(&reason),
        // While no worker can be started, only requests have it tried again: those that wait as well, for no other may come.
        None if state.down.is_none() || !state.queue.is_empty() => pool.grow(&mut state, shared),
        None => {}
    }
    pool.note_end(&state);
}

/// Returns `true` if the worker is an application server that has not reported that its application is loaded.
fn is_unready(pool: &Pool, worker: &Worker) -> bool {
    pool.is_application() && !worker.is_ready()
}

/// Waits until a worker accepts another connection: it has then finished the request that was abandoned. A worker that does not
/// within the script's own time limit hangs, and is ended.
async fn probe(pool: Arc<Pool>, worker: Arc<Worker>, request: u64) {
    let limit = pool.rules.timeout.or(pool.rules.idle_timeout);
    let accepted = accepts(&worker);
    let result = match limit {
        Some(limit) => timeout(limit, accepted).await,
        None => Ok(accepted.await),
    };
    match result {
        Ok(Ok(())) => pool.note_finished(&worker, request),
        Ok(Err(_)) => pool.lose(&worker),
        Err(_) => {
            tracing::error!(
                scripts = pool.label,
                pid = worker.pid,
                "a worker still works on an abandoned request after the time limit; it is killed"
            );
            pool.end(&worker);
        }
    }
}

/// Waits until the worker has accepted a connection that carries no request.
///
/// # Errors
/// When it cannot be connected to.
pub(super) async fn accepts(worker: &Worker) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(&worker.socket).await?;
    rustix::net::shutdown(&stream, rustix::net::Shutdown::Write)?;
    // There is nothing for it to read, so that whatever it does next shows that it has accepted the connection.
    stream.read(&mut [0; 64]).await.map(|_| ())
}
