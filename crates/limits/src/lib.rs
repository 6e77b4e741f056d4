//! Limits that the requests of a server share. All of them are created from the rules of the configuration, and all workers
//! use the same objects.
//!
//! # What it does
//! - [`rate`]: requests per client and time, without waiting. Each request is counted by [`rate::RateLimit::request`].
//!   [`lease`] and [`shared_rate`] are for limits that several servers share by a store, in which clients have [`names`].
//! - [`concurrency`]: requests at the same time. [`concurrency::Concurrency::enter`] returns a permit, or a
//!   future that resolves to one; dropping either admits the next request.
//! - [`bandwidth`]: bytes per second. A request takes a [`bandwidth::Sender`], and the
//!   [`bandwidth::Pacer`] of its response returns how many bytes may be sent.
//!
//! # Contract
//! The limits are shared by threads: workers call them for each request, and no call blocks or does I/O. A
//! [`concurrency::Waiter`] and a [`bandwidth::Pacer`] belong to one request, whose worker polls them in its tokio runtime. The
//! caller passes the current time, and how it distinguishes clients ([`rate::ClientKey`], [`concurrency::Owner`]).
//!
//! A limit keeps the rates of clients in a table of bounded size, and nothing of a request once its permit, waiter or sender
//! is dropped. Dropping returns what the request has taken, for whatever reason it ends.
//!
//! A rejection is a return value, not an error; the caller makes the response (429, 503). For a limit that several
//! servers share, a thread of the caller exchanges [`rate::RateLimit::reports`] with the store and returns its response by
//! [`rate::RateLimit::grant`], or what the store has not taken by [`rate::RateLimit::take_back`]. Without the store it calls
//! [`rate::RateLimit::disconnect`].
//!
//! # Example
//! ```
//! use std::time::{Duration, Instant};
//!
//! use dunlin_config::{RateKey, RateRules};
//! use dunlin_limits::rate::RateLimit;
//!
//! let limit = RateLimit::new(RateRules {
//!     requests: 1,
//!     period: Duration::from_secs(60),
//!     burst: 2,
//!     by: RateKey::Address,
//!     sends_fields: false,
//!     dry_run: false,
//!     status: 429,
//!     shared: false,
//! });
//! let now = Instant::now();
//! assert!(limit.request("192.0.2.1", now).allowed);
//! assert!(limit.request("192.0.2.1", now).allowed);
//! assert!(!limit.request("192.0.2.1", now).allowed);
//! assert!(limit.request("192.0.2.2", now).allowed);
//! ```

pub mod bandwidth;
pub mod concurrency;
#[cfg(feature = "testing")]
pub mod fleet;
pub mod lease;
#[cfg(feature = "testing")]
pub mod ledger;
pub mod names;
pub mod prehashed;
pub mod rate;
pub mod shared_rate;
