//! The request body of an exchange, on its way from the client to the handler.

use std::task::Context;

use bytes::Bytes;
use dunlin_exchange::stream;
use dunlin_http::{FieldLines, RequestError};

use super::body_limits::BodyLimits;
use crate::worker::Http1Settings;

/// Bytes of a body that may wait for the handler.
const QUEUE: usize = 64 * 1024;

/// A request body that was not received completely.
pub(in super::super) struct RequestBody {
    /// `None` if the bytes are those of a tunnel.
    limits: Option<BodyLimits>,
    /// The stream to the handler; `None` if the body is discarded.
    sender: Option<stream::Sender>,
    /// Bytes passed to the stream, and those of them that the handler is known to have taken.
    passed: usize,
    taken: usize,
    /// The handler does not keep up; the client is not slow.
    is_blocked: bool,
}

impl RequestBody {
    fn new(sender: Option<stream::Sender>, limit: u64, now: u64) -> Self {
        let limits = Some(BodyLimits::new(limit, now));
        Self { limits, sender, passed: 0, taken: 0, is_blocked: false }
    }

    /// Creates a body of at most `limit` bytes that is received and discarded. It starts to arrive at `now`.
    pub(in super::super) fn discarded(limit: u64, now: u64) -> Self {
        Self::new(None, limit, now)
    }

    /// Creates a body of at most `limit` bytes for a handler. It starts to arrive at `now`.
    pub(super) fn streamed(limit: u64, now: u64) -> (Self, stream::Receiver) {
        let (sender, receiver) = stream::channel(QUEUE);
        (Self::new(Some(sender), limit, now), receiver)
    }

    /// Creates the stream of what the client sends through a tunnel, whose size and rate have no limits.
    pub(super) fn tunnel() -> (Self, stream::Receiver) {
        let (body, receiver) = Self::streamed(u64::MAX, 0);
        (Self { limits: None, ..body }, receiver)
    }

    /// Discards the rest of the body. The handler finds its stream broken.
    pub(super) fn into_discarded(mut self, now: u64) -> Self {
        self.sender = None;
        if let Some(limits) = &mut self.limits {
            limits.end_response(now);
        }
        self
    }

    /// Ends the measurement of the rate, since the handler responds.
    pub(super) fn begin_response(&mut self) {
        if let Some(limits) = &mut self.limits {
            limits.begin_response();
        }
    }

    /// The client alone determines the rate from now on.
    fn restart(&mut self, now: u64) {
        if let Some(limits) = &mut self.limits {
            limits.restart(now);
        }
    }

    /// Returns `true` if the client sends when it has something to send, and need not.
    pub(super) fn is_tunnel(&self) -> bool {
        self.limits.is_none()
    }

    /// Returns `true` if a handler gets the body.
    pub(in super::super) fn is_streamed(&self) -> bool {
        self.sender.is_some()
    }

    /// Returns `true` if the handler has tried to read the body.
    pub(super) fn is_wanted(&self) -> bool {
        self.sender.as_ref().is_some_and(stream::Sender::is_wanted)
    }

    /// Returns `true` if the handler has to read before more is received.
    pub(super) fn is_full(&self) -> bool {
        self.sender.as_ref().is_some_and(stream::Sender::is_full)
    }

    /// Wakes the task when the handler reads, wants to read, or drops the body.
    pub(in super::super) fn watch(&self, cx: &Context<'_>) {
        if let Some(sender) = &self.sender {
            sender.watch(cx);
        }
    }

    /// Returns `true` if more can be received. The time in which the handler did not keep up does not count as the
    /// client's.
    pub(in super::super) fn has_room(&mut self, now: u64) -> bool {
        let is_blocked = self.is_full();
        if std::mem::replace(&mut self.is_blocked, is_blocked) && !is_blocked {
            self.restart(now);
        }
        !is_blocked
    }

    /// Receives `length` bytes at `now`. Calls `data` for them only if a handler gets the body.
    ///
    /// # Errors
    /// If the body exceeds its limits.
    pub(in super::super) fn receive(
        &mut self,
        length: usize,
        data: impl FnOnce() -> Bytes,
        now: u64,
        settings: &Http1Settings,
    ) -> Result<(), RequestError> {
        if let Some(limits) = &mut self.limits {
            limits.take(length, now, settings)?;
        }
        if let Some(sender) = &self.sender {
            self.passed += length;
            sender.push(data());
        }
        Ok(())
    }

    /// Returns the number of bytes that the handler has taken since the last call.
    pub(in super::super) fn newly_taken(&mut self) -> usize {
        let Some(sender) = &self.sender else { return 0 };
        let taken = self.passed.saturating_sub(sender.unread());
        let newly = taken.saturating_sub(self.taken);
        self.taken += newly;
        newly
    }

    /// Returns the number of bytes that the handler has got or gets.
    pub(in super::super) fn passed(&self) -> usize {
        self.passed
    }

    /// Returns the number of bytes that the handler has not taken.
    pub(in super::super) fn untaken(&self) -> usize {
        self.passed - self.taken
    }

    /// Ends the body with these trailer fields: all of it was received.
    pub(super) fn end(self, trailers: FieldLines) {
        if let Some(sender) = self.sender {
            sender.end_with(trailers);
        }
    }
}
