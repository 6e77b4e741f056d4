//! The addresses of a name, and the servers that SRV records name (RFC 2782), by the Domain Name System.
//!
//! # Contract
//! The functions are called within a runtime of tokio, and keep nothing between two calls. [`Present`] keeps what is derived from the
//! records for their time to live, and longer while a name cannot be resolved again.

mod present;
mod resolve;

pub use present::*;
pub use resolve::*;
