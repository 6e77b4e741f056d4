//! Access to files: paths that are resolved beneath a root, content that is ready to be sent, and change notification.
//!
//! # What it does
//! - [`roots::Roots`] keeps root directories open. [`mod@open`] opens a path beneath one of them: the kernel resolves it
//!   (`openat2`) and rejects a path that leaves the root.
//! - [`protected::Protected`] rejects files that are never sent, under any name.
//! - A [`watch::Watch`] invalidates the [`validity::Validity`] of what was read by a name when that name changes (inotify).
//! - [`content::StoredContent`] holds the bytes of a response in memory or in a file.
//!
//! # Contract
//! All types can be shared by threads. With [`mode::Mode::Inline`] no operation waits for a disk:
//! [`failure::Failure::WouldBlock`] reports that it would have to wait, and the caller repeats the operation with
//! [`mode::Mode::Blocking`] on a thread that may wait. To follow changes of a file, call [`follow::follow`] before the file
//! is opened; a worker polls the descriptors of the [`watch::Watch`] and calls [`watch::Watch::read`] when one is ready.
//!
//! # Example
//! ```
//! use std::path::Path;
//!
//! use dunlin_config::Symlinks;
//! use dunlin_fs::mode::Mode;
//! use dunlin_fs::open::open;
//! use dunlin_fs::roots::Roots;
//!
//! let root = Roots::default().get(Path::new("/proc"), None, 1000).root?;
//! assert!(open(&root, b"version", Symlinks::Beneath, Mode::Blocking).is_ok());
//! assert!(open(&root, b"../etc/passwd", Symlinks::Beneath, Mode::Blocking).is_err());
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod content;
pub mod failure;
pub mod file_system;
pub mod follow;
pub mod metadata;
pub mod mode;
mod mounts;
pub mod open;
mod path_steps;
pub mod protected;
pub mod roots;
pub mod validity;
pub mod watch;
mod writes;
