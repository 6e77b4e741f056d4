//! The new process of an upgrade: starts it, sends the listening sockets, and waits until it serves or kills it.
//!
//! Nothing here blocks the control thread: another thread starts the program, as its file system may not respond, and
//! everything else is asynchronous.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use dunlin_config::Confinement;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{sleep, timeout};

use crate::handover::{Message, Passed, receive, send_end, variables};
use crate::inheritance::{PassedListener, QuicSecrets};
use crate::start_program::{Starter, start_program};

/// The parameters of a start.
pub struct Start {
    /// The program of the process.
    pub program: PathBuf,
    /// The restrictions of this process, which the new one inherits.
    pub confinement: Confinement,
    /// Starts programs where seccomp forbids it to this thread.
    pub starter: Option<Starter>,
    /// The listeners that the process gets.
    pub listeners: Vec<PassedListener>,
    /// What makes datagrams of connections recognizable.
    pub secrets: QuicSecrets,
    /// The time that the process may take until it serves.
    pub limit: Duration,
}

/// The new process. Dropping this before the process serves kills the process.
struct NewProcess {
    process: Process,
    socket: UnixDatagram,
    errors: Errors,
}

/// Why the new process does not serve.
enum Failure {
    /// The process has sent the reason.
    Reported(String),
    /// The process has closed the connection, probably because it has ended.
    Closed,
    /// Any other reason.
    Other(String),
}

/// Interval at which the exit of the process is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The time that a process that has closed its connection may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which a process must stay alive after it has reported that it serves.
const SETTLING_TIME: Duration = Duration::from_millis(200);

impl Start {
    /// Starts the process, waits until it serves, and returns its PID. On failure, or when the future is dropped, the
    /// process is killed.
    ///
    /// # Errors
    /// Why it does not serve; the reason that the process has sent, if any.
    pub async fn run(self) -> Result<u32, String> {
        let began = Instant::now();
        let program = self.program.display().to_string();
        let mut process = match timeout(self.limit, self.start()).await {
            Ok(Ok(process)) => process,
            Ok(Err(error)) => return Err(format!("{program}: {error}")),
            Err(_) => {
                return Err(format!(
                    "{program} could not be started within {} (upgrade_timeout); check its file \
                     system",
                    seconds(self.limit)
                ));
            }
        };
        let left = self.limit.saturating_sub(began.elapsed());
        let failure = match timeout(left, process.take_over(&self.listeners, &self.secrets)).await {
            Ok(Ok(())) => return Ok(process.process.release()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Other(format!(
                "the new process did not serve within {} (upgrade_timeout) and was killed",
                seconds(self.limit)
            )),
        };
        Err(process.end(failure).await)
    }

    async fn start(&self) -> io::Result<NewProcess> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let (errors, written) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = Command::new(&self.program);
        command.args(std::env::args_os().skip(1)).stdin(other).stderr(written);
        variables(&mut command, &self.confinement);
        let child = start_program(command, self.starter.as_ref())?.await;
        let child = child.map_err(|_| {
            io::Error::other("the thread that starts programs has ended; restart the server")
        })??;
        let process = Process(Some(child));
        Ok(NewProcess {
            process,
            // Used for readiness and messages only; this module sends and receives the descriptors.
            socket: UnixDatagram::from_std(socket.into())?,
            errors: Errors { pipe: Receiver::from_owned_fd(errors)?, last: Vec::new() },
        })
    }
}

fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

impl NewProcess {
    async fn take_over(
        &mut self,
        listeners: &[PassedListener],
        secrets: &QuicSecrets,
    ) -> Result<(), Failure> {
        let Self { process, socket, errors } = self;
        tokio::select! {
            biased;
            served = converse(socket, listeners, secrets) => served?,
            never = errors.follow() => match never {},
        }
        match process.ends_within(SETTLING_TIME).await {
            None => Ok(()),
            Some(status) => Err(Failure::Other(format!(
                "the new process reported that it serves, and then ended ({status})"
            ))),
        }
    }

    /// Kills the process if it has not ended, and describes why it does not serve.
    async fn end(mut self, failure: Failure) -> String {
        let mut why = match failure {
            Failure::Reported(why) | Failure::Other(why) => why,
            Failure::Closed => match self.process.ends_within(EXIT_TIMEOUT).await {
                Some(status) => format!("the new process ended ({status})"),
                None => "the new process closed its connection to this one and was killed".into(),
            },
        };
        self.process.kill();
        // All its output is available once it has ended.
        self.process.ends_within(EXIT_TIMEOUT).await;
        self.errors.read_rest();
        let lines = self.errors.last_lines();
        if !lines.is_empty() {
            let _ = write!(why, "; it wrote: {}", lines.join(" | "));
        }
        why
    }
}

/// Sends the listeners, and waits for the process to report that it serves.
async fn converse(
    socket: &UnixDatagram,
    listeners: &[PassedListener],
    secrets: &QuicSecrets,
) -> Result<(), Failure> {
    let sending = async {
        let messages = listeners.iter().flat_map(Passed::listener);
        for message in messages.chain([Passed::secrets(secrets)]) {
            socket.async_io(Interest::WRITABLE, || message.send(socket)).await?;
        }
        socket.async_io(Interest::WRITABLE, || send_end(socket)).await
    };
    // If sending fails, the process may have sent the reason before it closed the connection.
    let sent: io::Result<()> = sending.await;
    match socket.async_io(Interest::READABLE, || receive(socket)).await {
        Ok((text, _)) => match Message::read(&text) {
            Some(Message::Ready) if sent.is_ok() => Ok(()),
            Some(Message::Failed(why)) => Err(Failure::Reported(why)),
            None if text.is_empty() => Err(Failure::Closed),
            _ => Err(Failure::Other("the new process sent an unknown message".into())),
        },
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Err(Failure::Closed),
            _ => Err(Failure::Other(format!("the connection to the new process: {error}"))),
        },
    }
}

/// A child process. Dropping this kills it, unless it was released.
struct Process(Option<Child>);

impl Process {
    /// Returns the PID and lets the process run.
    fn release(mut self) -> u32 {
        self.0.take().map_or(0, |child| child.id())
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            // The process may have ended already.
            let _ = child.kill();
        }
    }

    /// Returns the exit status, if the process ends within `time`.
    async fn ends_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let (child, began) = (self.0.as_mut()?, Instant::now());
        loop {
            match child.try_wait() {
                Ok(None) if began.elapsed() < time => sleep(POLL_INTERVAL).await,
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut child) = self.0.take() {
            // A process that hangs in the kernel ends later: another thread reaps it.
            let _ = std::thread::Builder::new().name("upgrade".into()).spawn(move || child.wait());
        }
    }
}

/// The standard error of the new process, until it uses that of this process.
struct Errors {
    pipe: Receiver,
    /// The last [`Self::KEPT`] bytes.
    last: Vec<u8>,
}

impl Errors {
    /// Number of bytes that are kept.
    const KEPT: usize = 2048;
    /// Maximum number of lines in a report, and of characters in a line.
    const LINES: usize = 5;
    const LENGTH: usize = 200;

    /// Copies all output to this process's standard error. Never returns.
    async fn follow(&mut self) -> Infallible {
        while self.pipe.readable().await.is_ok() {
            if !self.read_rest() {
                break;
            }
        }
        pending().await
    }

    /// Reads the available output. Returns false at the end of it.
    fn read_rest(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // Bounded, so that a process that writes continuously does not block this task.
        for _ in 0..16 {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    // Losing these lines is harmless.
                    let _ = io::stderr().write_all(&buffer[..count]);
                    self.last.extend_from_slice(&buffer[..count]);
                    let surplus = self.last.len().saturating_sub(Self::KEPT);
                    self.last.drain(..surplus);
                }
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn last_lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.last);
        let printable = |line: &str| -> String {
            let plain = |c: char| if c.is_control() { ' ' } else { c };
            line.chars().map(plain).take(Self::LENGTH).collect()
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<String> = lines.map(printable).collect();
        lines[lines.len().saturating_sub(Self::LINES)..].to_vec()
    }
}
