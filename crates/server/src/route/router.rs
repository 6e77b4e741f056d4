//! What handlers need of the router.

use std::rc::Rc;

use dunlin_config::Candidate;
use dunlin_exchange::Client;
use dunlin_http::{Request, RequestError};

use super::reply::{Reply, Routed};
use super::route_match::{RouteMatch, TargetSource};
use crate::worker::WorkerContext;

/// The router, as handlers see it: they redirect requests internally, or have other routes respond.
pub(crate) trait Router: Sync {
    /// Finds site, route and handler of a request, and calls the handler.
    ///
    /// # Errors
    /// If the target is invalid.
    fn dispatch(
        &self,
        ctx: &Rc<WorkerContext>,
        client: Client,
        origin: TargetSource,
        request: &Request<'_>,
        path_buffer: &mut Vec<u8>,
    ) -> Result<Routed, RequestError>;

    /// Calls the handler of the matched route.
    fn handle(
        &self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
    ) -> Routed;

    /// Has the upstreams of the matched route respond.
    fn forward(
        &self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
    ) -> Reply;

    /// Redirects a request internally: runs the checks and the handler of the route of `target`.
    fn reroute(
        &self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
        target: &Candidate,
    ) -> Reply;
}
