//! Responses in a directory.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_admission::common::in_steps;
use dunlin_response_cache::key::Key;
use dunlin_response_cache::presented::Presented;
use dunlin_response_cache::record::{self, Now};
use dunlin_response_cache::stored::Stored;

use crate::files::{Files, Lock};
use crate::index::{Index, Place, Places, Removal};

/// After a failure nothing is written for this time.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// After a failure was logged, no other is for this time.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// Responses in the files of a directory, within bounds. The sites of keys are numbers that mean the same in each process.
#[derive(Debug)]
pub struct Disk {
    pub(crate) files: Files,
    bounds: (u64, usize),
    index: Mutex<Index>,
    /// While this process uses the directory. Each write has it until its end.
    lock: Mutex<Option<Arc<Lock>>>,
    is_closed: AtomicBool,
    /// The thread has tried to take the lock.
    has_tried: (Mutex<bool>, Condvar),
    write_failures: Mutex<WriteFailures>,
    /// Counters for metrics.
    pub counters: Counters,
}

/// Failures to write.
#[derive(Debug, Clone, Copy, Default)]
struct WriteFailures {
    /// The last one since the last success.
    failed: Option<Instant>,
    /// The last one that was logged.
    logged: Option<Instant>,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Responses that were read for a request.
    pub read: AtomicU64,
    /// Responses that were written.
    pub written: AtomicU64,
    /// Responses that were not written, as they are used less than those in the directory, or as the disk was too slow.
    pub rejected: AtomicU64,
    /// URLs that made room for others.
    pub evicted: AtomicU64,
    /// Files that were not as they were written.
    pub damaged: AtomicU64,
    /// Responses that could not be written, with the pauses after a failure.
    pub failed: AtomicU64,
}

/// The result of [`Disk::find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The file that may have the response.
    File {
        /// For [`Disk::read`].
        number: u64,
        /// The most memory that its content takes.
        bytes: u64,
    },
    /// There are responses for other values of the selecting fields only.
    OtherVariants,
    /// There is no response for the URL.
    Nothing,
}

/// The result of [`Disk::find_only`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnlyFile {
    /// For [`Disk::read`].
    pub number: u64,
    /// The most memory that its content takes.
    pub bytes: u64,
    /// This process has written it, and knows of no removal since.
    pub is_recent: bool,
}

impl Disk {
    /// Creates the responses in `directory`, of at most `bytes` bytes of files and `entries` URLs, for these sites. None are
    /// there before [`start`](crate::start).
    pub fn new(
        directory: PathBuf,
        (bytes, entries): (u64, usize),
        sites: impl IntoIterator<Item = usize>,
    ) -> Arc<Self> {
        Arc::new(Self {
            files: Files::new(directory),
            bounds: (bytes, entries),
            index: Mutex::new(Index::new(bytes, entries, sites.into_iter().collect())),
            lock: Mutex::default(),
            is_closed: AtomicBool::new(false),
            has_tried: Default::default(),
            write_failures: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        self.files.directory()
    }

    /// Returns the bounds: bytes and URLs.
    pub fn bounds(&self) -> (u64, usize) {
        self.bounds
    }

    /// Waits until [`start`](crate::start) has found out whether another process uses the directory, so that what is written from the
    /// first request on is kept; not for long. Blocks.
    pub fn wait_for_start(&self) {
        /// A configuration that does not come into force does not start its disk.
        const LIMIT: Duration = Duration::from_secs(2);
        let (has_tried, changed) = &self.has_tried;
        let is_waiting = |has_tried: &mut bool| !*has_tried;
        drop(changed.wait_timeout_while(lock(has_tried), LIMIT, is_waiting));
    }

    /// Finds the file of the response for a request, without I/O, and counts the use of its key.
    pub fn find(&self, key: &Key, request: &dyn Presented) -> Found {
        match self.index().find(key, request) {
            _ if self.is_closed() => Found::Nothing,
            Ok(place) => Found::File { number: place.number, bytes: place.bytes },
            Err(true) => Found::OtherVariants,
            Err(false) => Found::Nothing,
        }
    }

    /// Finds the file of a key whose response does not depend on the request, without I/O, and counts the use of the key.
    pub fn find_only(&self, key: &Key) -> Option<OnlyFile> {
        let mut index = self.index();
        let place = index.find_first(key).filter(|_| !self.is_closed())?;
        let is_recent = place.number > self.files.last_before();
        Some(OnlyFile { number: place.number, bytes: place.bytes, is_recent })
    }

    /// Counts a use of a key whose response was found in memory.
    pub fn count(&self, key: &Key) {
        self.index().count(key);
    }

    /// Returns `true` if a file is still the one of a response for that URL.
    pub fn has(&self, key: &Key, number: u64) -> bool {
        self.index().has(key, number)
    }

    /// Reads a response that [`find`](Self::find) has found. If the file is not there or not as it was written, there is no response,
    /// and the file is removed. Does I/O.
    pub fn read(&self, key: &Key, (number, bytes): (u64, u64), now: Now) -> Option<Stored> {
        let is_damaged = match self.files.read(number, bytes, now) {
            Ok(Some((found, stored))) if found == *key => {
                add(&self.counters.read, 1);
                return Some(stored);
            }
            Ok(_) => true,
            // Of a file system that has failed, or one that is not a file.
            Err(error) if is_of_file(&error) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        let mut index = self.index();
        // It may have been replaced or removed since it was found.
        if is_damaged && index.has(key, number) {
            index.forget(key, number);
            drop(index);
            add(&self.counters.damaged, 1);
            self.files.remove(number);
        }
        None
    }

    /// Writes a response, if the admission policy accepts it. It replaces the one for the same values of the selecting
    /// fields. If it is not written, the responses for its URL are removed, which are older. A failure is logged, and
    /// writing is tried again after a while. Does I/O.
    pub fn write(&self, key: &Key, stored: &Stored, now: Now) {
        let removed = self.try_write(key, stored, now).unwrap_or_else(|counter| {
            add(counter, 1);
            self.remove(&Removal::Url(key.clone())).1
        });
        self.remove_files(&removed);
    }

    /// Writes a response. Returns the numbers of the files that are not in use any more, or the counter of the reason why it is not
    /// written.
    fn try_write(&self, key: &Key, stored: &Stored, now: Now) -> Result<Vec<u64>, &AtomicU64> {
        let Counters { written, rejected, failed, evicted, .. } = &self.counters;
        let _lock = lock(&self.lock).clone().ok_or(rejected)?;
        if lock(&self.write_failures).failed.is_some_and(|since| since.elapsed() < RETRY_AFTER) {
            return Err(failed);
        }
        let head = record::encode(key, stored, now).ok_or(rejected)?;
        if !self.index().admits(key) {
            return Err(rejected);
        }
        let number = self.files.next_number();
        self.files.write(number, [&head, &stored.body]).map_err(|error| {
            self.log_failure(&error);
            failed
        })?;
        lock(&self.write_failures).failed = None;
        let length = (head.len() + stored.body.len()) as u64;
        let outcome = self.index().insert(key.clone(), Place::new(number, length, &stored.head));
        add(if outcome.is_stored { written } else { rejected }, 1);
        add(evicted, outcome.evicted as u64);
        Ok(outcome.removed)
    }

    /// Removes responses from the index, without I/O. Returns the URLs, and the numbers of the files for
    /// [`remove_files`](Self::remove_files).
    pub fn remove(&self, removal: &Removal) -> (Vec<Key>, Vec<u64>) {
        let (keys, mut files, has_others) = self.index().begin_removal(removal);
        if !has_others {
            return (keys, files);
        }
        let found = RefCell::new(keys);
        let is_out = |key: &Key, places: &Places, _| {
            let is_out = removal.concerns_any(key, places);
            if is_out {
                found.borrow_mut().push(key.clone());
            }
            is_out
        };
        let removed = in_steps(|step| step(&mut self.index().store), is_out);
        files.extend(removed.iter().flatten().map(|place| place.number));
        (found.into_inner(), files)
    }

    /// Removes the responses of all other sites from the index, without I/O. Returns the numbers of the files for
    /// [`remove_files`](Self::remove_files).
    pub fn retain_sites(&self, sites: impl IntoIterator<Item = usize>) -> Vec<u64> {
        self.index().retain_sites(sites.into_iter().collect())
    }

    /// Adds sites whose responses are kept.
    pub fn add_sites(&self, sites: impl IntoIterator<Item = usize>) {
        self.index().add_sites(sites);
    }

    /// Removes files. Does I/O.
    pub fn remove_files(&self, numbers: &[u64]) {
        // Without the lock they may be those of another process.
        if let Some(_lock) = lock(&self.lock).clone() {
            numbers.iter().for_each(|&number| self.files.remove(number));
        }
    }

    /// Leaves the directory to another process, when what is being written is complete. There are no responses from then on.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        *lock(&self.lock) = None;
        self.index().clear();
    }

    /// Returns the bytes of the files, and URLs.
    pub fn usage(&self) -> (u64, usize) {
        self.index().usage()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// The lock was tried.
    pub(crate) fn set_tried(&self) {
        *lock(&self.has_tried.0) = true;
        self.has_tried.1.notify_all();
    }

    /// Has this process use the directory.
    pub(crate) fn open(&self, directory_lock: Lock) {
        let mut place = lock(&self.lock);
        if !self.is_closed() {
            *place = Some(Arc::new(directory_lock));
        }
    }

    /// Logs a failure, unless one was logged not long ago: a disk that is nearly full takes some responses and not others.
    pub(crate) fn log_failure(&self, error: &io::Error) {
        let mut write_failures = lock(&self.write_failures);
        let now = Instant::now();
        write_failures.failed = Some(now);
        if write_failures.logged.is_none_or(|logged| now.duration_since(logged) > LOG_INTERVAL) {
            write_failures.logged = Some(now);
            tracing::error!(
                "cache directory {}: {error}; content is cached in memory only until it can be written again",
                self.directory().display()
            );
        }
    }
}

/// Returns `true` if an error is one of the file, and not of the process or the system.
fn is_of_file(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let of_file = [Errno::IO, Errno::LOOP, Errno::ISDIR, Errno::NXIO];
    error.kind() == ErrorKind::InvalidData
        || error.kind() == ErrorKind::UnexpectedEof
        || of_file.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
