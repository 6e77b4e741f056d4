//! The start of an exchange, once its request is routed.

use std::rc::Rc;

use dunlin_exchange::{RequestBody, RequestContext, Response, TOO_LARGE};
use dunlin_http::semantics::Method;
use dunlin_http::{BodyLength, FieldLines, Request, Version};

use super::coding::Requester;
use super::link::{Carrier, ConnectionView, Link};
use super::{CachedReply, Exchange, INLINE_BODY};
use crate::checks::resolve_client;
use crate::route::fast_path::FastResponse;
use crate::route::reply::{Awaited, Reply, Routed};
use crate::route::sites::CacheEntry;
use crate::worker::{CountedResponse, DeferredRecord, OutputRange, Pending};
use dunlin_files::cache::worker_cache::Prebuilt;

/// The bytes behind the head of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContent {
    pub(crate) length: BodyLength,
    /// They are what the client sends through a tunnel, which it has requested with extended CONNECT (RFC 8441).
    pub(crate) is_tunnel: bool,
}

/// A routed request whose exchange has started.
pub(crate) enum Begun {
    /// The response is in the cache. A request body is discarded.
    Cached(CachedReply<Rc<CacheEntry>>, Option<RequestBody>),
    /// The response is ready. A request body is discarded.
    Ready(ReadyResponse, Option<RequestBody>),
    /// The handler or the end of the request body is awaited.
    Exchange(Exchange),
    /// The request is rejected because of its body.
    Rejected(Exchange),
    /// The client has closed the connection.
    Lost,
}

/// A response that is ready.
pub(crate) struct ReadyResponse {
    pub(crate) response: Box<Response>,
    pub(crate) is_head: bool,
    pub(crate) log: Option<Box<DeferredRecord>>,
}

/// A response of the fast path.
pub(crate) enum Fast<'f> {
    /// It is complete, and is counted at most ([`Link::count`]).
    Prebuilt(&'f CacheEntry, &'f Prebuilt, Option<Rc<RequestContext>>),
    Cached(CachedReply<&'f CacheEntry>),
}

impl Link {
    /// Starts the exchange of a routed request: completes its context, publishes its start, and starts its handler. If it is
    /// not recorded, it has a context only if the checks need one.
    pub(crate) fn start(
        &mut self,
        carrier: &impl Carrier,
        (request, routed): (&Request<'_>, Routed),
        content: RequestContent,
        is_recorded: bool,
    ) -> Begun {
        let Routed { mut reply, body_limit, reads_body, .. } = routed;
        let (site, telemetry) = (routed.site, routed.route_telemetry);
        let codings = routed.codings;
        let context = match is_recorded {
            true => self.begin(request, routed.context),
            false => routed.context,
        };
        let keeps_request = telemetry.server_timing || routed.has_body_pages;
        let context =
            context.or_else(|| keeps_request.then(|| Rc::new(RequestContext::new(self.client()))));
        if let Some(context) = &context {
            context.set_route(site, telemetry);
            self.ctx.publish_start(request, &self.facts, context);
        }
        if let Reply::Response(response) = reply {
            if response.is_withheld {
                let log = deferred_record(request, context);
                let is_head = request.method() == Method::Head;
                return Begun::Ready(ReadyResponse { response, is_head, log }, None);
            }
            reply = Reply::Response(response);
        }
        if matches!(content.length, BodyLength::Known(length) if length > body_limit) {
            return Begun::Rejected(self.reject(carrier, TOO_LARGE, request, context));
        }
        if let Some(context) = &context
            && context.names_addresses()
        {
            let Ok(ends) = self.ends(carrier) else { return Begun::Lost };
            context.set_ends(ends);
        }
        let reply = match &context {
            Some(context) if context.changes_response() => reply.editable(request),
            _ => reply,
        };
        let (now, is_head) = (self.ctx.clock.now(), request.method() == Method::Head);
        let has_body = content.length != BodyLength::None;
        let mut wanted = match reply {
            Reply::Cached(_) => None,
            _ => {
                let requester = || self.requester(request, context.as_deref());
                codings.of_request(request, is_head, self.facts.peer, requester)
            }
        };
        let mut exchange = match reply {
            Reply::Cached(cached) => {
                let reply = self.cached(cached, context, request.method());
                let rest = has_body.then(|| RequestBody::discarded(body_limit, now));
                return Begun::Cached(reply, rest);
            }
            Reply::Response(mut response) => {
                let log = deferred_record(request, context);
                if let Some(wanted) = wanted.take() {
                    let context = log.as_ref().map(|log| &log.context);
                    wanted.apply(&mut response, &self.ctx.coding, context);
                }
                if response.body.is_stream() {
                    // It is coded as it is sent.
                    let response = Box::pin(std::future::ready(*response));
                    Exchange::with_future(response, log, is_head)
                } else if has_body && reads_body {
                    Exchange::with_response(*response, log, is_head)
                } else {
                    let rest = has_body.then(|| RequestBody::discarded(body_limit, now));
                    return Begun::Ready(ReadyResponse { response, is_head, log }, rest);
                }
            }
            Reply::Awaited(Awaited::Alone(response)) => {
                Exchange::with_future(response, deferred_record(request, context), is_head)
            }
            Reply::Awaited(Awaited::Reading(handler)) => {
                let Ok(ends) = self.ends(carrier) else { return Begun::Lost };
                let has_interim_responses = request.version() != Version::Http10;
                let connection = ConnectionView { facts: &self.facts, ends, has_interim_responses };
                let log = deferred_record(request, context);
                let body = (content, body_limit, now);
                Exchange::with_reading_handler(handler, body, connection, log, is_head)
            }
        };
        if let Some(wanted) = wanted {
            exchange = exchange.with_coding(wanted, &self.ctx.coding);
        }
        if !has_body && content.is_tunnel {
            exchange.end_body(FieldLines::default());
        } else if has_body && exchange.request_body.is_none() {
            exchange.discard_body(body_limit, now);
        }
        Begun::Exchange(exchange)
    }

    /// Returns who has sent a request with that context.
    fn requester(&self, request: &Request<'_>, context: Option<&RequestContext>) -> Requester {
        let has_certificate = self.facts.tls.as_ref().is_some_and(|tls| tls.client.is_some());
        let is_known = has_certificate || context.is_some_and(RequestContext::names_client);
        let client = resolve_client(self.client(), request, &self.ctx.shared.config.server);
        Requester { client, is_known }
    }

    /// Starts the response of the fast path. `fits` returns `true` if the whole body can be sent now.
    #[inline]
    pub(crate) fn start_fast<'f>(
        &mut self,
        request: &Request<'_>,
        fast: FastResponse<'f>,
        fits: impl FnOnce(&[u8]) -> bool,
    ) -> Fast<'f> {
        let FastResponse { cached, site, context } = fast;
        let pacer = self.pacer(context.as_deref(), &cached, request.method());
        let (entry, settings) = (cached.entry, &cached.entry.route);
        if pacer.is_none()
            && !self.ctx.needs_records()
            && cached.prebuilt(INLINE_BODY).is_some()
            && let Some(prebuilt) = &entry.prebuilt
            && fits(prebuilt.sent(request.method()))
        {
            self.connection_start = None;
            return Fast::Prebuilt(entry, prebuilt, context);
        }
        let context = self.begin(request, context);
        if let Some(context) = &context {
            context.set_route(site, settings.telemetry());
            self.ctx.publish_start(request, &self.facts, context);
        }
        let keeps_head = self.ctx.logs_response_fields;
        Fast::Cached(CachedReply { cached, context, pacer, keeps_head })
    }

    /// Counts a response of the fast path that has no record, once it was sent.
    #[inline]
    pub(crate) fn count(
        &self,
        pending: &mut Pending,
        range: OutputRange,
        request: &Request<'_>,
        (entry, context): (&CacheEntry, Option<&RequestContext>),
    ) {
        if self.ctx.shared.is_counting {
            let counted = (entry.route.label, range.body);
            let client = || self.client();
            let counted = CountedResponse::new(request, counted, self.read_times, context, client);
            pending.count(range, counted);
        }
    }
}

/// Returns the data for the access record of a request, if it has a context.
pub(crate) fn deferred_record(
    request: &Request<'_>,
    context: Option<Rc<RequestContext>>,
) -> Option<Box<DeferredRecord>> {
    context.map(|context| DeferredRecord::new(request, context))
}
