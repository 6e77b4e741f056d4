//! Requests that could not be answered, or not to their end, when they came.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_http::http2::{ErrorCode, ResponseHead};
use dunlin_http::{FieldLines, Request, RequestError};
use tokio::task::JoinHandle;

use super::super::body_limits::BodyLimits;
use super::message::MessageHead;
use super::{Connection, Link, Parts};
use crate::checks::{ConnectionPace, Pacer};
use crate::exchange::{Body, EarlyHints, Response, ResponseFuture, Stream, StreamKind, stream};
use crate::route::{self};
use crate::telemetry::RequestTelemetry;
use crate::worker::{Completion, DeferredRecord, OutputRange};

/// One such request.
pub(super) struct Work {
    pub(super) id: u32,
    /// Until the handler has answered.
    pub(super) job: Option<ResponseFuture>,
    /// What the handler has sent before its answer, and where it comes from.
    pub(super) early_hints: Option<EarlyHints>,
    hints: Vec<FieldLines>,
    /// Until it has been begun to be sent: the handler's answer.
    pub(super) response: Option<Response>,
    /// The answer waits for the end of the request's body.
    pub(super) is_deferred: bool,
    pub(super) upload: Option<Upload>,
    pub(super) sending: Sending,
    /// What slows the answer's body down.
    pub(super) pacer: Option<Pacer>,
    pub(super) log: Option<Box<DeferredRecord>>,
    pub(super) is_head: bool,
    /// The client waits for a 100 before it sends the body.
    pub(super) expects_continue: bool,
    /// Of the request's body.
    pub(super) limits: BodyLimits,
    /// Bytes of the response's body that were written.
    sent: u64,
    /// How many of them may not have been sent, unless nothing was left since; see [`Connection::flushes`].
    unsent: (u64, u64),
    /// Where the response begins among all that the connection sends.
    pub(super) start: i64,
    /// When it last went on, in milliseconds of the worker's clock.
    pub(super) moved: u64,
}

/// A request's body on its way to the handler.
pub(super) struct Upload {
    pub(super) sender: stream::Sender,
    /// Bytes that were handed over, and those of them that the handler is known to have taken.
    handed: usize,
    taken: usize,
    /// The handler does not keep up; its slowness is not the client's.
    held_up: bool,
}

/// An answer's body.
pub(super) enum Sending {
    Nothing,
    Pieces {
        body: Body,
        /// Its next bytes are being read where waiting for the disk holds up nobody.
        warming: Option<JoinHandle<()>>,
    },
    Stream {
        source: stream::Receiver,
        /// What is to be sent next.
        chunk: Bytes,
        /// Bytes still to come, when the length was stated.
        left: Option<u64>,
        /// Nothing comes behind `chunk`.
        is_at_end: bool,
    },
    /// A message that brings a head of its own.
    Message {
        source: stream::Receiver,
        head: MessageHead,
    },
    /// A cut answer has to be seen to be cut.
    Broken,
}

/// Bytes of a request's body that the handler may leave to wait before it counts as being behind.
pub(super) const UPLOAD: usize = 64 * 1024;

impl Work {
    pub(super) fn new(id: u32, now: u64, log: Option<Box<DeferredRecord>>, is_head: bool) -> Self {
        Self {
            id,
            job: None,
            early_hints: None,
            hints: Vec::new(),
            response: None,
            is_deferred: false,
            upload: None,
            sending: Sending::Nothing,
            pacer: None,
            log,
            is_head,
            expects_continue: false,
            limits: BodyLimits::new(0, now),
            sent: 0,
            unsent: (0, 0),
            start: i64::MAX,
            moved: now,
        }
    }

    /// Has the response sent as the throttle lets it, on a connection with that pace. `short` is the length of a body
    /// that may leave at once.
    pub(super) fn begin_pace(
        &mut self,
        connection: &mut Option<ConnectionPace>,
        short: Option<usize>,
    ) {
        let telemetry = self.log.as_ref().map(|log| &log.telemetry);
        self.pacer = telemetry.and_then(|telemetry| telemetry.pacer(connection, short));
    }

    /// Bytes of the body were written.
    pub(super) fn note_sent(&mut self, bytes: usize, flushes: u64) {
        self.sent += bytes as u64;
        self.unsent = (self.unsent(flushes) + bytes as u64, flushes);
    }

    /// How many bytes of the body may not have been sent.
    fn unsent(&self, flushes: u64) -> u64 {
        if self.unsent.1 == flushes { self.unsent.0 } else { 0 }
    }

    /// Whether the response or its handler waits for the request's body.
    fn wants_body(&self) -> bool {
        self.upload.as_ref().map_or(self.is_deferred, |upload| upload.sender.is_wanted())
    }

    /// Whether the head of the answer has not been sent.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.sending, Sending::Nothing | Sending::Message { .. })
    }

    /// Whether the request's body is still on its way to the handler.
    pub(super) fn has_upload(&self) -> bool {
        self.upload.is_some()
    }

    /// Whether the throttle lets something be sent now.
    pub(super) fn may_send(&self) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.allowance() > 0)
    }

    /// Asks the throttle for what is there to be sent; true when something may be that could not before.
    fn poll_turn(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        let Some(pacer) = &mut self.pacer else { return false };
        let wanted = match &self.sending {
            Sending::Pieces { body, warming: None } => body.length(),
            Sending::Stream { chunk, .. } => chunk.len() as u64,
            _ => 0,
        };
        let has_turn = pacer.allowance() == 0 && wanted > 0 && pacer.poll(cx, wanted).is_ready();
        if has_turn {
            self.moved = now;
        }
        has_turn
    }

    /// Has the handler go on; true when something came of it.
    fn poll(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        if let Some(job) = &mut self.job {
            if let Poll::Ready(response) = job.as_mut().poll(cx) {
                self.job = None;
                self.response = Some(response);
                moved = true;
            }
            if let Some(early_hints) = &self.early_hints {
                // Those that were taken before wait for room in the socket: they are no progress.
                let mut hints = early_hints.take(cx);
                moved |= !hints.is_empty();
                self.hints.append(&mut hints);
            }
        }
        if let Some(upload) = &self.upload {
            upload.sender.watch(cx);
        }
        match &mut self.sending {
            Sending::Pieces { warming, .. } => {
                if let Some(task) = warming
                    && std::pin::Pin::new(task).poll(cx).is_ready()
                {
                    // A failed reading shows itself when the bytes are sent.
                    *warming = None;
                    moved = true;
                }
            }
            Sending::Stream { source, chunk, is_at_end, .. } if chunk.is_empty() && !*is_at_end => {
                match source.poll_next(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(Some(bytes))) => (*chunk, moved) = (bytes, true),
                    Poll::Ready(Ok(None)) => (*is_at_end, moved) = (true, true),
                    Poll::Ready(Err(stream::Broken)) => {
                        (self.sending, moved) = (Sending::Broken, true);
                    }
                }
            }
            Sending::Message { source, head } if !head.is_complete() => {
                match source.poll_next(cx) {
                    Poll::Pending => {}
                    Poll::Ready(Ok(Some(bytes))) if head.take(&bytes) => moved = true,
                    Poll::Ready(_) => (self.sending, moved) = (Sending::Broken, true),
                }
            }
            _ => {}
        }
        self.poll_turn(now, cx) | moved
    }
}

impl Upload {
    pub(super) fn new(sender: stream::Sender) -> Self {
        Self { sender, handed: 0, taken: 0, held_up: false }
    }

    /// Whether the handler has caught up since the last time.
    fn has_caught_up(&mut self) -> bool {
        let held_up = self.sender.is_full();
        std::mem::replace(&mut self.held_up, held_up) && !held_up
    }

    /// How many more bytes the handler has taken since the last time.
    fn newly_taken(&mut self) -> usize {
        let taken = self.handed.saturating_sub(self.sender.held());
        let newly = taken.saturating_sub(self.taken);
        self.taken += newly;
        newly
    }
}

impl Connection {
    /// Has all handlers go on. The worker's buffers must not be in use.
    pub(super) fn poll_works(&mut self, now: u64, cx: &mut Context<'_>) -> bool {
        self.works.iter_mut().fold(false, |moved, work| work.poll(now, cx) | moved)
    }

    /// Does what came of the handlers' going on.
    pub(super) fn settle_works(
        &mut self,
        link: &Link<'_>,
        _cx: &mut Context<'_>,
        parts: &mut Parts<'_>,
    ) -> bool {
        let (now, mut moved, mut number) = (link.ctx.clock.now(), false, 0);
        while let Some(work) = self.works.get_mut(number) {
            let id = work.id;
            for fields in work.hints.drain(..) {
                inform(&mut self.engine, id, 103, fields.as_bytes(), parts.out);
            }
            if work.expects_continue && work.wants_body() {
                work.expects_continue = false;
                inform(&mut self.engine, id, 100, b"", parts.out);
            }
            if let Some(upload) = &mut work.upload {
                if upload.has_caught_up() {
                    work.limits.restart(now);
                }
                let count = upload.newly_taken();
                if count > 0 {
                    work.moved = now;
                    self.engine.consumed(id, count, parts.out);
                    moved = true;
                }
            }
            let ready = work.response.is_some() && !work.is_deferred
                || matches!(&work.sending, Sending::Message { head, .. } if head.is_complete());
            if ready {
                moved = true;
                let work = self.works.swap_remove(number);
                self.begin_answer(link, work, parts);
                continue;
            }
            match &work.sending {
                Sending::Broken => {
                    moved = true;
                    self.engine.cancel(id, ErrorCode::InternalError, parts.out);
                    self.forget(link, id, Completion::Aborted);
                    continue;
                }
                Sending::Stream { chunk, is_at_end: true, left, .. } if chunk.is_empty() => {
                    moved = true;
                    if left.is_some_and(|left| left > 0) {
                        self.engine.cancel(id, ErrorCode::InternalError, parts.out);
                        self.forget(link, id, Completion::Aborted);
                    } else {
                        let mark = self.engine.begin_data(parts.out);
                        self.engine.end_data(id, mark, true, parts.out);
                        self.finish(id, parts.out);
                    }
                    continue;
                }
                Sending::Pieces { warming, .. } => {
                    self.engine.set_ready(id, warming.is_none() && work.may_send());
                }
                Sending::Stream { chunk, .. } => {
                    self.engine.set_ready(id, !chunk.is_empty() && work.may_send());
                }
                _ => {}
            }
            number += 1;
        }
        moved
    }

    /// A piece of a request's body has come.
    pub(super) fn body(
        &mut self,
        link: &Link<'_>,
        id: u32,
        data: &[u8],
        ended: bool,
        parts: &mut Parts<'_>,
    ) {
        let now = link.ctx.clock.now();
        let Some(number) = self.works.iter().position(|work| work.id == id) else {
            return self.engine.consumed(id, data.len(), parts.out);
        };
        let work = &mut self.works[number];
        work.expects_continue = false;
        work.moved = now;
        if let Err(refusal) = work.limits.take(data.len(), now, &link.ctx.http1) {
            return self.refuse_work(link, number, refusal, parts);
        }
        match &mut work.upload {
            None => self.engine.consumed(id, data.len(), parts.out),
            Some(upload) => {
                upload.handed += data.len();
                upload.sender.push(Bytes::copy_from_slice(data));
            }
        }
        if ended {
            let work = &mut self.works[number];
            work.is_deferred = false;
            if let Some(upload) = work.upload.take() {
                upload.sender.end();
            }
            if work.response.is_some() {
                let work = self.works.swap_remove(number);
                self.begin_answer(link, work, parts);
            }
        }
    }

    /// Refuses a request whose body cannot be read on.
    pub(super) fn refuse_work(
        &mut self,
        link: &Link<'_>,
        number: usize,
        refusal: RequestError,
        parts: &mut Parts<'_>,
    ) {
        tracing::debug!(peer = %link.peer, status = refusal.status, reason = refusal.reason, "request refused");
        let mut work = self.works.swap_remove(number);
        if !work.is_unanswered() {
            self.engine.cancel(work.id, ErrorCode::Cancel, parts.out);
            return self.record_work(link, &mut work, Completion::Aborted);
        }
        // The handler hears that the client is gone.
        (work.job, work.upload, work.sending) = (None, None, Sending::Nothing);
        let request = work.log.as_ref().map(|log| log.request.as_request());
        let response = route::refusal_to(link.ctx, request.as_ref(), &refusal, !work.is_head);
        work.response = Some(response);
        self.begin_answer(link, work, parts);
    }

    /// A stream is over.
    pub(super) fn forget(&mut self, link: &Link<'_>, id: u32, completion: Completion) {
        if let Some(number) = self.works.iter().position(|work| work.id == id) {
            let mut work = self.works.swap_remove(number);
            self.record_work(link, &mut work, completion);
        }
    }

    /// The response is complete in `out`.
    pub(super) fn finish(&mut self, id: u32, out: &[u8]) {
        if let Some(number) = self.works.iter().position(|work| work.id == id) {
            let work = self.works.swap_remove(number);
            self.finish_work(work, out);
        }
    }

    /// The same of one that is not among the works. It is recorded once it has been sent.
    pub(super) fn finish_work(&mut self, work: Work, out: &[u8]) {
        let (bytes, unsent) = (work.sent, work.unsent(self.flushes));
        let Some(mut log) = work.log else { return };
        log.outcome = log.outcome.finish(bytes, Completion::Complete);
        let range = OutputRange { start: work.start, end: self.position(out), body: unsent };
        self.pending.record_later(range, log);
    }

    /// Nothing more is made of the requests that are not answered; what is written is still sent.
    pub(super) fn abandon_works(&mut self, link: &Link<'_>) {
        for mut work in std::mem::take(&mut self.works) {
            self.record_work(link, &mut work, Completion::Aborted);
        }
    }

    /// The connection is over: what was not sent never will be.
    pub(super) fn record_the_rest(&mut self, link: &Link<'_>) {
        let sent = self.sent(link);
        for mut work in std::mem::take(&mut self.works) {
            work.sent -= work.unsent(self.flushes);
            if let Some(log) = work.log.as_mut().filter(|_| work.start >= sent) {
                log.outcome.status = 0;
            }
            self.record_work(link, &mut work, Completion::Aborted);
        }
        if !self.pending.is_empty() {
            self.pending.finish(link.ctx, &link.connection_info(), sent);
        }
    }

    pub(super) fn record_work(&self, link: &Link<'_>, work: &mut Work, completion: Completion) {
        let Some(log) = work.log.take() else { return };
        let outcome = log.outcome.finish(work.sent, completion).or_client_closed();
        link.ctx.record(
            &log.request.as_request(),
            &link.connection_info(),
            &log.telemetry,
            &outcome,
        );
    }

    pub(super) fn deferred_record(
        request: &Request<'_>,
        telemetry: Option<RequestTelemetry>,
    ) -> Option<Box<DeferredRecord>> {
        telemetry.map(|telemetry| DeferredRecord::new(request, telemetry))
    }
}

/// An interim response: 100, which asks for the body, or 103.
fn inform(
    engine: &mut dunlin_http::http2::Connection,
    id: u32,
    status: u16,
    lines: &[u8],
    out: &mut Vec<u8>,
) {
    engine.send_interim(id, &ResponseHead { status, date: b"", lines, serial: 0 }, out);
}

impl From<Stream> for Sending {
    fn from(stream: Stream) -> Self {
        let Stream { source, length, kind } = stream;
        if kind == StreamKind::Message {
            return Self::Message { source, head: MessageHead::default() };
        }
        Self::Stream { source, chunk: Bytes::new(), left: length, is_at_end: false }
    }
}

/// Reads that stretch of a file where waiting for the disk holds up nobody.
pub(super) fn warm(
    file: &Arc<crate::fs::content::ContentFile>,
    offset: u64,
    length: u64,
) -> JoinHandle<()> {
    let file = Arc::clone(file);
    tokio::task::spawn_blocking(move || super::super::send::warm(&file, offset, length))
}
