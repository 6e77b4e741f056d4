//! One exchange on a connection of HTTP/2.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use dunlin_http::http2::Http2ErrorCode;
use dunlin_http::{BodySize, ChunkQueue, FieldLines, RequestHead};

use super::{MAX_OUT, Shared, State};
use crate::ErrorKind;
use crate::body::Body;
use crate::event::{Event, Failure, SendState, Sending};

/// The state that the connection keeps of a stream.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// Heads that the exchange has not taken. The engine bounds those of interim responses.
    pub(super) heads: VecDeque<Event>,
    /// Data that the exchange has not taken. Flow control bounds it.
    pub(super) data: ChunkQueue,
    /// The response is complete; its trailer fields.
    pub(super) end: Option<FieldLines>,
    /// Why no more follows.
    pub(super) failure: Option<Failure>,
    /// Some part of the response has arrived.
    pub(super) has_response_bytes: bool,
    /// The exchange waits.
    pub(super) waker: Option<Waker>,
}

impl StreamState {
    /// Returns the next part of the response.
    fn next(&mut self) -> Option<Event> {
        let head = self.heads.pop_front();
        let data = || self.data.pop().map(Event::Data);
        head.or_else(data).or_else(|| self.end.take().map(Event::End))
    }
}

/// A stream, as its exchange uses it.
#[derive(Debug)]
pub(crate) struct Http2Stream {
    shared: Arc<Shared>,
    id: u32,
    /// Bytes of the request's body that no frame has yet.
    chunk: Bytes,
    /// Bytes of the body that are still to come, if its length is known.
    left: Option<u64>,
    has_head: bool,
    expects_continue: bool,
    progress: u64,
}

impl Http2Stream {
    pub(super) fn new(shared: Arc<Shared>, id: u32, head: &RequestHead, size: BodySize) -> Self {
        let left = match size {
            BodySize::Empty => Some(0),
            BodySize::Known(length) => Some(length),
            BodySize::Unknown => None,
        };
        Self {
            shared,
            id,
            chunk: Bytes::new(),
            left,
            has_head: false,
            expects_continue: head.expects_continue(),
            progress: 0,
        }
    }

    /// Begins the exchange, whose head was sent when the stream was opened.
    pub(crate) fn begin<B: Body>(&self, body: B) -> Sending<B> {
        let state = match self.left {
            Some(0) => SendState::Ended,
            _ if self.expects_continue => SendState::Held,
            _ => SendState::Streaming,
        };
        Sending { body, state }
    }

    /// Sends what the windows permit. Ready when the request is complete or no more of it is wanted.
    pub(crate) fn poll_send<B: Body>(
        &mut self,
        context: &mut Context<'_>,
        sending: &mut Sending<B>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            if !self.chunk.is_empty() {
                ready!(self.poll_send_chunk(context, sending));
                continue;
            }
            match sending.state {
                SendState::Held => return Poll::Pending,
                SendState::Ended => return Poll::Ready(Ok(())),
                SendState::Streaming => {}
            }
            match ready!(sending.body.poll_chunk(context)) {
                Some(Ok(chunk)) => self.take(chunk)?,
                Some(Err(error)) => {
                    let reason = format!("the body of the request failed: {error}");
                    return Poll::Ready(Err(Failure::new(ErrorKind::RequestBody, reason)));
                }
                None if self.left.is_some_and(|left| left > 0) => {
                    let reason = "the request's body is shorter than announced";
                    return Poll::Ready(Err(Failure::new(ErrorKind::InvalidRequest, reason)));
                }
                None => {
                    let trailers = sending.body.trailers();
                    let mut state = self.shared.state();
                    let State { engine, out, .. } = &mut *state;
                    engine.end_body(self.id, &trailers, out);
                    state.wake_task();
                    sending.state = SendState::Ended;
                }
            }
        }
    }

    fn take(&mut self, chunk: Bytes) -> Result<(), Failure> {
        if let Some(left) = &mut self.left {
            let rest = left.checked_sub(chunk.len() as u64);
            let reason = "the request's body is longer than announced";
            *left = rest.ok_or_else(|| Failure::new(ErrorKind::InvalidRequest, reason))?;
        }
        self.chunk = chunk;
        Ok(())
    }

    /// Puts as much of the chunk into frames as the windows permit. Ready when something was done.
    fn poll_send_chunk<B>(
        &mut self,
        context: &mut Context<'_>,
        sending: &mut Sending<B>,
    ) -> Poll<()> {
        let mut state = self.shared.state();
        let State { engine, out, waiting, .. } = &mut *state;
        if !engine.is_sending(self.id) {
            // The response is complete or the stream has failed; the server wants no more.
            self.chunk = Bytes::new();
            sending.state = SendState::Ended;
            return Poll::Ready(());
        }
        let count = engine.capacity(self.id).min(self.chunk.len());
        if count == 0 || out.len() >= MAX_OUT {
            waiting.insert(self.id.into(), context.waker().clone());
            return Poll::Pending;
        }
        let is_end = self.left == Some(0) && count == self.chunk.len();
        if is_end {
            sending.state = SendState::Ended;
        }
        engine.begin_data(self.id, count, is_end, out);
        out.extend_from_slice(&self.chunk.split_to(count));
        self.progress += count as u64;
        state.wake_task();
        Poll::Ready(())
    }

    /// Returns the next part of the response.
    pub(crate) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Failure>> {
        let mut state = self.shared.state();
        let State { engine, out, streams, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&self.id) else {
            let failure = Failure::new(ErrorKind::Connection, "the stream is closed");
            return Poll::Ready(Err(failure));
        };
        let Some(event) = stream.next() else {
            if let Some(failure) = stream.failure.take() {
                return Poll::Ready(Err(failure));
            }
            stream.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        self.progress += 1;
        match &event {
            Event::Data(data) => {
                engine.consumed(self.id, data.len(), out);
                if !out.is_empty() {
                    state.wake_task();
                }
            }
            Event::Head(_) => self.has_head = true,
            _ => {}
        }
        Poll::Ready(Ok(event))
    }

    /// Returns a number that changes whenever bytes move.
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    /// Returns `true` if the windows or the byte stream hold up the request's body.
    pub(crate) fn is_sending(&self) -> bool {
        !self.chunk.is_empty()
    }

    /// Returns `true` if the final head has arrived.
    pub(crate) fn has_head(&self) -> bool {
        self.has_head
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        let State { engine, out, streams, .. } = &mut *state;
        // The credit of what was not taken belongs to the other streams.
        let rest = streams.remove(&self.id).map_or(0, |stream| stream.data.len());
        engine.reset(self.id, Http2ErrorCode::Cancel, out);
        engine.consumed(self.id, rest, out);
        state.waiting.remove(&self.id.into());
        // Another exchange may open a stream now.
        state.wake_waiting();
        state.wake_task();
    }
}
