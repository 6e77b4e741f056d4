//! The body of a request on its way to an instance.
//!
//! The data of an instance has to be `Send`, which the streams of a worker are not. A [`RequestBodySource`] is the end that
//! the instance has; the [`BodyPump`] fills it when the request is polled.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dunlin_exchange::stream;
use dunlin_http::FieldLines;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use wasmtime_wasi_http::Error;

/// Bytes of a body that an instance has not read.
const LIMIT: usize = 64 * 1024;
/// The memory of a chunk besides its bytes: a client may send its body byte by byte.
const COST: usize = 64;

/// The end that the instance has.
#[derive(Clone, Default)]
pub(crate) struct RequestBodySource {
    state: Arc<Mutex<State>>,
}

/// The end that the worker has.
pub(crate) struct BodyPump {
    source: stream::Receiver,
    feed: RequestBodySource,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Bytes>,
    held: usize,
    end: Option<End>,
    trailers: Option<HeaderMap>,
    /// Of the instance, which waits for bytes.
    reader: Option<Waker>,
    /// Of the pump, which waits for room.
    writer: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Broken,
}

impl RequestBodySource {
    /// Returns a body that comes from `source`; without a pump if all of it is there.
    pub(crate) fn new(source: stream::Receiver) -> (Self, Option<BodyPump>) {
        let feed = Self::default();
        let mut pump = BodyPump { source, feed: feed.clone() };
        let is_whole = pump.source.whole_length().is_some();
        let limit = if is_whole { usize::MAX } else { LIMIT };
        pump.fill(limit, &mut Context::from_waker(Waker::noop()));
        let is_complete = feed.lock().end.is_some();
        (feed, (!is_complete).then_some(pump))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next at most `max` bytes; `None` at the end.
    ///
    /// # Errors
    /// The client has left.
    pub(crate) fn poll_read(
        &self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, stream::Broken>> {
        let mut state = self.lock();
        if let Some(chunk) = state.chunks.front_mut() {
            let bytes = if chunk.len() <= max {
                state.held -= COST;
                state.chunks.pop_front().unwrap_or_default()
            } else {
                chunk.split_to(max)
            };
            state.held -= bytes.len();
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Ok(Some(bytes)));
        }
        match state.end {
            Some(End::Complete) => Poll::Ready(Ok(None)),
            Some(End::Broken) => Poll::Ready(Err(stream::Broken)),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl BodyPump {
    /// Moves what has arrived.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        self.fill(LIMIT, cx);
    }

    fn fill(&mut self, limit: usize, cx: &mut Context<'_>) {
        loop {
            let mut state = self.feed.lock();
            if state.end.is_some() {
                return;
            }
            if state.held >= limit {
                state.writer = Some(cx.waker().clone());
                return;
            }
            match self.source.poll_next(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(Some(bytes))) => {
                    state.held += bytes.len() + COST;
                    state.chunks.push_back(bytes);
                }
                Poll::Ready(Ok(None)) => {
                    let trailers = self.source.take_trailers();
                    state.trailers = (!trailers.is_empty()).then(|| header_map(&trailers));
                    state.end = Some(End::Complete);
                }
                Poll::Ready(Err(_)) => state.end = Some(End::Broken),
            }
            if let Some(reader) = state.reader.take() {
                reader.wake();
            }
        }
    }
}

/// Fields in the form of the interfaces of WASI. Those that it does not permit are left out.
fn header_map(fields: &FieldLines) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter() {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            map.append(name, value);
        }
    }
    map
}

impl Body for RequestBodySource {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let read = match self.poll_read(LIMIT, cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(read) => read,
        };
        Poll::Ready(match read {
            Ok(Some(bytes)) => Some(Ok(Frame::data(bytes))),
            Ok(None) => self.lock().trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
            Err(stream::Broken) => Some(Err(Error::ConnectionTerminated)),
        })
    }

    fn is_end_stream(&self) -> bool {
        let state = self.lock();
        state.chunks.is_empty() && state.end == Some(End::Complete) && state.trailers.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_body_is_bounded_and_arrives_whole() {
        let cx = &mut Context::from_waker(Waker::noop());
        let (sender, receiver) = stream::channel(usize::MAX);
        sender.push(vec![b'a'; LIMIT].into());
        sender.push(vec![b'b'; LIMIT].into());
        let (feed, pump) = RequestBodySource::new(receiver);
        let Some(mut pump) = pump else { panic!("it is not whole") };
        assert_eq!(feed.lock().held, LIMIT + COST);
        assert!(
            matches!(feed.poll_read(100, cx), Poll::Ready(Ok(Some(bytes))) if *bytes == [b'a'; 100])
        );
        pump.poll(cx);
        assert_eq!(feed.lock().held, 2 * (LIMIT + COST) - 100);
        sender.end();
        let mut length = 100;
        while let Poll::Ready(Ok(Some(bytes))) = feed.poll_read(usize::MAX, cx) {
            length += bytes.len();
            pump.poll(cx);
        }
        assert_eq!(length, 2 * LIMIT);
        assert!(matches!(feed.poll_read(1, cx), Poll::Ready(Ok(None))));
        assert_eq!(feed.lock().held, 0);
    }

    #[test]
    fn a_body_that_comes_byte_by_byte_has_few_chunks() {
        /// As many single bytes as are wanted.
        #[derive(Debug)]
        struct Bytewise;

        impl stream::Source for Bytewise {
            fn poll_next(
                &mut self,
                _: &mut Context<'_>,
            ) -> Poll<Result<Option<Bytes>, stream::Broken>> {
                Poll::Ready(Ok(Some(Bytes::from_static(b"x"))))
            }
        }

        let (feed, pump) = RequestBodySource::new(stream::from_source(Box::new(Bytewise)));
        assert!(pump.is_some());
        assert!(feed.lock().chunks.len() <= LIMIT / COST);
    }

    #[test]
    fn a_broken_body_is_an_error() {
        let (sender, receiver) = stream::channel(10);
        drop(sender);
        let (feed, pump) = RequestBodySource::new(receiver);
        assert!(pump.is_none());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(matches!(feed.poll_read(1, cx), Poll::Ready(Err(stream::Broken))));
    }
}
