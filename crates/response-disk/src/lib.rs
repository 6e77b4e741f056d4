//! Stored HTTP responses in files of one directory: bounded, checked when they are read, and kept over restarts.
//!
//! # What it does
//! [`Disk`] has an index in memory, by which [`Disk::find`] knows without I/O whether there is a response for a request. Each
//! response is a file of its own, in the format of [`dunlin_response_cache::record`]. It is written aside and renamed, so that
//! a file is complete or not there; after a power failure it may be neither, which its checksums show. A response that is not
//! as it was written is removed, and there is none.
//!
//! Content that is not a response of an upstream, such as an object of an object store, has a key without a scheme.
//!
//! One process uses a directory at a time: the one that has its lock. [`start`] waits for the lock in a thread, then reads the
//! heads of all files into the index. Until then there are no responses, and none are written.
//!
//! # Contract
//! A [`Disk`] is shared by threads. Functions that do I/O are documented as such; they block and belong on a thread of a pool.
//! The caller runs [`Disk::write`] and [`Disk::remove_files`] one after the other, in the order of its decisions: a removal
//! that follows a write then removes what was written. The server owns the directory: it removes files there
//! whose names are those of responses.
//!
//! A function returns no error if the disk fails. [`Disk`] logs and counts the failure ([`Counters`]), finds no response, and
//! writes nothing for a while.
//!
//! # Example
//! ```
//! use bytes::Bytes;
//! use dunlin_response_cache::key::Key;
//! use dunlin_response_cache::record::Now;
//! use dunlin_response_cache::stored::Stored;
//! use dunlin_response_disk::{Disk, start};
//! # use dunlin_http::FieldLines;
//! # use dunlin_response_cache::directives::Directives;
//! # use dunlin_response_cache::freshness::{Freshness, Received};
//! # use dunlin_response_cache::storable::Rules;
//! # use dunlin_response_cache::stored::StoredHead;
//! # use dunlin_response_cache::vary::Vary;
//! # let (fields, directives) = (FieldLines::new(), Directives::default());
//! # let received = Received { date: None, unix: 784_111_777, at: 1_000, delay: 0 };
//! # let freshness = Freshness::of(200, &fields, &directives, received, false);
//! # let rules = Rules { set_cookie: false, is_heuristic: false, lifetime: None, max_body: 1_000 };
//! # let head = StoredHead::from_parts((200, fields), 784_111_777, freshness, Vary::default(), rules);
//!
//! let now = || Now { monotonic: 1_000, unix: 784_111_777_000 };
//! let directory = tempfile::tempdir()?;
//! let disk = Disk::new(directory.path().into(), (1 << 20, 100), [1]);
//! start(&disk, now)?;
//! disk.wait_for_start();
//!
//! let key = Key { site: 1, url: b"http://a.example/".as_slice().into() };
//! disk.write(&key, &Stored { head, body: Bytes::from_static(b"hello") }, now());
//! let file = disk.find_only(&key).expect("the response was written");
//! let read = disk.read(&key, (file.number, file.bytes), now());
//! assert_eq!(read.map(|stored| stored.body), Some(Bytes::from_static(b"hello")));
//! # Ok::<(), std::io::Error>(())
//! ```

mod disk;
mod files;
mod index;
mod scan;

pub use disk::{Counters, Disk, Found, OnlyFile};
pub use index::Removal;
pub use scan::start;
