//! Generators on other machines, started by the user's own `ssh`, whose standard input and output are the link.
//!
//! If `dunlin` is not installed there, a shell on the other machine receives this program over the same connection, and removes it
//! at the end.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::generator::Lines;
use super::link::{Arrived, Event, Link, read_lines, report, write_lines};

/// The way in which generators are started on other machines.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// This program is sent to the machines also if they have one.
    pub copy: bool,
}

/// Starts a generator, or receives the program to start. One line without single quotes, so that all login shells can pass
/// it to `sh`.
const SCRIPT: &str = concat!(
    r#"[ "$copy" ] || { command -v dunlin >/dev/null 2>&1 && exec dunlin load --generator; }; "#,
    r#"echo "{\"missing\":\"$(uname -sm)\"}"; read -r size || exit 0; d=$(mktemp -d) || exit 1; "#,
    r#"trap "rm -rf \"$d\"" EXIT; trap "exit 1" HUP INT TERM; "#,
    r#"head -c "$size" >"$d/dunlin" && chmod 700 "$d/dunlin" && "$d/dunlin" load --generator"#
);
/// Lines before the first message, such as those that a login shell prints, that are skipped.
const MOST_NOISE: usize = 1000;
/// Lines of ssh's standard error that a reason contains.
const ERROR_LINES: usize = 3;
/// Time for ssh to end after the link is closed.
const END: Duration = Duration::from_secs(3);

/// The message of [`SCRIPT`] that the program is missing.
#[derive(Deserialize)]
struct Missing {
    /// System and architecture, as `uname -sm` prints them.
    missing: String,
}

impl Ssh {
    /// Starts a generator on `host`, as `ssh` names it. Its events get the number `from`.
    ///
    /// # Errors
    /// `ssh` cannot be started.
    pub fn connect(
        &self,
        host: &str,
        from: usize,
        events: &Sender<Arrived>,
    ) -> Result<Box<dyn Link>, String> {
        let [program, arguments @ ..] = &self.command[..] else {
            return Err("--ssh names no program".to_owned());
        };
        let copy = if self.copy { "1" } else { "" };
        let spawned = Command::new(program)
            .args(arguments)
            .args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "--", host])
            .arg(format!("exec sh -c 'copy={copy}; {SCRIPT}'"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // An interrupt from the terminal must reach the coordinator alone, which ends the generators in order.
            .process_group(0)
            .spawn();
        let mut child = spawned.map_err(|error| format!("{program}: {error}"))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut input), Some(output), Some(errors)) = pipes else {
            return Err(format!("{program} has no pipes"));
        };
        let (lines, to_write) = mpsc::channel::<Vec<u8>>();
        thread::spawn(move || write_lines(&mut input, to_write.into_iter()));
        let errors = thread::spawn(move || last_lines(errors));
        let child = Arc::new(Mutex::new(child));
        let (own, writer, events) = (Arc::clone(&child), lines.clone(), events.clone());
        thread::spawn(move || {
            let received = receive(&mut BufReader::new(output), writer, from, &events);
            let status = end(&own);
            let printed = errors.join().unwrap_or_default();
            let reason = match (received, printed.as_str()) {
                (Err(reason), _) => reason,
                (Ok(()), "") => format!("the connection has ended ({status})"),
                (Ok(()), printed) => format!("the connection has ended: {printed}"),
            };
            report(&events, from, Event::Closed(reason))
        });
        Ok(Box::new(Connection { lines: Some(Lines(lines)), child }))
    }
}

/// A running `ssh`.
struct Connection {
    lines: Option<Lines>,
    child: Arc<Mutex<Child>>,
}

impl Link for Connection {
    fn send(&mut self, line: String) {
        if let Some(lines) = &mut self.lines {
            lines.send(line);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without a sender, the writer ends and closes the standard input of ssh.
        self.lines = None;
        end(&self.child);
    }
}

/// Passes on lines to the end. `writer` is used only to send the program.
fn receive(
    output: &mut dyn BufRead,
    writer: Sender<Vec<u8>>,
    from: usize,
    events: &Sender<Arrived>,
) -> Result<(), String> {
    let mut writer = Some(writer);
    let (mut noise, mut failure) = (0, None);
    let read = read_lines(output, |line| {
        let Some(send) = &writer else { return report(events, from, Event::Line(line)) };
        if let Ok(Missing { missing }) = serde_json::from_str(&line) {
            failure = send_program(&missing, send).err();
            return failure.is_none();
        }
        if line.starts_with('{') {
            writer = None;
            return report(events, from, Event::Line(line));
        }
        noise += 1;
        noise <= MOST_NOISE
    });
    match failure {
        Some(reason) => Err(reason),
        None => read.map_err(|error| error.to_string()),
    }
}

/// Sends this program to a machine that lacks it.
fn send_program(system: &str, writer: &Sender<Vec<u8>>) -> Result<(), String> {
    let own = rustix::system::uname();
    let own = format!("{} {}", own.sysname().to_string_lossy(), own.machine().to_string_lossy());
    if system != own {
        return Err(format!(
            "it has no dunlin, and this one is for {own}, not for {system}: install dunlin there"
        ));
    }
    // Also the program of a process whose file was replaced.
    let program = fs::read("/proc/self/exe").map_err(|error| format!("/proc/self/exe: {error}"))?;
    let size = format!("{}\n", program.len()).into_bytes();
    // A writer that has ended is reported by the reader.
    let _ = writer.send(size).and_then(|()| writer.send(program));
    Ok(())
}

/// Waits for the end of ssh, and kills it if it takes too long. Returns the status.
fn end(child: &Mutex<Child>) -> String {
    let deadline = Instant::now() + END;
    loop {
        let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
        match child.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) => {
                // It has ended by itself if it cannot be killed.
                let _ = child.kill();
                return child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            }
            Err(error) => return error.to_string(),
        }
        drop(child);
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the last lines of `errors`, in one.
fn last_lines(errors: impl Read) -> String {
    let mut last = std::collections::VecDeque::new();
    for line in BufReader::new(errors).split(b'\n').map_while(io::Result::ok) {
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        if !line.is_empty() {
            last.push_back(line);
        }
        if last.len() > ERROR_LINES {
            last.pop_front();
        }
    }
    last.make_contiguous().join("; ")
}
