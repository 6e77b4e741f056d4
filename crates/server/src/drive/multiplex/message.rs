//! Responses to which a script has written the head (RFC 3875 §5).

use bytes::Bytes;
use dunlin_exchange::stream;
use dunlin_http::semantics::status;

use super::super::exchange::{BodyWriter, StreamBody};
use super::message_head::MessageHead;
use super::stream::{Stream, StreamSending};
use super::{Cancel, Multiplexer, Protocol};
use crate::worker::Completion;
use dunlin_limits::bandwidth::Pacer;

impl<P: Protocol> Multiplexer<P> {
    /// Starts a response with a message whose head is complete.
    pub(super) fn respond_with_message(
        &mut self,
        mut stream: Stream,
        (source, head, pacer): (stream::Receiver, MessageHead, Option<Pacer>),
        out: &mut P::Output,
    ) {
        let Some((status, fields, length)) = head.parse() else {
            tracing::warn!("a script's message cannot be sent: its head is malformed");
            stream.release_window(&mut self.protocol, out);
            self.protocol.cancel(stream.id, Cancel::Broken, out);
            return self.record(&mut stream, Completion::Aborted);
        };
        if let Some(log) = &mut stream.exchange.log {
            log.outcome.status = status;
            log.context.begin_response();
        }
        stream.start = self.protocol.position(out);
        let is_bodiless = stream.exchange.is_head || !status::has_body(status) || length == Some(0);
        self.send_head(stream.id, (status, false), fields.as_bytes(), 0, is_bodiless, out);
        if is_bodiless {
            source.detach();
            return self.finish_stream(stream, out);
        }
        let first = Bytes::copy_from_slice(head.rest());
        let mut body = StreamBody::new(source, length);
        let chunk = body.take_part(first);
        stream.sending = StreamSending::Body(BodyWriter::stream_from(body, chunk, pacer));
        self.streams.insert(stream);
    }
}
