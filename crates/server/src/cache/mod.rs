//! The file cache: what files and their coded forms look like to a client, ready to be sent.
//!
//! Two layers. [`SharedCache`] is shared by all workers and owns the bounds; it is entered only when a
//! worker meets a path for the first time. Each worker keeps a [`worker_cache::WorkerCache`] of its own, so that
//! a hit takes no lock and writes to no memory that another core reads. A change on disk marks
//! the [`Validity`] that it concerns; front and store look at that mark on every use.

pub(crate) mod content;
mod mounts;
mod path_steps;
pub(crate) mod resource;
mod shared_cache;
pub(crate) mod watch;
pub(crate) mod worker_cache;

pub(crate) use content::{ContentFile, StoredContent};
pub(crate) use resource::{EncodedVariant, Representation, Resource};
pub(crate) use shared_cache::{Bounds, Key, SharedCache};
pub(crate) use watch::{Validity, Watch};
