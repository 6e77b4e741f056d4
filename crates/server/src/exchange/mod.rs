//! One request and its response, for every version of HTTP: the start of an exchange, interim responses, limits of the
//! request body, the plan of the response, and its record. An adapter writes plans, and moves bytes and frames between an
//! exchange and its protocol engine.

pub(crate) mod coding;
pub(crate) mod link;
pub(crate) mod multiplex;
mod plan;
mod reject;
mod start;

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_http::{BodyLength, FieldLines};

pub(crate) use self::plan::{CachedReply, HeadLines, PlanBody, PlannedRecord, ResponsePlan};
pub(crate) use self::start::{Begun, Fast, ReadyResponse, RequestContent, deferred_record};
use dunlin_exchange::{
    EarlyHints, Includes, Incoming, Interim, RequestBody, Response, ResponseFuture, StreamBody,
    stream,
};
use dunlin_net::clock;
use dunlin_telemetry::ScriptContext;
use dunlin_telemetry::metrics::WorkerMetrics;

use self::coding::{CodingBudget, WantedCoding};
use self::link::ConnectionView;
use crate::route::reply::ReadingHandler;
use crate::worker::{DeferredRecord, ResponseOutcome, TunnelMeter};

/// Bodies up to this size are copied behind their heads, so that many responses leave in one write. A bandwidth limit may
/// let them leave at once.
pub(crate) const INLINE_BODY: usize = 8 * 1024;

/// A request whose response is not complete.
pub(crate) struct Exchange {
    /// The handler, until it has responded.
    handler: Option<ResponseFuture>,
    early_hints: Option<EarlyHints>,
    /// What the handler notes of the request.
    script_context: Option<Rc<ScriptContext>>,
    /// Interim responses that were not sent. [`EarlyHints`] bounds them.
    hints: Vec<Interim>,
    /// The response of the handler, until the adapter starts to send it.
    response: Option<Response>,
    /// The response is sent after the end of the request body.
    awaits_body: bool,
    /// The request body, until its end.
    pub(crate) request_body: Option<RequestBody>,
    pub(crate) log: Option<Box<DeferredRecord>>,
    pub(crate) is_head: bool,
    /// The codings that the response may have; `None` if it is sent as it is.
    coding: Option<Coding>,
    /// Bytes of the response body that the adapter has written.
    pub(crate) sent: u64,
    /// Counts the bytes of a tunnel, once it is open.
    meter: Option<TunnelMeter>,
}

/// The codings that a response may have, and the time for them.
struct Coding {
    wanted: WantedCoding,
    budget: Rc<CodingBudget>,
}

impl Exchange {
    /// Creates an exchange whose response is started at once.
    pub(crate) fn new(log: Option<Box<DeferredRecord>>, is_head: bool) -> Self {
        Self {
            handler: None,
            early_hints: None,
            script_context: None,
            hints: Vec::new(),
            response: None,
            awaits_body: false,
            request_body: None,
            log,
            is_head,
            coding: None,
            sent: 0,
            meter: None,
        }
    }

    /// Creates an exchange whose response is ready.
    fn with_response(response: Response, log: Option<Box<DeferredRecord>>, is_head: bool) -> Self {
        Self { response: Some(response), ..Self::new(log, is_head) }
    }

    /// Creates an exchange whose response takes time.
    fn with_future(
        handler: ResponseFuture,
        log: Option<Box<DeferredRecord>>,
        is_head: bool,
    ) -> Self {
        Self { handler: Some(handler), ..Self::new(log, is_head) }
    }

    /// Starts a handler that reads the `content` of the request, of whose body `limit` bytes are accepted.
    fn with_reading_handler(
        handler: ReadingHandler,
        (content, limit, now): (RequestContent, u64, u64),
        connection: ConnectionView<'_>,
        log: Option<Box<DeferredRecord>>,
        is_head: bool,
    ) -> Self {
        let (request_body, body, length) = match content.length {
            _ if content.is_tunnel => {
                let (request_body, receiver) = RequestBody::tunnel();
                (Some(request_body), receiver, BodyLength::None)
            }
            BodyLength::None => (None, stream::empty(), BodyLength::None),
            length => {
                let (request_body, receiver) = RequestBody::streamed(limit, now);
                (Some(request_body), receiver, length)
            }
        };
        let context = log.as_ref().map(|log| &log.context);
        let request_body = match context.filter(|context| context.names_body()) {
            Some(context) => request_body.map(|body| body.copied_to(Rc::clone(context))),
            None => request_body,
        };
        let traceparent = context.and_then(|context| context.traceparent());
        let script_context = Rc::new(ScriptContext::new(clock::now(), traceparent));
        if let Some(context) = context {
            context.set_script(Rc::clone(&script_context));
        }
        let early_hints = EarlyHints::new(connection.has_interim_responses);
        let handler = handler(Box::new(Incoming {
            body,
            length,
            received: None,
            ends: connection.ends,
            encrypted: connection.facts.is_encrypted(),
            tls: connection.facts.tls.as_deref().cloned(),
            script_context: Rc::clone(&script_context),
            redirects: 0,
            includes: Includes::default(),
            early_hints: early_hints.clone(),
        }));
        Self {
            handler: Some(handler),
            early_hints: Some(early_hints),
            script_context: Some(script_context),
            request_body,
            ..Self::new(log, is_head)
        }
    }

    /// Has the response of the handler compressed, as its route permits and its client accepts.
    fn with_coding(self, wanted: WantedCoding, budget: &Rc<CodingBudget>) -> Self {
        Self { coding: Some(Coding { wanted, budget: Rc::clone(budget) }), ..self }
    }

    fn set_response(&mut self, mut response: Response) {
        if let Some(coding) = self.coding.take() {
            let context = self.log.as_ref().map(|log| &log.context);
            coding.wanted.apply(&mut response, &coding.budget, context);
        }
        self.response = Some(response);
    }

    /// Continues after the response: discards the rest of a request body.
    pub(crate) fn for_rest(body: RequestBody, now: u64) -> Self {
        Self { request_body: Some(body.into_discarded(now)), ..Self::new(None, false) }
    }

    /// Receives and discards the request body. A response that is ready is sent after its end.
    fn discard_body(&mut self, limit: u64, now: u64) {
        self.request_body = Some(RequestBody::discarded(limit, now));
        self.awaits_body = self.response.is_some();
    }

    /// Returns `true` if the request is for an upstream.
    pub(crate) fn is_proxied(&self) -> bool {
        self.script_context.as_deref().is_some_and(ScriptContext::is_proxied)
    }

    /// Returns `true` if the handler gets the request body.
    pub(crate) fn is_reading(&self) -> bool {
        self.script_context.is_some()
    }

    /// Returns `true` if the handler has not responded.
    pub(crate) fn has_handler(&self) -> bool {
        self.handler.is_some()
    }

    /// Returns `true` if the handler has responded and the response was not taken.
    pub(crate) fn has_response(&self) -> bool {
        self.response.is_some()
    }

    /// Returns `true` if the response can be sent now.
    pub(crate) fn can_respond(&self) -> bool {
        self.response.is_some() && !self.awaits_body
    }

    /// Polls the handler. Returns `true` if there is progress: a response, or interim responses.
    pub(crate) fn poll_handler(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(handler) = &mut self.handler else { return false };
        let mut has_progress = false;
        if let Poll::Ready(response) = handler.as_mut().poll(cx) {
            self.handler = None;
            self.set_response(response);
            if let Some(body) = &mut self.request_body {
                body.begin_response();
            }
            has_progress = true;
        }
        if let Some(early_hints) = &self.early_hints {
            // Hints from earlier polls wait for room in the socket: they are no progress.
            let mut hints = early_hints.take(cx);
            has_progress |= !hints.is_empty();
            self.hints.append(&mut hints);
        }
        has_progress
    }

    /// Takes the interim responses to send.
    pub(crate) fn take_hints(&mut self) -> impl Iterator<Item = Interim> {
        self.hints.drain(..)
    }

    /// Takes the response if it can be sent now.
    pub(crate) fn take_response(&mut self) -> Option<Response> {
        if self.awaits_body { None } else { self.response.take() }
    }

    /// Returns `true` if the server should send an interim response with status 100 to a client that expects one.
    pub(crate) fn wants_continue(&self) -> bool {
        match &self.request_body {
            Some(body) if body.is_streamed() => self.handler.is_some() && body.is_wanted(),
            _ => self.awaits_body,
        }
    }

    /// Returns `true` if the exchange waits for the client to send more of the request body.
    pub(crate) fn waits_for_body(&self) -> bool {
        match &self.request_body {
            Some(body) if body.is_streamed() => {
                self.handler.is_some() && !body.is_full() && !body.is_tunnel()
            }
            _ => self.awaits_body,
        }
    }

    /// Ends the request body with these trailer fields.
    pub(crate) fn end_body(&mut self, trailers: FieldLines) {
        if let Some(body) = self.request_body.take() {
            body.end(trailers);
        }
        self.awaits_body = false;
    }

    /// Drops handler, request body and response. The handler finds its streams closed.
    pub(crate) fn abort(&mut self) {
        (self.handler, self.request_body, self.response) = (None, None, None);
        self.awaits_body = false;
    }

    /// Opens the tunnel that the client has requested. It may have sent bytes before.
    pub(crate) fn begin_tunnel(&mut self, metrics: &Rc<WorkerMetrics>) {
        let mut meter = TunnelMeter::begin(metrics);
        meter.receive(self.request_body.as_ref().map_or(0, RequestBody::passed));
        self.meter = Some(meter);
    }

    /// Opens a tunnel after a switch of protocols with this status. `tunnel` takes what the client sends.
    pub(crate) fn switch_to(
        &mut self,
        tunnel: stream::Sender,
        status: u16,
        metrics: &Rc<WorkerMetrics>,
    ) {
        if let Some(log) = &mut self.log {
            log.outcome = ResponseOutcome { status, is_endless: true, ..ResponseOutcome::NONE };
            log.context.begin_response();
        }
        self.request_body = Some(RequestBody::tunnel_to(tunnel));
        self.begin_tunnel(metrics);
    }

    /// Passes on bytes that the client has sent through a tunnel. Returns `false` if there is none.
    pub(crate) fn receive_for_tunnel(&mut self, data: &[u8]) -> bool {
        match &mut self.request_body {
            Some(body) if body.is_tunnel() => body.pass(Bytes::copy_from_slice(data)),
            _ => return false,
        }
        self.note_received(data.len());
        true
    }

    /// Counts bytes of the client, if the tunnel is open.
    pub(crate) fn note_received(&mut self, bytes: usize) {
        if let Some(meter) = &mut self.meter {
            meter.receive(bytes);
        }
    }

    /// Counts bytes of the response body that the adapter has written.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        if let Some(meter) = &self.meter {
            meter.send(bytes);
        }
    }

    /// Returns the number of bytes that the client has sent through the tunnel; `None` if there is none.
    pub(crate) fn received(&self) -> Option<u64> {
        self.meter.as_ref().map(TunnelMeter::received)
    }
}

/// Returns the body of a response that switches protocols: what the handler sends through the tunnel.
pub(crate) fn tunnel_body(response: &mut Response) -> Option<StreamBody> {
    Some(StreamBody::new(response.body.take_stream()?.source, None))
}
