//! Writing the access log off the loops.
//!
//! Each loop collects lines and hands them over in batches; one thread writes. What the log
//! cannot take (a full disk, a reader that is gone or does not read) is dropped and counted; it
//! never holds up a loop.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::format::{Format, TimeCache};

/// The log and its writing thread.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: Format,
    queue: Mutex<Queue>,
    filled: Condvar,
    drained: Condvar,
    lost: AtomicU64,
}

/// One loop's side of the log.
#[derive(Debug)]
pub(crate) struct LoopLog {
    log: Arc<AccessLog>,
    time: TimeCache,
    batch: Batch,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    reopen: bool,
    closing: bool,
    writing: bool,
}

#[derive(Debug, Default)]
struct Batch {
    text: Vec<u8>,
    lines: u64,
}

/// A loop hands over at this size, or when its clock says so.
const BATCH: usize = 64 * 1024;
/// What may wait to be written.
const MOST_WAITING: usize = 16 << 20;
/// How often the path is looked at, to see whether it still is the open file.
const ROTATION_CHECK: Duration = Duration::from_secs(1);

impl AccessLog {
    /// Opens the log at `path` (`-` for standard output) and starts its thread.
    ///
    /// # Errors
    /// When the file cannot be opened for appending.
    pub(crate) fn open(path: &Path, format: Format) -> io::Result<Arc<Self>> {
        let target = Target::open(path)?;
        let log = Arc::new(Self {
            format,
            queue: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let writer = Writer { log: Arc::clone(&log), target, failing: None, torn: false };
        std::thread::Builder::new().name("access-log".into()).spawn(move || writer.run())?;
        Ok(log)
    }

    /// Opens the file anew before the next batch; what is waiting goes to the old one.
    pub(crate) fn reopen(&self) {
        self.lock().reopen = true;
        self.filled.notify_one();
    }

    /// Waits until everything handed over is written, at most for `limit`.
    pub(crate) fn close(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut queue = self.lock();
        queue.closing = true;
        self.filled.notify_one();
        while queue.writing || !queue.batches.is_empty() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            queue = self.drained.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(queue);
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!("{lost} lines of the access log were lost");
        }
    }

    fn hand_over(&self, batch: &mut Batch) {
        let mut queue = self.lock();
        if queue.bytes + batch.text.len() > MOST_WAITING {
            self.lost.fetch_add(batch.lines, Ordering::Relaxed);
            batch.text.clear();
        } else {
            queue.bytes += batch.text.len();
            let empty = queue.spare.pop().unwrap_or_else(|| Vec::with_capacity(BATCH + 4096));
            let text = std::mem::replace(&mut batch.text, empty);
            queue.batches.push_back(Batch { text, lines: batch.lines });
            self.filled.notify_one();
        }
        batch.lines = 0;
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoopLog {
    pub(crate) fn new(log: &Arc<AccessLog>) -> Self {
        Self { log: Arc::clone(log), time: TimeCache::default(), batch: Batch::default() }
    }

    /// Adds the line of `exchange`.
    pub(crate) fn record(&mut self, exchange: &Exchange<'_>) {
        self.log.format.write_line(exchange, &mut self.time, &mut self.batch.text);
        self.batch.lines += 1;
        if self.batch.text.len() >= BATCH {
            self.flush();
        }
    }

    /// Hands over what there is. Never waits for the log.
    pub(crate) fn flush(&mut self) {
        if self.batch.lines > 0 {
            self.log.hand_over(&mut self.batch);
        }
    }
}

impl Drop for LoopLog {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Where lines go.
enum Target {
    Output(io::Stdout),
    File { path: PathBuf, file: File, checked: Instant },
}

impl Target {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Output(io::stdout()));
        }
        let file = open_file(path)?;
        Ok(Self::File { path: path.to_owned(), file, checked: Instant::now() })
    }

    fn name(&self) -> String {
        match self {
            Self::Output(_) => "to standard output".into(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    /// One write: how many bytes were taken.
    fn write(&self, text: &[u8]) -> io::Result<usize> {
        let written = match self {
            Self::Output(output) => rustix::io::write(output.as_fd(), text),
            Self::File { file, .. } => rustix::io::write(file, text),
        };
        Ok(written?)
    }

    /// Opens the file anew when asked to, or when its name leads elsewhere.
    fn follow(&mut self, asked: bool) -> io::Result<()> {
        let Self::File { path, file, checked } = self else { return Ok(()) };
        if !asked {
            if checked.elapsed() < ROTATION_CHECK {
                return Ok(());
            }
            *checked = Instant::now();
            let open = file.metadata()?;
            let same = std::fs::metadata(&*path)
                .is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()));
            if same {
                return Ok(());
            }
        }
        *file = open_file(path)?;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

struct Writer {
    log: Arc<AccessLog>,
    target: Target,
    /// Lines lost since writing began to fail.
    failing: Option<u64>,
    /// The last line was cut off by a failure.
    torn: bool,
}

impl Writer {
    fn run(mut self) {
        let log = Arc::clone(&self.log);
        let mut queue = log.lock();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                queue.bytes -= batch.text.len();
                queue.writing = true;
                drop(queue);
                self.follow(false);
                self.write(&batch);
                queue = log.lock();
                queue.writing = false;
                let mut text = batch.text;
                text.clear();
                if queue.spare.len() < 8 {
                    queue.spare.push(text);
                }
                continue;
            }
            self.log.drained.notify_all();
            if std::mem::take(&mut queue.reopen) {
                drop(queue);
                self.follow(true);
                queue = log.lock();
                continue;
            }
            if queue.closing {
                return;
            }
            queue = log.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn follow(&mut self, asked: bool) {
        if let Err(error) = self.target.follow(asked) {
            tracing::error!("access log {}: {error}; the old file is written on", self.target.name());
        }
    }

    fn write(&mut self, batch: &Batch) {
        let mut at = 0;
        if self.torn {
            match self.target.write(b"\n") {
                Ok(_) => self.torn = false,
                Err(error) => return self.fail(batch, at, &error),
            }
        }
        while at < batch.text.len() {
            match self.target.write(&batch.text[at..]) {
                Ok(0) => return self.fail(batch, at, &io::ErrorKind::WriteZero.into()),
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Somebody made the descriptor non-blocking; this thread may wait.
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return self.fail(batch, at, &error),
            }
        }
        if let Some(lost) = self.failing.take() {
            let name = self.target.name();
            tracing::warn!("access log {name}: written again; {lost} lines were lost");
        }
    }

    /// The batch could be written up to `at` only.
    fn fail(&mut self, batch: &Batch, at: usize, error: &io::Error) {
        let whole = memchr::memchr_iter(b'\n', &batch.text[..at]).count() as u64;
        let lost = batch.lines.saturating_sub(whole);
        self.torn |= at > 0 && batch.text[at - 1] != b'\n';
        self.log.lost.fetch_add(lost, Ordering::Relaxed);
        if self.failing.is_none() {
            tracing::error!("access log {}: {error}; lines are being lost", self.target.name());
        }
        *self.failing.get_or_insert(0) += lost;
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn exchange(target: &[u8]) -> Exchange<'_> {
        Exchange {
            peer: IpAddr::from([127, 0, 0, 1]),
            peer_name: None,
            started_secs: 0,
            started_nanos: 0,
            duration_ns: 0,
            method: b"GET",
            target,
            version: "HTTP/1.1",
            status: 200,
            body_bytes: 0,
            referer: None,
            user_agent: None,
            host: None,
            site: "-",
            cache: "-",
            coding: "-",
            connection: 0,
        }
    }

    fn record(log: &mut LoopLog, numbers: std::ops::Range<usize>) {
        for number in numbers {
            log.record(&exchange(format!("/{number}").as_bytes()));
        }
        log.flush();
    }

    fn lines(path: &Path) -> Vec<String> {
        std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < until, "the condition was not met in time");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn no_line_is_lost_when_the_log_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let log = AccessLog::open(&path, Format::parse("{target}").unwrap()).unwrap();
        let mut loop_log = LoopLog::new(&log);
        record(&mut loop_log, 0..1000);
        wait_until(|| lines(&path).len() == 1000);
        std::fs::rename(&path, &old).unwrap();
        log.reopen();
        wait_until(|| path.exists());
        record(&mut loop_log, 1000..2000);
        log.close(Duration::from_secs(10));
        let all: Vec<_> = lines(&old).into_iter().chain(lines(&path)).collect();
        let expected: Vec<_> = (0..2000).map(|number| format!("/{number}")).collect();
        assert_eq!(all, expected);
        assert_eq!(log.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let format = Format::parse("{target}").unwrap();
        let log = AccessLog::open(Path::new("/dev/full"), format).unwrap();
        let mut loop_log = LoopLog::new(&log);
        record(&mut loop_log, 0..100);
        log.close(Duration::from_secs(10));
        assert_eq!(log.lost.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn a_reader_that_does_not_read_never_holds_up_a_loop() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let log = AccessLog::open(&path, Format::parse("{target}").unwrap()).unwrap();
        let mut loop_log = LoopLog::new(&log);
        let began = Instant::now();
        let long = vec![b'x'; 64 * 1024];
        for _ in 0..1000 {
            loop_log.record(&exchange(&long));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "a loop was held up");
        assert!(log.lost.load(Ordering::Relaxed) > 500, "the queue has no bound");
    }
}
