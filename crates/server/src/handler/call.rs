//! Requests for handlers that take time.

use std::rc::Rc;

use dunlin_exchange::RequestContext;
use dunlin_http::{OwnedRequest, Request};

use crate::route::route_match::{OwnedRouteMatch, RouteMatch};
use crate::worker::WorkerContext;

/// A request with all that its handler needs, for as long as the response takes.
pub(crate) struct HandlerCall {
    pub(crate) ctx: Rc<WorkerContext>,
    pub(crate) request: OwnedRequest,
    pub(crate) matched: OwnedRouteMatch,
    pub(crate) context: Option<Rc<RequestContext>>,
}

impl HandlerCall {
    /// Copies a request.
    pub(crate) fn of(
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
    ) -> Rc<Self> {
        Rc::new(Self {
            ctx: Rc::clone(ctx),
            request: request.to_owned(),
            matched: matched.to_owned(),
            context: matched.context.cloned(),
        })
    }

    /// Copies a request that the server has made of this one.
    pub(crate) fn with_request(&self, request: &Request<'_>) -> Rc<Self> {
        Self::of(&self.ctx, request, &self.matched())
    }

    pub(crate) fn request(&self) -> Request<'_> {
        self.request.as_request()
    }

    pub(crate) fn matched(&self) -> RouteMatch<'_> {
        self.matched.borrow().with(self.context.as_ref())
    }
}
