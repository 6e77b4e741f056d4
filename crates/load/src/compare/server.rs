//! A server that is being compared: its process, from start to stop.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::adapter::Launch;
use crate::processes;

/// A server that runs. It is stopped, with all it has started, when this is dropped.
pub(super) struct Server {
    child: Child,
    log: PathBuf,
    /// Bytes of memory when it was ready.
    pub(super) memory_at_start: u64,
}

/// How long a server may take to answer its first request.
const READY: Duration = Duration::from_secs(15);
/// How long it may take to stop when it is asked to.
const STOP: Duration = Duration::from_secs(3);

/// A port that was free just now.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts `command` on one processor. Threads and children inherit it.
pub(super) fn spawn_on(processor: u32, command: &mut Command) -> io::Result<Child> {
    let before = sched_getaffinity(None)?;
    let mut only = CpuSet::new();
    only.set(processor as usize);
    sched_setaffinity(None, &only)?;
    let spawned = command.spawn();
    sched_setaffinity(None, &before)?;
    spawned
}

impl Server {
    /// Starts it and waits until it answers `probe` with `expected`; with TLS, until it accepts connections.
    ///
    /// # Errors
    /// What happened, and the last lines that it said.
    pub(super) fn start(
        launch: &Launch,
        folder: &Path,
        processor: u32,
        port: u16,
        probe: Option<(&str, &[u8])>,
    ) -> Result<Self, (String, String)> {
        let log = folder.join("output.log");
        let child = start(launch, &log, folder, processor);
        let child =
            child.map_err(|error| (format!("it does not start: {error}"), String::new()))?;
        let mut server = Self { child, log, memory_at_start: 0 };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let end = Instant::now() + READY;
        loop {
            let answer = match probe {
                Some((path, expected)) => get(address, path).map(|body| body == expected),
                None => TcpStream::connect(address).map(|_| true),
            };
            match answer {
                Ok(true) => break,
                Ok(false) => {
                    return Err((
                        "it answers with other bytes than the file has".to_owned(),
                        server.log_tail(),
                    ));
                }
                Err(error) if Instant::now() > end => {
                    return Err((
                        format!("it was not ready after {} s: {error}", READY.as_secs()),
                        server.log_tail(),
                    ));
                }
                Err(_) => {}
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err((format!("it ended: {status}"), server.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        server.memory_at_start = server.memory();
        Ok(server)
    }

    /// Whether it still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Bytes of memory of all its processes.
    pub(super) fn memory(&self) -> u64 {
        processes::sample(&self.processes()).memory_bytes()
    }

    /// The process and all that it has started.
    pub(super) fn processes(&self) -> Vec<u32> {
        processes::with_descendants([self.child.id()])
    }

    /// The last lines that it said.
    pub(super) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // It may have ended already.
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

/// The body that a GET is answered with.
pub(super) fn get(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let answer = exchange(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"),
    )?;
    let split = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let split = split.ok_or_else(|| io::Error::other("the answer has no head"))?;
    if !answer.starts_with(b"HTTP/1.") || answer.get(9..12) != Some(b"200") {
        return Err(io::Error::other(
            String::from_utf8_lossy(&answer[..split.min(60)]).into_owned(),
        ));
    }
    Ok(answer[split + 4..].to_vec())
}

/// Sends `request` and reads until the server closes, or falls silent.
pub(super) fn exchange(address: SocketAddr, request: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if answer.is_empty() => return Err(error),
            Err(_) => return Ok(answer),
        }
    }
}
