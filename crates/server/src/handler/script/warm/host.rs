//! One host: its process, its socket, and the thread that hears of its end.

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
use tokio::sync::watch;

use super::super::launch::{self, What};
use super::super::stamp::Watched;
use super::super::stderr::printable;
use super::plan::{Language, Plan};
use crate::config::Script;
use crate::spawn::spawn;
use crate::worker::SharedState;

/// The library that stops a program before it begins, made from `scripting/warm/preload.c`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/warm-preload.so"));
const PYTHON: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/warm/host.py"));
const PERL: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripting/warm/host.pl"));

/// Hands the host's source over, so that no file of ours has to exist.
const PYTHON_START: &str =
    "import os;exec(compile(os.environ.pop('DUNLIN_WARM_HOST'),'<warm host>','exec'))";

/// A host without requests ends after this.
const IDLE: Duration = Duration::from_secs(600);
/// How often that is looked at.
const GLANCE: Duration = Duration::from_secs(30);
/// Between the end of its socket and the end of its process.
const GRACE: Duration = Duration::from_secs(5);
/// How often the files that it is made of are looked at.
const FRESH: Duration = Duration::from_secs(1);
/// Bytes of what a host says while it makes ready that are told.
const MOST: u64 = 64 * 1024;
/// Room for the messages of many requests; the kernel grants what it allows.
const QUEUE: usize = 1 << 20;

/// A host. Dropped, it ends when it has made the processes that it was asked for.
#[derive(Debug)]
pub(super) struct Host {
    socket: OwnedFd,
    null: OwnedFd,
    arguments: Vec<OsString>,
    state: Arc<State>,
    checked: Mutex<Instant>,
}

/// What the host's thread tells.
#[derive(Debug)]
struct State {
    pid: Pid,
    born: Instant,
    /// The files that it is made of: there when it is ready.
    files: OnceLock<Watched>,
    /// Why it cannot be one.
    refused: OnceLock<String>,
    /// It has said what it was to be ended for, or nothing.
    ended: OnceLock<Instant>,
    /// The server needs it no longer.
    is_released: AtomicBool,
    /// Its number may mean another process.
    reaped: Mutex<bool>,
    /// Milliseconds after `born` of the last request.
    used: AtomicU64,
}

/// How it stands with a host.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Starting,
    Ready,
    /// A file that it is made of is another: it is to be replaced.
    Stale(PathBuf),
    /// It cannot be one.
    Refused,
    /// It has ended by itself, after it lived so long.
    Ended(Duration),
    /// It had nothing to do any more.
    Retired,
}

impl Host {
    /// Starts the host of `program`, which may take a disk's time: not for a loop. `path` is its
    /// PATH; `settled` is told, or dropped, when it is clear what becomes of it.
    pub(super) fn start(
        shared: &Arc<SharedState>,
        program: &Path,
        plan: &Plan,
        rules: &Script,
        path: &OsString,
        settled: watch::Sender<()>,
    ) -> io::Result<Self> {
        let (socket, its_end) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // Refused or not, what is granted is used.
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
        // What the command still holds of the host's socket would keep it from seeing the end.
        drop(command);
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no usable number"))?;
        shared.pools.add_group(pid);
        let state = Arc::new(State {
            pid,
            born: Instant::now(),
            files: OnceLock::new(),
            refused: OnceLock::new(),
            ended: OnceLock::new(),
            is_released: AtomicBool::new(false),
            reaped: Mutex::new(false),
            used: AtomicU64::new(0),
        });
        let attendant = Attendant {
            shared: Arc::clone(shared),
            child,
            socket: socket.try_clone()?,
            state: Arc::clone(&state),
            settled,
            name: program.display().to_string(),
            interpreter: plan.command.clone(),
        };
        let thread = std::thread::Builder::new().name("warm host".into());
        thread.spawn(move || attendant.attend())?;
        let null = File::open("/dev/null")?.into();
        let checked = Mutex::new(Instant::now());
        Ok(Self { socket, null, arguments: arguments(program, plan), state, checked })
    }

    /// The arguments that stand before those of the request.
    pub(super) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Whether a file that it is made of is another one now.
    pub(super) fn has_other_files(&self) -> bool {
        self.state.files.get().is_some_and(|files| files.changed().is_some())
    }

    pub(super) fn standing(&self) -> Standing {
        let state = &self.state;
        if state.refused.get().is_some() {
            return Standing::Refused;
        }
        if let Some(ended) = state.ended.get() {
            return match state.is_idle(*ended) {
                true => Standing::Retired,
                false => Standing::Ended(*ended - state.born),
            };
        }
        let Some(files) = state.files.get() else { return Standing::Starting };
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.elapsed() > FRESH {
            *checked = Instant::now();
            if let Some(path) = files.changed() {
                return Standing::Stale(path.to_owned());
            }
        }
        Standing::Ready
    }

    /// Asks for a process. Without `input` it has nothing to read.
    ///
    /// # Errors
    /// `AGAIN` when too much waits already; others when the host has ended or the request is too
    /// large for it.
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

    /// Ends it at once.
    pub(super) fn kill(&self, why: &str) {
        tracing::error!(host = %self.state.pid.as_raw_nonzero(), "the warm host is ended: {why}");
        self.state.kill();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // One that has ended by itself is reported, whenever it is dropped.
        if self.state.ended.get().is_none() {
            self.state.is_released.store(true, Ordering::Release);
        }
        // An error says that the host has ended by itself.
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

/// Waits upon a host, on a thread of its own.
struct Attendant {
    shared: Arc<SharedState>,
    child: Child,
    socket: OwnedFd,
    state: Arc<State>,
    settled: watch::Sender<()>,
    name: String,
    interpreter: PathBuf,
}

impl Attendant {
    fn attend(mut self) {
        let script = self.name.clone();
        self.tell_errors();
        let mut buffer = vec![0; 256 * 1024];
        // A timeout that cannot be set means a host that is kept for ever.
        let _ = sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(GLANCE));
        loop {
            match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) => break,
                Ok((length, _)) => {
                    self.hear(&buffer[..length]);
                    let _ = self.settled.send(());
                }
                Err(Errno::AGAIN | Errno::INTR) if !self.state.is_idle(Instant::now()) => {}
                Err(_) => break,
            }
        }
        let _ = self.state.ended.set(Instant::now());
        let _ = self.settled.send(());
        let _ = shutdown(&self.socket, Shutdown::Both);
        let (host, status) = (self.child.id(), self.reap());
        let is_wanted =
            self.shared.pools.is_stopping() || self.state.is_released.load(Ordering::Acquire);
        match status {
            Ok(status) if is_wanted || status.success() => {
                tracing::debug!(script, host, "its warm host has ended: {status}");
            }
            Ok(status) => tracing::error!(script, host, "its warm host has ended: {status}"),
            Err(error) => {
                tracing::error!(script, host, "its warm host cannot be waited for: {error}");
            }
        }
    }

    /// What the host says until it is ready or has ended.
    fn tell_errors(&mut self) {
        let Some(errors) = self.child.stderr.take() else { return };
        let mut errors = BufReader::new(errors.take(MOST));
        let mut line = Vec::new();
        while errors.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = printable(line.trim_ascii_end());
            tracing::warn!(script = self.name, "its warm host says: {text}");
            line.clear();
        }
        let mut rest = errors.into_inner().into_inner();
        let _ = io::copy(&mut rest, &mut io::sink());
    }

    fn hear(&self, message: &[u8]) {
        let Some(files) = message.strip_prefix(b"ready\0") else {
            let reason = printable(message);
            tracing::warn!(script = self.name, "it runs as plain CGI: {reason}");
            let _ = self.state.refused.set(reason);
            return;
        };
        let files = files.split(|&byte| byte == 0).filter(|file| !file.is_empty());
        let files = files.map(|file| PathBuf::from(OsString::from_vec(file.to_vec())));
        let all = files.chain([self.interpreter.clone()]);
        let _ = self.state.files.set(Watched::new(all));
        tracing::debug!(
            script = self.name,
            host = self.child.id(),
            milliseconds = self.state.born.elapsed().as_millis() as u64,
            "its warm host is ready"
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
        self.shared.pools.remove_group(self.state.pid);
        status
    }
}

/// The library as a file without a name.
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

/// The host's environment is what all requests to the script have in common.
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
    // Each process would look up anew what it is the first to call of a library.
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
        // On one line, so that the script's own lines keep their numbers.
        let code = PERL.lines().filter(|line| !line.trim_start().starts_with('#'));
        let code = code.collect::<Vec<_>>().join(" ");
        command.arg(format!("-M5.006;BEGIN {{ {code} }}")).arg(program);
    }
    command
}
