//! A fork server: its process, its socket, and the thread that watches it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketFlags, SocketType, recv, sendmsg, shutdown, socketpair, sockopt,
};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::sync::{Notify, watch};

use super::super::file_version::WatchedFiles;
use super::super::launch::{self, What};
use super::super::stderr::printable;
use super::plan::{Language, Plan};
use crate::process_groups::ProcessGroups;
use dunlin_config::Script;
use dunlin_net::spawn::spawn;

/// The library that stops a program before it begins, made from `scripting/warm/preload.c`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/warm-preload.so"));
const PYTHON: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/warm/host.py"));
const PERL: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/warm/host.pl"));

/// Runs the source of the fork server from the environment, so that it needs no file.
const PYTHON_START: &str =
    "import os;exec(compile(os.environ.pop('DUNLIN_WARM_HOST'),'<fork server>','exec'))";

/// Idle time after which a fork server ends.
const IDLE: Duration = Duration::from_secs(600);
/// Interval of checks for idleness.
const IDLE_CHECK: Duration = Duration::from_secs(30);
/// Time that the process has to end after its socket was closed.
const GRACE: Duration = Duration::from_secs(5);
/// Interval of checks whether its files have changed.
const FILE_CHECK: Duration = Duration::from_secs(1);
/// Logged bytes of what a fork server writes while it starts.
const MAX: u64 = 64 * 1024;
/// Size of the socket's send buffer; the kernel may grant less.
const QUEUE: usize = 1 << 20;

/// A fork server. Dropped, it ends after it has started the requested processes.
#[derive(Debug)]
pub(super) struct ForkServer {
    socket: OwnedFd,
    null: OwnedFd,
    arguments: Vec<OsString>,
    state: Arc<State>,
    checked: Mutex<Instant>,
    /// Notified for each request that the fork server has taken from its socket.
    pub(super) room: Notify,
}

/// The state that the watching thread maintains.
#[derive(Debug)]
struct State {
    pid: Pid,
    born: Instant,
    /// The files that it was loaded from; set when it is ready.
    files: OnceLock<WatchedFiles>,
    /// Why the program cannot be forked.
    unforkable: OnceLock<String>,
    /// When its socket was closed.
    ended: OnceLock<Instant>,
    /// The server has dropped it.
    is_released: AtomicBool,
    /// The process was reaped, and its id may be reused.
    reaped: Mutex<bool>,
    /// Time of the last request, in milliseconds after `born`.
    used: AtomicU64,
}

/// The status of a fork server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForkServerStatus {
    Starting,
    Ready,
    /// One of its files has changed: it is to be replaced.
    Stale(PathBuf),
    /// The program cannot be forked.
    Unforkable,
    /// It ended unexpectedly, after this time.
    Ended(Duration),
    /// It ended because it was idle.
    Retired,
}

impl ForkServer {
    /// Starts the fork server of `program`. Blocks for as long as the disk takes: not for a worker thread. `path` is
    /// its PATH; `settled` is notified, or dropped, when it is ready or has failed.
    pub(super) fn start(
        groups: &Arc<ProcessGroups>,
        program: &Path,
        plan: &Plan,
        rules: &Script,
        path: &OsString,
        settled: watch::Sender<()>,
    ) -> io::Result<Self> {
        let (socket, its_end) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // The larger buffer is optional.
        let _ = sockopt::set_socket_send_buffer_size(&socket, QUEUE);
        let command = command(program, plan, rules, path);
        let mut command = launch::through(command, &plan.name, rules, What::Inherited)?;
        command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(its_end))
            .stdout(Stdio::from(library()?))
            .stderr(Stdio::piped());
        let child = spawn(&mut command)?;
        // The command holds the other end of the socket, which would keep the process from seeing the end.
        drop(command);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no usable number"))?;
        groups.add(pid);
        let state = Arc::new(State {
            pid,
            born: Instant::now(),
            files: OnceLock::new(),
            unforkable: OnceLock::new(),
            ended: OnceLock::new(),
            is_released: AtomicBool::new(false),
            reaped: Mutex::new(false),
            used: AtomicU64::new(0),
        });
        let watcher = Watcher {
            groups: Arc::clone(groups),
            child,
            socket: socket.try_clone()?,
            state: Arc::clone(&state),
            settled,
            name: program.display().to_string(),
            interpreter: plan.command.clone(),
        };
        let thread = std::thread::Builder::new().name("fork server".into());
        thread.spawn(move || watcher.run())?;
        let null = File::open("/dev/null")?.into();
        let checked = Mutex::new(Instant::now());
        let (arguments, room) = (arguments(program, plan), Notify::new());
        Ok(Self { socket, null, arguments, state, checked, room })
    }

    /// Returns the arguments in front of those of the request.
    pub(super) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Returns `true` if one of its files has changed.
    pub(super) fn has_other_files(&self) -> bool {
        self.state.files.get().is_some_and(|files| files.changed().is_some())
    }

    pub(super) fn status(&self) -> ForkServerStatus {
        let state = &self.state;
        if state.unforkable.get().is_some() {
            return ForkServerStatus::Unforkable;
        }
        if let Some(ended) = state.ended.get() {
            return match state.is_idle(*ended) {
                true => ForkServerStatus::Retired,
                false => ForkServerStatus::Ended(*ended - state.born),
            };
        }
        let Some(files) = state.files.get() else { return ForkServerStatus::Starting };
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.elapsed() > FILE_CHECK {
            *checked = Instant::now();
            if let Some(path) = files.changed() {
                return ForkServerStatus::Stale(path.to_owned());
            }
        }
        ForkServerStatus::Ready
    }

    /// Requests a process. Without `input` its standard input is empty.
    ///
    /// # Errors
    /// `AGAIN` when the socket is full; others when the fork server has ended or the request is too large for the
    /// socket.
    pub(super) fn send(
        &self,
        message: &[u8],
        input: Option<BorrowedFd<'_>>,
        output: &OwnedFd,
        errors: &OwnedFd,
    ) -> Result<(), Errno> {
        self.state.used.store(self.state.born.elapsed().as_millis() as u64, Ordering::Relaxed);
        let input = input.unwrap_or(self.null.as_fd());
        let descriptors = [input, output.as_fd(), errors.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.socket, &[io::IoSlice::new(message)], &mut ancillary, flags).map(|_| ())
    }

    /// Kills it.
    pub(super) fn kill(&self, why: &str) {
        tracing::error!(fork_server = %self.state.pid.as_raw_nonzero(), "the fork server is killed: {why}");
        self.state.kill();
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // An unexpected end is reported even after the drop.
        if self.state.ended.get().is_none() {
            self.state.is_released.store(true, Ordering::Release);
        }
        // An error means that it has ended.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl State {
    fn is_idle(&self, at: Instant) -> bool {
        let used = self.born + Duration::from_millis(self.used.load(Ordering::Relaxed));
        at.duration_since(used) >= IDLE
    }

    fn kill(&self) {
        let reaped = self.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        if !*reaped {
            // An error means that it has ended.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

/// Watches a fork server, on a thread of its own.
struct Watcher {
    groups: Arc<ProcessGroups>,
    child: Child,
    socket: OwnedFd,
    state: Arc<State>,
    settled: watch::Sender<()>,
    name: String,
    interpreter: PathBuf,
}

impl Watcher {
    fn run(mut self) {
        let script = self.name.clone();
        self.log_stderr();
        let mut buffer = vec![0; 256 * 1024];
        // Without the timeout, the fork server is never idle.
        let _ = sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(IDLE_CHECK));
        loop {
            match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) => break,
                Ok((length, _)) => {
                    self.receive(&buffer[..length]);
                    let _ = self.settled.send(());
                }
                Err(Errno::AGAIN | Errno::INTR) if !self.state.is_idle(Instant::now()) => {}
                Err(_) => break,
            }
        }
        let _ = self.state.ended.set(Instant::now());
        let _ = self.settled.send(());
        let _ = shutdown(&self.socket, Shutdown::Both);
        let (fork_server, status) = (self.child.id(), self.reap());
        let is_wanted = self.groups.is_stopping() || self.state.is_released.load(Ordering::Acquire);
        match status {
            Ok(status) if is_wanted || status.success() => {
                tracing::debug!(script, fork_server, "the fork server has ended: {status}");
            }
            Ok(status) => {
                tracing::error!(script, fork_server, "the fork server has ended: {status}");
            }
            Err(error) => {
                tracing::error!(
                    script,
                    fork_server,
                    "the fork server cannot be waited for: {error}"
                );
            }
        }
    }

    /// Logs what the fork server writes until it is ready or has ended.
    fn log_stderr(&mut self) {
        let Some(errors) = self.child.stderr.take() else { return };
        let mut errors = BufReader::new(errors.take(MAX));
        let mut line = Vec::new();
        while errors.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = printable(line.trim_ascii_end());
            tracing::warn!(script = self.name, "the fork server wrote: {text}");
            line.clear();
        }
        let mut rest = errors.into_inner().into_inner();
        let _ = io::copy(&mut rest, &mut io::sink());
    }

    fn receive(&self, message: &[u8]) {
        let Some(files) = message.strip_prefix(b"ready\0") else {
            let reason = printable(message);
            tracing::warn!(script = self.name, "the script runs as plain CGI: {reason}");
            let _ = self.state.unforkable.set(reason);
            return;
        };
        let files = files.split(|&byte| byte == 0).filter(|file| !file.is_empty());
        let files = files.map(|file| PathBuf::from(OsString::from_vec(file.to_vec())));
        let all = files.chain([self.interpreter.clone()]);
        let _ = self.state.files.set(WatchedFiles::new(all));
        tracing::debug!(
            script = self.name,
            fork_server = self.child.id(),
            milliseconds = self.state.born.elapsed().as_millis() as u64,
            "the fork server is ready"
        );
    }

    /// Waits until the process has ended, up to [`GRACE`].
    fn wait_for_exit(&self) {
        let Ok(exit) = pidfd_open(self.state.pid, PidfdFlags::empty()) else {
            // No descriptor is left.
            return std::thread::sleep(GRACE);
        };
        let deadline = Instant::now() + GRACE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&exit, PollFlags::IN)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                // Ended, too late, or it cannot be waited for: in each case what is left of it is killed.
                _ => return,
            }
        }
    }

    fn reap(&mut self) -> io::Result<std::process::ExitStatus> {
        self.wait_for_exit();
        self.state.kill();
        let mut reaped = self.state.reaped.lock().unwrap_or_else(PoisonError::into_inner);
        let status = self.child.wait();
        *reaped = true;
        self.groups.remove(self.state.pid);
        status
    }
}

/// Returns the library as an anonymous file.
fn library() -> io::Result<File> {
    let mut file = File::from(memfd_create("dunlin-warm", MemfdFlags::CLOEXEC)?);
    file.write_all(LIBRARY)?;
    Ok(file)
}

fn arguments(program: &Path, plan: &Plan) -> Vec<OsString> {
    match plan.language {
        Language::Python | Language::Perl => Vec::new(),
        Language::Native if plan.command == program => vec![program.into()],
        Language::Native => {
            let option = plan.option.iter().cloned();
            [plan.name.clone()].into_iter().chain(option).chain([program.into()]).collect()
        }
    }
}

/// Returns the environment of the fork server holds what all requests to the script have in common.
fn command(program: &Path, plan: &Plan, rules: &Script, path: &OsString) -> Command {
    let mut command = Command::new(&plan.command);
    command.arg0(&plan.name).env_clear().env("PATH", path);
    command.envs(rules.env.iter().map(|(name, value)| (name, value)));
    let mut library = OsString::from("/proc/self/fd/1");
    if let Some((_, other)) = rules.env.iter().find(|(name, _)| name == "LD_PRELOAD") {
        library.push(":");
        library.push(other);
    }
    command.env("LD_PRELOAD", library);
    // Otherwise each process would resolve the symbols that it is the first to call.
    if !rules.env.iter().any(|(name, _)| name == "LD_BIND_NOW") {
        command.env("LD_BIND_NOW", "1");
    }
    let kind = if plan.language == Language::Native { "native" } else { "script" };
    command.env("DUNLIN_WARM", kind);
    if plan.language == Language::Native {
        return command;
    }
    let mut interpreter = plan.name.as_bytes().to_vec();
    if let Some(option) = &plan.option {
        interpreter.push(b'\n');
        interpreter.extend_from_slice(option.as_bytes());
        command.arg(option);
    }
    command.env("DUNLIN_WARM_INTERPRETER", OsString::from_vec(interpreter));
    command.env("DUNLIN_WARM_SCRIPT", program);
    command.env("DUNLIN_WARM_PRELOAD", rules.preload.join(" "));
    let names: Vec<&str> = rules.env.iter().map(|(name, _)| name.as_str()).collect();
    command.env("DUNLIN_WARM_OWN", names.join(" "));
    if plan.language == Language::Python {
        command.env("DUNLIN_WARM_HOST", PYTHON).arg("-c").arg(PYTHON_START);
    } else {
        // On one line, so that the numbers of the script's own lines are right.
        let code = PERL.lines().filter(|line| !line.trim_start().starts_with('#'));
        let code = code.collect::<Vec<_>>().join(" ");
        command.arg(format!("-M5.006;BEGIN {{ {code} }}")).arg(program);
    }
    command
}
