//! Accepted connections.

use dunlin_net::address::{Ends, Peer};
use dunlin_net::connection_limits::limiter::Permit;
use dunlin_telemetry::ConnectionStart;

/// A connection whose protocol adapter has not started.
pub(crate) struct Accepted {
    pub(crate) peer: Peer,
    /// The addresses of client and server from a PROXY header.
    pub(crate) proxied: Option<Box<Ends>>,
    pub(crate) permit: Permit,
    /// When the connection began; `None` when no consumer of records needs it.
    pub(crate) connection_start: Option<ConnectionStart>,
    /// Bytes that were read behind a PROXY header.
    pub(crate) arrived: Vec<u8>,
}
