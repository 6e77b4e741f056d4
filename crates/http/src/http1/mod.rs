//! HTTP/1.0 and HTTP/1.1 (RFC 9112): state machines without sockets.
//!
//! [`Connection`] takes the bytes that have arrived and says what they are; [`response`] turns
//! answers into bytes. [`client`] reads answers.

mod chunk_extension;
mod chunked;
pub mod client;
mod connection;
mod framing;
mod head;
mod refusal;
pub mod response;

pub use chunked::{ChunkedDecoder, Decoded};
pub use connection::{BodyEvent, Connection, Persistence, leading_empty_lines};
pub use framing::BodyLength;
pub use refusal::Refusal;

/// What a client may send at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head, request line and fields together; at most 65,535.
    pub head_size: usize,
    /// Bytes of a request-target.
    pub target_size: usize,
    /// Fields in a head; at most [`crate::request::Head::MOST_FIELDS`].
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_size: 32 * 1024, target_size: 8 * 1024, fields: 100 }
    }
}
