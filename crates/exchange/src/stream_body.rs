//! The body of a response that the handler streams.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_http::FieldLines;

use crate::stream;

/// A streamed response body.
pub struct StreamBody {
    /// `None` after the last chunk.
    source: Option<stream::Receiver>,
    /// Bytes still to come, if the length is stated.
    left: Option<u64>,
    /// The handler has ended the body early.
    is_broken: bool,
    /// Bytes before those of the source.
    first: Bytes,
}

/// The next part of a streamed body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Bytes.
    Data(Bytes),
    /// The body is complete; its trailer fields.
    End(FieldLines),
    /// The handler has ended the body early. The client must see that it is not complete.
    Broken,
}

impl StreamBody {
    /// Creates a body with this stated `length`.
    pub fn new(source: stream::Receiver, length: Option<u64>) -> Self {
        let first = Bytes::new();
        let mut body = Self { source: Some(source), left: length, is_broken: false, first };
        if length == Some(0) {
            body.discard();
        }
        body
    }

    /// Creates a body with this stated `length` that begins with the bytes `first`.
    pub fn after(first: Bytes, source: stream::Receiver, length: Option<u64>) -> Self {
        let mut body = Self::new(source, length);
        body.first = body.take_part(first);
        body
    }

    /// Takes the bytes before those of the source.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Bytes {
        std::mem::take(&mut self.first)
    }

    /// Returns the next chunk. A chunk ends at the stated length; bytes behind it are dropped. That the body is broken comes
    /// one poll later, so that the head and what precedes are sent: the client sees an incomplete response, and not a
    /// connection that ends without one.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Chunk> {
        let Some(source) = &mut self.source else {
            return Poll::Ready(Chunk::End(FieldLines::default()));
        };
        if self.is_broken {
            return Poll::Ready(Chunk::Broken);
        }
        Poll::Ready(match ready!(source.poll_next(cx)) {
            Ok(Some(bytes)) => Chunk::Data(self.take_part(bytes)),
            Ok(None) if self.left.is_none() => Chunk::End(source.take_trailers()),
            Ok(None) | Err(stream::Broken) => {
                self.is_broken = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }

    /// Counts a part of the body. Returns the part up to the stated length.
    fn take_part(&mut self, mut bytes: Bytes) -> Bytes {
        if let Some(left) = &mut self.left {
            bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= bytes.len() as u64;
            if *left == 0 {
                self.discard();
            }
        }
        bytes
    }

    /// Returns `true` if no more chunks follow.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.source.is_none()
    }

    /// Drops all further chunks. The handler can continue, as a script that works in the background does.
    pub fn discard(&mut self) {
        if let Some(source) = self.source.take() {
            source.detach();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const END: Chunk = Chunk::End(FieldLines::NONE);

    fn chunks(body: &mut StreamBody) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        while let Poll::Ready(chunk) = poll_twice(body) {
            let is_data = matches!(chunk, Chunk::Data(_));
            chunks.push(chunk);
            if !is_data {
                break;
            }
        }
        chunks
    }

    fn poll_twice(body: &mut StreamBody) -> Poll<Chunk> {
        let cx = &mut Context::from_waker(Waker::noop());
        let first = body.poll_chunk(cx);
        if first.is_ready() { first } else { body.poll_chunk(cx) }
    }

    fn source(text: &'static str) -> stream::Receiver {
        stream::of([Bytes::from_static(text.as_bytes())])
    }

    #[test]
    fn a_body_ends_at_its_stated_length() {
        let data = |text: &'static str| Chunk::Data(Bytes::from_static(text.as_bytes()));
        assert_eq!(chunks(&mut StreamBody::new(source("ab"), None)), [data("ab"), END]);
        assert_eq!(chunks(&mut StreamBody::new(source("ab"), Some(2))), [data("ab"), END]);
        assert_eq!(chunks(&mut StreamBody::new(source("abc"), Some(2))), [data("ab"), END]);
        assert_eq!(chunks(&mut StreamBody::new(source("a"), Some(2))), [data("a"), Chunk::Broken]);
        assert_eq!(chunks(&mut StreamBody::new(source("a"), Some(0))), [END]);
    }

    #[test]
    fn a_body_at_its_stated_length_does_not_wait_for_the_handler() {
        let (sender, receiver) = stream::channel(10);
        let mut body = StreamBody::new(receiver, Some(2));
        sender.push(Bytes::from_static(b"ab"));
        assert_eq!(chunks(&mut body).len(), 2);
        assert!(body.is_complete() && !sender.is_abandoned());
    }

    #[test]
    fn the_first_bytes_count_in_the_stated_length() {
        let first = Bytes::from_static(b"abc");
        let mut body = StreamBody::after(first.clone(), source("de"), Some(4));
        assert_eq!(body.take_first(), first);
        assert_eq!(chunks(&mut body), [Chunk::Data(Bytes::from_static(b"d")), END]);
        let mut body = StreamBody::after(first, source("de"), Some(2));
        assert!(body.is_complete());
        assert_eq!(body.take_first(), "ab");
    }

    #[test]
    fn a_body_that_the_handler_drops_is_broken() {
        let (sender, receiver) = stream::channel(10);
        drop(sender);
        let mut body = StreamBody::new(receiver, None);
        assert!(body.poll_chunk(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(chunks(&mut body), [Chunk::Broken]);
    }
}
