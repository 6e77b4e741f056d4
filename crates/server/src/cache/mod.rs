//! The file cache: what files and their coded forms look like to a client, ready to be sent.
//!
//! Two layers. [`Store`] is shared by all workers and owns the bounds; it is entered only when a
//! worker meets a path for the first time. Each worker keeps a [`front::Front`] of its own, so that
//! a hit takes no lock and writes to no memory that another core reads. A change on disk marks
//! the [`Version`] that it concerns; front and store look at that mark on every use.

pub(crate) mod front;
mod mounts;
pub(crate) mod resource;
mod store;
pub(crate) mod stored;
pub(crate) mod watch;
mod way;

pub(crate) use resource::{CodedForm, Representation, Resource};
pub(crate) use store::{Bounds, Key, Store};
pub(crate) use stored::{Stored, StoredFile};
pub(crate) use watch::{Version, Watch};
