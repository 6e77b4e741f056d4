//! Limits that the requests of a server share. All of them are created from the rules of the configuration, and all workers
//! use the same objects.
//!
//! - [`rate`]: requests per client and time, without waiting. Each request is counted by [`rate::RateLimit::request`].
//!   [`lease`] and [`shared_rate`] are for limits that several servers share by a store.
//! - [`concurrency`]: requests at the same time. [`concurrency::Concurrency::enter`] returns a permit, or a
//!   future that resolves to one; dropping either admits the next request.
//! - [`bandwidth`]: bytes per second. A request takes a [`bandwidth::Sender`], and the
//!   [`bandwidth::Pacer`] of its response returns how many bytes may be sent.
//!
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
pub mod prehashed;
pub mod rate;
pub mod shared_rate;
