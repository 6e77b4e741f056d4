//! The short way of most requests: for whole files that a worker's own cache has.

use std::rc::Rc;

use dunlin_exchange::{Client, RequestContext};
use dunlin_http::semantics::Method;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::{FieldName, Request};

use super::admission::is_admitted;
use super::admit::enter;
use super::reply::{CachedResponse, Reply, Routed};
use super::route_match::{RouteMatch, Via};
use super::sites::{CacheEntry, WorkerCache};
use crate::worker::WorkerContext;
use dunlin_files::select::plain_coding;

/// The result of the fast path.
pub(crate) enum FastPath<'f> {
    /// A response that the checks allow.
    Response(FastResponse<'f>),
    /// The checks reject the request, make it wait, or add fields to the response.
    Routed(Box<Routed>),
}

/// A cached response. It is not moved and its entry is not written to, so that the cache lines of rarely used entries stay
/// clean.
pub(crate) struct FastResponse<'f> {
    pub(crate) cached: CachedResponse<&'f CacheEntry>,
    /// The site's number, for the log.
    pub(crate) site: usize,
    /// Context of the request; `None` if the checks and telemetry need none.
    pub(crate) context: Option<Rc<RequestContext>>,
}

/// Responds with a whole file of the worker's cache, if only the checks of its route apply.
/// [`dispatch`](super::dispatch::dispatch) would respond
/// in the same way, which `testing::parity` proves. Bodies of at most `short` bytes are sent before the next request is read.
#[inline]
pub(crate) fn fast_path<'f>(
    ctx: &Rc<WorkerContext>,
    worker_cache: &'f WorkerCache,
    client: Client,
    request: &Request<'_>,
    short: usize,
) -> Option<FastPath<'f>> {
    let method = request.method();
    if ctx.shared.maintenance.is_any() {
        return None;
    }
    if !matches!(method, Method::Get | Method::Head) || client.early || !ctx.fast_path.is_open {
        return None;
    }
    let Ok(Target::Origin { path, query }) = target::parse(method, request.target()) else {
        return None;
    };
    let site = match &ctx.fast_path.only_site {
        Some(site) => site,
        None => ctx.shared.sites.of_authority(client.listener, request.field(FieldName::Host))?,
    };
    if !is_admitted(ctx, client, site) {
        return None;
    }
    let entry =
        worker_cache.get(site.serial, path, ctx.clock.now()).filter(|entry| entry.is_ready())?;
    let coding = plain_coding(request, entry)?;
    let cached = CachedResponse { entry: &**entry, coding, not_modified: false, cache: "hit" };
    if entry.route.checks.is_some() || ctx.needs_timings() {
        let (settings, raw_path, via) = (&entry.route, path, Via::default());
        let matched =
            RouteMatch { site, settings, raw_path, path: b"", query, client, context: None, via };
        let at_once = cached.prebuilt(short).map(|prebuilt| prebuilt.sent(method).len() as u64);
        return Some(run_checks(ctx, request, &matched, (entry, cached), at_once));
    }
    ctx.count_hit(entry);
    Some(FastPath::Response(FastResponse { cached, site: site.index, context: None }))
}

fn run_checks<'f>(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    (entry, cached): (&Rc<CacheEntry>, CachedResponse<&'f CacheEntry>),
    at_once: Option<u64>,
) -> FastPath<'f> {
    let context = match enter(ctx, matched.client, request, matched, at_once) {
        Ok(context) => context,
        Err(stopped) => return FastPath::Routed(stopped),
    };
    ctx.count_hit(entry);
    if !context.as_ref().is_some_and(|context| context.has_fields()) {
        return FastPath::Response(FastResponse { cached, site: matched.site.index, context });
    }
    let CachedResponse { coding, not_modified, cache, .. } = cached;
    let entry = Rc::clone(entry);
    let reply = Reply::Cached(CachedResponse { entry, coding, not_modified, cache });
    FastPath::Routed(Box::new(Routed::new(matched.site, matched.settings, reply, false, context)))
}
