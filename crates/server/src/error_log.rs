//! The error log in a file, which can be opened again after a rotation.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The file of the error log. Clones share the file.
#[derive(Debug, Clone)]
pub struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

/// The error log of the process.
static OPEN: OnceLock<LogFile> = OnceLock::new();

impl LogFile {
    /// Opens the file for appending. Creates it with mode 0640 if it is missing. From then on, SIGUSR1 opens it again.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let log = Self { path: path.to_owned(), file: Arc::new(Mutex::new(open(path)?)) };
        Ok(OPEN.get_or_init(|| log).clone())
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the file at the path again, if the error log is a file. If that fails, reports it to the old file and keeps
/// that.
pub(crate) fn reopen() {
    let Some(log) = OPEN.get() else { return };
    match open(&log.path) {
        Ok(file) => *log.lock() = file,
        Err(error) => tracing::error!(
            "error log {}: cannot be opened again: {error}; the old file stays in use",
            log.path.display()
        ),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}
