//! A stream whose response is not complete.

use std::task::{Context, Poll};

use dunlin_exchange::{BodyWriter, RequestBody, stream};

use super::super::Exchange;
use super::message_head::MessageHead;
use super::wakeups::WakerHandle;
use super::{Protocol, StreamId};
use dunlin_limits::bandwidth::Pacer;

/// A stream with its exchange.
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) exchange: Exchange,
    pub(super) sending: StreamSending,
    /// The client has requested a tunnel (RFC 8441).
    pub(super) is_tunnel: bool,
    /// The client waits for an interim response with status 100 before it sends the body.
    pub(super) expects_continue: bool,
    /// Bytes that were written since all was sent, and the [`Protocol::flushes`] of that
    /// time.
    unsent: (u64, u64),
    /// Position of the response among all bytes that the connection sends.
    pub(super) start: i64,
    /// Time of the last progress, in milliseconds of the worker's clock.
    pub(super) moved: u64,
    /// The source of the body is not polled before the connection has room, or the client's window lets the bytes be sent.
    pub(super) is_held_back: bool,
    /// Created when the stream is polled first.
    pub(super) waker: Option<WakerHandle>,
}

/// What is sent of a response.
pub(super) enum StreamSending {
    /// The response has not begun, or has no body.
    Nothing,
    Body(BodyWriter),
    /// A message that includes its head, which is not complete.
    Message {
        source: stream::Receiver,
        head: MessageHead,
        pacer: Option<Pacer>,
    },
    /// The handler has ended the message before its body. The client must see that it is not complete.
    Broken,
}

impl Stream {
    pub(super) fn new(id: StreamId, now: u64, exchange: Exchange) -> Self {
        Self {
            id,
            exchange,
            sending: StreamSending::Nothing,
            is_tunnel: false,
            expects_continue: false,
            unsent: (0, 0),
            start: i64::MAX,
            moved: now,
            is_held_back: false,
            waker: None,
        }
    }

    /// Counts bytes of the body that were written.
    pub(super) fn note_sent(&mut self, bytes: usize, flushes: u64) {
        self.exchange.note_sent(bytes);
        self.unsent = (self.unsent(flushes) + bytes as u64, flushes);
    }

    /// Returns the number of body bytes that may not have been sent.
    pub(super) fn unsent(&self, flushes: u64) -> u64 {
        if self.unsent.1 == flushes { self.unsent.0 } else { 0 }
    }

    /// Returns `true` if the head of the response was not sent.
    pub(super) fn is_without_response(&self) -> bool {
        matches!(self.sending, StreamSending::Nothing | StreamSending::Message { .. })
    }

    /// Returns `true` if the handler did not get the whole request body.
    pub(super) fn has_upload(&self) -> bool {
        self.exchange.request_body.as_ref().is_some_and(RequestBody::is_streamed)
    }

    /// Returns the bytes of a request body that the handler has not taken to the window of the connection. The stream
    /// receives no more of them.
    pub(super) fn release_window<P: Protocol>(&self, protocol: &mut P, out: &mut P::Output) {
        if let Some(body) = &self.exchange.request_body {
            protocol.consumed(self.id, body.untaken(), out);
        }
    }

    /// Returns `true` if bytes of the body can be sent.
    pub(super) fn has_bytes(&self) -> bool {
        matches!(&self.sending, StreamSending::Body(body) if body.has_bytes())
    }

    /// Returns the bytes in memory that wait for the client.
    pub(super) fn held(&self) -> usize {
        match &self.sending {
            StreamSending::Body(body) => body.held(),
            StreamSending::Message { head, .. } => head.held(),
            StreamSending::Nothing | StreamSending::Broken => 0,
        }
    }

    /// Returns `true` if the stream waits for the client to send more of the request body.
    pub(super) fn waits_for_body(&self) -> bool {
        self.exchange.waits_for_body() && !(self.expects_continue && self.has_upload())
    }

    /// Polls what the stream waits for, with `may_take` also the source of its body. Returns `true` if there is progress.
    pub(super) fn poll(&mut self, now: u64, may_take: bool, cx: &mut Context<'_>) -> bool {
        let mut has_progress = self.exchange.poll_handler(cx);
        if let Some(body) = &self.exchange.request_body {
            body.watch(cx);
        }
        self.is_held_back = !may_take && self.wants_bytes();
        if !self.is_held_back {
            has_progress |= self.poll_sending(now, cx);
        }
        has_progress
    }

    /// Returns `true` if the source of the body is to be polled for the next bytes.
    fn wants_bytes(&self) -> bool {
        matches!(&self.sending, StreamSending::Body(body) if body.wants_bytes())
    }

    /// Polls the source of the response.
    fn poll_sending(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        match &mut self.sending {
            StreamSending::Body(body) => {
                let was_paced = !body.may_send();
                let has_progress = body.poll(cx);
                if was_paced && body.may_send() {
                    self.moved = now;
                }
                return has_progress;
            }
            StreamSending::Message { source, head, .. } if !head.is_complete() => {
                match source.poll_next(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(Some(bytes))) if head.take(&bytes) => {}
                    Poll::Ready(_) => self.sending = StreamSending::Broken,
                }
            }
            StreamSending::Nothing | StreamSending::Message { .. } | StreamSending::Broken => {
                return false;
            }
        }
        true
    }
}
