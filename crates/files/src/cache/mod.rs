//! The file cache: files and their encoded variants, ready to be sent.
//!
//! It has two levels. The workers share a [`shared_cache::SharedCache`], which enforces the bounds and decides what to
//! admit; a worker reads it only on the first request for a path. Each worker has a
//! [`worker_cache::WorkerCache`] of its own, so that a hit takes no lock and writes to no memory that another core reads.
//! A sample of the requests is counted in the shared cache. A change on disk invalidates the
//! [`Validity`](dunlin_fs::validity::Validity) of what was read; both levels check it on every use.

pub mod resource;
pub mod shared_cache;
pub mod worker_cache;
