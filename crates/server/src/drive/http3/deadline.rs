//! Timeouts of a connection and its streams.

use dunlin_http::http3::Http3ErrorCode;
use dunlin_net::connections::Waiting;

use super::Http3Driver;
use crate::exchange::link::Link;

/// Time of a client to learn of a graceful close, in milliseconds.
const DRAIN: u64 = 1_000;

impl Http3Driver {
    /// Sets the time of the next timeout.
    pub(super) fn set_deadline(&mut self) {
        let Link { ctx, slot, .. } = &self.exchanges.link;
        let now = ctx.clock.now();
        match self.exchanges.protocol.engine.awaits_head() {
            true => _ = self.incomplete_since.get_or_insert(now),
            false => self.incomplete_since = None,
        }
        let (waiting, deadline) = match self.incomplete_since {
            Some(since) if self.exchanges.is_empty() => {
                (Waiting::Head, since + ctx.http1.head_timeout)
            }
            Some(since) => (Waiting::Streams, since + ctx.http1.head_timeout),
            None => self.exchanges.waits_for(),
        };
        let mut deadline = deadline.min(self.exchanges.deadline());
        if let Some((_, limit)) = &self.handshake {
            deadline = deadline.min(*limit);
        }
        if let Some(since) = self.exchanges.protocol.draining_since {
            deadline = deadline.min(since + DRAIN).max(now + 1);
        }
        match (waiting, self.incomplete_since) {
            (Waiting::Head, Some(since)) => ctx.connections.wait_for_head(*slot, since, deadline),
            _ => ctx.connections.wait(*slot, waiting, deadline),
        }
        self.deadline = deadline;
    }

    /// Ends what has timed out.
    pub(super) fn expire(&mut self, is_evicted: bool, out: &mut Vec<u8>) {
        let Link { ctx, .. } = &self.exchanges.link;
        let (now, head_timeout) = (ctx.clock.now(), ctx.http1.head_timeout);
        let protocol = &mut self.exchanges.protocol;
        if protocol.draining_since.is_some_and(|since| now >= since + DRAIN) {
            protocol.engine.end_drain();
            protocol.draining_since = Some(u64::MAX - DRAIN);
        }
        self.exchanges.expire(now, out);
        let end = if self.exchanges.is_empty() && is_evicted {
            (Http3ErrorCode::NoError, "closed to make room")
        } else if self.handshake.as_ref().is_some_and(|(_, limit)| now >= *limit) {
            (Http3ErrorCode::NoError, "the handshake took too long")
        } else if self.incomplete_since.is_some_and(|since| now >= since + head_timeout) {
            (Http3ErrorCode::RequestIncomplete, "the head of a request took too long")
        } else if self.exchanges.is_empty()
            && self.incomplete_since.is_none()
            && self.exchanges.rest(now)
        {
            (Http3ErrorCode::NoError, "idle")
        } else {
            return;
        };
        self.closing = Some(end);
    }
}
