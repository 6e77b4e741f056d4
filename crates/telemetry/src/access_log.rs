//! Access log: workers format and buffer lines, a separate thread writes them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dunlin_config::AccessLogFormat;

use super::format::write_line;
use super::log_queue::{BATCH_BYTES, Queue, new_buffer};
use super::log_writer::{Target, Writer};
use super::{AccessRecord, TimeCache};

/// Settings of an access log.
#[derive(Clone, Debug)]
pub struct AccessLogSettings {
    /// The file, which is created with mode 0640 if it is missing; `-` is standard output.
    pub path: PathBuf,
    /// Format of a line.
    pub format: AccessLogFormat,
    /// Maximum of queued bytes. Lines beyond it are dropped and counted.
    pub queue_bytes: usize,
    /// The first and the last status of each range that is logged; empty for all.
    pub statuses: Vec<(u16, u16)>,
    /// Requests of a million that are logged; `None` for all.
    pub sample: Option<u32>,
}

impl AccessLogSettings {
    /// Settings with a queue of 16 MiB.
    pub fn new(path: impl Into<PathBuf>, format: AccessLogFormat) -> Self {
        let (statuses, sample) = (Vec::new(), None);
        Self { path: path.into(), format, queue_bytes: 16 * 1024 * 1024, statuses, sample }
    }

    /// Returns the settings of a log of the configuration.
    pub(crate) fn of(rules: &dunlin_config::AccessLog) -> Self {
        let (statuses, sample) = (rules.statuses.clone(), rules.sample);
        Self { statuses, sample, ..Self::new(&rules.path, rules.format.clone()) }
    }
}

/// An open access log. All workers share it.
///
/// Logging never blocks a worker: a full or slow disk, or a pipe without a reader, delays only the
/// writing thread. Lines that cannot be written are dropped and counted; the start and the end of a
/// loss are each reported once.
///
/// A renamed or removed file is detected within a second, before the next write, and opened again.
/// [`AccessLog::reopen`] opens it at once.
pub struct AccessLog {
    format: AccessLogFormat,
    statuses: Vec<(u16, u16)>,
    sample: Option<u32>,
    queue: Arc<Queue>,
    reporter: Reporter,
}

/// Reports problems of the log itself to the operator.
pub(super) type Reporter = Arc<dyn Fn(&str) + Send + Sync>;

impl AccessLog {
    /// Opens the log and starts its thread.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started. The text names the path and the
    /// cause.
    pub fn open(settings: AccessLogSettings) -> io::Result<Arc<Self>> {
        let name = name(&settings);
        Self::open_with(settings, Arc::new(move |text| tracing::error!("{name}: {text}")))
    }

    fn open_with(settings: AccessLogSettings, reporter: Reporter) -> io::Result<Arc<Self>> {
        let name = name(&settings);
        let explain = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        let target = if settings.path.as_os_str() == "-" {
            Target::stdout().map_err(explain)?
        } else {
            Target::open(settings.path.clone()).map_err(explain)?
        };
        let queue = Arc::new(Queue::new(settings.queue_bytes));
        let writer = Writer::new(Arc::clone(&queue), target, Arc::clone(&reporter));
        thread::Builder::new()
            .name("access-log".into())
            .spawn(move || writer.run())
            .map_err(explain)?;
        let AccessLogSettings { format, statuses, sample, .. } = settings;
        Ok(Arc::new(Self { format, statuses, sample, queue, reporter }))
    }

    /// Returns a log without a writer: lines wait until [`AccessLog::take_lines`].
    #[cfg(any(test, feature = "testing"))]
    pub fn in_memory(format: AccessLogFormat) -> Arc<Self> {
        let queue = Arc::new(Queue::new(usize::MAX));
        let reporter: Reporter = Arc::new(|text| panic!("{text}"));
        Arc::new(Self { format, statuses: Vec::new(), sample: None, queue, reporter })
    }

    /// Returns the lines that the workers have flushed since the last call.
    #[cfg(any(test, feature = "testing"))]
    pub fn take_lines(&self) -> Vec<String> {
        let bytes = self.queue.take_batches();
        String::from_utf8(bytes).expect("records are text").lines().map(str::to_owned).collect()
    }

    /// Returns `true` if lines contain the timings of requests.
    #[inline]
    pub fn has_timings(&self) -> bool {
        matches!(self.format, AccessLogFormat::Json)
    }

    /// Returns `true` if lines contain fields of responses.
    pub(crate) fn has_response_fields(&self) -> bool {
        match &self.format {
            AccessLogFormat::Template(template) => template.has_response_fields(),
            _ => false,
        }
    }

    /// Returns the buffer of one worker.
    pub fn worker_log(self: &Arc<Self>) -> WorkerLog {
        let (time, buffer) = (TimeCache::new(), new_buffer());
        WorkerLog { log: Arc::clone(self), time, buffer, lines: 0, credit: 0 }
    }

    /// Opens the file at the path again, after all lines that are queued now are written to the old one.
    ///
    /// Returns at once. Does nothing for standard output.
    pub fn reopen(&self) {
        self.queue.push_reopen();
    }

    /// Writes the queued lines for at most `timeout`, and ends the writing thread.
    ///
    /// Workers have to flush before; lines that they queue later are lost. Returns the number of lines
    /// that were dropped, which [`AccessLog::lost`] includes.
    pub fn close(&self, timeout: Duration) -> u64 {
        self.queue.drain();
        self.queue.wait_drained(timeout)
    }

    /// Returns the number of lines that were lost since the log was opened.
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }

    /// Reports a stalled writer once per stall. The report is written by a separate thread, as the error log may be
    /// the same pipe without a reader, and the worker must not block.
    #[cold]
    fn report_stall(&self) {
        let reporter = Arc::clone(&self.reporter);
        let report = move || reporter("writing is too slow; lines are being lost");
        // If the thread cannot be started, the loss is still counted, and reported at its end.
        let _ = thread::Builder::new().name("access-log-note".into()).spawn(report);
    }
}

impl Drop for AccessLog {
    /// Requests that the thread write the queued lines and end. Does not wait for it.
    fn drop(&mut self) {
        self.queue.drain();
    }
}

fn name(settings: &AccessLogSettings) -> String {
    if settings.path.as_os_str() == "-" {
        "access log on standard output".into()
    } else {
        format!("access log {}", settings.path.display())
    }
}

const MILLION: u32 = 1_000_000;

/// Buffer of one worker: its lines in order, until they are queued.
pub struct WorkerLog {
    log: Arc<AccessLog>,
    time: TimeCache,
    buffer: Vec<u8>,
    lines: u64,
    /// Millionths of a line that are due, with a sample of requests.
    credit: u32,
}

impl WorkerLog {
    /// Returns the number of lines of all workers that were lost since the log was opened.
    pub fn lost(&self) -> u64 {
        self.log.lost()
    }

    /// Returns `true` if the log has a line for a response with that status.
    fn wants(&mut self, status: u16) -> bool {
        let statuses = &self.log.statuses;
        let is_in = |(first, last): &(u16, u16)| (*first..=*last).contains(&status);
        if !statuses.is_empty() && !statuses.iter().any(is_in) {
            return false;
        }
        let Some(sample) = self.log.sample else { return true };
        self.credit += sample;
        let is_due = self.credit >= MILLION;
        if is_due {
            self.credit -= MILLION;
        }
        is_due
    }

    /// Appends the line of a record, if the log has one for it. Queues the lines when the buffer has 64 KiB.
    pub fn record(&mut self, record: &AccessRecord<'_>) {
        if !self.wants(record.status) {
            return;
        }
        write_line(&self.log.format, record, &mut self.time, &mut self.buffer);
        self.lines += 1;
        if self.buffer.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Queues the lines for the writing thread, without waiting for it.
    ///
    /// Call this at least each 500 ms, so that every line is in the file within a second.
    pub fn flush(&mut self) {
        if self.lines == 0 {
            return;
        }
        if self.log.queue.push(&mut self.buffer, self.lines) {
            self.log.report_stall();
        }
        self.lines = 0;
    }
}

impl Drop for WorkerLog {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_record::tests::sample;

    use std::fs::{self, File};
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Mutex;
    use std::time::Instant;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    const PATIENCE: Duration = Duration::from_secs(20);

    fn settings(path: &Path) -> AccessLogSettings {
        AccessLogSettings::new(path, AccessLogFormat::parse("{connection} {path}").unwrap())
    }

    /// Opens a log and collects its reports.
    fn open_reported(settings: AccessLogSettings) -> (Arc<AccessLog>, Arc<Mutex<Vec<String>>>) {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&reports);
        let reporter: Reporter = Arc::new(move |text| kept.lock().unwrap().push(text.to_owned()));
        (AccessLog::open_with(settings, reporter).unwrap(), reports)
    }

    fn record(worker_log: &mut WorkerLog, serials: std::ops::Range<u64>) {
        for connection in serials {
            worker_log.record(&AccessRecord { connection, target: b"/", ..sample() });
        }
    }

    fn serials(path: &Path) -> Vec<u64> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.strip_suffix(" /").unwrap().parse().unwrap()).collect()
    }

    fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
        let began = Instant::now();
        while !reached() {
            assert!(began.elapsed() < PATIENCE, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn lines_of_each_worker_stay_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = AccessLog::open(settings(&path)).unwrap();
        thread::scope(|scope| {
            for part in 0..3 {
                let mut worker_log = log.worker_log();
                scope.spawn(move || {
                    for tens in 0..5_000 {
                        let first = part * 1_000_000 + tens * 10;
                        record(&mut worker_log, first..first + 10);
                        if tens % 97 == 0 {
                            worker_log.flush();
                        }
                    }
                });
            }
        });
        assert_eq!(log.close(PATIENCE), 0);
        let all = serials(&path);
        for part in 0..3 {
            let own = all.iter().copied().filter(|serial| serial / 1_000_000 == part);
            let first = part * 1_000_000;
            assert!(own.eq(first..first + 50_000));
        }
        assert_eq!(log.lost(), 0);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o137, 0);
    }

    #[test]
    fn reopening_after_a_rename_loses_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = AccessLog::open(settings(&path)).unwrap();
        let mut worker_log = log.worker_log();
        let mut files = Vec::new();
        for round in 0..20 {
            record(&mut worker_log, round * 3_000..(round + 1) * 3_000);
            worker_log.flush();
            let old = dir.path().join(format!("log.{round}"));
            fs::rename(&path, &old).unwrap();
            log.reopen();
            wait_until("a new file", || path.exists());
            files.push(old);
        }
        record(&mut worker_log, 60_000..60_001);
        worker_log.flush();
        assert_eq!(log.close(PATIENCE), 0);
        assert_eq!(serials(&files[0]), (0..3_000).collect::<Vec<_>>());
        files.push(path);
        let all: Vec<u64> = files.iter().flat_map(|file| serials(file)).collect();
        assert!(all.into_iter().eq(0..60_001));
    }

    #[test]
    fn a_renamed_or_removed_file_is_detected_without_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let log = AccessLog::open(settings(&path)).unwrap();
        let mut worker_log = log.worker_log();
        record(&mut worker_log, 0..1);
        worker_log.flush();
        wait_until("the first line", || serials(&path) == [0]);
        fs::rename(&path, &old).unwrap();
        let mut next = 1;
        wait_until("a new file", || {
            record(&mut worker_log, next..next + 1);
            worker_log.flush();
            next += 1;
            path.exists()
        });
        assert_eq!(log.close(PATIENCE), 0);
        let all = [serials(&old), serials(&path)].concat();
        assert!(all.into_iter().eq(0..next));
    }

    #[test]
    fn a_full_disk_is_counted_and_reported_once_until_it_recovers() {
        let dir = tempfile::tempdir().unwrap();
        let (path, spare) = (dir.path().join("log"), dir.path().join("spare"));
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let (log, reports) = open_reported(settings(&path));
        let mut worker_log = log.worker_log();
        for round in 0..5 {
            record(&mut worker_log, round * 10..(round + 1) * 10);
            worker_log.flush();
            wait_until("the loss", || log.lost() == (round + 1) * 10);
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&spare, &path).unwrap();
        log.reopen();
        record(&mut worker_log, 50..60);
        worker_log.flush();
        assert_eq!(log.close(PATIENCE), 0);
        assert!(serials(&spare).into_iter().eq(50..60));
        assert_eq!(log.lost(), 50);
        assert_eq!(
            *reports.lock().unwrap(),
            [
                "No space left on device (os error 28); lines are being lost",
                "written again; 50 lines were lost",
            ]
        );
    }

    #[test]
    fn a_stalled_reader_does_not_block_the_worker() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let small = AccessLogSettings { queue_bytes: 1024 * 1024, ..settings(&path) };
        let (log, reports) = open_reported(small);
        let mut reader = BufReader::new(File::open(&path).unwrap());
        let mut worker_log = log.worker_log();
        let began = Instant::now();
        record(&mut worker_log, 0..500_000);
        worker_log.flush();
        assert!(began.elapsed() < PATIENCE, "half a million lines: {:?}", began.elapsed());
        assert!(log.lost() > 0);
        wait_until("the report", || !reports.lock().unwrap().is_empty());

        let kept = 500_000 - log.lost();
        let mut line = String::new();
        let mut next = 0;
        for _ in 0..kept {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let serial: u64 = line.strip_suffix(" /\n").unwrap().parse().unwrap();
            assert!(serial >= next, "{serial} after {next}");
            next = serial + 1;
        }
        wait_until("the recovery", || reports.lock().unwrap().len() == 2);
        assert_eq!(reports.lock().unwrap()[0], "writing is too slow; lines are being lost");
        record(&mut worker_log, 7..8);
        worker_log.flush();
        line.clear();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "7 /\n");
    }

    #[test]
    fn closing_does_not_wait_for_a_stalled_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let log = AccessLog::open(settings(&path)).unwrap();
        let mut reader = File::open(&path).unwrap();
        let mut worker_log = log.worker_log();
        record(&mut worker_log, 0..100_000);
        worker_log.flush();
        let began = Instant::now();
        let given_up = log.close(Duration::from_millis(100));
        assert!(began.elapsed() < PATIENCE);
        assert!(given_up > 0);
        assert_eq!(log.lost(), given_up);
        // The writer closes the pipe soon: then its reader sees the end.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        record(&mut worker_log, 0..1);
        worker_log.flush();
        assert_eq!(log.lost(), given_up + 1);
    }

    #[test]
    fn an_error_at_opening_names_path_and_cause() {
        let error = AccessLog::open(settings(Path::new("/nonexistent/log"))).err().unwrap();
        assert_eq!(
            error.to_string(),
            "access log /nonexistent/log: No such file or directory (os error 2)"
        );
    }
}
