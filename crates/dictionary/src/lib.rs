//! Compression Dictionary Transport (RFC 9842): a client that has an old version of a resource gets the difference to the new one.
//!
//! # What it does
//! - [`fields`] reads and writes the fields by which client and server agree on a dictionary, and knows which requests may use one.
//! - [`pattern`] knows from the name of a file which part of it changes with its content (`app.3f2a.js`), so that a version matches
//!   the next.
//! - [`dcz`] compresses with a dictionary (Dictionary-Compressed Zstandard).
//! - A [`History`](history::History) keeps versions of files, in a directory over restarts or in memory.
//! - A [`RouteDictionary`](route::RouteDictionary) is a dictionary for the pages of an application, which [`train`] makes of sampled
//!   responses.
//!
//! # Contract
//! Functions of [`history`] that do I/O are documented as such; they block and belong on a thread of a pool. They return no error if
//! the disk fails: then there is no dictionary, which is always a correct result. Content is known by its SHA-256, which is
//! compared whenever content is read, so that a dictionary is the content that the client has or none.
//!
//! ```
//! use dunlin_dictionary::{dcz, sha256};
//!
//! let (old, new) = (b"the first version of a file".as_slice(), b"the second version of a file".as_slice());
//! let coded = dcz::compress(old, &sha256(old), new)?;
//! assert_eq!(dcz::dictionary_of(&coded), Some(sha256(old)));
//! assert_eq!(dcz::decompress(old, &coded, 1_000)?, new);
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod dcz;
pub mod fields;
pub mod history;
pub mod pattern;
mod record;
pub mod route;
pub mod train;
pub mod url_match;

use sha2::{Digest, Sha256};

/// The SHA-256 of a dictionary.
pub type Hash = [u8; 32];

/// Returns the SHA-256 of content.
pub fn sha256(content: &[u8]) -> Hash {
    Sha256::digest(content).into()
}

/// The largest content, in bytes, that is a dictionary or is compressed with one: all decoders allow a window of this size
/// (RFC 9842 §5).
pub const MAX_LENGTH: u64 = 8 << 20;
