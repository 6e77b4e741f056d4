//! Requests that could not be answered, or not to their end, when they came.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_http::http1::Refusal;
use dunlin_http::http2::{ErrorCode, ResponseHead};
use dunlin_http::{FieldLines, OwnedRequest, Request};
use tokio::task::JoinHandle;

use super::message::MessageHead;
use super::{Connection, Link, Parts};
use crate::early_hints::EarlyHints;
use crate::event_loop::{Ending, Served};
use crate::gate::{ConnectionPace, Pacer};
use crate::record::Track;
use crate::response::{Body, Response, Stream, StreamKind};
use crate::route::{self, Job};
use crate::stream;

/// One such request.
pub(super) struct Work {
    pub(super) id: u32,
    /// Until the handler has answered.
    pub(super) job: Option<Job>,
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
    pub(super) log: Option<Box<LogLater>>,
    pub(super) is_head: bool,
    /// The client waits for a 100 before it sends the body.
    pub(super) expects_continue: bool,
    /// Bytes of the request's body that may come, and that have.
    pub(super) limit: u64,
    pub(super) received: u64,
    /// Bytes of the answer's body that were written.
    pub(super) sent: u64,
    /// When it last went on, in milliseconds of the loop's clock.
    pub(super) moved: u64,
}

/// A request's body on its way to the handler.
pub(super) struct Upload {
    pub(super) sender: stream::Sender,
    /// Bytes that were handed over, and those of them that the handler is known to have taken.
    handed: usize,
    taken: usize,
    /// Since when the client alone decides how fast the body comes, and what has come since.
    since: u64,
    received_since: u64,
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

/// What the log line needs when it cannot be written at once.
pub(super) struct LogLater {
    pub(super) request: OwnedRequest,
    pub(super) track: Track,
    pub(super) served: Served,
}

/// Bytes of a request's body that the handler may leave to wait before it counts as being behind.
pub(super) const UPLOAD: usize = 64 * 1024;
const TOO_LARGE: Refusal = Refusal { status: 413, reason: "the body is larger than the limit" };
const TOO_SLOW: Refusal = Refusal { status: 408, reason: "the body comes too slowly" };

impl Work {
    pub(super) fn new(id: u32, now: u64, log: Option<Box<LogLater>>, is_head: bool) -> Self {
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
            limit: 0,
            received: 0,
            sent: 0,
            moved: now,
        }
    }

    /// Has the answer sent as the throttle lets it, on a connection with that pace.
    pub(super) fn begin_pace(&mut self, connection: &mut Option<ConnectionPace>) {
        let track = self.log.as_ref().map(|log| &log.track);
        self.pacer = track.and_then(|track| track.pacer(connection, None));
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
                self.hints.append(&mut early_hints.take(cx));
                moved |= !self.hints.is_empty();
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
    pub(super) fn new(sender: stream::Sender, now: u64) -> Self {
        Self { sender, handed: 0, taken: 0, since: now, received_since: 0, held_up: false }
    }

    /// How many more bytes the handler has taken since the last time.
    fn newly_taken(&mut self, now: u64) -> usize {
        let held_up = self.sender.is_full();
        if std::mem::replace(&mut self.held_up, held_up) && !held_up {
            (self.since, self.received_since) = (now, 0);
        }
        let taken = self.handed.saturating_sub(self.sender.held());
        let newly = taken.saturating_sub(self.taken);
        self.taken += newly;
        newly
    }
}

impl Connection {
    /// Has all handlers go on. The loop's buffers must not be in use.
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
            if let Some(upload) = &mut work.upload {
                if work.expects_continue && upload.sender.is_wanted() {
                    work.expects_continue = false;
                    inform(&mut self.engine, id, 100, b"", parts.out);
                }
                let count = upload.newly_taken(now);
                if count > 0 {
                    work.moved = now;
                    self.engine.taken(id, count, parts.out);
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
                    self.forget(link, id, Ending::BrokenOff);
                    continue;
                }
                Sending::Stream { chunk, is_at_end: true, left, .. } if chunk.is_empty() => {
                    moved = true;
                    let ending = if left.is_some_and(|left| left > 0) {
                        self.engine.cancel(id, ErrorCode::InternalError, parts.out);
                        Ending::BrokenOff
                    } else {
                        let mark = self.engine.begin_data(parts.out);
                        self.engine.end_data(id, mark, true, parts.out);
                        Ending::Whole
                    };
                    self.forget(link, id, ending);
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
            return self.engine.taken(id, data.len(), parts.out);
        };
        let work = &mut self.works[number];
        work.received += data.len() as u64;
        work.expects_continue = false;
        work.moved = now;
        if work.received > work.limit {
            return self.refuse_work(link, number, TOO_LARGE, parts);
        }
        match &mut work.upload {
            None => self.engine.taken(id, data.len(), parts.out),
            Some(upload) => {
                upload.handed += data.len();
                upload.received_since += data.len() as u64;
                upload.sender.push(Bytes::copy_from_slice(data));
                let elapsed = now - upload.since;
                if elapsed > link.ctx.http1.body_timeout
                    && upload.received_since * 1000 / elapsed < link.ctx.http1.body_rate
                {
                    return self.refuse_work(link, number, TOO_SLOW, parts);
                }
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
        refusal: Refusal,
        parts: &mut Parts<'_>,
    ) {
        tracing::debug!(peer = %link.peer, status = refusal.status, reason = refusal.reason, "request refused");
        let mut work = self.works.swap_remove(number);
        if !work.is_unanswered() {
            self.engine.cancel(work.id, ErrorCode::Cancel, parts.out);
            return self.record_work(link, &mut work, Ending::BrokenOff);
        }
        // The handler hears that the client is gone.
        (work.job, work.upload, work.sending) = (None, None, Sending::Nothing);
        work.response = Some(route::refusal_response(&refusal, !work.is_head));
        self.begin_answer(link, work, parts);
    }

    /// A stream is over.
    pub(super) fn forget(&mut self, link: &Link<'_>, id: u32, ending: Ending) {
        if let Some(number) = self.works.iter().position(|work| work.id == id) {
            let mut work = self.works.swap_remove(number);
            self.record_work(link, &mut work, ending);
        }
    }

    /// The connection is over.
    pub(super) fn record_the_rest(&mut self, link: &Link<'_>) {
        for mut work in std::mem::take(&mut self.works) {
            self.record_work(link, &mut work, Ending::BrokenOff);
        }
    }

    pub(super) fn record_work(&self, link: &Link<'_>, work: &mut Work, ending: Ending) {
        let Some(log) = work.log.take() else { return };
        let served = log.served.until(work.sent, ending).or_client_left();
        self.record(link, &log.request.as_request(), &log.track, &served);
    }

    pub(super) fn log_later(request: &Request<'_>, track: Option<Track>) -> Option<Box<LogLater>> {
        track.map(|track| {
            Box::new(LogLater { request: request.to_owned(), track, served: Served::NOTHING })
        })
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
    engine.inform(id, &ResponseHead { status, date: b"", lines, serial: 0 }, out);
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
    file: &Arc<crate::cache::StoredFile>,
    offset: u64,
    length: u64,
) -> JoinHandle<()> {
    let file = Arc::clone(file);
    tokio::task::spawn_blocking(move || super::super::send::warm(&file, offset, length))
}
