//! The addresses of a name, the servers that SRV records name (RFC 2782), and records that are added to a zone (RFC 2136), by the
//! Domain Name System.
//!
//! # What it does
//! - [`addresses`] resolves a name, [`targets`] a service, and [`replicas`] all servers of a service.
//! - [`unresolved`] describes why names cannot be resolved, for a check of the configuration.
//! - A [`CachedLookup`] is a value that is derived from the records of several names, such as a list of upstreams.
//!
//! - [`update()`] adds a TXT record to a zone and removes it, signed by an [`UpdateKey`]. [`canonical_name`] and [`zone_of`] find its
//!   name and its zone, [`name_servers`] and [`has_text`] whether the servers of the zone have it.
//!
//! # Contract
//! The functions are called within a runtime of tokio, and keep nothing between two calls. They read `/etc/hosts` and
//! `/etc/resolv.conf` on a thread for blocking work. An error is a sentence for the log: the name has no record, or no name
//! server has responded in time.
//!
//! [`CachedLookup`] is shared by threads. It keeps what is derived from the records for their time to live, and longer while a
//! name cannot be resolved again. When the value is too old, one request resolves all names at once, and others use the last
//! value meanwhile, or wait for the first one. That there is none is kept for two seconds.
//!
//! # Example
//! ```
//! use std::net::IpAddr;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use dunlin_dns::{Answer as Records, CachedLookup};
//!
//! fn all(items: &[Vec<IpAddr>], _: Option<&Arc<[IpAddr]>>) -> Option<Arc<[IpAddr]>> {
//!     Some(items.concat().into())
//! }
//!
//! let present: CachedLookup<IpAddr, [IpAddr]> = CachedLookup::new("proxy", vec!["a.example".to_owned()], None);
//! let items = vec![IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
//! let records = Records { items, time: Duration::from_secs(30) };
//! assert_eq!(present.update(vec![Ok(records)], all)?.len(), 2);
//! // While the name cannot be resolved, its last records are used.
//! let failed = Err("no name server has responded".to_owned());
//! assert_eq!(present.update(vec![failed], all)?.len(), 2);
//! # Ok::<(), String>(())
//! ```

mod cached_lookup;
mod message;
mod resolve;
mod servers;
mod update;

pub use cached_lookup::*;
pub use resolve::*;
pub use servers::*;
pub use update::*;
