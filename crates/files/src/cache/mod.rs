//! The file cache: files and their encoded variants, ready to be sent.
//!
//! It has two levels. The workers share a [`shared_cache::SharedCache`], which enforces the bounds and decides what is
//! worth its memory; a worker reads it only on the first request for a path. Each worker has a
//! [`worker_cache::WorkerCache`] of its own, so that a hit takes no lock and writes to no memory that another core reads.
//! One of `SAMPLE` requests is counted in the shared cache. A change on disk invalidates the
//! [`Validity`](dunlin_fs::validity::Validity) of what was read; both levels check it on every use.

mod frequency;
pub mod resource;
pub mod sampler;
pub mod shared_cache;
mod store;
pub mod worker_cache;

/// Requests of which one, chosen at random, counts as a use of its file.
const SAMPLE: u32 = 8;
