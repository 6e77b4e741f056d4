//! Writes responses, and continues when the client takes more.

use std::io;
use std::task::{Context, Poll, ready};

use super::{Http1Driver, Next, Stage, Step};
use crate::worker::{Completion, DeferredRecord, Output, Pending, WorkerContext};
use dunlin_exchange::send::{self, Sent, Warming};
use dunlin_exchange::{Body, BodyWriter};
use dunlin_fs::content::Piece;
use dunlin_limits::bandwidth::Pacer;
use dunlin_net::connections::Waiting;
use dunlin_net::listener::most_unsent;

/// The unsent part of a response, or of several if only heads and small bodies are left.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Unsent bytes before the body.
    pub(super) head: Vec<u8>,
    pub(super) body: Body,
    /// Bytes of the body that the socket has accepted.
    pub(super) sent: u64,
}

/// Responses that the socket did not accept at once.
#[derive(Default)]
pub(super) struct Sending {
    pub(super) outgoing: Outgoing,
    at: usize,
    /// Records of responses that end before the body.
    pending: Pending,
    last: Option<LastResponse>,
    /// Reads the next bytes of the body into the page cache.
    warming: Option<Warming>,
    /// The rest of a paced body, of which the limit allows one part at a time.
    paced: Option<Box<BodyWriter>>,
}

/// The record of the response whose body is sent.
pub(super) struct LastResponse {
    pub(super) log: Box<DeferredRecord>,
    /// Offset of its first byte in the bytes before the body; negative if that byte was sent earlier.
    pub(super) start: i64,
}

/// A larger body probably needs more than one write.
const LARGE: u64 = 128 * 1024;

impl Http1Driver {
    pub(super) fn send_body(
        &mut self,
        body: Body,
        pacer: Option<Pacer>,
        last: Option<LastResponse>,
        output: &mut Output,
    ) -> Option<Next> {
        if let Some(pacer) = pacer {
            // The head is sent with the first part.
            let head = output.bytes.to_vec();
            output.bytes.clear();
            let pending = output.pending.split_off(&self.link.ctx, &self.link.facts, 0);
            let outgoing = Outgoing { head, ..Outgoing::default() };
            let paced = Some(Box::new(BodyWriter::pieces(body, Some(pacer))));
            return Some(Next::Send(Box::new(Sending {
                outgoing,
                pending,
                last,
                paced,
                ..Sending::default()
            })));
        }
        if body.length() > LARGE {
            self.stream.bound_unsent(most_unsent(self.link.ctx.shared.limiter.open()));
            self.is_corked = self.stream.cork(true);
        }
        match self.flush(body, last, output) {
            Next::Receive => None,
            next => Some(next),
        }
    }

    /// Writes the collected responses.
    #[inline]
    pub(super) fn flush_responses(&mut self, output: &mut Output) -> Next {
        let mut at = 0;
        if !send::send_at_once(&self.stream, &output.bytes, &mut at) {
            return self.flush_from(at, Body::default(), None, output);
        }
        output.bytes.clear();
        output.pending.settle(&self.link.ctx, &self.link.facts);
        if self.closing { Next::Close } else { Next::Receive }
    }

    /// Writes the collected responses and `body` behind them.
    pub(super) fn flush(
        &mut self,
        body: Body,
        last: Option<LastResponse>,
        output: &mut Output,
    ) -> Next {
        self.flush_from(0, body, last, output)
    }

    /// Returns the same, when the bytes before `at` were written.
    fn flush_from(
        &mut self,
        mut at: usize,
        mut body: Body,
        mut last: Option<LastResponse>,
        output: &mut Output,
    ) -> Next {
        if at > 0 || body.length() > LARGE {
            // The socket may have been full between two writes, and then become ready before the next request arrives.
            self.expect_early_reads();
        }
        let mut sent = 0;
        let bytes = &output.bytes;
        let result = send::send(&mut self.stream, bytes, &mut at, &mut body, &mut sent);
        let rest =
            matches!(result, Ok(Sent::Blocked | Sent::Cold { .. })).then(|| bytes[at..].to_vec());
        output.bytes.clear();
        match (result, rest) {
            (Ok(state), Some(head)) => {
                let pending = output.pending.split_off(&self.link.ctx, &self.link.facts, at);
                let outgoing = Outgoing { head, body, sent };
                if let Some(last) = &mut last {
                    last.start -= at as i64;
                }
                let mut sending = Sending { outgoing, pending, last, ..Sending::default() };
                sending.begin_warming(&self.link.ctx, &state);
                Next::Send(Box::new(sending))
            }
            (result, _) => self.after_sending(&result, (at, sent), &mut output.pending, last),
        }
    }

    /// Ends a write: the socket has accepted the bytes before `at`, and `sent` bytes of the body behind them.
    fn after_sending(
        &mut self,
        result: &io::Result<Sent>,
        (at, sent): (usize, u64),
        pending: &mut Pending,
        last: Option<LastResponse>,
    ) -> Next {
        let completion = match result {
            Ok(Sent::All) => Completion::Complete,
            _ => Completion::Aborted,
        };
        self.record_sent(completion, result.is_err(), (at, sent), pending, last);
        // The kernel also sends a corked rest when the connection ends.
        if !self.closing && std::mem::take(&mut self.is_corked) {
            self.stream.cork(false);
        }
        match result {
            Ok(Sent::All) if self.closing => Next::Close,
            Ok(Sent::All) => Next::Receive,
            _ => Next::Abort,
        }
    }

    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            let Stage::Send(sending) = &mut self.stage else { return Poll::Ready(Step::Again) };
            if let Some(warming) = &mut sending.warming {
                ready!(warming.as_mut().poll(cx));
                sending.warming = None;
            }
            if let Some(granted) = ready!(sending.poll_pacer(&self.link.ctx, self.link.slot, cx)) {
                sending.outgoing.body = granted;
                self.set_send_deadline();
                continue;
            }
            let Outgoing { head, body, sent } = &mut sending.outgoing;
            let before = (sending.at, *sent, self.stream.written());
            let result = send::send(&mut self.stream, head, &mut sending.at, body, sent);
            let progress = before != (sending.at, *sent, self.stream.written());
            if !sending.pending.is_empty() && self.stream.is_flushed() {
                let (at, mut pending) = (sending.at as i64, std::mem::take(&mut sending.pending));
                pending.settle_before(&self.link.ctx, &self.link.facts, at);
                let Stage::Send(sending) = &mut self.stage else { continue };
                sending.pending = pending;
            }
            let Stage::Send(sending) = &mut self.stage else { continue };
            let sent = &sending.outgoing.sent;
            match result {
                Ok(state @ Sent::Cold { .. }) => sending.begin_warming(&self.link.ctx, &state),
                Ok(Sent::Blocked) => {
                    if progress {
                        self.set_send_deadline();
                    }
                    match self.stream.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(self.abort_sending()),
                        Poll::Pending if self.has_send_timed_out() => {
                            return Poll::Ready(self.abort_sending());
                        }
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Ok(Sent::All) if sending.paced.as_ref().is_some_and(|rest| !rest.is_empty()) => {}
                result => {
                    let (sent, last) = ((sending.at, *sent), sending.last.take());
                    let mut pending = std::mem::take(&mut sending.pending);
                    let next = self.after_sending(&result, sent, &mut pending, last);
                    return Poll::Ready(self.follow(next));
                }
            }
        }
    }

    /// Records what was sent, when nothing more is sent.
    fn record_sent(
        &self,
        completion: Completion,
        client_left: bool,
        (at, sent): (usize, u64),
        pending: &mut Pending,
        last: Option<LastResponse>,
    ) {
        // Bytes that are encrypted and not accepted by the socket were not sent.
        let unsent = self.stream.unsent();
        match completion {
            Completion::Complete => pending.settle(&self.link.ctx, &self.link.facts),
            Completion::Aborted if pending.is_empty() => {}
            Completion::Aborted => {
                pending.finish(&self.link.ctx, &self.link.facts, at.saturating_sub(unsent) as i64);
            }
        }
        if let Some(LastResponse { mut log, start }) = last {
            let whole = completion == Completion::Complete;
            let sent = if whole { sent } else { sent.saturating_sub(unsent as u64) };
            if client_left && sent == 0 && at as i64 - unsent as i64 <= start {
                // The client closed the connection before the first byte of this response.
                log.outcome.status = 0;
            }
            self.link.record_log(&log, sent, None, completion);
        }
    }

    /// Aborts a write to a client that receives nothing: records what was sent and drops the rest.
    pub(super) fn abort_sending(&mut self) -> Step {
        if let Stage::Send(sending) = &mut self.stage {
            let sent = (sending.at, sending.outgoing.sent);
            let (mut pending, last) = (std::mem::take(&mut sending.pending), sending.last.take());
            self.record_sent(Completion::Aborted, true, sent, &mut pending, last);
        }
        self.follow(Next::Abort)
    }
}

impl Sending {
    /// Returns the bytes in memory that wait for the client.
    pub(super) fn held(&self) -> usize {
        let rest = self.paced.as_ref().map_or(0, |rest| rest.held());
        self.outgoing.head.capacity() + self.outgoing.body.held() + rest
    }

    /// Returns the unsent part of complete responses.
    pub(super) fn into_unsent(self) -> Output {
        Output { bytes: self.outgoing.head, pending: self.pending }
    }

    /// Returns the next part of a paced body, when the limit allows it and the part before was sent.
    fn poll_pacer(
        &mut self,
        ctx: &WorkerContext,
        slot: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Body>> {
        let Some(rest) = &mut self.paced else { return Poll::Ready(None) };
        if !self.outgoing.body.is_empty() || rest.is_empty() {
            return Poll::Ready(None);
        }
        let part = rest.poll_pieces(cx);
        if part.is_pending() {
            ctx.connections.wait(slot, Waiting::Throttle, u64::MAX);
        }
        part.map(Some)
    }

    /// Reads the next bytes of the body into the page cache.
    fn begin_warming(&mut self, ctx: &WorkerContext, state: &Sent) {
        if let (Sent::Cold { offset, length }, Some(Piece::File(file, _))) =
            (state, self.outgoing.body.first_mut())
        {
            self.warming = Some(send::warm(&ctx.shared.blocking.files, file, *offset, *length));
        }
    }
}
