//! Timeouts of a connection and its streams.

use dunlin_http::http2::Http2ErrorCode;
use dunlin_net::connections::Waiting;

use super::Http2Driver;
use crate::exchange::link::Link;

/// Time of a client to learn of a graceful close, in milliseconds.
const DRAIN: u64 = 1_000;

impl Http2Driver {
    /// Sets the time of the next timeout.
    pub(super) fn set_deadline(&mut self) {
        let Link { ctx, slot, .. } = &self.exchanges.link;
        let (waiting, deadline) = if let Some(send_progress) = &self.send_progress {
            (Waiting::Send, send_progress.next_check())
        } else if let Some(since) = self.incomplete_since {
            let waiting = if self.exchanges.is_empty() { Waiting::Head } else { Waiting::Streams };
            (waiting, since + ctx.http1.head_timeout)
        } else {
            self.exchanges.waits_for()
        };
        let mut deadline = deadline.min(self.exchanges.deadline());
        if let Some(since) = self.exchanges.protocol.draining_since {
            deadline = deadline.min(since + DRAIN).max(ctx.clock.now() + 1);
        }
        match (waiting, self.incomplete_since) {
            (Waiting::Head, Some(since)) => ctx.connections.wait_for_head(*slot, since, deadline),
            _ => ctx.connections.wait(*slot, waiting, deadline),
        }
        self.deadline = deadline;
    }

    /// Ends what has timed out.
    pub(super) fn expire(&mut self, out: &mut Vec<u8>) {
        let Link { ctx, slot, .. } = &self.exchanges.link;
        let (now, is_evicted) = (ctx.clock.now(), ctx.connections.is_evicted(*slot));
        let head_timeout = ctx.http1.head_timeout;
        let protocol = &mut self.exchanges.protocol;
        if protocol.draining_since.is_some_and(|since| now >= since + DRAIN) {
            protocol.engine.end_drain(out);
            protocol.draining_since = Some(u64::MAX - DRAIN);
        }
        self.exchanges.expire(now, out);
        if self.exchanges.is_empty() && is_evicted {
            self.is_evicted = true;
            return self.end(Http2ErrorCode::NoError, "closed to make room", out);
        }
        if self.incomplete_since.is_some_and(|since| now >= since + head_timeout) {
            return self.end(Http2ErrorCode::ProtocolError, "a frame took too long", out);
        }
        if self.exchanges.is_empty() && self.incomplete_since.is_none() && self.exchanges.rest(now)
        {
            self.end(Http2ErrorCode::NoError, "idle", out);
        }
    }

    fn end(&mut self, code: Http2ErrorCode, reason: &str, out: &mut Vec<u8>) {
        self.exchanges.protocol.engine.abort(code, reason, out);
        self.is_over = true;
    }
}
