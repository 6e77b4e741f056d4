//! Runs the checks of a route before its handler.

use std::rc::Rc;

use dunlin_exchange::{Client, RequestContext};
use dunlin_http::Request;
use dunlin_http::semantics::path;
use dunlin_net::clock;

use super::handle::handle;
use super::reply::{Reply, Routed};
use super::route_match::RouteMatch;
use crate::checks::{Selection, resolve_client};
use crate::handler::checked::{CheckRun, check};
use crate::worker::WorkerContext;

/// Runs the checks of the route. Returns `None` if it has none, the client is not behind a trusted proxy, and the time of
/// routing is not needed. `at_once` is the length of the response body, if it is in memory and sent before the next request
/// is read.
#[inline]
pub(super) fn enter(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    at_once: Option<u64>,
) -> Result<Option<Rc<RequestContext>>, Box<Routed>> {
    let server = &ctx.shared.config.server;
    let is_direct = server.trusted_proxies.is_empty() && !client.is_subrequest;
    if matched.settings.checks.is_none() && is_direct {
        let is_timed = matched.settings.server_timing || ctx.needs_timings();
        return Ok(is_timed.then(|| Rc::new(RequestContext::new(client))));
    }
    run_checks(ctx, resolve_client(client, request, server), request, matched, at_once).map(Some)
}

fn run_checks(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    at_once: Option<u64>,
) -> Result<Rc<RequestContext>, Box<Routed>> {
    let context = Rc::new(RequestContext::new(client));
    let Some(checks) = &matched.settings.checks else { return Ok(context) };
    let run = CheckRun { checks, selected: Selection::ALL, context: &context, at_once };
    match check(ctx, request, matched, run, handle_admitted) {
        None => Ok(context),
        Some(reply) => {
            let (site, settings) = (matched.site, matched.settings);
            Err(Box::new(Routed::new(site, settings, reply, false, Some(context))))
        }
    }
}

/// Responds to a request that has waited.
fn handle_admitted(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    if let Some(context) = matched.context {
        context.set_admitted_at(clock::now());
    }
    if !matched.path.is_empty() {
        return handle(ctx, request, matched).reply;
    }
    let mut path = Vec::new();
    // The path was decoded when the cache stored the response.
    let _ = path::decode(matched.raw_path, &mut path);
    handle(ctx, request, &RouteMatch { path: &path, ..*matched }).reply
}
