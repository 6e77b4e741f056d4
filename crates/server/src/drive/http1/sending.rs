//! Writing what was collected, and going on with it when the client takes it.

use std::io;
use std::task::{Context, Poll, ready};

use super::super::send::{self, Outgoing, Sent, Warming};
use super::{Connection, Next, Stage, Step};
use crate::checks::Pacer;
use crate::connections::Waiting;
use crate::exchange::{Body, Piece};
use crate::listen::most_unsent;
use crate::worker::{Completion, DeferredRecord, Output, Pending, WorkerContext};

/// An answer, or several, that the socket did not take at once.
#[derive(Default)]
pub(super) struct Sending {
    pub(super) outgoing: Outgoing,
    at: usize,
    /// Of responses that end before the body.
    pending: Pending,
    last: Option<LastResponse>,
    /// Reads the next bytes of the body into the page cache.
    warming: Option<Warming>,
    paced: Option<Box<Paced>>,
}

/// The record of the response whose body is sent.
pub(super) struct LastResponse {
    pub(super) log: Box<DeferredRecord>,
    /// The place of its first byte among the bytes before the body; negative when that byte was sent before.
    pub(super) start: i64,
}

/// A body of which a piece at a time may be sent.
struct Paced {
    pacer: Pacer,
    rest: Body,
}

/// Above so many bytes an answer is likely to leave in more than one turn.
const LARGE: u64 = 128 * 1024;

impl Connection {
    pub(super) fn send_body(
        &mut self,
        body: Body,
        pacer: Option<Pacer>,
        last: Option<LastResponse>,
        output: &mut Output,
    ) -> Option<Next> {
        if let Some(pacer) = pacer {
            // The head leaves with the first piece.
            let head = output.bytes.to_vec();
            output.bytes.clear();
            let pending = output.pending.split_off(&self.ctx, &self.connection_info(), 0);
            let outgoing = Outgoing { head, ..Outgoing::default() };
            let paced = Some(Box::new(Paced { pacer, rest: body }));
            return Some(Next::Send(Box::new(Sending {
                outgoing,
                pending,
                last,
                paced,
                ..Sending::default()
            })));
        }
        if body.length() > LARGE {
            self.stream.bound_unsent(most_unsent(self.ctx.shared.limiter.open()));
            self.is_corked = self.stream.cork(true);
        }
        match self.flush(body, last, output) {
            Next::Receive => None,
            next => Some(next),
        }
    }

    /// Writes the answers that have been collected.
    #[inline]
    pub(super) fn flush_answers(&mut self, output: &mut Output) -> Next {
        let mut at = 0;
        if !send::send_at_once(&self.stream, &output.bytes, &mut at) {
            return self.flush_from(at, Body::default(), None, output);
        }
        output.bytes.clear();
        output.pending.settle(&self.ctx, &self.connection_info());
        if self.closing { Next::Close } else { Next::Receive }
    }

    /// Writes what has been collected, and `body` behind it.
    pub(super) fn flush(
        &mut self,
        body: Body,
        last: Option<LastResponse>,
        output: &mut Output,
    ) -> Next {
        self.flush_from(0, body, last, output)
    }

    /// The same, where the bytes before `at` are written.
    fn flush_from(
        &mut self,
        mut at: usize,
        mut body: Body,
        mut last: Option<LastResponse>,
        output: &mut Output,
    ) -> Next {
        let mut sent = 0;
        let bytes = &output.bytes;
        let result = send::send(&mut self.stream, bytes, &mut at, &mut body, &mut sent);
        let rest =
            matches!(result, Ok(Sent::Blocked | Sent::Cold { .. })).then(|| bytes[at..].to_vec());
        output.bytes.clear();
        match (result, rest) {
            (Ok(state), Some(head)) => {
                let pending = output.pending.split_off(&self.ctx, &self.connection_info(), at);
                let outgoing = Outgoing { head, body, sent };
                if let Some(last) = &mut last {
                    last.start -= at as i64;
                }
                let mut sending = Sending { outgoing, pending, last, ..Sending::default() };
                sending.begin_warming(&self.ctx, &state);
                Next::Send(Box::new(sending))
            }
            (result, _) => self.after_sending(&result, (at, sent), &mut output.pending, last),
        }
    }

    /// Nothing more is to be sent: the socket has taken what stands before `at`, and `sent` bytes of the body behind it.
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
        // What is left of an answer leaves with the connection's end too.
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
            if let Some(granted) = ready!(sending.poll_turn(&self.ctx, self.slot, cx)) {
                sending.outgoing.body = granted;
                self.await_client();
                continue;
            }
            let Outgoing { head, body, sent } = &mut sending.outgoing;
            let before = (sending.at, *sent, self.stream.written());
            let result = send::send(&mut self.stream, head, &mut sending.at, body, sent);
            let progress = before != (sending.at, *sent, self.stream.written());
            if !sending.pending.is_empty() && self.stream.is_flushed() {
                let (at, mut pending) = (sending.at as i64, std::mem::take(&mut sending.pending));
                pending.settle_before(&self.ctx, &self.connection_info(), at);
                let Stage::Send(sending) = &mut self.stage else { continue };
                sending.pending = pending;
            }
            let Stage::Send(sending) = &mut self.stage else { continue };
            let sent = &sending.outgoing.sent;
            match result {
                Ok(state @ Sent::Cold { .. }) => sending.begin_warming(&self.ctx, &state),
                Ok(Sent::Blocked) => {
                    if progress {
                        self.await_client();
                    }
                    match self.stream.poll_write_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(self.give_up()),
                        Poll::Pending if self.is_left_waiting() => {
                            return Poll::Ready(self.give_up());
                        }
                        Poll::Pending => return Poll::Pending,
                    }
                }
                Ok(Sent::All)
                    if sending.paced.as_ref().is_some_and(|paced| !paced.rest.is_empty()) => {}
                result => {
                    let (sent, last) = ((sending.at, *sent), sending.last.take());
                    let mut pending = std::mem::take(&mut sending.pending);
                    let next = self.after_sending(&result, sent, &mut pending, last);
                    return Poll::Ready(self.follow(next));
                }
            }
        }
    }

    /// Records what was sent, when nothing more is.
    fn record_sent(
        &self,
        completion: Completion,
        client_left: bool,
        (at, sent): (usize, u64),
        pending: &mut Pending,
        last: Option<LastResponse>,
    ) {
        // What is encrypted and not with the socket was not sent.
        let unsent = self.stream.unsent();
        match completion {
            Completion::Complete => pending.settle(&self.ctx, &self.connection_info()),
            Completion::Aborted if pending.is_empty() => {}
            Completion::Aborted => {
                pending.finish(
                    &self.ctx,
                    &self.connection_info(),
                    at.saturating_sub(unsent) as i64,
                );
            }
        }
        if let Some(LastResponse { mut log, start }) = last {
            let whole = completion == Completion::Complete;
            let sent = if whole { sent } else { sent.saturating_sub(unsent as u64) };
            if client_left && sent == 0 && at as i64 - unsent as i64 <= start {
                // Before the first byte of this response was sent.
                log.outcome.status = 0;
            }
            self.record_later(&log, sent, completion);
        }
    }

    /// The client takes nothing: what was sent is recorded, the rest is dropped.
    pub(super) fn give_up(&mut self) -> Step {
        if let Stage::Send(sending) = &mut self.stage {
            let sent = (sending.at, sending.outgoing.sent);
            let (mut pending, last) = (std::mem::take(&mut sending.pending), sending.last.take());
            self.record_sent(Completion::Aborted, true, sent, &mut pending, last);
        }
        self.follow(Next::Abort)
    }
}

impl Sending {
    /// What was not sent of responses that are complete.
    pub(super) fn into_unsent(self) -> Output {
        Output { bytes: self.outgoing.head, pending: self.pending }
    }

    /// The next piece of a body that is throttled, when its turn has come and the one before is sent.
    fn poll_turn(
        &mut self,
        ctx: &WorkerContext,
        slot: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Body>> {
        let Some(paced) = &mut self.paced else { return Poll::Ready(None) };
        if !self.outgoing.body.is_empty() || paced.rest.is_empty() {
            return Poll::Ready(None);
        }
        let Poll::Ready(bytes) = paced.pacer.poll(cx, paced.rest.length()) else {
            ctx.connections.wait(slot, Waiting::Throttle, u64::MAX);
            return Poll::Pending;
        };
        paced.pacer.spend(bytes);
        Poll::Ready(Some(paced.rest.split_to(bytes)))
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
