//! The thread that writes the access log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::access_log::Reporter;
use super::log_queue::{Batch, Entry, Queue, Report};

pub(super) struct Writer {
    queue: Arc<Queue>,
    target: Target,
    reporter: Reporter,
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, target: Target, reporter: Reporter) -> Self {
        Self { queue, target, reporter }
    }

    /// Writes entries until the queue ends.
    pub(super) fn run(mut self) {
        let _end = EndOnDrop(Arc::clone(&self.queue));
        while let Some(entry) = self.queue.next() {
            match entry {
                Entry::Batch(batch) => {
                    if self.target.is_rotated() {
                        self.reopen();
                    }
                    self.write(batch);
                }
                Entry::Reopen => self.reopen(),
            }
        }
        if self.target.complete(&self.queue).is_err() {
            self.queue.add_lost(1);
        }
    }

    fn write(&mut self, batch: Batch) {
        let result = self.target.write(&batch.bytes, &self.queue);
        let lost = result.as_ref().err().map(|fault| fault.lost);
        match (self.queue.finish(batch, lost), result) {
            (Report::LossStarts, Err(Fault { error, .. })) => {
                (self.reporter)(&format!("{error}; lines are being lost"));
            }
            (Report::Recovered(lost), _) => {
                (self.reporter)(&format!("written again; {lost} lines were lost"));
            }
            _ => {}
        }
    }

    /// Opens the file at the path again. Keeps the old one if that fails.
    fn reopen(&mut self) {
        let is_complete = self.target.complete(&self.queue).is_ok();
        match self.target.reopen() {
            Ok(()) => {
                self.target.reopen_failed = false;
                self.queue.add_lost(u64::from(!is_complete));
            }
            Err(error) if !self.target.reopen_failed => {
                self.target.reopen_failed = true;
                (self.reporter)(&format!(
                    "cannot be opened again: {error}; lines are still written to the old file"
                ));
            }
            Err(_) => {}
        }
    }
}

/// Marks the queue as ended when the writing thread ends, even by a panic.
struct EndOnDrop(Arc<Queue>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The file that is written.
pub(super) struct Target {
    file: File,
    /// `None` for standard output, which is not opened again.
    path: Option<PathBuf>,
    identity: Identity,
    checked: Instant,
    /// The rest of a line that the last write has cut. It is written first.
    rest: Vec<u8>,
    reopen_failed: bool,
}

/// Device and inode.
type Identity = (u64, u64);

impl Target {
    pub(super) fn stdout() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Self::new(file, None)
    }

    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = open_file(&path)?;
        mark_cut_line(&file, &path);
        Self::new(file, Some(path))
    }

    fn new(file: File, path: Option<PathBuf>) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        let checked = Instant::now();
        Ok(Self { file, path, identity, checked, rest: Vec::new(), reopen_failed: false })
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            *self = Self::open(path.clone())?;
        }
        Ok(())
    }

    /// Returns `true` if the path is another file now, or missing. Checks at most once a second.
    fn is_rotated(&mut self) -> bool {
        let Some(path) = &self.path else { return false };
        if self.checked.elapsed() < Duration::from_secs(1) {
            return false;
        }
        self.checked = Instant::now();
        match fs::metadata(path) {
            Ok(metadata) => identity(&metadata) != self.identity,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Writes the rest of a cut line.
    fn complete(&mut self, queue: &Queue) -> Result<(), Fault> {
        self.write(b"", queue)
    }

    fn write(&mut self, bytes: &[u8], queue: &Queue) -> Result<(), Fault> {
        let poller = self.file.as_fd();
        let mut wait = || {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            // The next write reports the error again.
            let _ = poll(&mut [PollFd::new(&poller, PollFlags::OUT)], Some(&timeout));
            !queue.is_abandoned()
        };
        write_lines(&mut &self.file, &mut self.rest, bytes, &mut wait)
    }
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Opens a log file for appending.
///
/// A FIFO is opened for reading too, so that Linux neither waits for a reader nor fails without one,
/// and readers can come and go. It is opened non-blocking, so that the writer of a full pipe can be
/// stopped.
fn open_file(path: &PathBuf) -> io::Result<File> {
    let is_fifo = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    OpenOptions::new()
        .read(is_fifo)
        .append(true)
        .create(true)
        .mode(0o640)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32)
        .open(path)
}

/// Terminates the last line of the file if another process has cut it, for example because the disk was full, so that
/// readers do not join it with the next line.
fn mark_cut_line(mut file: &File, path: &Path) {
    // During a binary upgrade the old process may still be writing: then the file grows.
    let cut = cut_at(path);
    if cut.is_some() {
        std::thread::sleep(Duration::from_millis(100));
        if cut_at(path) == cut {
            // If the disk is full, the next write reports it.
            let _ = file.write(b" [cut]\n");
        }
    }
}

/// Returns the length of the file if its last line has no line feed.
fn cut_at(path: &Path) -> Option<u64> {
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let file = File::open(path).ok()?;
    let (length, mut last) = (file.metadata().ok()?.len(), [0]);
    file.read_exact_at(&mut last, length.checked_sub(1)?).ok()?;
    (last != *b"\n").then_some(length)
}

/// A batch that was not written completely.
#[derive(Debug)]
struct Fault {
    error: io::Error,
    /// Number of lines that are missing or incomplete.
    lost: u64,
}

/// Writes the rest of a cut line and then a batch.
///
/// `wait` is called when `out` would block; `false` stops the attempt.
fn write_lines(
    out: &mut impl Write,
    rest: &mut Vec<u8>,
    bytes: &[u8],
    wait: &mut dyn FnMut() -> bool,
) -> Result<(), Fault> {
    let lines = |bytes| memchr::memchr_iter(b'\n', bytes).count() as u64;
    if !rest.is_empty() {
        let written = write_all(out, rest, wait);
        rest.drain(..written.as_ref().map_or_else(|(count, _)| *count, |()| rest.len()));
        written.map_err(|(_, error)| Fault { error, lost: lines(bytes) })?;
    }
    write_all(out, bytes, wait).map_err(|(written, error)| {
        let left = &bytes[written..];
        if written > 0 && bytes[written - 1] != b'\n' {
            let end = memchr::memchr(b'\n', left).map_or(left.len(), |end| end + 1);
            rest.extend_from_slice(&left[..end]);
        }
        Fault { error, lost: lines(&left[rest.len()..]) }
    })
}

/// Writes all of `bytes`.
///
/// # Errors
/// The number of bytes that were written, and the error.
fn write_all(
    out: &mut impl Write,
    bytes: &[u8],
    wait: &mut dyn FnMut() -> bool,
) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait() => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer whose results are scripted: the number of bytes to accept, or an error.
    struct Scripted {
        script: Vec<Result<usize, io::ErrorKind>>,
        written: Vec<u8>,
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let result =
                if self.script.is_empty() { Ok(bytes.len()) } else { self.script.remove(0) };
            let count = result?.min(bytes.len());
            self.written.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn short_and_interrupted_writes_lose_nothing() {
        use io::ErrorKind::{Interrupted, WouldBlock};
        let script = vec![Ok(1), Err(Interrupted), Ok(2), Err(WouldBlock), Ok(1)];
        let mut out = Scripted { script, written: Vec::new() };
        let mut rest = Vec::new();
        write_lines(&mut out, &mut rest, b"one\ntwo\n", &mut || true).unwrap();
        assert_eq!(out.written, b"one\ntwo\n");
    }

    #[test]
    fn a_line_that_was_cut_is_completed_before_the_next() {
        use io::ErrorKind::StorageFull;
        let full = || Err(StorageFull);
        let script = vec![Ok(6), full(), full(), Ok(1), full()];
        let mut out = Scripted { script, written: Vec::new() };
        let mut rest = Vec::new();
        let mut write =
            |out: &mut Scripted, bytes: &[u8]| write_lines(out, &mut rest, bytes, &mut || true);
        let mut lost = |out: &mut Scripted, bytes: &[u8]| write(out, bytes).unwrap_err().lost;
        // The cut line is not lost: its rest is written next.
        assert_eq!(lost(&mut out, b"one\ntwo\nsix\n"), 1);
        assert_eq!(lost(&mut out, b"ten\n"), 1);
        assert_eq!(lost(&mut out, b"six\nten\n"), 2);
        write_lines(&mut out, &mut rest, b"end\n", &mut || true).unwrap();
        assert_eq!(out.written, b"one\ntwo\nend\n");
        assert!(rest.is_empty());
    }

    #[test]
    fn a_line_that_an_earlier_process_has_cut_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for (before, expected) in [("", ""), ("one\n", "one\n"), ("one\ntw", "one\ntw [cut]\n")] {
            fs::write(&path, before).unwrap();
            let target = Target::open(path.clone()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
            drop(target);
        }
    }
}
