//! A shared HTTP cache for the responses of applications.
//!
//! # What it does
//! The rules are pure functions of requests, responses and times: [`use_for`](request::use_for) decides whether a request
//! concerns the cache, [`StoredHead::new`](stored::StoredHead::new) whether a response may be stored (RFC 9111 §3),
//! [`Freshness`](freshness::Freshness) for how long it may be used (§4.2, RFC 5861), [`Vary`](vary::Vary) for which requests
//! as their origin gets them ([`Presented`](presented::Presented), §4.1), [`StoredHead::updated`](stored::StoredHead::updated) merges a 304 (§4.3.4), and
//! [`invalidation`] names the URLs that an unsafe request invalidates (§4.4). Directives come from `Cache-Control` or from
//! a targeted field (RFC 9213). [`respond`](respond::respond) makes the response to a request from a stored one, and
//! [`cache_status`](status::cache_status) the field `Cache-Status` (RFC 9211).
//!
//! [`Memory`](memory::Memory) keeps responses within bounds, for all workers; [`record`] makes bytes of them that outlive the
//! process. [`Flights`](flight::Flights) has the requests that are upstream, so that one request is made for many of the same
//! URL, and [`UncacheableMarks`](uncacheable_marks::UncacheableMarks) the URLs for which that is of no use.
//!
//! # Contract
//! The crate does no I/O and reads no clock: times are arguments, in the units that each function names. It forwards nothing
//! either: the caller sends the request of a [`Leader`](flight::Leader) upstream and passes the body to its
//! [`Writer`](flight::Writer).
//!
//! [`Memory`](memory::Memory), [`Flights`](flight::Flights) and [`UncacheableMarks`](uncacheable_marks::UncacheableMarks)
//! are shared by threads, and hold their locks for single operations. A [`Leader`](flight::Leader) that is dropped without a
//! decision makes way for another request, and a [`Writer`](flight::Writer) that is dropped before its end breaks the body
//! for its readers ([`Broken`](flight::Broken)). The error of [`StoredHead::new`](stored::StoredHead::new) is the reason why
//! a response is not stored, as a token for `Cache-Status`; the response itself is valid.
//!
//! # Example
//! ```
//! use dunlin_http::FieldLines;
//! use dunlin_response_cache::directives::Directives;
//! use dunlin_response_cache::freshness::{Freshness, Received, Usability};
//! use dunlin_response_cache::request::RequestDirectives;
//!
//! let mut fields = FieldLines::new();
//! fields.push("Cache-Control", "max-age=60, stale-while-revalidate=30");
//! let received = Received { date: None, unix: 784_111_777, at: 5_000, delay: 0 };
//! let freshness = Freshness::of(200, &fields, &Directives::of(&fields), received, false);
//! // The response has arrived in second 5 of the monotonic clock.
//! let in_second = |second: u64| freshness.usability(&RequestDirectives::default(), second * 1_000);
//! assert_eq!(in_second(64), Usability::Fresh);
//! assert_eq!(in_second(65), Usability::WhileRevalidate);
//! assert_eq!(in_second(95), Usability::Validate);
//! ```

mod codec;
pub mod directives;
mod fields;
pub mod flight;
pub mod freshness;
pub mod invalidation;
pub mod key;
pub mod memory;
pub mod presented;
pub mod record;
pub mod request;
pub mod respond;
pub mod status;
pub mod storable;
pub mod stored;
mod structured;
#[cfg(test)]
mod testing;
pub mod uncacheable_marks;
pub mod vary;
