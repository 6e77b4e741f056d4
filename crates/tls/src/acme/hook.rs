//! A program that publishes the records of DNS-01.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use dunlin_dns::{Change, TextRecord};
use dunlin_net::spawn::spawn;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

/// Interval at which it is checked whether the program has ended.
const INTERVAL: Duration = Duration::from_millis(20);
/// How much of its standard error is kept, in bytes.
const MAX_STDERR: usize = 1_024;

/// Has the program add a record or remove it. `domain` is the name that it proves.
///
/// # Errors
/// The program has failed, or has not ended in time: a sentence with its standard error.
pub(super) async fn run(
    words: &[String],
    limit: Duration,
    domain: &str,
    (change, record): (Change, &TextRecord),
) -> Result<(), String> {
    let action = match change {
        Change::Add => "add",
        Change::Remove => "remove",
    };
    let [program, arguments @ ..] = words else { return Err("dns: command is empty".to_owned()) };
    let failed = |what: String| format!("dns command {program} {action} {}: {what}", record.name);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args([action, &record.name, &record.value])
        .env("ACME_ACTION", action)
        .env("ACME_DOMAIN", domain)
        .env("ACME_RECORD", &record.name)
        .env("ACME_VALUE", &record.value)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0);
    // Blocks until the program is loaded.
    let started = tokio::task::spawn_blocking(move || spawn(&mut command)).await;
    let child = started.map_err(io::Error::other).flatten();
    let mut running = Running::new(child.map_err(|error| failed(error.to_string()))?)
        .map_err(|error| failed(error.to_string()))?;
    match timeout(limit, running.end()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("{status}{}", running.complaint()))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!(
            "it has not ended within {} s{}",
            limit.as_secs_f64(),
            running.complaint()
        ))),
    }
}

/// A running program. Dropped while it runs, it is killed with its process group.
struct Running {
    child: Child,
    stderr: pipe::Receiver,
    /// The begin of its standard error.
    kept: Vec<u8>,
}

impl Running {
    fn new(mut child: Child) -> io::Result<Self> {
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stderr = pipe::Receiver::from_owned_fd(stderr.into())?;
        Ok(Self { child, stderr, kept: Vec::new() })
    }

    /// Waits for the end of the program. A process that it has started may run on.
    async fn end(&mut self) -> io::Result<ExitStatus> {
        let mut buffer = [0; MAX_STDERR];
        let mut is_open = true;
        loop {
            let status = self.child.try_wait()?;
            tokio::select! {
                // What has been written before the end is read first.
                biased;
                read = self.stderr.read(&mut buffer), if is_open => match read {
                    Ok(count) if count > 0 => self.keep(&buffer[..count]),
                    _ => is_open = false,
                },
                () = sleep(if status.is_some() { Duration::ZERO } else { INTERVAL }) => {
                    if let Some(status) = status {
                        return Ok(status);
                    }
                }
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_STDERR - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns its standard error as the end of a sentence, in one line.
    fn complaint(&self) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines.collect::<Vec<_>>().join("; ").replace(char::is_control, " ");
        if line.is_empty() { line } else { format!(": {line}") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // It has got SIGKILL, so that this takes no time.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn run_shell(script: &str, limit: Duration) -> Result<(), String> {
        let words = ["/bin/sh", "-c", script, "hook"].map(str::to_owned);
        let record = TextRecord { name: "_acme-challenge.a.example".into(), value: "text".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(&words, limit, "a.example", (Change::Add, &record)))
    }

    #[test]
    fn the_program_gets_the_record_in_arguments_and_environment() {
        let same = r#"test "$1 $2 $3" = "$ACME_ACTION $ACME_RECORD $ACME_VALUE""#;
        let these =
            r#"test "$*" = "add _acme-challenge.a.example text" -a $ACME_DOMAIN = a.example"#;
        assert_eq!(run_shell(&format!("{same} && {these}"), Duration::from_secs(30)), Ok(()));
    }

    #[test]
    fn a_failure_has_the_standard_error_in_one_line() {
        let limit = Duration::from_secs(30);
        let error = run_shell("echo no token >&2; echo >&2; echo bye >&2; exit 3", limit);
        let error = error.unwrap_err();
        let expected =
            "dns command /bin/sh add _acme-challenge.a.example: exit status: 3: no token; bye";
        assert_eq!(error, expected);
        // It is bounded, and the program does not wait for a reader.
        let error = run_shell("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1", limit);
        assert!(error.unwrap_err().len() < MAX_STDERR + 100);
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let began = Instant::now();
        let error =
            run_shell("echo waiting >&2; sleep 600 & sleep 600", Duration::from_millis(300));
        let error = error.unwrap_err();
        assert!(error.ends_with("it has not ended within 0.3 s: waiting"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(60));
        // A process that the program leaves behind is not waited for.
        assert_eq!(run_shell("sleep 600 & exit 0", Duration::from_secs(60)), Ok(()));
        assert!(began.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let words = ["/nonexistent/hook".to_owned()];
        let record = TextRecord { name: "_acme-challenge.a.example".into(), value: String::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let change = (Change::Remove, &record);
        let error = runtime.block_on(run(&words, Duration::from_secs(9), "a.example", change));
        let error = error.unwrap_err();
        assert!(error.starts_with("dns command /nonexistent/hook remove "), "{error}");
        assert!(error.contains("No such file"), "{error}");
    }
}
