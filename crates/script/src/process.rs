//! Starting processes, waiting for their end, and ending them with their group.
//!
//! The standard library starts a process by `posix_spawn`, which does not copy the server's memory, as long as the
//! command needs no step between fork and exec. So the priority is set from outside just after the start, and what
//! has to hold before the first instruction is set by `launch`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitIdStatus,
    getpriority_process, kill_process_group, pidfd_open, prlimit, setpriority_process, waitid,
};
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

use super::launch::{self, What};
use super::pipes::PipeEnds;
use super::process_groups::ProcessGroups;
use super::process_limit::ProcessPermit;
use super::start_error;
use super::variables::Variables;
use dunlin_config::Script;
use dunlin_net::spawn::spawn;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Between the end of a script that got SIGTERM and SIGKILL for the rest of its group.
pub(super) const GROUP_GRACE: Duration = Duration::from_millis(200);

/// A process to start for one request.
pub(super) struct Start {
    pub(super) program: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Variables,
    pub(super) input: Input,
    pub(super) rules: Arc<Script>,
    pub(super) permit: ProcessPermit,
}

/// Standard input of the process.
pub(super) enum Input {
    Nothing,
    /// A pipe, to which the body is written while the process runs.
    Pipe,
    File(File),
}

/// A process and the server's ends of its pipes.
pub(super) struct Process {
    pub(super) stdin: Option<pipe::Sender>,
    pub(super) stdout: pipe::Receiver,
    pub(super) stderr: pipe::Receiver,
    pub(super) child: Child,
    pub(super) started: Instant,
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
}

/// A process that leads its own process group. It is not reaped before it is dropped, so that its number, which is
/// the group's, cannot be reused. Dropped while it runs, it is killed with its group.
pub(super) struct Child {
    pid: Pid,
    groups: Arc<ProcessGroups>,
    /// Released when the process is gone.
    permit: Option<ProcessPermit>,
    /// The end of the process, once that is known.
    exit: OnceLock<Exit>,
    ended: bool,
}

/// Starts a process with these ends of its pipes. Blocks until the program is loaded, perhaps from a disk, and has
/// been given a processor: not for a worker thread.
pub(super) fn start(
    groups: &Arc<ProcessGroups>,
    start: Start,
    ends: PipeEnds,
) -> io::Result<Child> {
    let mut command = Command::new(&start.program);
    command.args(start.arguments).env_clear().envs(start.environment.as_texts());
    let mut command = launch::through(command, start.program.as_os_str(), &start.rules, What::All)?;
    command.current_dir(start.directory).process_group(0);
    match (start.input, ends.input) {
        (Input::File(file), _) => command.stdin(file),
        (_, Some(input)) => command.stdin(input),
        (_, None) => command.stdin(Stdio::null()),
    };
    let child = spawn(command.stdout(ends.output).stderr(ends.errors))?;
    let child = Child::new(groups, &child, Some(start.permit))?;
    if !launch::is_needed(&start.rules) {
        set_limits(child.pid, &start.rules)?;
    }
    Ok(child)
}

/// A worker to start.
pub(super) struct WorkerStart {
    pub(super) program: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The standard input, which may be a listening socket.
    pub(super) stdin: OwnedFd,
    /// The standard output; if absent, the standard error gets the output.
    pub(super) stdout: Option<OwnedFd>,
    pub(super) rules: Arc<Script>,
}

/// A worker's process and its standard error.
pub(super) struct WorkerProcess {
    pub(super) child: Child,
    pub(super) stderr: pipe::Receiver,
}

/// Starts a worker.
pub(super) fn start_worker(
    groups: &Arc<ProcessGroups>,
    start: WorkerStart,
) -> io::Result<WorkerProcess> {
    let (stderr, errors) = io::pipe()?;
    let mut command = Command::new(&start.program);
    command.args(start.arguments).env_clear().envs(start.environment);
    let mut command = launch::through(command, start.program.as_os_str(), &start.rules, What::All)?;
    command
        .current_dir(start.directory)
        .process_group(0)
        .stdin(start.stdin)
        .stdout(match start.stdout {
            Some(output) => Stdio::from(output),
            None => Stdio::from(errors.try_clone()?),
        })
        .stderr(errors);
    let child = spawn(&mut command).map_err(|error| {
        let reason = start_error::not_started(&start.program, &error);
        io::Error::new(error.kind(), format!("{}: {reason}", start.program.display()))
    })?;
    drop(command);
    let child = Child::new(groups, &child, None)?;
    if !launch::is_needed(&start.rules) {
        set_limits(child.pid, &start.rules)?;
    }
    Ok(WorkerProcess { child, stderr: pipe::Receiver::from_owned_fd(stderr.into())? })
}

/// Supervises a child of the server that a fork server has started, and that leads its own group.
pub(super) fn adopt(
    groups: &Arc<ProcessGroups>,
    pid: Pid,
    rules: &Script,
    permit: ProcessPermit,
) -> io::Result<Child> {
    let child = Child::of(groups, pid, Some(permit));
    // A process of another user inherits its limits from its fork server.
    if rules.owner.is_none() {
        set_limits(pid, rules)?;
    }
    Ok(child)
}

fn set_limits(pid: Pid, rules: &Script) -> io::Result<()> {
    let limit = |resource, value: u64| {
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        match prlimit(Some(pid), resource, limit) {
            // It has ended already.
            Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(io::Error::from(error)),
        }
    };
    if let Some(bytes) = rules.memory {
        limit(Resource::As, bytes)?;
    }
    if let Some(seconds) = rules.cpu {
        limit(Resource::Cpu, seconds)?;
    }
    if rules.nice != 0 {
        let own = getpriority_process(None).unwrap_or(0);
        match setpriority_process(Some(pid), own + rules.nice) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Child {
    fn new(
        groups: &Arc<ProcessGroups>,
        child: &std::process::Child,
        permit: Option<ProcessPermit>,
    ) -> io::Result<Self> {
        // Process ids fit and are not 0.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no usable number"))?;
        Ok(Self::of(groups, pid, permit))
    }

    fn of(groups: &Arc<ProcessGroups>, pid: Pid, permit: Option<ProcessPermit>) -> Self {
        groups.add(pid);
        Self { pid, groups: Arc::clone(groups), permit, exit: OnceLock::new(), ended: false }
    }

    pub(super) fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns how it ended; `None` while it runs.
    pub(super) fn exit(&self) -> Option<Exit> {
        if let Some(exit) = self.exit.get() {
            return Some(*exit);
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let exit = match waitid(WaitId::Pid(self.pid), options) {
            Ok(status) => exit(&status?),
            // No other code reaps it, so this does not happen; if it does, the permit must be released.
            Err(_) => Exit::Code(0),
        };
        Some(*self.exit.get_or_init(|| exit))
    }

    /// Waits for its end.
    pub(super) async fn exited(&self) -> Exit {
        if let Some(exit) = self.exit() {
            return exit;
        }
        // tokio has no type for a pidfd; the receiving end of a pipe is polled in the same way.
        let watched = pidfd_open(self.pid, PidfdFlags::NONBLOCK)
            .map_err(io::Error::from)
            .and_then(pipe::Receiver::from_owned_fd_unchecked);
        let exit = || self.exit().ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock));
        loop {
            let ended = match &watched {
                Ok(watched) => match watched.readable().await {
                    Ok(()) => watched.try_io(exit),
                    Err(error) => Err(error),
                },
                // No descriptor is left for a pidfd.
                Err(_) => {
                    sleep(Duration::from_millis(10)).await;
                    exit()
                }
            };
            if let Ok(exit) = ended {
                return exit;
            }
        }
    }

    /// Sends a signal to the process and everything it has started.
    pub(super) fn signal(&self, signal: Signal) {
        // An error means that the group is empty.
        let _ = kill_process_group(self.pid, signal);
    }

    /// Ends the process and its group: SIGTERM, then SIGKILL.
    pub(super) async fn end(&self) {
        self.signal(Signal::TERM);
        // A process that is stopped handles the signal only when it continues.
        self.signal(Signal::CONT);
        if timeout(GRACE, self.exited()).await.is_ok() {
            sleep(GROUP_GRACE).await;
        }
        self.signal(Signal::KILL);
        let _ = timeout(GRACE, self.exited()).await;
    }

    /// Reaps a process that has ended.
    pub(super) fn reap(mut self) {
        self.ended = true;
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.ended {
            self.signal(Signal::KILL);
        }
        self.groups.remove(self.pid);
        let pid = WaitId::Pid(self.pid);
        let reaped = waitid(pid, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        if let Ok(None) = reaped {
            let (pid, permit) = (self.pid, self.permit.take());
            // A killed process ends soon, but the worker thread must not block.
            let reap = move || {
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                drop(permit);
            };
            if let Err(error) = std::thread::Builder::new().name("reap".into()).spawn(reap) {
                tracing::error!("a killed script cannot be reaped: {error}");
            }
        }
    }
}

fn exit(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(signal)) => Exit::Signal(signal),
        (code, None) => Exit::Code(code.unwrap_or_default()),
    }
}
