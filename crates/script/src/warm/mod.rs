//! Warm CGI: the same programs as CGI, without the cost of starting them.
//!
//! A fork server is the program itself, or its interpreter with the script loaded, stopped before it begins
//! (`scripting/warm/preload.c`). For each request it forks one process, which becomes a child of the server and is
//! supervised like any other. If anything is in the way, the script runs as plain CGI.

mod check;
mod fork_server;
mod message;
mod plan;
mod registry;

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout, timeout_at};

pub use self::check::cold_programs;
use self::fork_server::ForkServer;
use self::registry::ForkServerState;
pub(super) use self::registry::ForkServers;
use super::pipes::{PipeEnds, Pipes};
use super::process::{self, Input, Process, Start};
use super::retry_on_emfile;
use crate::context::Context;

/// Longest wait for a new process. Usually it takes less than a thousandth of this.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Pause between attempts while the user has too many descriptors on their way through sockets. They need not be on their
/// way to this fork server, so no event reports when there are fewer.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of requesting a process.
pub(super) enum WarmOutcome {
    Started(io::Result<Process>),
    /// Nothing of the script has run: it is to be started as plain CGI.
    NotWarm(Start),
}

/// Makes the program's fork server start a process, if a fork server is ready.
pub(super) async fn start(
    ctx: &Rc<Context>,
    fork_servers: &Arc<ForkServers>,
    start: Start,
) -> WarmOutcome {
    let fork_server = loop {
        match fork_servers.find(&ctx.shared, &start) {
            ForkServerState::Ready(fork_server) => break fork_server,
            ForkServerState::Starting(mut settled, until) => {
                // Ready or not, the registry is looked up again.
                let _ = timeout_at(until.into(), settled.changed()).await;
                tokio::task::yield_now().await;
            }
            ForkServerState::Nothing => return WarmOutcome::NotWarm(start),
        }
    };
    let ctx = Rc::clone(ctx);
    // The client may disconnect during the fork; the process must be supervised and ended all the same.
    match tokio::task::spawn_local(async move { fork(&ctx, &fork_server, start).await }).await {
        Ok(outcome) => outcome,
        Err(error) => WarmOutcome::Started(Err(io::Error::other(error))),
    }
}

async fn fork(ctx: &Context, fork_server: &ForkServer, start: Start) -> WarmOutcome {
    let pipes = retry_on_emfile::retry(ctx, async || Pipes::new(&start.input)).await;
    let pipes = match pipes {
        Ok(pipes) => pipes,
        Err(error) => return WarmOutcome::Started(Err(error)),
    };
    let Pipes { stdin, stdout, stderr, ends } = pipes;
    if !send(fork_server, &start, &ends).await {
        // The next request in line fails as well.
        fork_server.room.notify_one();
        return WarmOutcome::NotWarm(start);
    }
    drop(ends);
    let mut started = timeout(MAX_WAIT, process_id(&stdout)).await;
    if started.is_err() {
        fork_server.kill("it has not started a process in time");
        // Its end closes the pipe, unless the process id arrives after all.
        started = Ok(process_id(&stdout).await);
    }
    fork_server.room.notify_one();
    let Some(pid) = started.ok().flatten() else {
        return WarmOutcome::NotWarm(start);
    };
    match Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 0) {
        Some(pid) => {
            let child = process::adopt(&ctx.shared.groups, pid, start.rules.as_ref(), start.permit);
            WarmOutcome::Started(child.map(|child| Process {
                stdin,
                stdout,
                stderr,
                child,
                started: std::time::Instant::now(),
            }))
        }
        None => WarmOutcome::Started(Err(io::Error::from_raw_os_error(-pid))),
    }
}

/// Sends the message; false if the fork server cannot be reached.
async fn send(fork_server: &ForkServer, start: &Start, ends: &PipeEnds) -> bool {
    let message = message::encode(start, fork_server.arguments());
    let input = match &start.input {
        Input::File(file) => Some(file.as_fd()),
        _ => ends.input.as_ref().map(AsFd::as_fd),
    };
    let began = Instant::now();
    loop {
        // Waits from before the attempt on, so that no notification after it is missed.
        let mut room = pin!(fork_server.room.notified());
        room.as_mut().enable();
        let left = MAX_WAIT.saturating_sub(began.elapsed());
        let wait = match fork_server.send(&message, input, &ends.output, &ends.errors) {
            Ok(()) => return true,
            Err(Errno::AGAIN) => left,
            Err(Errno::TOOMANYREFS) => left.min(PAUSE),
            Err(_) => return false,
        };
        if left.is_zero() {
            return false;
        }
        let _ = timeout(wait, room).await;
    }
}

/// Reads what the new process writes first: its id, or a negative error number. `None` if the fork server has ended
/// instead.
async fn process_id(stdout: &pipe::Receiver) -> Option<i32> {
    let mut bytes = [0; 4];
    let mut length = 0;
    while length < bytes.len() {
        stdout.readable().await.ok()?;
        match stdout.try_read(&mut bytes[length..]) {
            Ok(0) => return None,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    Some(i32::from_ne_bytes(bytes))
}
