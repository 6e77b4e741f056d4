//! The exchanges of a connection that has many at a time, for every protocol of this kind.
//!
//! A request whose response is not complete becomes a [`Stream`]. Only streams that were woken are polled; bodies are sent as
//! the client's windows and priorities allow, which the [`Protocol`] knows. An adapter feeds what its engine has received to
//! the [`Multiplexer`], and writes what that makes.

mod deadline;
mod message;
mod message_head;
mod progress;
mod pump;
mod request;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod wakeups;

use std::task::Context;

use bytes::Bytes;
use dunlin_http::FieldLines;
use dunlin_http::http2::OutgoingHead;

pub(crate) use self::request::RequestStart;
use self::stream::Stream;
use self::streams::Streams;
use super::link::{Carrier, Link};
use crate::worker::{Buffers, Pending};
use dunlin_exchange::Filled;

/// The number of a stream in its connection.
pub(crate) type StreamId = u64;

/// How a protocol sends what its streams have.
pub(crate) trait Protocol {
    /// What takes the bytes or frames that are sent.
    type Output;
    /// What carries the connection.
    type Carrier: Carrier;

    fn carrier(&mut self) -> &mut Self::Carrier;

    /// Sends the head of the final response, which is all of it if `has_ended`.
    fn respond(
        &mut self,
        id: StreamId,
        head: &OutgoingHead<'_>,
        has_ended: bool,
        out: &mut Self::Output,
    );

    /// Sends the head of an interim response.
    fn send_interim(&mut self, id: StreamId, head: &OutgoingHead<'_>, out: &mut Self::Output);

    /// Sends a complete body. Returns `false`, and sends nothing, if the client's windows do not allow all of it now.
    fn send_whole(&mut self, id: StreamId, body: &[u8], out: &mut Self::Output) -> bool;

    /// Sends a part of a body: `fill` appends at most as many bytes as it is called with. Returns the number of bytes that
    /// are sent, and the result of `fill`; nothing is sent after [`Filled::Changed`].
    fn send_data(
        &mut self,
        id: StreamId,
        fill: impl FnOnce(usize, &mut Vec<u8>) -> Filled,
        out: &mut Self::Output,
    ) -> (usize, Filled);

    /// Sends a part of a body without a copy, if the protocol can do that and there is one: `take` returns at most as many bytes
    /// as it is called with. Returns their number, and whether they are the last.
    fn send_slice(
        &mut self,
        _id: StreamId,
        _take: impl FnOnce(usize) -> Option<(Bytes, Filled)>,
        _out: &mut Self::Output,
    ) -> Option<(usize, Filled)> {
        None
    }

    /// Ends a body with these trailer fields, which may be none.
    fn end_body(&mut self, id: StreamId, trailers: &FieldLines, out: &mut Self::Output);

    /// Resets a stream.
    fn cancel(&mut self, id: StreamId, reason: Cancel, out: &mut Self::Output);

    /// Lets the client send as many bytes of request bodies as were consumed.
    fn consumed(&mut self, id: StreamId, bytes: usize, out: &mut Self::Output);

    /// Announces to the client that further requests on the connection are not served. `now` is the time of the worker's clock.
    fn drain(&mut self, now: u64, out: &mut Self::Output);

    /// Returns the number of bytes that the client's windows allow on the stream now.
    fn allowance(&mut self, id: StreamId) -> usize;

    /// Sets whether the stream has bytes to send.
    fn set_ready(&mut self, id: StreamId, is_ready: bool);

    /// Returns the stream of which bytes are sent next; `None` if there is none, or `out` has enough for one write.
    fn next_to_send(&mut self, out: &Self::Output) -> Option<StreamId>;

    /// Returns what keeps the bytes of a stream from being sent; `None` if nothing of the client does.
    fn stalled_by(&self, id: StreamId) -> Option<Stalled>;

    /// Returns `true` if the client may send more of the request body.
    fn may_receive(&self, id: StreamId) -> bool;

    /// Returns the position of the next byte of `out` among all that the connection sends.
    fn position(&self, out: &Self::Output) -> i64;

    /// Returns how often all bytes were sent.
    fn flushes(&self) -> u64;

    /// Frees memory that is kept for speed. There are no streams.
    fn shrink(&mut self);
}

/// Why a stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// The response cannot be completed.
    Broken,
    /// The response is of no more use, or the other connection of a tunnel was reset.
    Stopped,
}

/// The window of the client that keeps bytes from being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stalled {
    Stream,
    Connection,
}

/// The exchanges of a connection.
pub(crate) struct Multiplexer<P> {
    pub(crate) link: Link,
    pub(crate) protocol: P,
    streams: Streams,
    /// Records of responses whose last bytes were not sent.
    pub(crate) pending: Pending,
    /// When bytes of a body were last sent on any stream.
    served: u64,
    /// The client has closed the connection.
    pub(crate) is_lost: bool,
    /// Time of the last read or write, in milliseconds of the worker's clock.
    pub(crate) active: u64,
    /// Memory that is kept for speed was freed.
    is_at_rest: bool,
}

/// The buffers of the worker, while a connection uses them.
pub(crate) struct TakenBuffers {
    pub(crate) buffers: Box<Buffers>,
    /// The connection uses the lists of the worker.
    has_lists: bool,
}

impl<P: Protocol> Multiplexer<P> {
    /// Takes the buffers of the worker, with its lists, so that a connection needs lists of its own only for what was not sent.
    pub(crate) fn take_buffers(&mut self) -> TakenBuffers {
        let mut buffers = self.link.ctx.take_buffers();
        let has_lists = self.pending.is_empty();
        if has_lists {
            std::mem::swap(&mut self.pending, &mut buffers.output.pending);
        }
        TakenBuffers { buffers, has_lists }
    }

    /// Returns them.
    pub(crate) fn give_buffers(&mut self, taken: TakenBuffers) {
        let TakenBuffers { mut buffers, has_lists } = taken;
        if has_lists && self.pending.is_empty() {
            std::mem::swap(&mut self.pending, &mut buffers.output.pending);
        }
        self.link.ctx.give_buffers(buffers);
    }

    pub(crate) fn new(link: Link, protocol: P) -> Self {
        let now = link.now();
        Self {
            link,
            protocol,
            streams: Streams::default(),
            pending: Pending::default(),
            served: now,
            is_lost: false,
            active: now,
            is_at_rest: true,
        }
    }

    /// Returns `true` if all responses are complete.
    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns `true` if a handler waits for bytes of a request body.
    pub(crate) fn has_upload(&self) -> bool {
        self.streams.iter().any(Stream::has_upload)
    }

    /// Returns `true` if a stream is to be polled although nothing has woken it.
    pub(crate) fn has_due(&self) -> bool {
        self.streams.has_due()
    }

    /// Polls the streams that were woken. `is_blocked`: the transport takes no bytes. Returns `true` if there is progress.
    pub(crate) fn poll(&mut self, is_blocked: bool, cx: &Context<'_>) -> bool {
        let (protocol, now) = (&mut self.protocol, self.link.now());
        self.streams.poll(now, cx, |id| !is_blocked && protocol.allowance(id) > 0)
    }

    /// Continues the streams that were held back and have room now. Returns `true` if there is one.
    pub(crate) fn release(&mut self, is_blocked: bool) -> bool {
        let protocol = &mut self.protocol;
        self.streams.release(|id| !is_blocked && protocol.allowance(id) > 0)
    }

    /// Records the responses that are complete, all of whose bytes were sent.
    pub(crate) fn record_sent(&mut self) {
        self.pending.settle(&self.link.ctx, &self.link.facts);
    }

    /// Records the responses that end before the position `sent`.
    pub(crate) fn record_sent_before(&mut self, sent: i64) {
        self.pending.settle_before(&self.link.ctx, &self.link.facts, sent);
    }
}
