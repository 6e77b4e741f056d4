//! Requests for handlers that take time.

use std::rc::Rc;

use dunlin_config::field_edits::apply_edits;
use dunlin_exchange::{RequestContext, Response};
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

    /// Adds the fields of the route to a response of its handler. `server_timing` makes the value of the field of that name.
    pub(super) fn finish(
        &self,
        mut response: Response,
        server_timing: impl FnOnce() -> String,
    ) -> Response {
        let settings = &self.matched.settings;
        apply_edits(settings, &mut response.fields);
        if settings.cache.responses.is_none() {
            // It is for this server alone (RFC 9213 §2).
            response.fields.remove("Dunlin-Cache-Control");
        }
        if settings.server_timing {
            response.fields.push("Server-Timing", server_timing());
        }
        response
    }
}
