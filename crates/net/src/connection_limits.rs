//! Limits of connections, which all workers share.

pub mod eviction;
pub mod limiter;
pub mod per_address;
