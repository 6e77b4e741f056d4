//! Progress of streams: results of handlers, request bodies, and the end of responses.

use bytes::Bytes;
use dunlin_exchange::Ending;
use dunlin_http::FieldLines;
use dunlin_http::RequestError;
use dunlin_http::http2::OutgoingHead;

use super::stream::{Stream, StreamSending};
use super::{Cancel, Multiplexer, Protocol, StreamId};
use crate::worker::{Completion, OutputRange};

impl<P: Protocol> Multiplexer<P> {
    /// Processes the results of the streams that were polled. Returns `true` if there is progress.
    pub(crate) fn settle_streams(&mut self, out: &mut P::Output) -> bool {
        let mut has_progress = false;
        while let Some(id) = self.streams.next_polled() {
            has_progress |= self.settle(id, out);
        }
        has_progress
    }

    /// Processes the results of one stream.
    fn settle(&mut self, id: StreamId, out: &mut P::Output) -> bool {
        let now = self.link.now();
        let Some(stream) = self.streams.get_mut(id) else { return false };
        let mut has_progress = false;
        for (status, fields) in stream.exchange.take_hints() {
            send_interim(&mut self.protocol, id, status, fields.as_bytes(), out);
        }
        if stream.expects_continue && stream.exchange.wants_continue() {
            stream.expects_continue = false;
            send_interim(&mut self.protocol, id, 100, b"", out);
        }
        if let Some(body) = &mut stream.exchange.request_body {
            // Restarts the timeout when the handler has caught up.
            let _ = body.has_room(now);
            let count = body.newly_taken();
            if count > 0 {
                stream.moved = now;
                self.protocol.consumed(id, count, out);
                has_progress = true;
            }
        }
        if stream.is_ready() {
            self.begin_response(id, out);
            return true;
        }
        let ending = match &stream.sending {
            StreamSending::Broken => Some(Ending::Broken),
            StreamSending::Body(body) => {
                self.protocol.set_ready(id, body.has_bytes());
                body.ending()
            }
            StreamSending::Nothing | StreamSending::Message { .. } => None,
        };
        match ending {
            None => return has_progress,
            Some(Ending::Broken) => {
                self.protocol.cancel(id, stream.broken_code(), out);
                self.forget(id, Completion::Aborted, out);
            }
            Some(Ending::Complete(trailers)) => {
                self.protocol.end_body(id, trailers, out);
                self.finish(id, out);
            }
        }
        true
    }

    /// Receives a part of a request body.
    pub(crate) fn receive_body(&mut self, id: StreamId, data: &[u8], out: &mut P::Output) {
        let now = self.link.now();
        let Some(stream) = self.streams.get_mut(id) else {
            return self.protocol.consumed(id, data.len(), out);
        };
        stream.expects_continue = false;
        stream.moved = now;
        stream.exchange.note_received(data.len());
        let mut is_consumed = true;
        if let Some(body) = &mut stream.exchange.request_body {
            is_consumed = !body.is_streamed();
            let copy = || Bytes::copy_from_slice(data);
            if let Err(error) = body.receive(data.len(), copy, now, self.link.ctx.http1.body) {
                self.protocol.consumed(id, data.len(), out);
                return self.reject_stream(id, error, out);
            }
        }
        if is_consumed {
            self.protocol.consumed(id, data.len(), out);
        }
    }

    /// Ends a request body with these trailer fields.
    pub(crate) fn end_body(&mut self, id: StreamId, trailers: FieldLines, out: &mut P::Output) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        stream.release_window(&mut self.protocol, out);
        stream.exchange.end_body(trailers);
        if stream.exchange.has_response() {
            self.begin_response(id, out);
        }
    }

    /// Rejects a request because of its body.
    pub(super) fn reject_stream(&mut self, id: StreamId, error: RequestError, out: &mut P::Output) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        stream.release_window(&mut self.protocol, out);
        if !stream.is_without_response() {
            self.protocol.cancel(id, Cancel::Stopped, out);
            return self.record(&mut stream, Completion::Aborted);
        }
        stream.sending = StreamSending::Nothing;
        self.link.reject_exchange(self.protocol.carrier(), error, &mut stream.exchange);
        self.begin_rejected(stream, out);
    }

    /// Starts the response of a stream.
    fn begin_response(&mut self, id: StreamId, out: &mut P::Output) {
        let Some(mut stream) = self.streams.remove(id) else { return };
        match std::mem::replace(&mut stream.sending, StreamSending::Nothing) {
            StreamSending::Message { source, head, pacer } => {
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
    pub(crate) fn forget(&mut self, id: StreamId, completion: Completion, out: &mut P::Output) {
        if let Some(mut stream) = self.streams.remove(id) {
            stream.release_window(&mut self.protocol, out);
            self.record(&mut stream, completion);
        }
    }

    /// Ends a stream whose response is complete in `out`.
    pub(super) fn finish(&mut self, id: StreamId, out: &mut P::Output) {
        if let Some(stream) = self.streams.remove(id) {
            self.finish_stream(stream, out);
        }
    }

    /// The same for a stream that was removed. It is recorded once its last byte was sent.
    pub(super) fn finish_stream(&mut self, stream: Stream, out: &mut P::Output) {
        stream.release_window(&mut self.protocol, out);
        let (bytes, unsent) = (stream.exchange.sent, stream.unsent(self.protocol.flushes()));
        let received = stream.exchange.received();
        let Some(mut log) = stream.exchange.log else { return };
        log.outcome = log.outcome.finish(bytes, Completion::Complete);
        log.outcome.received = received;
        let range =
            OutputRange { start: stream.start, end: self.protocol.position(out), body: unsent };
        self.pending.record_later(range, log);
    }

    /// Ends all streams early. What was written is still sent.
    pub(crate) fn abandon_streams(&mut self) {
        for mut stream in self.streams.take() {
            self.record(&mut stream, Completion::Aborted);
        }
    }

    /// Records all streams at the end of the connection. The bytes before the position `sent` were sent, and the others never
    /// will be.
    pub(crate) fn record_rest(&mut self, sent: i64) {
        for mut stream in self.streams.take() {
            stream.exchange.sent -= stream.unsent(self.protocol.flushes());
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
        let bytes = stream.exchange.sent;
        self.link.record(&mut stream.exchange, bytes, completion);
    }
}

impl Stream {
    /// Returns the code of the reset that shows that the response is not complete. Within a tunnel it stands for a reset of
    /// the other connection (RFC 8441 §5).
    fn broken_code(&self) -> Cancel {
        if self.is_tunnel { Cancel::Stopped } else { Cancel::Broken }
    }

    /// Returns `true` if the head of the response can be sent.
    fn is_ready(&self) -> bool {
        match &self.sending {
            StreamSending::Nothing => self.exchange.can_respond(),
            StreamSending::Message { head, .. } => head.is_complete(),
            _ => false,
        }
    }
}

/// Sends an interim response.
fn send_interim<P: Protocol>(
    protocol: &mut P,
    id: StreamId,
    status: u16,
    lines: &[u8],
    out: &mut P::Output,
) {
    protocol.send_interim(id, &OutgoingHead { status, date: b"", lines, serial: 0 }, out);
}
