//! The files of a directory: their names, and complete reads and writes.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use dunlin_response_cache::key::Key;
use dunlin_response_cache::record::{self, Now, PREAMBLE, Preamble, RecordHead};
use dunlin_response_cache::stored::Stored;
use rustix::fs::{FlockOperation, OFlags, flock};

/// The name of the file whose lock belongs to the process that uses the directory.
const LOCK: &str = "lock";
/// Follows the numbers of files that are complete.
const COMPLETE: &str = ".response";
/// Follows the numbers of files that are being written.
const INCOMPLETE: &str = ".new";
/// Bytes that are read of a file to know its head, which is seldom larger.
const FIRST: usize = 4096;

/// The files of a directory.
#[derive(Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    /// The number of the file that was made last.
    last: AtomicU64,
    /// No file of this process has this number or a smaller one.
    last_before: AtomicU64,
}

/// The lock of a directory, which dropping it releases.
#[derive(Debug)]
pub(crate) struct Lock(
    #[expect(dead_code, reason = "it is the descriptor that has the lock")] File,
);

impl Files {
    pub(crate) fn new(directory: PathBuf) -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let last = since_1970.map_or(0, |time| time.as_nanos() as u64);
        Self { directory, last: AtomicU64::new(last), last_before: AtomicU64::new(last) }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// No file of this process has this number or a smaller one.
    pub(crate) fn last_before(&self) -> u64 {
        self.last_before.load(Ordering::Relaxed)
    }

    /// Returns a number that is larger than that of each earlier file, also of those that [`list`](Self::list) has found.
    pub(crate) fn next_number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes the lock of the directory; `None` while another process has it. Blocks shortly.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        make_directory(&self.directory)?;
        let path = self.directory.join(LOCK);
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a file, which is complete or not there. Blocks.
    pub(crate) fn write(&self, number: u64, parts: [&[u8]; 2]) -> io::Result<()> {
        let aside = self.path(number, INCOMPLETE);
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside);
        let file = match create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                aside.parent().map_or(Ok(()), make_directory)?;
                create()
            }
            other => other,
        };
        let written =
            file.and_then(|mut file| parts.iter().try_for_each(|part| file.write_all(part)));
        let done = written.and_then(|()| std::fs::rename(&aside, self.path(number, COMPLETE)));
        if done.is_err() {
            // It may not be there.
            let _ = std::fs::remove_file(&aside);
        }
        done
    }

    /// Reads a response; `None` if the file is not as it was written. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read, or is larger than `max` bytes.
    pub(crate) fn read(
        &self,
        number: u64,
        max: u64,
        now: Now,
    ) -> io::Result<Option<(Key, Stored)>> {
        let (mut file, length) = open(&self.path(number, COMPLETE))?;
        if length > max {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(length as usize);
        Read::by_ref(&mut file).take(length).read_to_end(&mut bytes)?;
        Ok(record::decode(&Bytes::from(bytes), now))
    }

    /// Reads the head of a file, and the length of the file; `None` if it is not as it was written. Blocks.
    pub(crate) fn read_head(&self, number: u64, now: Now) -> io::Result<Option<(RecordHead, u64)>> {
        let (file, length) = open(&self.path(number, COMPLETE))?;
        let mut first = vec![0; FIRST.min(length as usize)];
        file.read_exact_at(&mut first, 0)?;
        let Some(preamble) = Preamble::decode(&first) else { return Ok(None) };
        let end = PREAMBLE + preamble.head_len();
        if preamble.record_len() != Some(length) {
            return Ok(None);
        }
        let had = first.len();
        if had < end {
            first.resize(end, 0);
            if let Some(rest) = first.get_mut(had..) {
                file.read_exact_at(rest, had as u64)?;
            }
        }
        let head = first.get(PREAMBLE..end).and_then(|head| preamble.decode_head(head, now));
        Ok(head.map(|head| (head, length)))
    }

    /// Removes a file. Blocks.
    pub(crate) fn remove(&self, number: u64) {
        // If it is not there, or cannot be removed, the checksums and the next start decide.
        let _ = std::fs::remove_file(self.path(number, COMPLETE));
    }

    /// Returns the numbers of all complete files; those of later files are larger. Removes files that were not completed.
    /// Blocks.
    pub(crate) fn list(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for folder in 0..=u8::MAX {
            let folder = self.directory.join(format!("{folder:02x}"));
            let entries = match std::fs::read_dir(&folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other?,
            };
            for entry in entries {
                let name = entry?.file_name();
                let Some(name) = name.to_str() else { continue };
                if let Some(number) = number_of(name, COMPLETE) {
                    numbers.push(number);
                } else if number_of(name, INCOMPLETE).is_some() {
                    let _ = std::fs::remove_file(folder.join(name));
                }
            }
        }
        let largest = numbers.iter().max().copied().unwrap_or(0);
        self.last.fetch_max(largest, Ordering::Relaxed);
        self.last_before.fetch_max(largest, Ordering::Relaxed);
        Ok(numbers)
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.directory.join(format!("{:02x}/{number:016x}{extension}", number as u8))
    }
}

/// Opens a regular file, and returns its length.
fn open(path: &Path) -> io::Result<(File, u64)> {
    // A named pipe does not block it.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata.len())),
        false => Err(ErrorKind::InvalidData.into()),
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns the number in the name of a file.
fn number_of(name: &str, extension: &str) -> Option<u64> {
    let digits = name.strip_suffix(extension)?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_number = digits.len() == 16 && digits.bytes().all(is_digit);
    is_number.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_responses_have_numbers() {
        assert_eq!(number_of("00000000000000ff.response", COMPLETE), Some(255));
        for name in ["ff.response", "00000000000000FF.response", "+0000000000000ff.response", "a"] {
            assert_eq!(number_of(name, COMPLETE), None, "{name}");
        }
        assert_eq!(number_of("00000000000000ff.new", COMPLETE), None);
    }

    #[test]
    fn a_directory_has_one_lock() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (Files::new(directory.path().into()), Files::new(directory.path().into()));
        let lock = one.lock().unwrap();
        assert!(lock.is_some() && two.lock().unwrap().is_none());
        drop(lock);
        assert!(two.lock().unwrap().is_some());
    }

    #[test]
    fn incomplete_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::new(directory.path().into());
        files.write(0x1234, [b"a", b"b"]).unwrap();
        let folder = directory.path().join("34");
        for name in ["0000000000000034.new", "other"] {
            std::fs::write(folder.join(name), "x").unwrap();
        }
        assert_eq!(files.list().unwrap(), [0x1234]);
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["0000000000001234.response", "other"]);
    }
}
