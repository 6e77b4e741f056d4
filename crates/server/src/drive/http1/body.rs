//! Receiving a request body that no handler reads: before a deferred response, or after a response.

use dunlin_exchange::Response;
use dunlin_http::http1::BodyEvent;
use dunlin_http::{RequestError, Version};

use super::super::exchange::Exchange;
use super::{Http1Driver, Next};
use crate::worker::{Completion, DeferredRecord, Output};

/// The result of receiving a part of a body.
pub(super) enum BodyStep {
    /// A part of the body, or its rest, was received. `None`: the next bytes follow.
    Ended(Option<Next>),
    /// More bytes are needed.
    More,
}

impl Http1Driver {
    /// Receives and discards the body of the present request, whose response is sent.
    pub(super) fn discard_body(&mut self, limit: u64) {
        let mut exchange = Exchange::without_response();
        exchange.discard_body(limit, self.link.ctx.clock.now(), false);
        self.body = Some(Box::new(exchange));
    }

    /// Receives and discards the body of the present request, and sends the response at its end.
    pub(super) fn defer(
        &mut self,
        limit: u64,
        response: Response,
        log: Option<Box<DeferredRecord>>,
        is_head: bool,
    ) {
        let mut exchange = Exchange::with_response(response, log, is_head);
        exchange.discard_body(limit, self.link.ctx.clock.now(), true);
        self.body = Some(Box::new(exchange));
    }

    /// Receives the next part of the body of the present request.
    pub(super) fn read_body(
        &mut self,
        data: &[u8],
        at: &mut usize,
        output: &mut Output,
    ) -> BodyStep {
        let body = self.body.as_mut().and_then(|exchange| exchange.request_body.as_mut());
        let Some(body) = body else { return BodyStep::Ended(None) };
        let (used, event) = match self.engine.body(&data[*at..]) {
            Ok(result) => result,
            Err(error) => return BodyStep::Ended(Some(self.reject_body_early(error, output))),
        };
        *at += used;
        match event {
            BodyEvent::More => BodyStep::More,
            BodyEvent::Data(data) => {
                let now = self.link.ctx.clock.now();
                let received =
                    body.receive(data.len(), Default::default, now, &self.link.ctx.http1);
                BodyStep::Ended(received.err().map(|error| self.reject_body_early(error, output)))
            }
            BodyEvent::End => {
                let Some(mut exchange) = self.body.take() else { return BodyStep::Ended(None) };
                exchange.end_body(self.engine.take_trailers());
                BodyStep::Ended(exchange.take_response().and_then(|response| {
                    self.send_response(response, exchange.is_head, exchange.log, output)
                }))
            }
        }
    }

    /// Records a deferred response that cannot be sent because the client has closed the connection.
    pub(super) fn record_lost_body(&mut self) {
        if let Some(log) = self.body.take().and_then(|exchange| exchange.log) {
            self.link.record(&log, 0, Completion::Aborted);
        }
    }

    /// Rejects the rest of a body. If the final response was sent before, the connection ends without another one.
    pub(super) fn reject_body_early(&mut self, error: RequestError, output: &mut Output) -> Next {
        let deferred = self.body.take().filter(|exchange| exchange.has_response());
        let Some(exchange) = deferred else {
            self.closing = true;
            self.linger = true;
            return self.flush_responses(output);
        };
        let Exchange { log, is_head, .. } = *exchange;
        let rejected = self.link.reject_recorded(&self.stream, &error, log.as_deref(), is_head);
        let version =
            log.as_ref().map_or(Version::Http11, |log| log.request.as_request().version());
        self.send_rejection(rejected, (version, is_head), log, output)
    }
}
