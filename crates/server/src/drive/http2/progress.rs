//! Progress of streams: results of handlers, request bodies, and the end of responses.

use bytes::Bytes;
use dunlin_http::RequestError;
use dunlin_http::http2::{ErrorCode, ResponseHead};

use super::super::exchange::{Ending, Exchange};
use super::stream::{Sending, Stream};
use super::{Connection, Parts};
use crate::worker::{Completion, OutputRange};

impl Connection {
    /// Processes the results of the streams that were polled. Returns `true` if there is progress.
    pub(super) fn settle_streams(&mut self, parts: &mut Parts<'_>) -> bool {
        let mut has_progress = false;
        while let Some(id) = self.streams.next_polled() {
            has_progress |= self.settle(id, parts);
        }
        has_progress
    }

    /// Processes the results of one stream.
    fn settle(&mut self, id: u32, parts: &mut Parts<'_>) -> bool {
        let now = self.link.ctx.clock.now();
        let Some(stream) = self.streams.get_mut(id) else { return false };
        let mut has_progress = false;
        for (status, fields) in stream.exchange.take_hints() {
            send_interim(&mut self.engine, id, status, fields.as_bytes(), parts.out);
        }
        if stream.expects_continue && stream.exchange.wants_continue() {
            stream.expects_continue = false;
            send_interim(&mut self.engine, id, 100, b"", parts.out);
        }
        if let Some(body) = &mut stream.exchange.request_body {
            // Restarts the timeout when the handler has caught up.
            let _ = body.has_room(now);
            let count = body.newly_taken();
            if count > 0 {
                stream.moved = now;
                self.engine.consumed(id, count, parts.out);
                has_progress = true;
            }
        }
        if stream.is_ready() {
            self.begin_response(id, parts.out);
            return true;
        }
        let ending = match &stream.sending {
            Sending::Broken => Some(Ending::Broken),
            Sending::Body(body) => {
                self.engine.set_ready(id, body.has_bytes());
                body.ending()
            }
            Sending::Nothing | Sending::Message { .. } => None,
        };
        match ending {
            None => return has_progress,
            Some(Ending::Broken) => {
                self.engine.cancel(id, stream.broken_code(), parts.out);
                self.forget(id, Completion::Aborted, parts.out);
            }
            Some(Ending::Complete(trailers)) => {
                if trailers.is_empty() {
                    let mark = self.engine.begin_data(parts.out);
                    self.engine.end_data(id, mark, true, parts.out);
                } else {
                    self.engine.send_trailers(id, trailers.as_bytes(), parts.out);
                }
                self.finish(id, parts.out);
            }
        }
        true
    }

    /// Receives a part of a request body.
    pub(super) fn receive_body(
        &mut self,
        id: u32,
        data: &[u8],
        has_ended: bool,
        parts: &mut Parts<'_>,
    ) {
        let now = self.link.ctx.clock.now();
        let Some(stream) = self.streams.get_mut(id) else {
            return self.engine.consumed(id, data.len(), parts.out);
        };
        stream.expects_continue = false;
        stream.moved = now;
        if let Some(meter) = &mut stream.meter {
            meter.receive(data.len());
        }
        let mut is_consumed = true;
        if let Some(body) = &mut stream.exchange.request_body {
            is_consumed = !body.is_streamed();
            let copy = || Bytes::copy_from_slice(data);
            if let Err(error) = body.receive(data.len(), copy, now, &self.link.ctx.http1) {
                self.engine.consumed(id, data.len(), parts.out);
                return self.reject_stream(id, error, parts);
            }
        }
        if is_consumed {
            self.engine.consumed(id, data.len(), parts.out);
        }
        if has_ended && let Some(stream) = self.streams.get_mut(id) {
            release_window(&mut self.engine, stream, parts.out);
            stream.exchange.end_body(self.engine.take_trailers(id));
            if stream.exchange.has_response() {
                self.begin_response(id, parts.out);
            }
        }
    }

    /// Rejects a request because of its body.
    pub(super) fn reject_stream(&mut self, id: u32, error: RequestError, parts: &mut Parts<'_>) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        release_window(&mut self.engine, &stream, parts.out);
        if !stream.is_without_response() {
            self.engine.cancel(id, ErrorCode::Cancel, parts.out);
            return self.record(&mut stream, Completion::Aborted);
        }
        stream.exchange.abort();
        stream.sending = Sending::Nothing;
        let Exchange { log, is_head, .. } = &stream.exchange;
        let rejected = self.link.reject_recorded(&error, log.as_deref(), *is_head);
        self.respond_rejected(stream, rejected, parts.out);
    }

    /// Starts the response of a stream.
    fn begin_response(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        match std::mem::replace(&mut stream.sending, Sending::Nothing) {
            Sending::Message { source, head, pacer } => {
                self.respond_with_message(stream, (source, head, pacer), out);
            }
            _ => {
                if let Some(response) = stream.exchange.take_response() {
                    self.respond(stream, response, out);
                }
            }
        }
    }

    /// Ends a stream early.
    pub(super) fn forget(&mut self, id: u32, completion: Completion, out: &mut Vec<u8>) {
        if let Some(mut stream) = self.streams.remove(id) {
            release_window(&mut self.engine, &stream, out);
            self.record(&mut stream, completion);
        }
    }

    /// Ends a stream whose response is complete in `out`.
    pub(super) fn finish(&mut self, id: u32, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.remove(id) {
            self.finish_stream(stream, out);
        }
    }

    /// The same for a stream that was removed. It is recorded once its last byte was sent.
    pub(super) fn finish_stream(&mut self, stream: Stream, out: &mut Vec<u8>) {
        release_window(&mut self.engine, &stream, out);
        let (bytes, unsent) = (stream.sent, stream.unsent(self.flushes));
        let received = stream.received();
        let Some(mut log) = stream.exchange.log else { return };
        log.outcome = log.outcome.finish(bytes, Completion::Complete);
        log.outcome.received = received;
        let range = OutputRange { start: stream.start, end: self.position(out), body: unsent };
        self.pending.record_later(range, log);
    }

    /// Ends all streams early. What was written is still sent.
    pub(super) fn abandon_streams(&mut self) {
        for mut stream in self.streams.take() {
            self.record(&mut stream, Completion::Aborted);
        }
    }

    /// Records all streams at the end of the connection. What was not sent never will be.
    pub(super) fn record_rest(&mut self) {
        let sent = self.sent();
        for mut stream in self.streams.take() {
            stream.sent -= stream.unsent(self.flushes);
            if let Some(log) = stream.exchange.log.as_mut().filter(|_| stream.start >= sent) {
                log.outcome.status = 0;
            }
            self.record(&mut stream, Completion::Aborted);
        }
        if !self.pending.is_empty() {
            self.pending.finish(&self.link.ctx, &self.link.facts, sent);
        }
    }

    pub(super) fn record(&self, stream: &mut Stream, completion: Completion) {
        let Some(log) = stream.exchange.log.take() else { return };
        let mut outcome = log.outcome.finish(stream.sent, completion).or_client_closed();
        outcome.received = stream.received();
        self.link.ctx.record(&log.request.as_request(), &self.link.facts, &log.context, &outcome);
    }
}

impl Stream {
    /// Returns the code of the reset that shows that the response is not complete. Within a tunnel it stands for a reset of
    /// the other connection (RFC 8441 §5).
    fn broken_code(&self) -> ErrorCode {
        if self.is_tunnel { ErrorCode::Cancel } else { ErrorCode::InternalError }
    }

    /// Returns `true` if the head of the response can be sent.
    fn is_ready(&self) -> bool {
        match &self.sending {
            Sending::Nothing => self.exchange.can_respond(),
            Sending::Message { head, .. } => head.is_complete(),
            _ => false,
        }
    }
}

/// Returns the bytes of a request body that the handler has not taken to the window of the connection. The stream
/// receives no more of them.
pub(super) fn release_window(
    engine: &mut dunlin_http::http2::Connection,
    stream: &Stream,
    out: &mut Vec<u8>,
) {
    if let Some(body) = &stream.exchange.request_body {
        engine.consumed(stream.id, body.untaken(), out);
    }
}

/// Sends an interim response.
fn send_interim(
    engine: &mut dunlin_http::http2::Connection,
    id: u32,
    status: u16,
    lines: &[u8],
    out: &mut Vec<u8>,
) {
    engine.send_interim(id, &ResponseHead { status, date: b"", lines, serial: 0 }, out);
}
