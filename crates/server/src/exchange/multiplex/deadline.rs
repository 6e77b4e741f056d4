//! Timeouts of streams, and of connections without any.

use dunlin_exchange::STALLED;
use dunlin_net::connections::Waiting;

use super::stream::Stream;
use super::{Cancel, Multiplexer, Protocol, Stalled};
use crate::worker::{Completion, Pending};

/// After this time without a request, memory that is kept for speed is freed, in milliseconds.
const REST: u64 = 1_000;

impl<P: Protocol> Multiplexer<P> {
    /// Returns what the connection waits for if no message is incomplete, and until when.
    pub(crate) fn waits_for(&self) -> (Waiting, u64) {
        let idle = self.active + self.link.ctx.http1.idle_timeout;
        match (self.is_empty(), self.is_at_rest) {
            (false, _) => (Waiting::Streams, u64::MAX),
            (true, false) => (Waiting::Resting, self.active + REST),
            (true, true) if self.link.requests == 0 => (Waiting::First, idle),
            (true, true) => (Waiting::Idle, idle),
        }
    }

    /// Frees memory that is kept for speed if there was no request for a while. Returns `true` if the connection was idle until
    /// its timeout.
    pub(crate) fn rest(&mut self, now: u64) -> bool {
        if now >= self.active + self.link.ctx.http1.idle_timeout {
            return true;
        }
        if now >= self.active + REST {
            self.is_at_rest = true;
            self.protocol.shrink();
            self.streams.shrink();
            // Responses, and their records, may still wait for the socket.
            if self.pending.is_empty() {
                self.pending = Pending::default();
            }
        }
        false
    }

    /// Returns the time of the next timeout of a stream; `u64::MAX` if there is none.
    pub(crate) fn deadline(&self) -> u64 {
        let deadlines = self.streams.iter().filter_map(|stream| self.stream_deadline(stream));
        deadlines.fold(u64::MAX, u64::min)
    }

    /// Returns the time at which the client must have let the stream make progress.
    fn stream_deadline(&self, stream: &Stream) -> Option<u64> {
        let settings = &self.link.ctx.http1;
        if stream.has_bytes() {
            // A stream that is not scheduled waits for other streams, and not for the client.
            let since = match self.protocol.stalled_by(stream.id)? {
                Stalled::Stream => stream.moved,
                Stalled::Connection => stream.moved.max(self.served),
            };
            Some(since + settings.send_timeout)
        } else if stream.waits_for_body() && self.protocol.may_receive(stream.id) {
            Some(stream.moved + settings.body.timeout)
        } else {
            None
        }
    }

    /// Ends the streams that have timed out.
    pub(crate) fn expire(&mut self, now: u64, out: &mut P::Output) {
        let overdue = self.streams.ids_where(|stream| {
            self.stream_deadline(stream).is_some_and(|deadline| now >= deadline)
        });
        for id in overdue {
            if self.streams.get_mut(id).is_some_and(|stream| stream.has_bytes()) {
                tracing::debug!(peer = %self.link.facts.peer, "stream ended: the client's window stays closed");
                self.protocol.cancel(id, Cancel::Stopped, out);
                self.forget(id, Completion::Aborted, out);
            } else {
                self.reject_stream(id, STALLED, out);
            }
        }
    }
}
