//! The interface of the directory that has objects on disk, behind those in memory.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::store::ObjectMetadata;

/// Objects of all buckets on disk. They outlive the process.
pub trait ObjectDisk: fmt::Debug + Send + Sync {
    /// Finds the file of an object, without I/O, and counts the use of the object.
    fn find(&self, name: ObjectName<'_>) -> Option<ObjectFile>;

    /// Reads a file; `None` if it is not there or not as it was written. Does I/O.
    fn read(&self, name: ObjectName<'_>, file: ObjectFile) -> Option<StoredObject>;

    /// Schedules a write that replaces the stored object, subject to admission. Does not wait.
    fn write(&self, name: ObjectName<'_>, metadata: &ObjectMetadata, content: Bytes);

    /// Schedules removal of an object and of pending writes for it. Does not wait.
    fn remove(&self, name: ObjectName<'_>);
}

/// Returns a number for `text` that is the same in each process, such as those of buckets and sites on disk.
pub fn number(text: &str) -> usize {
    let digest = Sha256::digest(text);
    digest.iter().take(size_of::<usize>()).fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// The properties that identify an object in each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectName<'a> {
    /// The [number](super::client::number) of the bucket.
    pub bucket: usize,
    /// The key, as the store has it.
    pub key: &'a str,
}

/// The file of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectFile {
    /// The number of the file.
    pub number: u64,
    /// The most memory that reading it takes.
    pub bytes: u64,
    /// This process has written it, and has had no notification of a change since.
    pub is_recent: bool,
}

/// An object that was on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    /// The properties of the object.
    pub metadata: ObjectMetadata,
    /// The content of the object.
    pub content: Bytes,
    /// Milliseconds since the store sent it.
    pub age: u64,
}
