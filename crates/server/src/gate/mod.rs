//! Gates: what a request has to pass between route and handler.

pub(crate) mod bandwidth;
pub(crate) mod concurrency;
pub(crate) mod rate;
