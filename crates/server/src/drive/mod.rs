//! Drivers: each moves bytes between a transport and an engine, and requests to handlers.

pub(crate) mod http1;
mod http2;
mod patience;
mod send;
