//! The thread that writes the access log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::access_log::Reporter;
use super::log_queue::{Batch, Entry, Queue, Turn};

pub(super) struct Writer {
    queue: Arc<Queue>,
    target: Target,
    reporter: Reporter,
}

impl Writer {
    pub(super) fn new(queue: Arc<Queue>, target: Target, reporter: Reporter) -> Self {
        Self { queue, target, reporter }
    }

    /// Writes until the queue is closed.
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
    }

    fn write(&mut self, batch: Batch) {
        let result = self.target.write(&batch.bytes, &self.queue);
        let lost = result.as_ref().err().map_or(0, |fault| fault.lost);
        match (self.queue.finish(batch, lost), result) {
            (Turn::LossBegins, Err(Fault { error, .. })) => {
                (self.reporter)(&format!("{error}; lines are being lost"));
            }
            (Turn::Recovered(lost), _) => {
                (self.reporter)(&format!("written again; {lost} lines were lost"));
            }
            _ => {}
        }
    }

    /// Opens the file at the path anew; when that fails, the old one stays in use.
    fn reopen(&mut self) {
        match self.target.reopen() {
            Ok(()) => self.target.reopen_failed = false,
            Err(error) if !self.target.reopen_failed => {
                self.target.reopen_failed = true;
                (self.reporter)(&format!(
                    "cannot be opened again: {error}; lines still go to the old file"
                ));
            }
            Err(_) => {}
        }
    }
}

/// Tells the queue that nobody writes any more, even when the thread ends by a panic.
struct EndOnDrop(Arc<Queue>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What is written to.
pub(super) struct Target {
    file: File,
    /// None for standard output, which is not opened anew.
    path: Option<PathBuf>,
    identity: Identity,
    checked: Instant,
    /// Whether the last write ended within a line.
    torn: bool,
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
        Self::new(open_file(&path)?, Some(path))
    }

    fn new(file: File, path: Option<PathBuf>) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        let checked = Instant::now();
        Ok(Self { file, path, identity, checked, torn: false, reopen_failed: false })
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            *self = Self::open(path.clone())?;
        }
        Ok(())
    }

    /// Whether another file or none is at the path now; looks at most once a second.
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

    fn write(&mut self, bytes: &[u8], queue: &Queue) -> Result<(), Fault> {
        let poller = self.file.as_fd();
        let mut wait = || {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            // An error shows again at the write that follows.
            let _ = poll(&mut [PollFd::new(&poller, PollFlags::OUT)], Some(&timeout));
            !queue.is_abandoned()
        };
        write_lines(&mut &self.file, &mut self.torn, bytes, &mut wait)
    }
}

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Opens a log file for appending.
///
/// A FIFO is opened for reading too: Linux then neither waits for a reader nor fails for the lack
/// of one, and a reader can come and go. Without blocking, so that the writer of a full pipe can
/// be told to end.
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

/// A batch that was not written to its end.
#[derive(Debug)]
struct Fault {
    error: io::Error,
    /// Lines of which at least the end is missing.
    lost: u64,
}

/// Writes a batch, after a line feed when the write before it ended within a line.
///
/// `wait` is called when `out` would block; false ends the attempt.
fn write_lines(
    out: &mut impl Write,
    torn: &mut bool,
    bytes: &[u8],
    wait: &mut dyn FnMut() -> bool,
) -> Result<(), Fault> {
    let lines = |bytes| memchr::memchr_iter(b'\n', bytes).count() as u64;
    if *torn {
        write_all(out, b"\n", wait).map_err(|(_, error)| Fault { error, lost: lines(bytes) })?;
        *torn = false;
    }
    write_all(out, bytes, wait).map_err(|(written, error)| {
        *torn = written > 0 && bytes[written - 1] != b'\n';
        Fault { error, lost: lines(&bytes[written..]) }
    })
}

/// Writes all of `bytes`, or gives how many were written and what stopped it.
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

    /// Answers each write from a script: how many bytes to take, or which error to give.
    struct Scripted {
        script: Vec<Result<usize, io::ErrorKind>>,
        written: Vec<u8>,
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let answer =
                if self.script.is_empty() { Ok(bytes.len()) } else { self.script.remove(0) };
            let count = answer?.min(bytes.len());
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
        let mut torn = false;
        write_lines(&mut out, &mut torn, b"one\ntwo\n", &mut || true).unwrap();
        assert_eq!(out.written, b"one\ntwo\n");
    }

    #[test]
    fn after_a_torn_line_the_next_begins_on_a_fresh_one() {
        use io::ErrorKind::StorageFull;
        let script = vec![Ok(6), Err(StorageFull), Err(StorageFull)];
        let mut out = Scripted { script, written: Vec::new() };
        let mut torn = false;
        let fault = write_lines(&mut out, &mut torn, b"one\ntwo\nsix\n", &mut || true).unwrap_err();
        assert_eq!((fault.lost, torn), (2, true));
        let fault = write_lines(&mut out, &mut torn, b"ten\n", &mut || true).unwrap_err();
        assert_eq!((fault.lost, torn), (1, true));
        write_lines(&mut out, &mut torn, b"end\n", &mut || true).unwrap();
        assert_eq!(out.written, b"one\ntw\nend\n");
    }
}
