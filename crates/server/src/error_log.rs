//! Where the error log goes when that is a file: one that can be opened anew after a rotation.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The error log's file. Clones are the same file.
#[derive(Debug, Clone)]
pub struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

/// The process has one error log.
static OPEN: OnceLock<LogFile> = OnceLock::new();

impl LogFile {
    /// Opens the file to be written at its end; it is made with mode 0640 where it is missing.
    /// SIGUSR1 opens it anew from then on.
    ///
    /// # Errors
    /// When it cannot be opened.
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

/// Opens the file at the path anew, when there is one. What cannot be opened is told to the old
/// one, which goes on.
pub(crate) fn reopen() {
    let Some(log) = OPEN.get() else { return };
    match open(&log.path) {
        Ok(file) => *log.lock() = file,
        Err(error) => tracing::error!("error log {}: {error}", log.path.display()),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}
