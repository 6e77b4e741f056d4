//! Responses to which a script has written the head (RFC 3875 §5).

use bytes::Bytes;
use dunlin_exchange::{StreamBody, stream};
use dunlin_http::semantics::status;

use super::super::{HeadLines, PlanBody, ResponsePlan};
use super::message_head::MessageHead;
use super::stream::Stream;
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
        let has_body = !stream.exchange.is_head && status::has_body(status) && length != Some(0);
        let body = if has_body {
            let first = Bytes::copy_from_slice(head.rest());
            let body = StreamBody::after(first, source, length);
            PlanBody::Stream { body, has_length: length.is_some() }
        } else {
            source.detach();
            PlanBody::None
        };
        let lines = HeadLines::Own(fields);
        let plan = ResponsePlan { status, lines, has_date: false, serial: 0, body, pacer };
        self.send(stream, plan, out);
    }
}
