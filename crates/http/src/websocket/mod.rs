//! WebSocket (RFC 6455).
//!
//! [`handshake`] has the fields by which client and server agree on it.

pub mod handshake;
