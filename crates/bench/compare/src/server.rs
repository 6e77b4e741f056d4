//! The process of a server, from start to stop.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dunlin_load::processes;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::adapter::Launch;

/// A running server. Dropping it stops its process group.
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
    /// Memory when the server became ready, in bytes.
    pub(crate) memory_at_start: u64,
}

/// The reason why a server could not be measured.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The cause.
    pub(crate) reason: String,
    /// The last lines of the server's output.
    pub(crate) log_tail: String,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self { reason, log_tail: String::new() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::from(error.to_string())
    }
}

/// Time in which a server must send its first response.
const READY: Duration = Duration::from_secs(15);
/// Time after SIGTERM until SIGKILL.
const STOP: Duration = Duration::from_secs(3);
/// Lines of a server's output that are reported.
const LOG_TAIL: usize = 12;

/// Returns a free port. Another process can take it before the server does.
pub(crate) fn free_port(address: Ipv4Addr) -> io::Result<u16> {
    Ok(TcpListener::bind((address, 0))?.local_addr()?.port())
}

/// Starts `command` bound to one processor, which its threads and children inherit.
pub(crate) fn spawn_on(processor: u32, command: &mut Command) -> io::Result<Child> {
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(processor as usize);
    sched_setaffinity(None, &only)?;
    let spawned = command.spawn();
    sched_setaffinity(None, &before)?;
    spawned
}

impl Server {
    /// Starts the server and waits until its response to a GET of `probe` has the expected body, or without `probe`
    /// until it accepts connections.
    pub(crate) fn start(
        launch: &Launch,
        folder: &Path,
        processor: u32,
        address: SocketAddr,
        probe: Option<(&str, &[u8])>,
    ) -> Result<Self, Failure> {
        let log = folder.join("output.log");
        let child = start(launch, &log, folder, processor)
            .map_err(|error| Failure::from(format!("it does not start: {error}")))?;
        let mut server = Self { child, log, memory_at_start: 0 };
        server
            .wait_until_ready(address, probe)
            .map_err(|reason| Failure { reason, log_tail: server.log_tail() })?;
        server.memory_at_start = server.memory();
        Ok(server)
    }

    fn wait_until_ready(
        &mut self,
        address: SocketAddr,
        probe: Option<(&str, &[u8])>,
    ) -> Result<(), String> {
        let end = Instant::now() + READY;
        loop {
            let ready = match probe {
                Some((path, expected)) => get(address, path).map(|body| body == expected),
                None => TcpStream::connect(address).map(|_| true),
            };
            match ready {
                Ok(true) => return Ok(()),
                Ok(false) => return Err("its response differs from the file".to_owned()),
                Err(error) if Instant::now() > end => {
                    return Err(format!("it was not ready after {} s: {error}", READY.as_secs()));
                }
                Err(_) => {}
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended: {status}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns `true` if the process runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Memory of all its processes, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        processes::sample(&self.processes()).memory_bytes()
    }

    /// Returns the process and its descendants.
    pub(crate) fn processes(&self) -> Vec<u32> {
        processes::with_descendants([self.child.id()])
    }

    /// Returns the last lines of its output.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // The group may have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + STOP;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

fn start(launch: &Launch, log: &Path, folder: &Path, processor: u32) -> io::Result<Child> {
    let output = File::create(log)?;
    let mut command = Command::new(&launch.command[0]);
    command
        .args(&launch.command[1..])
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    spawn_on(processor, &mut command)
}

/// Returns the body of the response to a GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let response = exchange(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"),
    )?;
    let split = response.windows(4).position(|window| window == b"\r\n\r\n");
    let split = split.ok_or_else(|| io::Error::other("the response has no header section"))?;
    if !response.starts_with(b"HTTP/1.") || response.get(9..12) != Some(b"200") {
        return Err(io::Error::other(
            String::from_utf8_lossy(&response[..split.min(60)]).into_owned(),
        ));
    }
    Ok(response[split + 4..].to_vec())
}

/// Sends `request` and reads until the server closes the connection or sends nothing for two seconds.
pub(crate) fn exchange(address: SocketAddr, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(request.as_bytes())?;
    let (mut response, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(response),
            Ok(count) => response.extend_from_slice(&buffer[..count]),
            Err(error) if response.is_empty() => return Err(error),
            Err(_) => return Ok(response),
        }
    }
}
