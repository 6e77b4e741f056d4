//! Access to files: paths that are resolved beneath a root, content that is ready to be sent, and change notification.
//!
//! [`roots::Roots`] keeps root directories open. [`open`] opens a path beneath one of them: the kernel resolves it and
//! rejects a path that leaves the root. [`protected::Protected`] rejects files that are never sent. A [`watch::Watch`]
//! invalidates the [`validity::Validity`] of what was read by a name when that name changes. [`content::StoredContent`]
//! holds the bytes of a response in memory or in a file.

pub(crate) mod content;
pub(crate) mod failure;
pub(crate) mod file_system;
pub(crate) mod follow;
pub(crate) mod metadata;
pub(crate) mod mode;
mod mounts;
pub(crate) mod open;
mod path_steps;
pub(crate) mod protected;
pub(crate) mod roots;
pub(crate) mod validity;
pub(crate) mod watch;
