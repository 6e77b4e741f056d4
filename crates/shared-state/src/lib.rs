//! The store of the state that several servers share: Valkey or Redis, alone, behind sentinels, or as a cluster.
//!
//! # What it does
//! A [`Store`] is a connection. Its operations are in modules by subject:
//!
//! - [`limits`]: the buckets of shared rate limits.
//! - [`roster`]: the servers that share the store.
//! - [`messages`]: messages to all of them, and which of them have received a message.
//! - [`attempts`]: failed attempts to log in.
//! - [`maintenance`]: sites that are under maintenance.
//! - [`tickets`]: keys of TLS session tickets, and [`quic`]: the secret of QUIC endpoints.
//! - [`objects`]: named content, written by the owner of a lock.
//!
//! # Contract
//! A [`Store`] belongs to one thread at a time, and needs no runtime. All its operations block, for at most the `timeout` of
//! the configuration for each response, so they belong on a thread that no request waits for.
//!
//! Every operation that reads and writes is one script in the store, so that it is atomic. The keys of one script have the
//! same hash tag, as a cluster requires. Times are those of the store, so that the clocks of the servers do not matter.
//! A [`Store`] keeps nothing of what it has read but the secret of the names of clients; the caller keeps the position of the
//! last message that it has received. A reply takes 16 MiB of memory at most.
//!
//! A [`StoreError`] means that the store has rejected the operation or did not respond. The operation may have taken effect.
//! The connection is unusable after that: the caller drops it, connects again, and works without shared state meanwhile.
//!
//! # Example
//! ```
//! use std::time::Duration;
//!
//! use dunlin_config::Shared;
//! use dunlin_shared_state::messages::Position;
//! use dunlin_shared_state::{Store, StoreError};
//!
//! /// Sends a message. Returns how many servers have received it, and how many there are.
//! fn announce(settings: &Shared, server: &str) -> Result<(usize, usize), StoreError> {
//!     let mut store = Store::connect(settings)?;
//!     store.report_presence(server)?;
//!     let position = store.send(server, "1", "the content")?;
//!     store.received_by(position)
//! }
//! # drop(announce);
//!
//! let position: Position = "1700000000000-7".parse()?;
//! assert_eq!(position.before(Duration::from_secs(1)).to_string(), "1699999999000-0");
//! # Ok::<(), StoreError>(())
//! ```

pub mod attempts;
mod connection;
mod error;
pub mod limits;
mod link;
pub mod maintenance;
pub mod messages;
mod names;
pub mod objects;
pub mod quic;
mod reply;
pub mod roster;
pub mod tickets;

pub use self::connection::Store;
pub use self::error::StoreError;
