//! What happens when something takes too long.

use dunlin_http::http2::{BlockedBy, ErrorCode};

use super::super::body_limits::STALLED;
use super::work::{Sending, Work};
use super::{Connection, Link, Parts};
use crate::connections::Waiting;
use crate::worker::{Completion, Pending};

/// After so long without a request, what is kept only to be fast is let go of, in milliseconds.
const REST: u64 = 1_000;
/// So long a client may take to hear of the end, in milliseconds.
const DRAIN: u64 = 1_000;

impl Connection {
    /// Says until when the connection may go on like this.
    pub(super) fn set_deadline(&mut self, link: &Link<'_>) {
        let settings = &link.ctx.http1;
        let (waiting, deadline) = if let Some(patience) = &self.patience {
            (Waiting::Send, patience.look())
        } else if let Some(since) = self.incomplete_since {
            let waiting = if self.works.is_empty() { Waiting::Head } else { Waiting::Streams };
            (waiting, since + settings.head_timeout)
        } else if self.works.is_empty() {
            if self.is_at_rest {
                let waiting = if self.requests == 0 { Waiting::First } else { Waiting::Idle };
                (waiting, self.active + settings.idle_timeout)
            } else {
                (Waiting::Resting, self.active + REST)
            }
        } else {
            (Waiting::Streams, u64::MAX)
        };
        let works = (0..self.works.len()).filter_map(|number| self.work_deadline(link, number));
        let mut deadline = works.fold(deadline, u64::min);
        if self.is_draining {
            deadline = deadline.min(self.drain_since + DRAIN).max(link.ctx.clock.now() + 1);
        }
        self.deadline = deadline;
        match (waiting, self.incomplete_since) {
            (Waiting::Head, Some(since)) => {
                link.ctx.connections.wait_for_head(link.slot, since, deadline);
            }
            _ => link.ctx.connections.wait(link.slot, waiting, deadline),
        }
    }

    /// Until when the client has to do something for that work to go on.
    fn work_deadline(&self, link: &Link<'_>, number: usize) -> Option<u64> {
        let work = &self.works[number];
        let settings = &link.ctx.http1;
        if work.has_bytes() {
            // A stream whose turn has not come waits for the others and not for the client.
            let since = match self.engine.blocked_by(work.id)? {
                BlockedBy::Stream => work.moved,
                BlockedBy::Connection => work.moved.max(self.served),
            };
            Some(since + settings.send_timeout)
        } else if work.waits_for_body() && self.engine.may_receive(work.id) {
            Some(work.moved + settings.body_timeout)
        } else {
            None
        }
    }

    /// Ends what has waited too long.
    pub(super) fn expire(&mut self, link: &Link<'_>, parts: &mut Parts<'_>) {
        let now = link.ctx.clock.now();
        let settings = &link.ctx.http1;
        if self.is_draining && now >= self.drain_since + DRAIN {
            self.engine.end_drain(parts.out);
            self.drain_since = u64::MAX - DRAIN;
        }
        let mut number = 0;
        while number < self.works.len() {
            if self.work_deadline(link, number).is_none_or(|deadline| now < deadline) {
                number += 1;
            } else if self.works[number].has_bytes() {
                let id = self.works[number].id;
                tracing::debug!(peer = %link.peer, "HTTP/2 stream ended: the client's window stays closed");
                self.engine.cancel(id, ErrorCode::Cancel, parts.out);
                self.forget(link, id, Completion::Aborted);
            } else {
                self.refuse_work(link, number, STALLED, parts);
            }
        }
        if self.works.is_empty() && link.ctx.connections.is_evicted(link.slot) {
            self.is_evicted = true;
            return self.end(ErrorCode::NoError, "closed to make room", parts);
        }
        if self.incomplete_since.is_some_and(|since| now >= since + settings.head_timeout) {
            return self.end(ErrorCode::ProtocolError, "a frame took too long", parts);
        }
        if self.works.is_empty() && self.incomplete_since.is_none() {
            if now >= self.active + settings.idle_timeout {
                self.end(ErrorCode::NoError, "idle", parts);
            } else if now >= self.active + REST {
                self.is_at_rest = true;
                self.engine.shrink();
                self.works = Vec::new();
                // Responses may still wait for room in the socket, and their records with them.
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

impl Work {
    /// Bytes are there to be sent.
    fn has_bytes(&self) -> bool {
        if !self.may_send() {
            return false;
        }
        match &self.sending {
            Sending::Pieces { warming, .. } => warming.is_none(),
            Sending::Stream { chunk, .. } => !chunk.is_empty(),
            _ => false,
        }
    }

    /// The response waits for the rest of the request's body, and the handler is not behind.
    fn waits_for_body(&self) -> bool {
        match &self.upload {
            Some(upload) => {
                self.job.is_some() && !upload.sender.is_full() && !self.expects_continue
            }
            None => self.is_deferred,
        }
    }
}
