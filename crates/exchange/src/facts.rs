//! The properties of a connection that requests, checks and records know, whatever carries it.

use std::rc::Rc;

use dunlin_net::address::Peer;
use dunlin_tls::{Policy, TlsInfo};

/// Properties of a connection. Nothing behind the protocol adapters sees its transport.
#[derive(Debug, Clone)]
pub struct ConnectionFacts {
    /// The address of the client.
    pub peer: Peer,
    /// The listener, by [`Listen::number`](dunlin_config::Listen::number).
    pub listener: u64,
    /// Serial number of the connection in its process.
    pub serial: u64,
    /// The TLS policy that the handshake met.
    pub policy: Policy,
    /// Protocol, cipher suite and client certificate; `None` without TLS.
    pub tls: Option<Rc<TlsInfo>>,
}

impl ConnectionFacts {
    /// Returns `true` if the client uses TLS.
    #[inline]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns `true` if received bytes may be a replay, because the TLS handshake has not ended (RFC 8470).
    #[inline]
    pub fn is_early(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.early)
    }
}
