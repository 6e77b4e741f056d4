//! The admission policy of the server's caches: bounded stores, which admit and evict entries by their frequency of use.
//!
//! # What it does
//! - A [`Store`](store::Store) keeps values within bounds. A full store admits a new key only if it was used more often
//!   than the entries that have to make room for it.
//! - The file cache and the response cache share a [`CommonStore`](common::CommonStore), so that one bound holds for both;
//!   responses on disk have a [`Store`](store::Store) of their own.
//! - A cache that is used without counting each request takes a [`Sampler`](sampler::Sampler), or a
//!   [`SharedSampler`](sampler::SharedSampler) for several threads.
//!
//! # Contract
//! A [`Store`](store::Store) belongs to its caller, who locks it where threads share it. A
//! [`CommonStore`](common::CommonStore) is shared by threads and has a lock: a caller holds the guard for a few operations
//! and never while it waits. A [`Sampler`](sampler::Sampler) belongs to one worker. Nothing here does I/O.
//!
//! The caller makes the hashes of keys: with one hasher for all calls of a store, and with a random key if clients choose
//! the names. It counts the uses of each key by [`Store::count`](store::Store::count), also of keys that the store lacks,
//! and states what a value occupies ([`Cost`](store::Cost)); the store does not measure values.
//!
//! [`Inserted::Rejected`](store::Inserted::Rejected) and [`NotAdmitted`](common::NotAdmitted) are not failures: the policy
//! rejects the value, and the caller uses it without the cache. A [`Store`](store::Store) returns the values that it
//! evicts. A [`CommonStore`](common::CommonStore) calls [`Entry::evicted`](common::Entry::evicted) for each, after it has
//! released its lock.
//!
//! # Example
//! ```
//! use std::hash::{BuildHasher, RandomState};
//!
//! use dunlin_admission::store::{Classed, Cost, Inserted, Store};
//!
//! #[derive(PartialEq, Eq, Hash)]
//! struct Name(&'static str);
//! impl Classed for Name {}
//!
//! let hasher = RandomState::new();
//! let mut store: Store<Name, u32> = Store::new(Cost { bytes: 100, entries: 10, descriptors: 0 });
//! let mut request = |name: &'static str| {
//!     let hash = hasher.hash_one(name);
//!     store.count(hash);
//!     store.insert((hash, Name(name)), 1, Cost { bytes: 80, entries: 1, descriptors: 0 })
//! };
//! assert_ne!(request("/a"), Inserted::Rejected);
//! // Another name needs more uses than the entry that it would replace.
//! assert_eq!(request("/b"), Inserted::Rejected);
//! assert_eq!(request("/b"), Inserted::Rejected);
//! assert_ne!(request("/b"), Inserted::Rejected);
//! ```

pub mod common;
mod frequency;
pub mod sampler;
pub mod store;
