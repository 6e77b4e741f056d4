//! Bodies of requests.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_http::{BodySize, FieldLines};

/// The body of a request: a stream of chunks.
pub trait Body: Unpin {
    /// Returns the length of the whole body, known before the first chunk.
    fn size(&self) -> BodySize;

    /// Returns the next chunk; `None` at the end. The client calls it only when the connection takes more.
    ///
    /// An error aborts the exchange: the server sees an incomplete request.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>;

    /// Returns the trailer fields, requested once after the last chunk of a body of unknown length.
    fn trailers(&mut self) -> FieldLines {
        FieldLines::default()
    }

    /// The final response has begun: the client does not start the body again.
    fn settle(&mut self) {}

    /// Starts the body from its beginning again, if it can: whether it could. The client does so before it repeats an
    /// idempotent request that an idle connection did not deliver.
    fn restart(&mut self) -> bool {
        false
    }
}

/// No body.
#[derive(Debug, Clone, Copy, Default)]
pub struct Empty;

impl Body for Empty {
    fn size(&self) -> BodySize {
        BodySize::Empty
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(None)
    }

    fn restart(&mut self) -> bool {
        true
    }
}

/// A body that is in memory as a whole; without bytes there is no body.
#[derive(Debug, Clone, Default)]
pub struct Full {
    bytes: Bytes,
    is_taken: bool,
}

impl Full {
    /// Creates a body of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), is_taken: false }
    }
}

impl Body for Full {
    fn size(&self) -> BodySize {
        match self.bytes.len() as u64 {
            0 => BodySize::Empty,
            length => BodySize::Known(length),
        }
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let is_over = std::mem::replace(&mut self.is_taken, true) || self.bytes.is_empty();
        Poll::Ready((!is_over).then(|| Ok(self.bytes.clone())))
    }

    fn restart(&mut self) -> bool {
        self.is_taken = false;
        true
    }
}
