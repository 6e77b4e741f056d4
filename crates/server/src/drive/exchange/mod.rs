//! One request and its response, for every version of HTTP: limits of the request body, interim responses, the rules of
//! response heads and bodies, pacing, and the outcome. An adapter moves bytes and frames between an exchange and its
//! protocol engine.

mod body_limits;
mod body_writer;
mod cached;
mod reject;
mod request_body;
mod response;
mod start;
mod stream_body;

use std::rc::Rc;
use std::task::{Context, Poll};

use dunlin_http::{BodyLength, FieldLines};

pub(super) use self::body_limits::{STALLED, TOO_LARGE};
pub(super) use self::body_writer::{BodyWriter, Ending, Filled, Part};
pub(super) use self::cached::CachedParts;
pub(super) use self::reject::{Rejected, RejectedFrom, reject};
pub(super) use self::request_body::RequestBody;
pub(super) use self::response::{ResponseBody, StartedResponse, start_response};
pub(super) use self::start::{Arrival, Started, begin, begin_fast, deferred_record, start};
use self::stream_body::Chunk;
pub(super) use self::stream_body::StreamBody;
use dunlin_exchange::{
    ConnectionFacts, EarlyHints, Incoming, Interim, Response, ResponseFuture, stream,
};
use dunlin_net::address::SocketAddresses;
use dunlin_net::clock;
use dunlin_telemetry::ScriptContext;

use crate::route::reply::StreamingHandler;
use crate::worker::DeferredRecord;

/// A request whose response is not complete.
pub(super) struct Exchange {
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
    pub(super) request_body: Option<RequestBody>,
    pub(super) log: Option<Box<DeferredRecord>>,
    pub(super) is_head: bool,
}

/// The bytes behind the head of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum RequestContent {
    Body(BodyLength),
    /// What the client sends through a tunnel, which it has requested with extended CONNECT (RFC 8441).
    Tunnel,
}

/// Properties of the connection that a streaming handler gets.
pub(super) struct ConnectionView<'a> {
    pub(super) facts: &'a ConnectionFacts,
    pub(super) ends: Option<SocketAddresses>,
    /// The client understands interim responses.
    pub(super) has_interim_responses: bool,
}

impl Exchange {
    /// Creates an exchange whose response is started at once.
    pub(super) fn new(log: Option<Box<DeferredRecord>>, is_head: bool) -> Self {
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
        }
    }

    /// Creates an exchange whose response is ready.
    pub(super) fn with_response(
        response: Response,
        log: Option<Box<DeferredRecord>>,
        is_head: bool,
    ) -> Self {
        Self { response: Some(response), ..Self::new(log, is_head) }
    }

    /// Creates an exchange whose response was sent before the end of the request body.
    pub(super) fn without_response() -> Self {
        Self::new(None, false)
    }

    /// Creates an exchange whose response takes time.
    pub(super) fn with_future(
        handler: ResponseFuture,
        log: Option<Box<DeferredRecord>>,
        is_head: bool,
    ) -> Self {
        Self { handler: Some(handler), ..Self::new(log, is_head) }
    }

    /// Starts a handler that reads the `content` of the request, of whose body `limit` bytes are accepted.
    pub(super) fn with_streaming_handler(
        begin: StreamingHandler,
        (content, limit, now): (RequestContent, u64, u64),
        connection: ConnectionView<'_>,
        log: Option<Box<DeferredRecord>>,
        is_head: bool,
    ) -> Self {
        let (request_body, body, length) = match content {
            RequestContent::Body(BodyLength::None) => (None, stream::empty(), BodyLength::None),
            RequestContent::Body(length) => {
                let (request_body, receiver) = RequestBody::streamed(limit, now);
                (Some(request_body), receiver, length)
            }
            RequestContent::Tunnel => {
                let (request_body, receiver) = RequestBody::tunnel();
                (Some(request_body), receiver, BodyLength::None)
            }
        };
        let context = log.as_ref().map(|log| &log.context);
        let traceparent = context.and_then(|context| context.traceparent());
        let script_context = Rc::new(ScriptContext::new(clock::now(), traceparent));
        if let Some(context) = context {
            context.set_script(Rc::clone(&script_context));
        }
        let early_hints = EarlyHints::new(connection.has_interim_responses);
        let handler = begin(Box::new(Incoming {
            body,
            length,
            received: None,
            ends: connection.ends,
            encrypted: connection.facts.is_encrypted(),
            tls: connection.facts.tls.as_deref().cloned(),
            script_context: Rc::clone(&script_context),
            redirects: 0,
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

    /// Continues after the response: discards the rest of a request body.
    pub(super) fn for_rest(body: RequestBody, now: u64) -> Self {
        Self { request_body: Some(body.into_discarded(now)), ..Self::without_response() }
    }

    /// Receives and discards the request body. The response is sent after its end if it is deferred, and before otherwise.
    pub(super) fn discard_body(&mut self, limit: u64, now: u64, is_deferred: bool) {
        self.request_body = Some(RequestBody::discarded(limit, now));
        self.awaits_body = is_deferred;
    }

    /// Returns `true` if the request is for an upstream.
    pub(super) fn is_proxied(&self) -> bool {
        self.script_context.as_deref().is_some_and(ScriptContext::is_proxied)
    }

    /// Returns `true` if the handler has not responded.
    pub(super) fn has_handler(&self) -> bool {
        self.handler.is_some()
    }

    /// Returns `true` if the handler has responded and the response was not taken.
    pub(super) fn has_response(&self) -> bool {
        self.response.is_some()
    }

    /// Returns `true` if the response can be sent now.
    pub(super) fn can_respond(&self) -> bool {
        self.response.is_some() && !self.awaits_body
    }

    /// Polls the handler. Returns `true` if there is progress: a response, or interim responses.
    pub(super) fn poll_handler(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(handler) = &mut self.handler else { return false };
        let mut has_progress = false;
        if let Poll::Ready(response) = handler.as_mut().poll(cx) {
            self.handler = None;
            self.response = Some(response);
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
    pub(super) fn take_hints(&mut self) -> impl Iterator<Item = Interim> {
        self.hints.drain(..)
    }

    /// Takes the response if it can be sent now.
    pub(super) fn take_response(&mut self) -> Option<Response> {
        if self.awaits_body { None } else { self.response.take() }
    }

    /// Returns `true` if the server should send an interim response with status 100 to a client that expects one.
    pub(super) fn wants_continue(&self) -> bool {
        match &self.request_body {
            Some(body) if body.is_streamed() => self.handler.is_some() && body.is_wanted(),
            _ => self.awaits_body,
        }
    }

    /// Returns `true` if the exchange waits for the client to send more of the request body.
    pub(super) fn waits_for_body(&self) -> bool {
        match &self.request_body {
            Some(body) if body.is_streamed() => {
                self.handler.is_some() && !body.is_full() && !body.is_tunnel()
            }
            _ => self.awaits_body,
        }
    }

    /// Ends the request body with these trailer fields.
    pub(super) fn end_body(&mut self, trailers: FieldLines) {
        if let Some(body) = self.request_body.take() {
            body.end(trailers);
        }
        self.awaits_body = false;
    }

    /// Drops handler, request body and response. The handler finds its streams closed.
    pub(super) fn abort(&mut self) {
        (self.handler, self.request_body, self.response) = (None, None, None);
        self.awaits_body = false;
    }
}
