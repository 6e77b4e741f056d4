//! Drivers: each moves bytes between a transport and an engine, and requests to handlers.

mod exchange;
pub(crate) mod http1;
mod http2;
mod patience;
mod send;
#[cfg(test)]
mod tests;

/// Bodies up to this size are copied behind their heads, so that many responses leave in one write. A throttle may let them
/// leave at once.
const INLINE_BODY: usize = 8 * 1024;
