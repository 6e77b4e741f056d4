//! Timeouts of a connection and its streams.

use dunlin_http::http2::{BlockedBy, ErrorCode};
use dunlin_net::connections::Waiting;

use super::super::exchange::STALLED;
use super::stream::Stream;
use super::{Connection, Parts};
use crate::worker::{Completion, Http1Settings, Pending};

/// After this time without a request, memory that is kept for speed is freed, in milliseconds.
const REST: u64 = 1_000;
/// Time of a client to learn of a graceful close, in milliseconds.
const DRAIN: u64 = 1_000;

impl Connection {
    /// Sets the time of the next timeout.
    pub(super) fn set_deadline(&mut self) {
        let settings = &self.link.ctx.http1;
        let (waiting, deadline) = if let Some(send_progress) = &self.send_progress {
            (Waiting::Send, send_progress.next_check())
        } else if let Some(since) = self.incomplete_since {
            let waiting = if self.streams.is_empty() { Waiting::Head } else { Waiting::Streams };
            (waiting, since + settings.head_timeout)
        } else if self.streams.is_empty() {
            if self.is_at_rest {
                let waiting = if self.link.requests == 0 { Waiting::First } else { Waiting::Idle };
                (waiting, self.active + settings.idle_timeout)
            } else {
                (Waiting::Resting, self.active + REST)
            }
        } else {
            (Waiting::Streams, u64::MAX)
        };
        let streams = self.streams.iter().filter_map(|stream| self.stream_deadline(stream));
        let mut deadline = streams.fold(deadline, u64::min);
        if self.is_draining {
            deadline = deadline.min(self.drain_since + DRAIN).max(self.link.ctx.clock.now() + 1);
        }
        self.deadline = deadline;
        match (waiting, self.incomplete_since) {
            (Waiting::Head, Some(since)) => {
                self.link.ctx.connections.wait_for_head(self.link.slot, since, deadline);
            }
            _ => self.link.ctx.connections.wait(self.link.slot, waiting, deadline),
        }
    }

    /// Returns the time at which the client must have let the stream make progress.
    fn stream_deadline(&self, stream: &Stream) -> Option<u64> {
        let settings = &self.link.ctx.http1;
        if stream.has_bytes() {
            // A stream that is not scheduled waits for other streams, and not for the client.
            let since = match self.engine.blocked_by(stream.id)? {
                BlockedBy::Stream => stream.moved,
                BlockedBy::Connection => stream.moved.max(self.served),
            };
            Some(since + settings.send_timeout)
        } else if stream.waits_for_body() && self.engine.may_receive(stream.id) {
            Some(stream.moved + settings.body_timeout)
        } else {
            None
        }
    }

    /// Ends what has timed out.
    pub(super) fn expire(&mut self, parts: &mut Parts<'_>) {
        let now = self.link.ctx.clock.now();
        let Http1Settings { head_timeout, idle_timeout, .. } = self.link.ctx.http1;
        if self.is_draining && now >= self.drain_since + DRAIN {
            self.engine.end_drain(parts.out);
            self.drain_since = u64::MAX - DRAIN;
        }
        let overdue = self.streams.ids_where(|stream| {
            self.stream_deadline(stream).is_some_and(|deadline| now >= deadline)
        });
        for id in overdue {
            if self.streams.get_mut(id).is_some_and(|stream| stream.has_bytes()) {
                tracing::debug!(peer = %self.link.facts.peer, "HTTP/2 stream ended: the client's window stays closed");
                self.engine.cancel(id, ErrorCode::Cancel, parts.out);
                self.forget(id, Completion::Aborted, parts.out);
            } else {
                self.reject_stream(id, STALLED, parts);
            }
        }
        if self.streams.is_empty() && self.link.ctx.connections.is_evicted(self.link.slot) {
            self.is_evicted = true;
            return self.end(ErrorCode::NoError, "closed to make room", parts);
        }
        if self.incomplete_since.is_some_and(|since| now >= since + head_timeout) {
            return self.end(ErrorCode::ProtocolError, "a frame took too long", parts);
        }
        if self.streams.is_empty() && self.incomplete_since.is_none() {
            if now >= self.active + idle_timeout {
                self.end(ErrorCode::NoError, "idle", parts);
            } else if now >= self.active + REST {
                self.is_at_rest = true;
                self.engine.shrink();
                self.streams.shrink();
                // Responses, and their records, may still wait for the socket.
                if self.pending.is_empty() {
                    self.pending = Pending::default();
                }
            }
        }
    }

    fn end(&mut self, code: ErrorCode, reason: &str, parts: &mut Parts<'_>) {
        self.engine.abort(code, reason, parts.out);
        self.is_over = true;
    }
}
