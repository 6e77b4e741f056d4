//! Receiving a request body that no handler reads: before a deferred response, or after a response.

use bytes::Bytes;
use dunlin_exchange::{BodyRate, RequestBody};
use dunlin_http::http1::{BodyEvent, Http1Connection};
use dunlin_http::{RequestError, Version};

use super::{Http1Driver, Next};
use crate::worker::{Completion, Output};

/// Receives what `data` has of a request body from `at` on, at the time `now`. Returns `true` at its end.
///
/// # Errors
/// If the body is malformed, or exceeds its limits.
pub(super) fn receive_part(
    engine: &mut Http1Connection,
    body: &mut RequestBody,
    (data, at): (&[u8], &mut usize),
    (now, rate): (u64, BodyRate),
) -> Result<bool, RequestError> {
    // Chunks of any size are passed on as one.
    let (mut length, mut gathered, mut has_ended) = (0, Vec::new(), false);
    while !has_ended {
        let (used, event) = engine.body(&data[*at..])?;
        *at += used;
        match event {
            BodyEvent::More => break,
            BodyEvent::Data(bytes) => {
                length += bytes.len();
                if body.is_streamed() {
                    gathered.extend_from_slice(bytes);
                }
            }
            BodyEvent::End => has_ended = true,
        }
    }
    if length > 0 || body.is_streamed() {
        body.receive(length, || Bytes::from(gathered), now, rate)?;
    }
    Ok(has_ended)
}

impl Http1Driver {
    /// Receives the next part of the body of the present request. Returns `None` at its end if the next request follows.
    pub(super) fn read_body(
        &mut self,
        data: &[u8],
        at: &mut usize,
        output: &mut Output,
    ) -> Option<Next> {
        let now = (self.link.now(), self.link.ctx.http1.body);
        let body = self.body.as_mut()?.request_body.as_mut()?;
        match receive_part(&mut self.engine, body, (data, at), now) {
            Ok(false) => Some(self.flush_responses(output)),
            Ok(true) => {
                let mut exchange = self.body.take()?;
                exchange.end_body(self.engine.take_trailers());
                let response = exchange.take_response()?;
                self.send_response(response, exchange.is_head, exchange.log, output)
            }
            Err(error) => Some(self.reject_body_early(error, output)),
        }
    }

    /// Records a deferred response that cannot be sent because the client has closed the connection.
    pub(super) fn record_lost_body(&mut self) {
        if let Some(mut exchange) = self.body.take() {
            self.link.record(&mut exchange, 0, Completion::Aborted);
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
        let mut exchange = *exchange;
        let version = exchange.log.as_ref().map(|log| log.request.as_request().version());
        self.link.reject_exchange(&self.stream, error, &mut exchange);
        self.send_rejection(exchange, version.unwrap_or(Version::Http11), output)
    }
}
