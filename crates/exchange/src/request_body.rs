//! The request body of an exchange, on its way from the client to the handler.

use std::rc::Rc;
use std::task::Context;

use bytes::Bytes;
use dunlin_http::{FieldLines, RequestError};

use crate::RequestContext;
use crate::body_limits::{BodyLimits, BodyRate};
use crate::stream;

/// Bytes of a body that may wait for the handler.
const QUEUE: usize = 64 * 1024;

/// A request body that was not received completely.
pub struct RequestBody {
    /// `None` if the bytes are those of a tunnel.
    limits: Option<BodyLimits>,
    /// The stream to the handler; `None` if the body is discarded.
    sender: Option<stream::Sender>,
    /// Bytes passed to the stream, and those of them that the handler is known to have taken.
    passed: usize,
    taken: usize,
    /// The handler does not keep up; the client is not slow.
    is_blocked: bool,
    /// The context of a request whose response has the body in a field.
    copied_to: Option<Rc<RequestContext>>,
}

impl RequestBody {
    fn new(sender: Option<stream::Sender>, limit: u64, now: u64) -> Self {
        let limits = Some(BodyLimits::new(limit, now));
        Self { limits, sender, passed: 0, taken: 0, is_blocked: false, copied_to: None }
    }

    /// Creates a body of at most `limit` bytes that is received and discarded. It starts to arrive at `now`.
    pub fn discarded(limit: u64, now: u64) -> Self {
        Self::new(None, limit, now)
    }

    /// Creates a body of at most `limit` bytes for a handler. It starts to arrive at `now`.
    pub fn streamed(limit: u64, now: u64) -> (Self, stream::Receiver) {
        let (sender, receiver) = stream::channel(QUEUE);
        (Self::new(Some(sender), limit, now), receiver)
    }

    /// Copies the body into the context.
    #[must_use]
    pub fn copied_to(self, context: Rc<RequestContext>) -> Self {
        Self { copied_to: Some(context), ..self }
    }

    /// Creates the stream of what the client sends through a tunnel, whose size and rate have no limits.
    pub fn tunnel() -> (Self, stream::Receiver) {
        let (sender, receiver) = stream::channel(QUEUE);
        (Self::tunnel_to(sender), receiver)
    }

    /// Creates what the client sends through a tunnel to this stream.
    pub fn tunnel_to(sender: stream::Sender) -> Self {
        Self { limits: None, ..Self::new(Some(sender), 0, 0) }
    }

    /// Discards the rest of the body. The handler finds its stream broken.
    pub fn into_discarded(mut self, now: u64) -> Self {
        self.sender = None;
        if let Some(limits) = &mut self.limits {
            limits.end_response(now);
        }
        self
    }

    /// Ends the measurement of the rate, since the handler responds.
    #[inline]
    pub fn begin_response(&mut self) {
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
    #[inline]
    pub fn is_tunnel(&self) -> bool {
        self.limits.is_none()
    }

    /// Returns `true` if a handler gets the body.
    #[inline]
    pub fn is_streamed(&self) -> bool {
        self.sender.is_some()
    }

    /// Returns `true` if the handler has tried to read the body.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.sender.as_ref().is_some_and(stream::Sender::is_wanted)
    }

    /// Returns `true` if the bytes are those of a tunnel that the handler has left.
    pub fn is_abandoned_tunnel(&self) -> bool {
        self.is_tunnel() && self.sender.as_ref().is_some_and(stream::Sender::is_abandoned)
    }

    /// Returns `true` if the handler has to read before more is received.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.sender.as_ref().is_some_and(stream::Sender::is_full)
    }

    /// Wakes the task when the handler reads, wants to read, or drops the body.
    #[inline]
    pub fn watch(&self, cx: &Context<'_>) {
        if let Some(sender) = &self.sender {
            sender.watch(cx);
        }
    }

    /// Returns `true` if more can be received. The time in which the handler did not keep up does not count as the
    /// client's.
    #[inline]
    pub fn has_room(&mut self, now: u64) -> bool {
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
    pub fn receive(
        &mut self,
        length: usize,
        data: impl FnOnce() -> Bytes,
        now: u64,
        rate: BodyRate,
    ) -> Result<(), RequestError> {
        if let Some(limits) = &mut self.limits {
            limits.take(length, now, rate)?;
        }
        if self.sender.is_some() {
            self.pass(data());
        }
        Ok(())
    }

    /// Passes bytes to the handler.
    #[inline]
    pub fn pass(&mut self, data: Bytes) {
        if let Some(sender) = &self.sender {
            self.passed += data.len();
            if let Some(context) = &self.copied_to {
                context.add_body(&data);
            }
            sender.push(data);
        }
    }

    /// Returns the number of bytes that the handler has taken since the last call.
    pub fn newly_taken(&mut self) -> usize {
        let Some(sender) = &self.sender else { return 0 };
        let taken = self.passed.saturating_sub(sender.unread());
        let newly = taken.saturating_sub(self.taken);
        self.taken += newly;
        newly
    }

    /// Returns the number of bytes that the handler has got or gets.
    #[inline]
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Returns the number of bytes that the handler has not taken.
    #[inline]
    pub fn untaken(&self) -> usize {
        self.passed - self.taken
    }

    /// Ends the body with these trailer fields: all of it was received.
    pub fn end(self, trailers: FieldLines) {
        if let Some(sender) = self.sender {
            sender.end_with(trailers);
        }
    }
}
