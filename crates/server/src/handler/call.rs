//! Requests for handlers that take time.

use std::rc::Rc;

use dunlin_config::Settings;
use dunlin_config::field_edits::apply_edits;
use dunlin_exchange::{RequestContext, Response};
use dunlin_http::semantics::date;
use dunlin_http::{OwnedRequest, Request};
use dunlin_proxy::{Call, Group};

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
        self.add_lifetime(&mut response);
        apply_edits(settings, response.status, &mut response.fields);
        if settings.cache.responses.is_none() {
            // It is for this server alone (RFC 9213 §2).
            response.fields.remove("Dunlin-Cache-Control");
        }
        if settings.server_timing {
            response.fields.push("Server-Timing", server_timing());
        }
        response
    }

    /// Adds what the route states about caching, unless the response has fields about it.
    fn add_lifetime(&self, response: &mut Response) {
        let Settings { cache_control, expires, .. } = &**self.matched.settings;
        let is_stated = || OF_LIFETIME.iter().any(|name| response.fields.get(name).is_some());
        if cache_control.is_none() && expires.is_none()
            || !OF_CONTENT.contains(&response.status)
            || is_stated()
        {
            return;
        }
        if let Some(control) = self.matched.settings.stated_lifetime() {
            response.fields.push("Cache-Control", &*control);
        }
        if let Some(time) = expires {
            let end = self.ctx.clock.unix() + time.as_secs();
            response.fields.push("Expires", date::format(end));
        }
    }
}

/// The statuses of scripts and upstreams whose responses have the lifetime of the route.
const OF_CONTENT: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];
/// Fields of a response that state a lifetime, or that it is for one client.
const OF_LIFETIME: [&str; 3] = ["Cache-Control", "Expires", "Set-Cookie"];

impl<'a> RouteMatch<'a> {
    /// Returns the request for the upstreams of a group.
    pub(super) fn proxied(
        &self,
        ctx: &'a Rc<WorkerContext>,
        group: &'a Group,
        request: Request<'a>,
    ) -> Call<'a> {
        let checked = self.context.map(|context| &**context);
        Call {
            worker: &ctx.proxy,
            group,
            request,
            raw_path: self.raw_path,
            path: self.path,
            query: self.query,
            client: checked.map_or(self.client, |checked| checked.client),
            checked,
            user_fields: &self.site.user_fields,
            forwarded_field: &ctx.shared.config.server.forwarded_field,
            script_context: None,
        }
    }
}
