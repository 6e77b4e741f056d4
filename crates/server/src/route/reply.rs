//! What the router and the handlers return for a request.

use std::ops::Deref;
use std::rc::Rc;

use dunlin_exchange::{Incoming, RequestContext, Response, ResponseFuture};
use dunlin_http::semantics::ContentCoding;
use dunlin_telemetry::RouteTelemetry;

use super::sites::{CacheEntry, Route, Site};
use crate::exchange::coding::RouteCodings;
use dunlin_files::cache::worker_cache::Prebuilt;

/// The reply of a handler.
pub(crate) enum Reply {
    /// A response that the cache keeps ready.
    Cached(CachedResponse),
    /// A response that is ready.
    Response(Box<Response>),
    /// A handler that is awaited.
    Awaited(Awaited),
}

/// A handler that is awaited.
pub(crate) enum Awaited {
    /// The handler needs no more of the request than its head, and the body is discarded.
    Alone(ResponseFuture),
    /// The handler gets the request body, or streams the body of its response.
    Reading(ReadingHandler),
}

/// Starts a handler that reads the request body or streams its response.
pub(crate) type ReadingHandler = Box<dyn FnOnce(Box<Incoming>) -> ResponseFuture>;

/// A whole cached representation, or the 304 for it.
pub(crate) struct CachedResponse<H = Rc<CacheEntry>> {
    pub(crate) entry: H,
    pub(crate) coding: ContentCoding,
    pub(crate) not_modified: bool,
    /// Cache status for the log.
    pub(crate) cache: &'static str,
}

impl<H: Deref<Target = CacheEntry>> CachedResponse<H> {
    /// Returns the prebuilt response, if it applies and has at most `max` bytes.
    #[inline]
    pub(crate) fn prebuilt(&self, max: usize) -> Option<&Prebuilt> {
        let is_whole = self.coding == ContentCoding::Identity && !self.not_modified;
        self.entry.prebuilt.as_ref().filter(|prebuilt| is_whole && prebuilt.block.len() <= max)
    }
}

/// A routed request: the reply, and the settings of its route that the exchange needs.
pub(crate) struct Routed {
    pub(crate) reply: Reply,
    /// Index of the site, for the log.
    pub(crate) site: usize,
    /// Maximum size of the request body in bytes.
    pub(crate) body_limit: u64,
    /// The response is sent after the request body was received.
    pub(crate) reads_body: bool,
    pub(crate) route_telemetry: RouteTelemetry,
    /// The content codings of responses that are made for the request.
    pub(crate) codings: RouteCodings,
    /// The route has a page for a request that is rejected because of its body.
    pub(crate) has_body_pages: bool,
    /// Context of the checks; `None` if the route has none.
    pub(crate) context: Option<Rc<RequestContext>>,
    pub(crate) direction: Direction,
}

impl Reply {
    /// Returns the reply of a handler that needs no more of the request than its head.
    pub(crate) fn later(response: impl Future<Output = Response> + 'static) -> Self {
        Self::Awaited(Awaited::Alone(Box::pin(response)))
    }

    /// Returns the reply of a handler that reads the request body or streams its response.
    pub(crate) fn reading<F: Future<Output = Response> + 'static>(
        handler: impl FnOnce(Box<Incoming>) -> F + 'static,
    ) -> Self {
        Self::Awaited(Awaited::Reading(Box::new(move |incoming| Box::pin(handler(incoming)))))
    }

    /// Returns `true` if the handler gets the request body.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self, Self::Awaited(Awaited::Reading(_)))
    }
}

impl From<Response> for Reply {
    fn from(response: Response) -> Self {
        Self::Response(Box::new(response))
    }
}

/// Whether a request came by a connection on which its site is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Right,
    /// It did not. Requests for other sites may be served.
    Misdirected,
    /// It did not, and the site that the handshake named is not served on the connection either: its policy has changed.
    /// The connection takes no further requests.
    Ended,
}

impl Routed {
    /// Creates the result of routing to `route`.
    pub(super) fn new(
        site: &Site,
        route: &Route,
        reply: Reply,
        reads_body: bool,
        context: Option<Rc<RequestContext>>,
    ) -> Self {
        Self {
            reply,
            site: site.index,
            body_limit: route.body_size,
            reads_body,
            route_telemetry: route.telemetry(),
            codings: route.codings.clone(),
            has_body_pages: route.has_body_pages,
            context,
            direction: Direction::Right,
        }
    }

    /// Creates the result for a request that has no route.
    pub(super) fn unrouted(response: Response) -> Self {
        Self {
            reply: response.into(),
            site: 0,
            body_limit: 0,
            reads_body: false,
            route_telemetry: RouteTelemetry::default(),
            codings: RouteCodings::default(),
            has_body_pages: false,
            context: None,
            direction: Direction::Right,
        }
    }
}
