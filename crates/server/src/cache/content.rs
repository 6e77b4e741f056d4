//! Where the bytes of a representation are.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// The bytes of one representation.
#[derive(Debug, Clone)]
pub(crate) enum StoredContent {
    Memory(Bytes),
    File(Arc<ContentFile>),
}

/// From this size on, sending from a descriptor (no copy into the socket) costs less than writing
/// from memory: 64 KB took 16.3 µs against 20.8, 32 KB 11.7 against 12.5, 16 KB 11.7 against 11.2.
pub(crate) const DESCRIPTOR_FROM: usize = 32 * 1024;

impl StoredContent {
    /// Keeps `content` in memory, without waiting for a disk.
    pub(crate) fn at_once(content: Vec<u8>) -> Self {
        Self::in_descriptor(content, |content| ContentFile::sealed(content, false))
    }

    /// Keeps `content` where it can be sent from at the least cost. That may wait for a disk.
    pub(crate) fn lasting(content: Vec<u8>) -> Self {
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

    /// Bytes of memory and number of descriptors that keeping this takes.
    pub(crate) fn cost(&self) -> (usize, usize) {
        match self {
            Self::Memory(bytes) => (bytes.len(), 0),
            Self::File(file) if file.is_live() => (0, 1),
            Self::File(file) => (file.length as usize, 1),
        }
    }
}

/// An open file that responses are sent from.
#[derive(Debug)]
pub(crate) struct ContentFile {
    fd: OwnedFd,
    pub(crate) length: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The file that was asked for.
    Live {
        /// What it was when it was opened, or when it last lost a name.
        metadata: Mutex<FileMetadata>,
        /// Nobody writes to it in place, as the configuration says.
        direct: bool,
    },
    /// A copy in memory that nobody can change.
    Sealed {
        /// Nothing better can be had.
        lasting: bool,
    },
    /// A copy on disk that has no name.
    Unlinked,
}

impl ContentFile {
    /// A copy in memory that nobody can change, not even this process: a response that is sent
    /// from it is of one version, however slow the client.
    fn sealed(content: &[u8], lasting: bool) -> io::Result<Self> {
        let fd = memfd_create("dunlin-cache", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(fd);
        file.write_all(content)?;
        let seals = SealFlags::SEAL | SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        fcntl_add_seals(&file, seals)?;
        let length = content.len() as u64;
        Ok(Self { fd: file.into(), length, kind: Kind::Sealed { lasting } })
    }

    /// A copy in the cache of the disk. Disk file systems keep it in large pages, of which a
    /// socket takes fewer: sending 4 MB cost 298 µs against 404 from a sealed copy, 64 KB 5.2
    /// against 6.7.
    fn unlinked(content: &[u8]) -> io::Result<Self> {
        let mut file = crate::temp_files::file()?;
        file.write_all(content)?;
        Ok(Self::private(file, content.len() as u64))
    }

    /// A file on disk, opened for reading.
    pub(crate) fn live(fd: OwnedFd, metadata: FileMetadata, direct: bool) -> Self {
        let length = metadata.size;
        Self { fd, length, kind: Kind::Live { metadata: Mutex::new(metadata), direct } }
    }

    /// A file that only this process can reach.
    pub(crate) fn private(file: File, length: u64) -> Self {
        Self { fd: file.into(), length, kind: Kind::Unlinked }
    }

    /// Whether the socket may be given the file's own pages.
    pub(crate) fn may_be_sent_directly(&self) -> bool {
        !matches!(self.kind, Kind::Live { direct: false, .. })
    }

    /// Whether the file can change while it is sent.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.kind, Kind::Live { .. })
    }

    /// Whether its pages may be elsewhere than in memory.
    pub(crate) fn may_be_cold(&self) -> bool {
        !matches!(self.kind, Kind::Sealed { .. })
    }

    /// Whether a [`StoredContent::lasting`] copy would be sent at less cost.
    pub(crate) fn can_be_bettered(&self) -> bool {
        matches!(self.kind, Kind::Live { .. } | Kind::Sealed { lasting: false })
    }

    /// Reads what is in memory of it, from `offset` on.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when a disk would have to be waited for.
    pub(crate) fn read_now(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut slices = [io::IoSliceMut::new(buffer)];
        match preadv2(self, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            // File systems that cannot tell are those that live in memory.
            Err(Errno::OPNOTSUPP) => rustix::io::pread(self, buffer, offset),
            result => result,
        }
    }

    /// Whether the content is still what it was when the file was opened. A file that was replaced or deleted keeps its
    /// content for those who have it open.
    pub(crate) fn is_unchanged(&self) -> bool {
        let Kind::Live { metadata, .. } = &self.kind else { return true };
        let Ok(now) = FileMetadata::of(&self.fd) else { return false };
        let mut known = metadata.lock().unwrap_or_else(PoisonError::into_inner);
        if known.same_content(&now) {
            return true;
        }
        // The removal of a name sets the time of change as well. What happens from now on is compared with that time.
        let has_lost_a_name = now.links < known.links && known.same_but_for_the_change_time(&now);
        if has_lost_a_name {
            *known = now;
        }
        has_lost_a_name
    }
}

impl AsFd for ContentFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What identifies one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileMetadata {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// The time of modification (mtime), which programs can set: seconds since 1970.
    pub(crate) modified: i64,
    pub(crate) modified_nanos: u32,
    /// The time of the last change of content or metadata (ctime), which the kernel sets: seconds since 1970.
    pub(crate) changed: i64,
    pub(crate) changed_nanos: u32,
    pub(crate) links: u64,
    pub(crate) mode: u32,
}

impl FileMetadata {
    pub(crate) fn of(fd: impl AsFd) -> io::Result<Self> {
        let stat = fstat(fd)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size.max(0) as u64,
            modified: stat.st_mtime,
            modified_nanos: stat.st_mtime_nsec as u32,
            changed: stat.st_ctime,
            changed_nanos: stat.st_ctime_nsec as u32,
            links: stat.st_nlink,
            mode: stat.st_mode,
        })
    }

    /// Whether both are the same content: the same file, size and times.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        (self.changed, self.changed_nanos) == (other.changed, other.changed_nanos)
            && self.same_but_for_the_change_time(other)
    }

    fn same_but_for_the_change_time(&self, other: &Self) -> bool {
        (self.device, self.inode, self.size, self.modified, self.modified_nanos)
            == (other.device, other.inode, other.size, other.modified, other.modified_nanos)
    }

    /// Whether both are the same content of a file of the same kind.
    pub(crate) fn same_file(&self, other: &Self) -> bool {
        self.same_content(other) && self.file_type() == other.file_type()
    }

    pub(crate) fn file_type(&self) -> rustix::fs::FileType {
        rustix::fs::FileType::from_raw_mode(self.mode)
    }
}
