//! The client of a request.

use dunlin_net::address::Peer;
use dunlin_tls::Policy;

use crate::ConnectionFacts;

/// The client of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// The address of the client.
    pub address: Peer,
    /// The listener of the connection.
    pub listener: u64,
    /// It uses TLS, to the server or to a trusted proxy.
    pub encrypted: bool,
    /// The request came as TLS early data, which others can replay (RFC 8470).
    pub early: bool,
    /// The request came from a trusted proxy.
    pub via_proxy: bool,
    /// The server makes the request itself, for forward authentication.
    pub is_subrequest: bool,
    /// The TLS policy that the connection's handshake satisfied.
    pub policy: Policy,
}

impl Client {
    /// Returns the client of a connection.
    #[inline]
    pub fn of(connection: &ConnectionFacts) -> Self {
        Self {
            address: connection.peer,
            listener: connection.listener,
            encrypted: connection.is_encrypted(),
            early: connection.is_early(),
            via_proxy: false,
            is_subrequest: false,
            policy: connection.policy,
        }
    }

    /// Exempts a request that the server makes itself from the TLS policy, as its original request satisfied it.
    #[inline]
    pub fn admitted(self) -> Self {
        Self { policy: Policy::EXEMPT, ..self }
    }
}
