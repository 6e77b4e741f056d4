//! From a request to the site, the settings and the handler that serve it.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::Candidate;
use dunlin_config::field_edits::apply_to_message;
use dunlin_exchange::{Client, RequestContext, Response};
use dunlin_http::semantics::Method;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::{FieldName, Request, RequestError};

use super::admission::{is_admitted, misdirected};
use super::admit::enter;
use super::decode::{decode, rejection};
use super::handle::handle;
use super::reply::{Reply, Routed};
use super::reroute::reroute;
use super::route_match::{RouteMatch, TargetSource, Via};
use super::router::Router;
use super::select::variant;
use super::sites::{CacheEntry, Route, Site};
use crate::checks::{Rejection, add_cors_fields, add_strict, resolve_client};
use crate::exchange::coding::RouteCodings;
use crate::handler::rejection::{ALLOW, error_reply, error_response, options, rejected};
use crate::handler::{dictionary, files, response_cache};
use crate::maintenance::Closure;
use crate::worker::WorkerContext;
use dunlin_files::select::has_changed;

/// The router of the sites.
pub(crate) struct SiteRouter;

/// The router that workers use.
pub(crate) static ROUTER: SiteRouter = SiteRouter;

impl Router for SiteRouter {
    fn dispatch(
        &self,
        ctx: &Rc<WorkerContext>,
        client: Client,
        origin: TargetSource,
        request: &Request<'_>,
        path_buffer: &mut Vec<u8>,
    ) -> Result<Routed, RequestError> {
        dispatch(ctx, client, origin, request, path_buffer)
    }

    fn handle(
        &self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
    ) -> Routed {
        handle(ctx, request, matched)
    }

    fn forward(
        &self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
    ) -> Reply {
        response_cache::respond(ctx, request, matched)
    }

    fn reroute(
        &self,
        ctx: &Rc<WorkerContext>,
        request: &Request<'_>,
        matched: &RouteMatch<'_>,
        target: &Candidate,
    ) -> Reply {
        reroute(ctx, request, matched, target)
    }
}

/// Finds site, route and handler of a request, and calls the handler.
///
/// # Errors
/// If the target is invalid.
pub(crate) fn dispatch(
    ctx: &Rc<WorkerContext>,
    client: Client,
    origin: TargetSource,
    request: &Request<'_>,
    path_buffer: &mut Vec<u8>,
) -> Result<Routed, RequestError> {
    let target = target::parse(request.method(), request.target())
        .map_err(|_| RequestError { status: 400, reason: "the request-target is malformed" })?;
    let (raw_path, query) = match target {
        Target::Origin { path, query } | Target::Absolute { path, query, .. } => (path, query),
        Target::Authority(_) => return Ok(Routed::unrouted(method_not_allowed())),
        Target::Asterisk => (b"*".as_slice(), None),
    };
    let authority = request.field(FieldName::Host);
    if let Some(challenges) = ctx.shared.certificates.challenges()
        && let Some(text) = challenges.text(raw_path)
    {
        let response = Response::with_text(200, "application/octet-stream", text);
        return Ok(Routed::unrouted(response));
    }
    if client.early && !is_harmless(request) {
        return Ok(too_early());
    }
    let site = match ctx.shared.sites.of_authority(client.listener, authority) {
        Some(site) if is_admitted(ctx, client, site) => site,
        site => return Ok(misdirected(ctx, client, request, raw_path, site)),
    };
    // The handshake may have named another site, which takes early data.
    if client.early && !site.tls.as_ref().is_some_and(|tls| tls.early_data) {
        return Ok(too_early());
    }
    if let Some(closure) = ctx.shared.maintenance.of(&site.name) {
        return Ok(closed(ctx, request, (site, raw_path), client, closure));
    }
    if let Some(response) = dictionary::respond(site, request, raw_path) {
        let codings = RouteCodings::of_dictionaries();
        return Ok(Routed { site: site.index, codings, ..Routed::unrouted(response) });
    }
    path_buffer.clear();
    let variant = match site.has_conditions() {
        true if decode(raw_path, site.config(), path_buffer).is_ok() => {
            variant(ctx, client, request, site, (path_buffer, query))
        }
        _ => None,
    };
    let site = variant.as_ref().unwrap_or(site);
    let method = request.method();
    if matches!(method, Method::Get | Method::Head) {
        let entry = ctx.files.cache.borrow().get(site.serial, raw_path, ctx.clock.now()).cloned();
        if let Some(entry) = entry
            && let Some(routed) =
                dispatch_cached(ctx, client, request, site, (raw_path, query), &entry)
        {
            return Ok(routed);
        }
    }
    if raw_path == b"*" {
        return Ok(Routed::unrouted(options(ALLOW)));
    }
    path_buffer.clear();
    if let Err(error) = decode(raw_path, site.config(), path_buffer) {
        let (status, reason) = rejection(error);
        if status == 404 {
            let settings = &site.route(b"/");
            let (reply, context) =
                turned_away(ctx, request, (site, settings), client, Rejection::new(404));
            return Ok(Routed::new(site, settings, reply, false, Some(context)));
        }
        return Err(RequestError { status, reason });
    }
    let settings = &site.route(path_buffer);
    // Their files are in no worker's own cache, which is looked into above.
    if settings.internal && origin == TargetSource::Client {
        let (reply, context) =
            turned_away(ctx, request, (site, settings), client, Rejection::new(404));
        return Ok(Routed::new(site, settings, reply, false, Some(context)));
    }
    let via = Via::default();
    let matched = RouteMatch {
        site,
        settings,
        raw_path,
        path: path_buffer,
        query,
        client,
        context: None,
        via,
    };
    Ok(match enter(ctx, client, request, &matched, None) {
        Ok(context) => {
            // The route that responds after internal redirects may have checks of its own.
            let context =
                context.or_else(|| settings.reroutes.then(|| Rc::new(RequestContext::new(client))));
            handle(ctx, request, &matched.with(context.as_ref()))
        }
        Err(stopped) => *stopped,
    })
}

/// Returns `true` if a replay of the request does no harm: a safe method without a body
/// (RFC 8470 §3, RFC 9110 §9.2.1).
fn is_harmless(request: &Request<'_>) -> bool {
    let has_body = request.has(FieldName::TransferEncoding)
        || request.field(FieldName::ContentLength).is_some_and(|length| length != b"0");
    matches!(request.method(), Method::Get | Method::Head | Method::Options) && !has_body
}

/// Responds from the worker's cache, if its entry can be used.
#[inline]
fn dispatch_cached(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    site: &Arc<Site>,
    (raw_path, query): (&[u8], Option<&[u8]>),
    entry: &Rc<CacheEntry>,
) -> Option<Routed> {
    if entry.owner.is_some() {
        return None;
    }
    if entry.prebuilt.is_none() {
        if has_changed(entry) {
            entry.validity.invalidate();
            return None;
        }
        if ctx.files.shared.is_worth_a_copy(&entry.resource) {
            return None;
        }
    }
    let (settings, via) = (&entry.route, Via::default());
    let matched =
        RouteMatch { site, settings, raw_path, path: b"", query, client, context: None, via };
    let context = match enter(ctx, client, request, &matched, None) {
        Ok(context) => context,
        Err(stopped) => return Some(*stopped),
    };
    ctx.count_hit(entry);
    let matched = matched.with(context.as_ref());
    let reply = files::respond_from_cache(ctx, request, &matched, entry, "hit");
    Some(Routed::new(site, settings, reply, false, context))
}

/// Returns the response to a request that must wait for the end of the handshake (RFC 8470 §5.2). Its body is received and
/// dropped.
fn too_early() -> Routed {
    Routed { body_limit: EARLY_BODY, ..Routed::unrouted(error_response(425, true)) }
}

fn method_not_allowed() -> Response {
    let mut response = error_response(405, true);
    response.fields.push("Allow", ALLOW);
    response
}

/// Returns the response to a request of a site that is under maintenance.
#[cold]
fn closed(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    (site, raw_path): (&Arc<Site>, &[u8]),
    client: Client,
    closure: Closure,
) -> Routed {
    let mut path = Vec::new();
    let settings = &match decode(raw_path, site.config(), &mut path) {
        Ok(()) => site.route(&path),
        Err(_) => site.route(b"/"),
    };
    let rejection = Rejection::new(503).with("Retry-After", closure.retry_after.to_string());
    let (reply, context) = turned_away(ctx, request, (site, settings), client, rejection);
    Routed::new(site, settings, reply, false, Some(context))
}

/// Returns the error page of a route, for a request that its handler does not get.
fn turned_away(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    (site, settings): (&Arc<Site>, &Arc<Route>),
    client: Client,
    rejection: Rejection,
) -> (Reply, Rc<RequestContext>) {
    let client = resolve_client(client, request, &ctx.shared.config.server);
    let context = Rc::new(RequestContext::new(client));
    if let Some(checks) = &settings.checks {
        checks.https.iter().for_each(|rules| add_strict(rules, &context));
        checks.cors.iter().for_each(|rules| add_cors_fields(rules, request, &context));
    }
    let (raw_path, path, query, via) = (b"/", b"/", None, Via::default());
    let matched = RouteMatch { site, settings, raw_path, path, query, client, context: None, via };
    (rejected(ctx, request, &matched, rejection), context)
}

/// Returns the response to a message that the engine, the router or a limit rejects, with the fields that the request's
/// route sets, as far as the request has come.
pub(crate) fn invalid_request(
    ctx: &WorkerContext,
    listener: u64,
    request: Option<&Request<'_>>,
    (error, html): (&RequestError, bool),
) -> Response {
    let mut response = error_response(error.status, html);
    let mut path = Vec::new();
    if let Some((site, _, is_valid)) =
        request.and_then(|request| site_and_path(ctx, listener, request, &mut path))
    {
        let settings = &site.route(if is_valid { &path } else { b"/" });
        apply_to_message(settings, response.status, &mut response.fields);
    }
    response
}

/// Returns the page that the route of a request has for the status of its rejection; `None` if it has none.
pub(crate) fn error_page(
    ctx: &Rc<WorkerContext>,
    client: Client,
    request: &Request<'_>,
    context: Option<&Rc<RequestContext>>,
    status: u16,
) -> Option<Reply> {
    if !WITH_PAGES.contains(&status) {
        return None;
    }
    let mut path = Vec::new();
    let (site, raw_path, is_valid) = site_and_path(ctx, client.listener, request, &mut path)?;
    if !is_valid || !is_admitted(ctx, client, site) {
        return None;
    }
    let settings = &site.route(&path);
    settings.error_pages.get(&status)?;
    let (query, via) = (None, Via::default());
    let path = &path;
    let matched = RouteMatch { site, settings, raw_path, path, query, client, context, via };
    Some(error_reply(ctx, request, &matched, status))
}

/// Statuses of rejections for which routes can have pages: those of requests whose head was accepted.
const WITH_PAGES: [u16; 3] = [408, 413, 417];

/// Returns the site of a request, its path, and whether it can be decoded into `path`.
fn site_and_path<'c, 'r>(
    ctx: &'c WorkerContext,
    listener: u64,
    request: &Request<'r>,
    path: &mut Vec<u8>,
) -> Option<(&'c Arc<Site>, &'r [u8], bool)> {
    let (Target::Origin { path: raw_path, .. } | Target::Absolute { path: raw_path, .. }) =
        target::parse(request.method(), request.target()).ok()?
    else {
        return None;
    };
    let site = ctx.shared.sites.of_authority(listener, request.field(FieldName::Host))?;
    let is_valid = decode(raw_path, site.config(), path).is_ok();
    Some((site, raw_path, is_valid))
}

/// Bytes of a body that may come with early data; more of it is not accepted.
const EARLY_BODY: u64 = 16 * 1024;
