//! The body of a response, on its way from the upstream to the client.

use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dunlin_client::Exchange;
use dunlin_exchange::stream::{Broken, Source};
use dunlin_http::{ChunkQueue, FieldLines};
use dunlin_net::clock;
use dunlin_net::watchdog::Watchdog;
use dunlin_telemetry::ScriptContext;

use crate::failure::Failure;
use crate::label::Label;
use crate::response;
use crate::upload::Upload;
use crate::upstream_permit::UpstreamPermit;

/// The rest of an exchange whose response has begun. Polling it sends the rest of the request, too.
#[derive(Debug)]
pub(crate) struct Download {
    /// Parts of the body that have arrived.
    pieces: ChunkQueue,
    /// `None` after the end.
    running: Option<Running>,
    trailers: FieldLines,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) exchange: Box<Exchange<Upload>>,
    pub(crate) permit: UpstreamPermit,
    pub(crate) watchdog: Watchdog,
    pub(crate) script_context: Rc<ScriptContext>,
    /// The request, for the error log.
    pub(crate) label: Rc<dyn Label>,
}

impl Download {
    /// Creates a body that begins with `pieces`.
    pub(crate) fn new(pieces: ChunkQueue, mut running: Running) -> Self {
        // Until now it has measured another phase.
        running.watchdog.reset();
        Self { pieces, running: Some(running), trailers: FieldLines::default() }
    }

    /// Returns a body that has arrived completely.
    pub(crate) fn complete(pieces: ChunkQueue, trailers: FieldLines) -> Self {
        Self { pieces, running: None, trailers }
    }

    /// Ends the exchange, whose response is complete.
    fn end(&mut self) {
        if let Some(running) = self.running.take() {
            self.trailers = running.end();
        }
    }

    /// Breaks the exchange off.
    fn fail(&mut self, reason: &str) {
        if let Some(running) = self.running.take() {
            let result = "the response is incomplete";
            let request = (&*running.label, &*running.script_context);
            running.permit.upstream.report_failure(reason, result, request);
        }
    }
}

impl Running {
    /// Ends the exchange, whose response is complete. Returns its trailer fields.
    pub(crate) fn end(mut self) -> FieldLines {
        let now = clock::now();
        self.permit.give_back(self.exchange.take_connection(), now);
        self.script_context.ended.set(Some(now));
        match self.exchange.trailers().is_empty() {
            true => FieldLines::default(),
            false => response::trailers(self.exchange.trailers()),
        }
    }
}

impl Source for Download {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if let Some(piece) = self.pieces.pop() {
            return Poll::Ready(Ok(Some(piece)));
        }
        let Some(Running { exchange, permit, watchdog, .. }) = &mut self.running else {
            return Poll::Ready(Ok(None));
        };
        match exchange.poll_data(cx) {
            Poll::Ready(Some(Ok(bytes))) => Poll::Ready(Ok(Some(bytes))),
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(Ok(None))
            }
            Poll::Ready(Some(Err(error))) => {
                self.fail(Failure::of_client(&error).reason());
                Poll::Ready(Err(Broken))
            }
            Poll::Pending => {
                let progress = exchange.progress();
                if watchdog.poll(cx, permit.rules.idle_timeout, progress).is_pending() {
                    return Poll::Pending;
                }
                self.fail("no byte within `idle_timeout`");
                Poll::Ready(Err(Broken))
            }
        }
    }

    fn take_trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.trailers)
    }

    fn finish(mut self: Box<Self>) {
        // The end of a body with a stated length needs no further input.
        if let Some(running) = &mut self.running
            && let Poll::Ready(None) =
                running.exchange.poll_data(&mut Context::from_waker(Waker::noop()))
        {
            self.end();
        }
    }
}
