//! Timeouts of streams.

use super::super::exchange::STALLED;
use super::stream::Stream;
use super::{Cancel, Multiplexer, Protocol, Stalled};
use crate::worker::Completion;

impl<P: Protocol> Multiplexer<P> {
    /// Returns the time of the next timeout of a stream; `u64::MAX` if there is none.
    pub(in super::super) fn deadline(&self) -> u64 {
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
            Some(stream.moved + settings.body_timeout)
        } else {
            None
        }
    }

    /// Ends the streams that have timed out.
    pub(in super::super) fn expire(&mut self, now: u64, out: &mut P::Output) {
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
