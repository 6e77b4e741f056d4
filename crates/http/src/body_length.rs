//! Length of a message body.

/// The length of the body, as the head of a request states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// The request has no body.
    None,
    /// The body has this many bytes; never 0.
    Known(u64),
    /// The length is unknown until the body ends: the chunked transfer coding in HTTP/1 (RFC 9112 §7.1), a body without
    /// `Content-Length` in HTTP/2 and HTTP/3.
    Chunked,
}
