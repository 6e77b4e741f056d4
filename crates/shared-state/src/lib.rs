//! The store of the state that several servers share: Valkey or Redis, alone, behind sentinels, or as a cluster.
//!
//! [`Store`] is a connection. All its operations block, for at most the `timeout` of the configuration for each response, so
//! they belong on a thread that no request waits for. After an error the connection is unusable: connect again.
//!
//! Every operation that reads and writes is one script in the store, so that it is atomic. The keys of one script have the same
//! hash tag, as a cluster requires. Times are those of the store, so that the clocks of the servers do not matter.
//!
//! - [`limits`]: the buckets of shared rate limits.
//! - [`roster`]: the servers that share the store.
//! - [`messages`]: messages to all of them, and which of them have received a message.
//! - [`attempts`]: failed attempts to log in.
//! - [`maintenance`]: sites that are under maintenance.
//! - [`tickets`]: keys of TLS session tickets.
//! - [`objects`]: named content, written by the owner of a lock.

pub mod attempts;
mod connection;
mod error;
pub mod limits;
pub mod maintenance;
pub mod messages;
pub mod objects;
pub mod roster;
pub mod tickets;

pub use self::connection::Store;
pub use self::error::StoreError;
