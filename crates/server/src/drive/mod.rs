//! Adapters: each moves bytes between a transport and a protocol engine, and requests to exchanges.

pub(crate) mod connection;
mod exchange;
mod http1;
mod http2;
pub(crate) mod link;
mod multiplex;
mod send;
mod send_progress;
#[cfg(test)]
mod tests;

/// Bodies up to this size are copied behind their heads, so that many responses leave in one write. A bandwidth limit may
/// let them leave at once.
const INLINE_BODY: usize = 8 * 1024;
