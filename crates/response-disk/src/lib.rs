//! Stored HTTP responses in files of one directory: bounded, checked when they are read, and kept over restarts.
//!
//! # What it does
//! [`Disk`] has an index in memory, by which [`Disk::find`] knows without I/O whether there is a response for a request. Each response is
//! a file of its own, in the format of [`dunlin_response_cache::record`]. It is written aside and renamed, so that a file is complete or
//! not there; after a power failure it may be neither, which its checksums show. A response that is not as it was written is
//! removed, and there is none.
//!
//! Content that is no response of an upstream, such as an object of an object store, has a key without a scheme.
//!
//! One process uses a directory at a time: the one that has its lock. [`start`] waits for the lock in a thread, then reads the
//! heads of all files into the index. Until then there are no responses, and none are written.
//!
//! # Contract
//! Functions that do I/O are documented as such; they block and belong on a thread of a pool. The caller has [`Disk::write`] and
//! [`Disk::remove_files`] run one after the other in the order in which it has decided: what is removed after a write is then
//! removed from what it has written. The server owns the directory: it removes files there whose names are those of responses.

mod disk;
mod files;
mod index;
mod scan;

pub use disk::{Counters, Disk, Found, OnlyFile};
pub use index::Removal;
pub use scan::start;
