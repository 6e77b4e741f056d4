//! Warm CGI: the same programs as CGI, without the cost of starting them.
//!
//! A host is the program itself, or its interpreter with the script made ready, stopped before it
//! begins (`scripting/warm/preload.c`). For each request it makes one process, which becomes a child
//! of the server like those that the server starts, and is supervised in the same way. Whatever is
//! in the way of that, the script runs as plain CGI.

mod cold;
mod host;
mod hosts;
mod message;
mod plan;

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep, timeout, timeout_at};

pub use self::cold::cold_programs;
use self::host::Host;
use self::hosts::Found;
pub(super) use self::hosts::Hosts;
use super::descriptors;
use super::pipes::{Ends, Pipes};
use super::process::{self, Input, Process, Start};
use crate::worker::WorkerContext;

/// Longest wait for a host to make a process, which takes it less than a thousandth of that.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach a host that has too much to do.
const PAUSE: Duration = Duration::from_millis(1);

/// What becomes of a request for a process.
pub(super) enum Outcome {
    Started(io::Result<Process>),
    /// Nothing of the script has run; it is to be started as plain CGI.
    NotWarm(Start),
}

/// Has the program's host make a process, where there is one that is ready.
pub(super) async fn start(ctx: &Rc<WorkerContext>, start: Start) -> Outcome {
    let shared = &ctx.shared;
    let host = loop {
        match Hosts::find(shared, &start) {
            Found::Ready(host) => break host,
            Found::Soon(mut settled, until) => {
                // Ready or not, it is then seen what there is.
                let _ = timeout_at(until.into(), settled.changed()).await;
                tokio::task::yield_now().await;
            }
            Found::Nothing => return Outcome::NotWarm(start),
        }
    };
    let ctx = Rc::clone(ctx);
    // The client may leave in the middle; the process has to be known and ended all the same.
    match tokio::task::spawn_local(async move { ask(&ctx, &host, start).await }).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Started(Err(io::Error::other(error))),
    }
}

async fn ask(ctx: &WorkerContext, host: &Host, start: Start) -> Outcome {
    let pipes = descriptors::retry(ctx, async || Pipes::new(&start.input)).await;
    let pipes = match pipes {
        Ok(pipes) => pipes,
        Err(error) => return Outcome::Started(Err(error)),
    };
    let Pipes { stdin, stdout, stderr, ends } = pipes;
    if !send(host, &start, &ends).await {
        return Outcome::NotWarm(start);
    }
    drop(ends);
    let mut answer = timeout(PATIENCE, number(&stdout)).await;
    if answer.is_err() {
        host.kill("it makes no processes any more");
        // Its end closes the pipe, unless the number comes after all.
        answer = Ok(number(&stdout).await);
    }
    let Some(pid) = answer.ok().flatten() else {
        return Outcome::NotWarm(start);
    };
    match Pid::from_raw(pid).filter(|pid| pid.as_raw_nonzero().get() > 0) {
        Some(pid) => {
            let child = process::adopt(&ctx.shared, pid, start.rules.as_ref(), start.place);
            Outcome::Started(child.map(|child| Process {
                stdin,
                stdout,
                stderr,
                child,
                started: std::time::Instant::now(),
            }))
        }
        None => Outcome::Started(Err(io::Error::from_raw_os_error(-pid))),
    }
}

/// False when the host cannot be reached.
async fn send(host: &Host, start: &Start, ends: &Ends) -> bool {
    let message = message::encode(start, host.arguments());
    let input = match &start.input {
        Input::File(file) => Some(file.as_fd()),
        _ => ends.input.as_ref().map(AsFd::as_fd),
    };
    let began = Instant::now();
    loop {
        match host.send(&message, input, &ends.output, &ends.errors) {
            Ok(()) => return true,
            Err(Errno::AGAIN | Errno::TOOMANYREFS) if began.elapsed() < PATIENCE => {
                sleep(PAUSE).await;
            }
            Err(_) => return false,
        }
    }
}

/// The first thing that the new process says: its number, or the negative number of what is in its
/// way. `None` when the host has ended instead.
async fn number(stdout: &pipe::Receiver) -> Option<i32> {
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
