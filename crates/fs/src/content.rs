//! Storage for the bytes of a representation: memory, or a file that responses are sent from.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::file_system::FileSystem;
use super::metadata::FileMetadata;
use super::writes::Writes;
use dunlin_net::temp_files;

/// The bytes of one representation.
#[derive(Debug, Clone)]
pub enum StoredContent {
    /// In memory.
    Memory(Bytes),
    /// In a file.
    File(Arc<ContentFile>),
}

/// Size from which `sendfile` from a descriptor (no copy into the socket) is cheaper than a write from memory: 64 KB
/// took 16.3 µs against 20.8, 32 KB 11.7 against 12.5, 16 KB 11.7 against 11.2.
pub const DESCRIPTOR_FROM: usize = 32 * 1024;

/// Whether files that are opened from now on keep a copy in memory.
static KEEPS_COPIES: AtomicBool = AtomicBool::new(true);

/// Sets whether files that are opened from now on keep a copy in memory for responses that read their bytes. Without TLS it would
/// not pay.
pub fn set_memory_copies(enabled: bool) {
    KEEPS_COPIES.store(enabled, Ordering::Relaxed);
}

/// Largest content of which a file also keeps a copy in memory, once a response needs the bytes: encryption and frames read
/// them, where `sendfile` does not.
const IN_MEMORY_TO: u64 = 256 * 1024;

impl StoredContent {
    /// Stores `content` in memory. Never blocks on a disk.
    pub fn in_memory(content: Vec<u8>) -> Self {
        Self::in_descriptor(content, |content| ContentFile::sealed(content, false))
    }

    /// Stores `content` where sending it is cheapest. May block on a disk.
    pub fn on_disk(content: Vec<u8>) -> Self {
        Self::in_descriptor(content, |content| {
            ContentFile::unlinked(content).or_else(|_| ContentFile::sealed(content, true))
        })
    }

    fn in_descriptor(
        content: Vec<u8>,
        keep: impl FnOnce(&[u8]) -> io::Result<ContentFile>,
    ) -> Self {
        if content.len() >= DESCRIPTOR_FROM
            && let Ok(file) = keep(&content)
        {
            return Self::File(Arc::new(file));
        }
        Self::Memory(Bytes::from(content))
    }

    /// Returns the bytes of memory and number of descriptors that this occupies.
    pub fn cost(&self) -> (usize, usize) {
        match self {
            Self::Memory(bytes) => (bytes.len(), 0),
            Self::File(file) if file.is_live() => (0, 1),
            Self::File(file) if file.may_be_copied => (file.length as usize * 2, 1),
            Self::File(file) => (file.length as usize, 1),
        }
    }
}

/// An open file from which responses are sent.
#[derive(Debug)]
pub struct ContentFile {
    fd: OwnedFd,
    /// Length in bytes.
    pub length: u64,
    kind: Kind,
    /// The content may also be in memory, since no process changes it.
    may_be_copied: bool,
    memory: OnceLock<Bytes>,
}

/// The requested file itself.
#[derive(Debug)]
struct Live {
    /// Metadata when it was opened, or when a link to it was last removed.
    metadata: Mutex<FileMetadata>,
    /// The configuration promises that no program writes to it in place.
    direct: bool,
    /// The evidence that the content is intact, from the first check on; `None` if it had changed by then.
    guard: OnceLock<Option<Guard>>,
}

/// The evidence that the content of a file that may have been written to is intact.
#[derive(Debug)]
struct Guard {
    /// Writes to it; `None` where they cannot be watched.
    writes: Option<Writes>,
    samples: Vec<Sample>,
    state: Mutex<GuardState>,
}

#[derive(Debug)]
struct GuardState {
    /// Metadata when the file was opened, or when it had last grown.
    metadata: FileMetadata,
    /// Why the content is not intact.
    broken: Option<Broken>,
    /// Metadata with which a write may be under way.
    unsettled: Option<FileMetadata>,
    /// Metadata with which none is.
    settled: Option<FileMetadata>,
}

/// The result of [`ContentFile::check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The content is that of the time when the file was opened.
    Intact,
    /// A write may be under way. Check again after [`ContentFile::settle`], which may block.
    Unsettled,
    /// The content is another one, or cannot be read.
    Broken(Broken),
}

/// A few bytes of a file as they were when it was opened.
#[derive(Debug)]
struct Sample {
    offset: u64,
    bytes: [u8; SAMPLE],
}

/// Why a file cannot be sent to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// It is shorter than it was.
    Shortened,
    /// It was written to, and not only at its end.
    Overwritten,
    /// It cannot be read.
    Unreadable,
}

/// Length of a sample.
const SAMPLE: usize = 64;
/// Number of samples of a file.
const SAMPLES: u64 = 8;

#[derive(Debug)]
enum Kind {
    /// The requested file itself.
    Live(Box<Live>),
    /// An immutable copy in memory.
    Sealed {
        /// An unlinked file could not be created: do not try again.
        is_final: bool,
    },
    /// An unlinked copy on disk.
    Unlinked,
}

impl ContentFile {
    /// Returns a sealed copy in memory, which no process can change: a response that is sent from it is consistent, however
    /// slow the client.
    fn sealed(content: &[u8], is_final: bool) -> io::Result<Self> {
        let fd = memfd_create("dunlin-cache", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(fd);
        file.write_all(content)?;
        let seals = SealFlags::SEAL | SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        fcntl_add_seals(&file, seals)?;
        let length = content.len() as u64;
        Ok(Self::new(file.into(), length, Kind::Sealed { is_final }))
    }

    /// Returns an unlinked copy on a disk file system. The page cache keeps it in large pages, of which a socket takes fewer:
    /// sending 4 MB cost 298 µs against 404 from a sealed copy, 64 KB 5.2 against 6.7.
    fn unlinked(content: &[u8]) -> io::Result<Self> {
        let mut file = temp_files::file()?;
        file.write_all(content)?;
        Ok(Self::private(file, content.len() as u64))
    }

    /// Returns a file on disk, opened for reading.
    pub fn live(fd: OwnedFd, metadata: FileMetadata, direct: bool) -> Self {
        let length = metadata.size;
        let metadata = Mutex::new(metadata);
        let live = Live { metadata, direct, guard: OnceLock::new() };
        Self::new(fd, length, Kind::Live(Box::new(live)))
    }

    /// Returns a file to which only this process has access.
    pub fn private(file: File, length: u64) -> Self {
        Self::new(file.into(), length, Kind::Unlinked)
    }

    fn new(fd: OwnedFd, length: u64, kind: Kind) -> Self {
        let may_be_copied = !matches!(kind, Kind::Live(_))
            && length <= IN_MEMORY_TO
            && KEEPS_COPIES.load(Ordering::Relaxed);
        Self { fd, length, kind, may_be_copied, memory: OnceLock::new() }
    }

    /// Returns the content in memory, if it is of moderate length and cannot change. The first call copies it from the page
    /// cache; `None` as long as that does not have all of it.
    pub fn in_memory(&self) -> Option<&Bytes> {
        if self.may_be_copied && self.memory.get().is_none() {
            let mut content = vec![0; self.length as usize];
            if self.read_now(&mut content, 0) == Ok(content.len()) {
                let _ = self.memory.set(content.into());
            }
        }
        self.memory.get()
    }

    /// Returns `true` if `sendfile` may pass the file's pages to the socket.
    #[inline]
    pub fn may_be_sent_directly(&self) -> bool {
        !matches!(&self.kind, Kind::Live(live) if !live.direct)
    }

    /// Returns `true` if another process can change the file while it is sent.
    #[inline]
    pub fn is_live(&self) -> bool {
        matches!(self.kind, Kind::Live(_))
    }

    /// Returns `true` if its pages may be absent from memory.
    #[inline]
    pub fn may_be_cold(&self) -> bool {
        !matches!(self.kind, Kind::Sealed { .. })
    }

    /// Returns `true` if a copy made by [`StoredContent::on_disk`] is cheaper to send.
    #[inline]
    pub fn is_worth_copying(&self) -> bool {
        matches!(self.kind, Kind::Live(_) | Kind::Sealed { is_final: false })
    }

    /// Reads from `offset` what the page cache has.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when the read would block on a disk.
    pub fn read_now(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut slices = [io::IoSliceMut::new(buffer)];
        match preadv2(self, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            // Only file systems in memory do not support RWF_NOWAIT.
            Err(Errno::OPNOTSUPP) => rustix::io::pread(self, buffer, offset),
            result => result,
        }
    }

    /// Returns `true` if the content is unchanged since the file was opened. A file that was replaced or deleted keeps its
    /// content as long as it is open.
    pub fn is_unchanged(&self) -> bool {
        let Kind::Live(live) = &self.kind else { return true };
        let metadata = &live.metadata;
        let Ok(now) = FileMetadata::of(&self.fd) else { return false };
        let mut known = metadata.lock().unwrap_or_else(PoisonError::into_inner);
        if known.same_content(&now) {
            return true;
        }
        // The removal of a link sets the change time as well. Later calls compare with the new time.
        let has_lost_a_link = now.links < known.links && known.is_same_but_for_change_time(&now);
        if has_lost_a_link {
            *known = now;
        }
        has_lost_a_link
    }
}

impl ContentFile {
    /// Checks that the first `length` bytes are those of the time when the file was opened, so that a response that has begun can
    /// go on. Unlike [`Self::is_unchanged`], it permits changes of metadata and bytes that are appended:
    ///
    /// - without a write, the content is the same, whatever has changed its times;
    /// - after writes, the file has to be longer than before, and its samples have to be the same.
    ///
    /// A file for which the configuration promises that no program writes to it in place only has to be long enough.
    pub fn check(&self) -> Check {
        let Kind::Live(live) = &self.kind else { return Check::Intact };
        let Ok(now) = FileMetadata::of(&self.fd) else { return Check::Broken(Broken::Unreadable) };
        if live.direct {
            let is_long_enough = now.size >= self.length;
            return if is_long_enough { Check::Intact } else { Check::Broken(Broken::Shortened) };
        }
        match live.guard.get_or_init(|| self.guard(live)) {
            Some(guard) => guard.check(self, &now),
            None if self.is_unchanged() => Check::Intact,
            None => Check::Broken(Broken::Overwritten),
        }
    }

    /// Waits for the end of a write that may be under way, if [`Self::check`] has found that.
    pub fn settle(&self) {
        let Kind::Live(live) = &self.kind else { return };
        let Some(Some(guard)) = live.guard.get() else { return };
        let Some(unsettled) = guard.lock().unsettled.take() else { return };
        // It waits for the lock of the inode, which a write has until its end. Reads are at offsets of their own.
        let _ = rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::Data(0));
        std::thread::yield_now();
        if FileMetadata::of(&self.fd).is_ok_and(|now| now.same_content(&unsettled)) {
            guard.lock().settled = Some(unsettled);
        }
    }

    /// Begins to watch a file, if it has not changed since it was opened.
    fn guard(&self, live: &Live) -> Option<Guard> {
        let metadata = *live.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        // A write by another machine is not reported.
        let is_local = FileSystem::of(&self.fd).notifies;
        let writes = if is_local { Writes::watch(&self.fd) } else { None };
        let samples = self.samples();
        let state = GuardState { metadata, broken: None, unsettled: None, settled: None };
        let state = Mutex::new(state);
        let is_same = FileMetadata::of(&self.fd).is_ok_and(|now| now.same_content(&metadata));
        is_same.then_some(Guard { writes, samples, state })
    }

    /// Samples of the whole content, as far as the page cache has them.
    fn samples(&self) -> Vec<Sample> {
        let Some(last) = self.length.checked_sub(SAMPLE as u64) else { return Vec::new() };
        let offsets = (0..SAMPLES).map(|number| last / SAMPLES * number).chain([last]);
        let sample = |offset| {
            let mut bytes = [0; SAMPLE];
            let is_whole = self.read_now(&mut bytes, offset) == Ok(SAMPLE);
            is_whole.then_some(Sample { offset, bytes })
        };
        offsets.filter_map(sample).collect()
    }

    /// Returns the path of the file, for the log.
    pub fn path(&self) -> PathBuf {
        std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd())).unwrap_or_default()
    }
}

impl Guard {
    fn check(&self, file: &ContentFile, now: &FileMetadata) -> Check {
        let mut state = self.lock();
        if let Some(broken) = state.broken {
            return Check::Broken(broken);
        }
        let known = state.metadata;
        if known.same_content(now) {
            // The writes by which it has grown may be reported later than its size.
            if known.size > file.length {
                self.has_new_writes();
            }
            return Check::Intact;
        }
        let is_written = self.has_new_writes();
        let broken = if !known.may_have_grown(now) {
            Broken::Shortened
        } else if self.writes.is_none() && file.is_unchanged() {
            return Check::Intact;
        } else if !is_written {
            // A write sets the time of modification at its beginning, and is reported at its end.
            let is_settled = known.is_same_but_for_change_time(now)
                || state.settled.is_some_and(|settled| settled.same_content(now));
            if !is_settled {
                state.unsettled = Some(*now);
            }
            return if is_settled { Check::Intact } else { Check::Unsettled };
        } else if now.size > known.size && self.has_samples(file) {
            state.metadata = *now;
            return Check::Intact;
        } else {
            Broken::Overwritten
        };
        state.broken = Some(broken);
        Check::Broken(broken)
    }

    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_new_writes(&self) -> bool {
        self.writes.as_ref().is_none_or(Writes::has_new)
    }

    /// Returns `true` if the samples are in the file, as far as it is in memory.
    fn has_samples(&self, file: &ContentFile) -> bool {
        let mut found = 0;
        for sample in &self.samples {
            let mut bytes = [0; SAMPLE];
            match file.read_now(&mut bytes, sample.offset) {
                Ok(SAMPLE) if bytes == sample.bytes => found += 1,
                Err(Errno::AGAIN) => {}
                _ => return false,
            }
        }
        found > 1
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shortened => "the file has become shorter",
            Self::Overwritten => "the file was overwritten",
            Self::Unreadable => "the file cannot be read",
        })
    }
}

impl AsFd for ContentFile {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A part of a body.
#[derive(Debug, Clone)]
pub enum Piece {
    /// Bytes in memory.
    Memory(Bytes),
    /// A byte range of an open file.
    File(Arc<ContentFile>, Range<u64>),
}

impl Piece {
    /// Creates the byte range `range` of stored content.
    #[inline]
    pub fn of(stored: &StoredContent, range: Range<u64>) -> Self {
        match stored {
            StoredContent::Memory(bytes) => {
                Self::Memory(bytes.slice(range.start as usize..range.end as usize))
            }
            StoredContent::File(file) => Self::File(Arc::clone(file), range),
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.end - range.start,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, FileTimes, OpenOptions, Permissions};
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::*;

    const LENGTH: usize = 1 << 20;

    fn content(seed: usize) -> Vec<u8> {
        (0..LENGTH).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
    }

    #[test]
    fn private_copies_of_moderate_length_are_in_memory_as_well() {
        let bytes = content(0);
        for length in [DESCRIPTOR_FROM, IN_MEMORY_TO as usize] {
            for stored in [StoredContent::in_memory, StoredContent::on_disk] {
                let stored = stored(bytes[..length].to_vec());
                // Both copies count from the start.
                assert_eq!(stored.cost(), (2 * length, 1));
                let StoredContent::File(file) = stored else { panic!() };
                assert!(file.in_memory().unwrap() == &bytes[..length]);
            }
        }
        let stored = StoredContent::on_disk(bytes[..=IN_MEMORY_TO as usize].to_vec());
        assert_eq!(stored.cost(), (IN_MEMORY_TO as usize + 1, 1));
        let StoredContent::File(file) = stored else { panic!() };
        assert!(file.in_memory().is_none());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, &bytes[..DESCRIPTOR_FROM]).unwrap();
        let file = File::open(&path).unwrap();
        let metadata = FileMetadata::of(&file).unwrap();
        let live = ContentFile::live(file.into(), metadata, true);
        assert!(live.in_memory().is_none(), "a file that others can change");
    }

    /// Opens a file that is being sent, and changes it.
    fn after(direct: bool, change: impl FnOnce(&Path)) -> Check {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, content(0)).unwrap();
        let file = File::open(&path).unwrap();
        let metadata = FileMetadata::of(&file).unwrap();
        let content = ContentFile::live(file.into(), metadata, direct);
        assert_eq!(content.check(), Check::Intact);
        // Until every change has another time.
        std::thread::sleep(Duration::from_millis(20));
        change(&path);
        let check = || {
            content.settle();
            content.check()
        };
        check();
        let first = check();
        assert_eq!(check(), first, "the result lasts");
        first
    }

    fn append(path: &Path) {
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
    }

    fn touch(path: &Path) {
        let file = OpenOptions::new().append(true).open(path).unwrap();
        // inotify reports a change of this time alone as a write.
        let now = SystemTime::now();
        file.set_times(FileTimes::new().set_accessed(now).set_modified(now)).unwrap();
    }

    #[test]
    fn bytes_that_were_announced_are_intact_after_an_append_and_changes_of_metadata() {
        for direct in [false, true] {
            assert_eq!(after(direct, append), Check::Intact);
            assert_eq!(after(direct, touch), Check::Intact);
            let mode = |path: &Path| {
                fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
            };
            assert_eq!(after(direct, mode), Check::Intact);
            let link = |path: &Path| fs::hard_link(path, path.with_extension("link")).unwrap();
            assert_eq!(after(direct, link), Check::Intact);
            let rename = |path: &Path| fs::rename(path, path.with_extension("new")).unwrap();
            assert_eq!(after(direct, rename), Check::Intact);
            assert_eq!(after(direct, |path| fs::remove_file(path).unwrap()), Check::Intact);
            let all = |path: &Path| {
                append(path);
                touch(path);
                mode(path);
                append(path);
                link(path);
            };
            assert_eq!(after(direct, all), Check::Intact);
        }
    }

    #[test]
    fn an_overwritten_or_shortened_file_is_not_intact() {
        let open = |path: &Path| OpenOptions::new().write(true).open(path).unwrap();
        let overwrite = |path: &Path| open(path).write_all_at(b"other", 700_000).unwrap();
        assert_eq!(after(false, overwrite), Check::Broken(Broken::Overwritten));
        let same_times = |path: &Path| {
            let modified = fs::metadata(path).unwrap().modified().unwrap();
            overwrite(path);
            open(path).set_modified(modified).unwrap();
        };
        assert_eq!(after(false, same_times), Check::Broken(Broken::Overwritten));
        let rewrite = |path: &Path| fs::write(path, content(1)).unwrap();
        assert_eq!(after(false, rewrite), Check::Broken(Broken::Overwritten));
        let rewrite_longer = |path: &Path| {
            fs::write(path, [content(1), content(2)].concat()).unwrap();
        };
        assert_eq!(after(false, rewrite_longer), Check::Broken(Broken::Overwritten));
        for direct in [false, true] {
            let shorten = |path: &Path| open(path).set_len(LENGTH as u64 - 1).unwrap();
            assert_eq!(after(direct, shorten), Check::Broken(Broken::Shortened));
        }
    }

    #[test]
    fn a_file_that_has_grown_is_another_one_for_the_next_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, content(0)).unwrap();
        let file = File::open(&path).unwrap();
        let metadata = FileMetadata::of(&file).unwrap();
        let content = ContentFile::live(file.into(), metadata, false);
        assert!(content.is_unchanged());
        std::thread::sleep(Duration::from_millis(20));
        append(&path);
        assert!(!content.is_unchanged());
    }
}
