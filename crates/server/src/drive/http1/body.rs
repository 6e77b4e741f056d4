//! Reading a request's body: within its limits, and before or after the answer.

use dunlin_http::RequestError;
use dunlin_http::http1::BodyEvent;

use super::super::body_limits::BodyLimits;
use super::{Connection, Next};
use crate::exchange::Response;
use crate::route;
use crate::worker::{Completion, DeferredRecord, Output};

/// A request body that is being read.
pub(super) struct BodyProgress {
    limits: BodyLimits,
    /// What waits for the body's end; absent when the answer was sent already.
    deferred: Option<Deferred>,
}

/// An answer that waits for the end of the request's body.
pub(super) struct Deferred {
    pub(super) response: Response,
    pub(super) log: Option<Box<DeferredRecord>>,
    pub(super) is_head: bool,
}

/// How far the body was read.
pub(super) enum BodyStep {
    /// A stretch of the body, or all of it, was read; with what follows when that is not simply
    /// the next bytes.
    Ended(Option<Next>),
    /// More bytes are needed.
    More,
}

impl Connection {
    pub(super) fn expect_body(&mut self, limit: u64, deferred: Option<Deferred>) {
        let limits = BodyLimits::new(limit, self.ctx.clock.now());
        self.body = Some(Box::new(BodyProgress { limits, deferred }));
    }

    /// Reads on in the body of the present request.
    pub(super) fn read_body(
        &mut self,
        data: &[u8],
        at: &mut usize,
        output: &mut Output,
    ) -> BodyStep {
        let Some(progress) = &mut self.body else { return BodyStep::Ended(None) };
        let (used, event) = match self.engine.body(&data[*at..]) {
            Ok(result) => result,
            Err(refusal) => return BodyStep::Ended(Some(self.refuse_body(refusal, output))),
        };
        *at += used;
        match event {
            BodyEvent::More => BodyStep::More,
            BodyEvent::Data(data) => {
                let now = self.ctx.clock.now();
                match progress.limits.take(data.len(), now, &self.ctx.http1) {
                    Ok(()) => BodyStep::Ended(None),
                    Err(refusal) => BodyStep::Ended(Some(self.refuse_body(refusal, output))),
                }
            }
            BodyEvent::End => {
                let deferred = self.body.take().and_then(|progress| progress.deferred);
                BodyStep::Ended(deferred.and_then(|Deferred { response, log, is_head }| {
                    self.send_response(response, is_head, log, output)
                }))
            }
        }
    }

    /// The client left within a body.
    pub(super) fn lose_body(&mut self) {
        let deferred = self.body.take().and_then(|progress| progress.deferred);
        if let Some(log) = deferred.and_then(|deferred| deferred.log) {
            self.record_later(&log, 0, Completion::Aborted);
        }
    }

    /// Refuses the rest of a body. When the final response was sent already, the connection ends without another one.
    pub(super) fn refuse_body(&mut self, refusal: RequestError, output: &mut Output) -> Next {
        let progress = self.body.take();
        match progress.and_then(|progress| progress.deferred) {
            Some(deferred) => {
                self.engine.close();
                self.linger = true;
                let request = deferred.log.as_ref().map(|log| log.request.as_request());
                let is_page = !deferred.is_head;
                let response = route::refusal_to(&self.ctx, request.as_ref(), &refusal, is_page);
                let next = self.send_response(response, deferred.is_head, deferred.log, output);
                next.unwrap_or(Next::Close)
            }
            None => {
                self.closing = true;
                self.linger = true;
                self.flush_answers(output)
            }
        }
    }
}
