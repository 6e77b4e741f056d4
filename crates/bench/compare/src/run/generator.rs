//! The process of the load generator.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dunlin_load::outcome::Outcome;

use crate::server::spawn_on;

/// Runs `command` on one processor for at most `limit`, or until `stop` is set.
///
/// # Errors
/// The standard error of the generator, if it printed no outcome.
pub(super) fn run(
    command: &[String],
    processor: u32,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<Outcome, String> {
    let mut load = Command::new(&command[0]);
    load.args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = spawn_on(processor, &mut load).map_err(|error| error.to_string())?;
    let output = read_to_end(child.stdout.take());
    let errors = read_to_end(child.stderr.take());
    let end = Instant::now() + limit;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > end || stop.load(Ordering::Relaxed) {
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = output.join().unwrap_or_default();
    let errors = errors.join().unwrap_or_default();
    serde_json::from_str(&output).map_err(|_| errors.trim().to_owned())
}

/// Reads a pipe on a thread, so that a full pipe cannot block the generator.
fn read_to_end(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = pipe {
            // A read error truncates the text, which then is not a valid outcome.
            let _ = pipe.read_to_string(&mut text);
        }
        text
    })
}
