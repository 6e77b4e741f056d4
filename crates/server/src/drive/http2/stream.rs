//! A stream whose response is not complete.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_exchange::{Body, stream};
use dunlin_http::FieldLines;
use dunlin_telemetry::metrics::WorkerMetrics;

use super::super::exchange::{Chunk, Exchange, RequestBody, StreamBody};
use super::super::send::Warming;
use super::message::MessageHead;
use super::streams::WakerHandle;
use crate::worker::TunnelMeter;
use dunlin_limits::bandwidth::Pacer;

/// A stream with its exchange.
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) exchange: Exchange,
    pub(super) sending: Sending,
    /// The client has requested a tunnel (RFC 8441).
    pub(super) is_tunnel: bool,
    /// Counts the bytes of the tunnel, once it is open.
    pub(super) meter: Option<TunnelMeter>,
    /// Paces the response body, if a bandwidth limit applies.
    pub(super) pacer: Option<Pacer>,
    /// The client waits for an interim response with status 100 before it sends the body.
    pub(super) expects_continue: bool,
    /// Bytes of the response body that were written.
    pub(super) sent: u64,
    /// Bytes that were written since all was sent, and the [`Connection::flushes`](super::Connection::flushes) of that
    /// time.
    unsent: (u64, u64),
    /// Position of the response among all bytes that the connection sends.
    pub(super) start: i64,
    /// Time of the last progress, in milliseconds of the worker's clock.
    pub(super) moved: u64,
    /// Created when the stream is polled first.
    pub(super) waker: Option<WakerHandle>,
}

/// The body of a response.
pub(super) enum Sending {
    /// The response has not begun, or has no body.
    Nothing,
    Pieces {
        body: Body,
        /// Reads the next bytes from disk into the page cache.
        warming: Option<Warming>,
    },
    Stream {
        body: StreamBody,
        /// The bytes to send next.
        chunk: Bytes,
        /// Nothing but the trailer fields follows `chunk`.
        is_at_end: bool,
        trailers: FieldLines,
    },
    /// A message that includes its head, which is not complete.
    Message { source: stream::Receiver, head: MessageHead },
    /// The handler has ended the body early. The client must see that it is not complete.
    Broken,
}

impl Sending {
    /// A streamed body, of which nothing was sent.
    pub(super) fn stream(body: StreamBody) -> Self {
        let (chunk, trailers) = (Bytes::new(), FieldLines::default());
        Self::Stream { body, chunk, is_at_end: false, trailers }
    }
}

impl Stream {
    pub(super) fn new(id: u32, now: u64, exchange: Exchange) -> Self {
        Self {
            id,
            exchange,
            sending: Sending::Nothing,
            is_tunnel: false,
            meter: None,
            pacer: None,
            expects_continue: false,
            sent: 0,
            unsent: (0, 0),
            start: i64::MAX,
            moved: now,
            waker: None,
        }
    }

    /// Counts bytes of the body that were written.
    pub(super) fn note_sent(&mut self, bytes: usize, flushes: u64) {
        self.sent += bytes as u64;
        if let Some(meter) = &self.meter {
            meter.send(bytes);
        }
        self.unsent = (self.unsent(flushes) + bytes as u64, flushes);
    }

    /// Opens the tunnel. The client may have sent bytes before.
    pub(super) fn begin_tunnel(&mut self, metrics: &Rc<WorkerMetrics>) {
        let mut meter = TunnelMeter::begin(metrics);
        meter.receive(self.exchange.request_body.as_ref().map_or(0, RequestBody::passed));
        self.meter = Some(meter);
    }

    /// Returns the number of bytes that the client has sent through the tunnel; `None` if there is none.
    pub(super) fn received(&self) -> Option<u64> {
        self.meter.as_ref().map(TunnelMeter::received)
    }

    /// Returns the number of body bytes that may not have been sent.
    pub(super) fn unsent(&self, flushes: u64) -> u64 {
        if self.unsent.1 == flushes { self.unsent.0 } else { 0 }
    }

    /// Returns `true` if the head of the response was not sent.
    pub(super) fn is_without_response(&self) -> bool {
        matches!(self.sending, Sending::Nothing | Sending::Message { .. })
    }

    /// Returns `true` if the handler did not get the whole request body.
    pub(super) fn has_upload(&self) -> bool {
        self.exchange.request_body.as_ref().is_some_and(RequestBody::is_streamed)
    }

    /// Returns `true` if the bandwidth limit allows to send now.
    pub(super) fn may_send(&self) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.allowance() > 0)
    }

    /// Returns `true` if bytes of the body can be sent.
    pub(super) fn has_bytes(&self) -> bool {
        if !self.may_send() {
            return false;
        }
        match &self.sending {
            Sending::Pieces { warming, .. } => warming.is_none(),
            Sending::Stream { chunk, .. } => !chunk.is_empty(),
            _ => false,
        }
    }

    /// Returns `true` if the stream waits for the client to send more of the request body.
    pub(super) fn waits_for_body(&self) -> bool {
        self.exchange.waits_for_body() && !(self.expects_continue && self.has_upload())
    }

    /// Polls what the stream waits for. Returns `true` if there is progress.
    pub(super) fn poll(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        let mut has_progress = self.exchange.poll_handler(cx);
        if let Some(body) = &self.exchange.request_body {
            body.watch(cx);
        }
        has_progress |= self.poll_body(cx);
        self.poll_pacer(now, cx) | has_progress
    }

    /// Polls the source of the response body.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.sending {
            Sending::Pieces { warming, .. } => {
                let Some(task) = warming else { return false };
                if task.as_mut().poll(cx).is_pending() {
                    return false;
                }
                *warming = None;
            }
            Sending::Stream { body, chunk, is_at_end, trailers }
                if chunk.is_empty() && !*is_at_end =>
            {
                match body.poll_chunk(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(Chunk::Data(bytes)) => {
                        (*chunk, *is_at_end) = (bytes, body.is_complete());
                    }
                    Poll::Ready(Chunk::End(fields)) => (*is_at_end, *trailers) = (true, fields),
                    Poll::Ready(Chunk::Broken) => self.sending = Sending::Broken,
                }
            }
            Sending::Message { source, head } if !head.is_complete() => {
                match source.poll_next(cx) {
                    Poll::Pending => return false,
                    Poll::Ready(Ok(Some(bytes))) if head.take(&bytes) => {}
                    Poll::Ready(_) => self.sending = Sending::Broken,
                }
            }
            _ => return false,
        }
        true
    }

    /// Polls the bandwidth limit. Returns `true` if it allows bytes that it did not allow before.
    fn poll_pacer(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        let Some(pacer) = &mut self.pacer else { return false };
        let wanted = match &self.sending {
            Sending::Pieces { body, warming: None } => body.length(),
            Sending::Stream { chunk, .. } => chunk.len() as u64,
            _ => 0,
        };
        let is_allowed = pacer.allowance() == 0 && wanted > 0 && pacer.poll(cx, wanted).is_ready();
        if is_allowed {
            self.moved = now;
        }
        is_allowed
    }
}
