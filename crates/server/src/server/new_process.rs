//! The new process of an upgrade: it is started, receives the listening sockets, and serves or is ended.
//!
//! Nothing here blocks the thread that takes commands: the program is started by a thread of its own, as its
//! file system may not respond, and everything else is polled.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{sleep, timeout};

use super::handover::{Message, receive, send_end, send_listener, variables};
use super::seccomp::{Starter, start_program};
use crate::config::Confinement;
use crate::listen::ListenSocket;

/// An address with its sockets, and whether they belong to the service manager.
pub(super) type Handed = (String, Arc<[ListenSocket]>, bool);

/// What a new process is started with.
pub(super) struct Start {
    pub(super) program: PathBuf,
    /// What this process has given up, and the new one inherits.
    pub(super) confinement: Confinement,
    /// What starts programs where this thread may not.
    pub(super) starter: Option<Starter>,
    pub(super) listeners: Vec<Handed>,
    /// The longest time until it serves.
    pub(super) limit: Duration,
}

/// The new process, which is killed when this is dropped before it serves.
struct NewProcess {
    process: Process,
    socket: UnixDatagram,
    errors: Errors,
}

/// Why the new process does not serve.
enum Failure {
    /// It says so itself.
    Reported(String),
    /// It closed its side of the connection, as it does when it ends.
    Closed,
    /// Anything else.
    Other(String),
}

/// How often it is looked whether the process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How long a process that has closed its connection may take to end.
const ENDS: Duration = Duration::from_secs(1);
/// How long a process has to live on once it has said that it serves.
const SETTLES: Duration = Duration::from_millis(200);

impl Start {
    /// Starts the process and waits until it serves: its number. Whenever that fails, or this future is
    /// dropped, the process is killed.
    ///
    /// # Errors
    /// Why it does not serve, in the words of the process where it has said anything.
    pub(super) async fn run(self) -> Result<u32, String> {
        let began = Instant::now();
        let program = self.program.display().to_string();
        let mut process = match timeout(self.limit, self.start()).await {
            Ok(Ok(process)) => process,
            Ok(Err(error)) => return Err(format!("{program}: {error}")),
            Err(_) => {
                return Err(format!(
                    "{program} could not be started within {} (upgrade_timeout); check the file \
                     system that it is on",
                    seconds(self.limit)
                ));
            }
        };
        let left = self.limit.saturating_sub(began.elapsed());
        let failure = match timeout(left, process.take_over(&self.listeners)).await {
            Ok(Ok(())) => return Ok(process.process.release()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Other(format!(
                "the new process does not serve within {} (upgrade_timeout) and was ended",
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
        let child =
            child.map_err(|_| io::Error::other("the thread that starts programs has ended"))??;
        let process = Process(Some(child));
        Ok(NewProcess {
            process,
            // It knows readiness and messages; what they carry besides is sent and received here.
            socket: UnixDatagram::from_std(socket.into())?,
            errors: Errors { pipe: Receiver::from_owned_fd(errors)?, last: Vec::new() },
        })
    }
}

fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

impl NewProcess {
    async fn take_over(&mut self, listeners: &[Handed]) -> Result<(), Failure> {
        let Self { process, socket, errors } = self;
        tokio::select! {
            biased;
            served = converse(socket, listeners) => served?,
            never = errors.follow() => match never {},
        }
        match process.ends_within(SETTLES).await {
            None => Ok(()),
            Some(status) => Err(Failure::Other(format!(
                "the new process said that it serves, and ended ({status})"
            ))),
        }
    }

    /// Kills the process, if it has not ended, and says what became of it.
    async fn end(mut self, failure: Failure) -> String {
        let mut why = match failure {
            Failure::Reported(why) | Failure::Other(why) => why,
            Failure::Closed => match self.process.ends_within(ENDS).await {
                Some(status) => format!("the new process ended ({status})"),
                None => "the new process closed its connection to this one, and was ended".into(),
            },
        };
        self.process.kill();
        // Its last lines are there once it has ended.
        self.process.ends_within(ENDS).await;
        self.errors.read_rest();
        let lines = self.errors.last_lines();
        if !lines.is_empty() {
            let _ = write!(why, "; it wrote: {}", lines.join(" | "));
        }
        why
    }
}

/// Hands the listeners over, and waits for the process to say that it serves.
async fn converse(socket: &UnixDatagram, listeners: &[Handed]) -> Result<(), Failure> {
    let handed = async {
        for (address, sockets, is_managed) in listeners {
            for part in sockets.chunks(super::handover::DESCRIPTORS) {
                let send = || send_listener(socket, address, part, *is_managed);
                socket.async_io(Interest::WRITABLE, send).await?;
            }
        }
        socket.async_io(Interest::WRITABLE, || send_end(socket)).await
    };
    // Where that fails, the process may have said why before it closed the connection.
    let handed: io::Result<()> = handed.await;
    match socket.async_io(Interest::READABLE, || receive(socket)).await {
        Ok((text, _)) => match Message::read(&text) {
            Some(Message::Ready) if handed.is_ok() => Ok(()),
            Some(Message::Failed(why)) => Err(Failure::Reported(why)),
            None if text.is_empty() => Err(Failure::Closed),
            _ => {
                Err(Failure::Other("the new process sent a message that is not understood".into()))
            }
        },
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Err(Failure::Closed),
            _ => Err(Failure::Other(format!("the connection to the new process: {error}"))),
        },
    }
}

/// A process that is killed when this is dropped, unless it was released.
struct Process(Option<Child>);

impl Process {
    /// Lets it live on: its number.
    fn release(mut self) -> u32 {
        self.0.take().map_or(0, |child| child.id())
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }

    /// Its status if it has ended, or does so within that time.
    async fn ends_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let (child, began) = (self.0.as_mut()?, Instant::now());
        loop {
            match child.try_wait() {
                Ok(None) if began.elapsed() < time => sleep(LOOK).await,
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
            // One that hangs in the kernel ends later, and nobody waits for it.
            let _ = std::thread::Builder::new().name("upgrade".into()).spawn(move || child.wait());
        }
    }
}

/// What the new process writes to its standard error before it has taken over this process's.
struct Errors {
    pipe: Receiver,
    /// The last of it.
    last: Vec<u8>,
}

impl Errors {
    /// Bytes that are kept.
    const KEPT: usize = 2048;
    /// Lines that are reported, and characters of one.
    const LINES: usize = 5;
    const LENGTH: usize = 200;

    /// Passes everything on to this process's standard error, without an end.
    async fn follow(&mut self) -> Infallible {
        while self.pipe.readable().await.is_ok() {
            if !self.read_rest() {
                break;
            }
        }
        pending().await
    }

    /// Reads what is there. False when nothing will follow.
    fn read_rest(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // A process that writes without end does not hold up the rest.
        for _ in 0..16 {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    // It is where the lines would have gone; their loss changes nothing here.
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
