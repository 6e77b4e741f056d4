//! The client of a request.

use crate::tls::Policy;
use crate::transport::{Peer, Transport};

/// The client of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: Peer,
    pub(crate) encrypted: bool,
    /// The request came as TLS early data, which others can replay (RFC 8470).
    pub(crate) early: bool,
    /// The request came from a trusted proxy.
    pub(crate) via_proxy: bool,
    /// The server makes the request itself, for forward authentication.
    pub(crate) is_subrequest: bool,
    /// The TLS policy that the connection's handshake satisfied.
    pub(crate) policy: Policy,
}

impl Client {
    /// Returns the client of a connection.
    pub(crate) fn of(address: Peer, stream: &Transport) -> Self {
        let (encrypted, early) = (stream.is_encrypted(), stream.is_early());
        let policy = stream.policy();
        Self { address, encrypted, early, via_proxy: false, is_subrequest: false, policy }
    }

    /// Exempts a request that the server makes itself from the TLS policy, as its original request satisfied it.
    pub(crate) fn admitted(self) -> Self {
        Self { policy: Policy::EXEMPT, ..self }
    }
}
