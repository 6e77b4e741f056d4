//! A shared HTTP cache for the responses of applications.
//!
//! # What it does
//! The rules are pure functions of requests, responses and times: [`use_for`](request::use_for) decides whether a request
//! concerns the cache, [`StoredHead::new`](stored::StoredHead::new) whether a response may be stored (RFC 9111 §3),
//! [`Freshness`](freshness::Freshness) for how long it may be used (§4.2, RFC 5861), [`Vary`](vary::Vary) for which requests
//! (§4.1), [`StoredHead::updated`](stored::StoredHead::updated) merges a 304 (§4.3.4), and
//! [`invalidation`] names the URLs that an unsafe request invalidates (§4.4). Directives come from `Cache-Control` or from
//! a targeted field (RFC 9213). [`respond`](respond::respond) makes the response to a request from a stored one, and
//! [`cache_status`](status::cache_status) the field `Cache-Status` (RFC 9211).
//!
//! [`Memory`](memory::Memory) keeps responses within bounds, for all workers; [`record`] makes bytes of them that outlive the process. [`Flights`](flight::Flights) has the requests that
//! are upstream, so that one request is made for many of the same URL, and [`Marks`](marks::Marks) the URLs for which that
//! is of no use.
//!
//! # Contract
//! The crate does no I/O and reads no clock: times are arguments, in the units that each function names.

mod codec;
pub mod directives;
mod fields;
pub mod flight;
pub mod freshness;
pub mod invalidation;
pub mod key;
pub mod marks;
pub mod memory;
pub mod record;
pub mod request;
pub mod respond;
pub mod status;
pub mod storable;
pub mod stored;
mod structured;
#[cfg(test)]
mod testing;
pub mod vary;
