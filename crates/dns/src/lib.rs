//! The addresses of a name, and the servers that SRV records name (RFC 2782), by the Domain Name System.
//!
//! # Contract
//! The functions are called within a runtime of tokio. Nothing is kept between two calls: the caller keeps what was found for the time that
//! comes with it, and longer while it cannot be resolved again ([`PATIENCE`], [`RETRY`]).

mod resolve;

pub use resolve::*;
