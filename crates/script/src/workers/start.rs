//! Starting workers, on the supervisor thread.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};

use super::super::process::{self, WorkerProcess};
use super::code::Code;
use super::command::{self, Started};
use super::connection::PooledConnection;
use super::lifecycle;
use super::pool::Pool;
use super::state::{Slot, WorkerStatus};
use super::worker::Worker;
use crate::context::Shared;
use dunlin_net::temp_files::lacks_descriptors;

/// The time that the workers of the server may take to close the descriptors that the cache keeps.
const RELEASE: Duration = Duration::from_millis(50);

/// Starts a worker, after the pause that earlier failures demand.
pub(super) async fn run(pool: Arc<Pool>, shared: Arc<Shared>) {
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
    let (is_stopping, has_ready_worker) = {
        let state = pool.lock();
        (state.is_stopping, state.has_ready_worker())
    };
    // An application that cannot be loaded anymore fails no request as long as a worker has it.
    let status = match pool.is_application() && has_ready_worker {
        true => WorkerStatus::Loading,
        false => WorkerStatus::Available,
    };
    let started = match is_stopping {
        true => Ok(()),
        false => start(&pool, &shared, status).await.map(drop),
    };
    let mut state = pool.lock();
    state.starting -= 1;
    pool.note_end(&state);
    match started {
        Ok(()) => {
            drop(state);
            pool.serve_queue();
        }
        Err(what) => {
            tracing::error!(scripts = pool.label, "{what}");
            state.note_failure(&pool.local, &what, true);
        }
    }
}

/// Starts a worker, whose life is watched from then on.
///
/// # Errors
/// Why it cannot be started.
pub(super) async fn start(
    pool: &Arc<Pool>,
    shared: &Arc<Shared>,
    status: WorkerStatus,
) -> Result<Arc<Worker>, String> {
    let number = {
        let mut state = pool.lock();
        state.workers += 1;
        state.workers
    };
    let socket = pool.directory.join(format!("{}-{number}", pool.number));
    let code = Code::of(pool);
    let mut started = spawn(pool, shared, &socket);
    if let Err(error) = &started
        && lacks_descriptors(error)
    {
        shared.files.release_descriptors();
        // It may have been created before the failure.
        let _ = std::fs::remove_file(&socket);
        sleep(RELEASE).await;
        started = spawn(pool, shared, &socket);
    }
    let (process, connection) = started.map_err(|error| {
        let _ = std::fs::remove_file(&socket);
        format!("a worker could not be started: {error}")
    })?;
    let pid = process.child.id();
    tracing::debug!(scripts = pool.label, pid, "a worker was started");
    let errors = pool.rules.show_errors.then(Arc::default);
    let (worker, commands) = Worker::new(number, pid, socket.into(), code, errors);
    let mut state = pool.lock();
    state.slots.push(Slot::new(Arc::clone(&worker), status, connection));
    if state.is_stopping
        && let Some(slot) = state.slot(&worker)
    {
        slot.end();
    }
    drop(state);
    let (pool, shared, watched) = (Arc::clone(pool), Arc::clone(shared), Arc::clone(&worker));
    tokio::spawn(lifecycle::watch(pool, shared, watched, process, commands));
    Ok(worker)
}

fn spawn(
    pool: &Pool,
    shared: &Arc<Shared>,
    socket: &std::path::Path,
) -> io::Result<(WorkerProcess, Option<PooledConnection>)> {
    let Started { start, connection } = command::prepare(pool, socket)?;
    Ok((process::start_worker(&shared.groups, start)?, connection))
}
