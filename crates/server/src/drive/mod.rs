//! Adapters: each moves bytes between a transport and a protocol engine, and requests to exchanges.

pub(crate) mod connection;
mod http1;
mod http2;
pub(crate) mod http3;
#[cfg(test)]
mod tests;

/// The protocol that a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    Http1,
    /// HTTP/2, agreed by ALPN.
    Http2,
    /// The client's first bytes decide.
    Either,
    /// HTTP/1 with commands to the server.
    Admin,
}

/// The end of a connection's protocol.
pub(super) enum ConnectionEnd {
    /// Nothing more is sent or received.
    Closed,
    /// All bytes were sent; the client may still send.
    Linger,
    /// Bytes in flight are of no use.
    Abort,
    /// The connection goes on with HTTP/2, which begins with these bytes (RFC 9113 §3.3).
    Http2(Vec<u8>),
}
