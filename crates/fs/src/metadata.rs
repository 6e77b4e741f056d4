//! Metadata of files.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Stat, fstat};

/// The fields of `stat` that identify the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMetadata {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// The time of modification (mtime), which programs can set: seconds since 1970.
    pub modified: i64,
    /// Nanoseconds of `modified`.
    pub modified_nanos: u32,
    /// The time of the last change of content or metadata (ctime), which the kernel sets: seconds since 1970.
    pub changed: i64,
    /// Nanoseconds of `changed`.
    pub changed_nanos: u32,
    /// Number of links.
    pub links: u64,
    /// Type and permissions.
    pub mode: u32,
}

impl FileMetadata {
    /// Returns the metadata of an open file.
    ///
    /// # Errors
    /// When `fstat` fails.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(&fstat(fd)?))
    }

    /// Returns `true` if both describe the same content: same file, size and times.
    pub fn same_content(&self, other: &Self) -> bool {
        (self.changed, self.changed_nanos) == (other.changed, other.changed_nanos)
            && self.is_same_but_for_change_time(other)
    }

    /// Returns `true` if both describe the same file with the same size and modification time.
    pub fn is_same_but_for_change_time(&self, other: &Self) -> bool {
        (self.device, self.inode, self.size, self.modified, self.modified_nanos)
            == (other.device, other.inode, other.size, other.modified, other.modified_nanos)
    }

    /// Returns `true` if both describe the same file, and it is at least as long at the time of `other`.
    pub(crate) fn may_have_grown(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode) && self.size <= other.size
    }

    /// Returns `true` if both describe the same content and the same file type.
    pub fn same_file(&self, other: &Self) -> bool {
        self.same_content(other) && self.file_type() == other.file_type()
    }

    /// Returns the type of the file.
    pub fn file_type(&self) -> rustix::fs::FileType {
        rustix::fs::FileType::from_raw_mode(self.mode)
    }
}

impl From<&Stat> for FileMetadata {
    fn from(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size.max(0) as u64,
            modified: stat.st_mtime,
            modified_nanos: stat.st_mtime_nsec as u32,
            changed: stat.st_ctime,
            changed_nanos: stat.st_ctime_nsec as u32,
            links: stat.st_nlink,
            mode: stat.st_mode,
        }
    }
}
