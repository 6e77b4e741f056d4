//! Files: what a path beneath a root is, and the answer to a request for it.

mod answer;
mod encoded;
mod explain;
mod load;
mod render;
mod resolve;
mod search;
mod source;
pub(crate) mod uncached;
mod validators;

use std::rc::Rc;
use std::sync::Arc;

use dunlin_http::semantics::Method;
use dunlin_http::{FieldLines, Request};

pub(crate) use answer::{answer_from_cache, has_changed, plain_coding};
pub(crate) use explain::{Explained, explain};
pub(crate) use render::{apply_edits, apply_to_message};
pub(crate) use search::{Found, Wanted, is_slash_of};
pub(crate) use source::Reported;

use self::resolve::{Resolved, Resolver, resolve};
use crate::cache::worker_cache::CacheEntry;
use crate::cache::{Key, Representation, Resource};
use crate::checks::{CheckInput, Decision};
use crate::exchange::{RequestContext, Response, ResponseFuture};
use crate::fs::failure::Failure;
use crate::fs::mode::Mode;
use crate::handler::error_page::quoted;
use crate::handler::errors::{self, Details};
use crate::handler::{directory, redirect};
use crate::log_limiter::LogLimiter;
use crate::route::{self, CachedResponse, Reply, RouteMatch, Site, error_response};
use crate::worker::WorkerContext;

/// Answers a GET or HEAD for `matched` that the worker's cache does not know.
pub(crate) fn answer(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    let settings = matched.settings;
    let is_read = matches!(request.method(), Method::Get | Method::Head);
    let mut previous = None;
    if settings.cache.enabled && is_read {
        let key = Key { site: matched.site.serial, path: matched.path.into() };
        previous = ctx.shared.cache.get(&key);
        let fresh = |resource: &&Arc<Resource>| {
            resource.validity.is_fresh(ctx.clock.now()) && !ctx.is_worth_a_copy(resource)
        };
        if let Some(resource) = previous.as_ref().filter(fresh) {
            ctx.count_hit();
            let_date_reach(ctx, &resource.identity);
            let entry = keep_in_worker_cache(ctx, matched, Arc::clone(resource));
            return answer_guarded(ctx, request, matched, &entry, "hit");
        }
    }
    ctx.count_miss();
    if !settings.cache.enabled
        && is_read
        && let Some(reply) = uncached::answer(ctx, request, matched)
    {
        return reply;
    }
    let wanted =
        Wanted { site: matched.site, route: settings, path: matched.path, query: matched.query };
    let resolver = Resolver {
        shared: &ctx.shared,
        copy: previous.as_ref().is_some_and(|resource| ctx.is_worth_a_copy(resource)),
        previous,
        now: ctx.clock.now(),
        mode: Mode::Inline,
    };
    match resolve(&wanted, &resolver) {
        Err(Failure::WouldBlock) => {
            let Resolver { previous, copy, .. } = resolver;
            later(ctx, request, matched, previous, copy)
        }
        result => conclude(ctx, request, matched, result),
    }
}

/// Answers with what was found, or with the error that says why nothing was.
fn conclude(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    result: Resolved,
) -> Reply {
    let none = FieldLines::default;
    if !matches!(request.method(), Method::Get | Method::Head)
        && !matches!(result, Ok(Found::Elsewhere(_) | Found::Directory | Found::Status(_)))
    {
        return route::not_for_files(ctx, request, matched);
    }
    match result {
        Ok(Found::File(resource)) => {
            let cached = matched.settings.cache.enabled;
            let_date_reach(ctx, &resource.identity);
            let entry = if cached {
                keep_in_worker_cache(ctx, matched, resource)
            } else {
                uncached::learn(ctx, request, matched, &resource);
                Rc::new(new_entry(matched, resource))
            };
            answer_guarded(ctx, request, matched, &entry, if cached { "miss" } else { "off" })
        }
        Ok(Found::Directory) => redirect::to_slash(request, matched).into(),
        Ok(Found::Listing(directory)) => Reply::Future(list(ctx, request, matched, directory)),
        Ok(Found::Status(status)) => error_reply(ctx, request, matched, status, none()),
        Ok(Found::Elsewhere(target)) => route::reroute(ctx, request, matched, &target),
        Err(Failure::Unlisted) => unlisted(ctx, request, matched),
        Err(failure) => error_reply(ctx, request, matched, failure.status(), none()),
    }
}

/// The response for a directory that has no index file and is not listed.
fn unlisted(ctx: &Rc<WorkerContext>, request: &Request<'_>, matched: &RouteMatch<'_>) -> Reply {
    static LOG_LIMITER: LogLimiter = LogLimiter::new();
    let (settings, path) = (matched.settings, quoted(matched.path));
    if LOG_LIMITER.is_due() {
        tracing::info!(
            "{}{path}: 403: there is no index file ({}), and `listing` is off in route {:?} of site {}",
            settings.root.display(),
            settings.index.join(", "),
            settings.pattern,
            matched.site.name,
        );
    }
    let text = Some(format!("{path} has no index page, and its files are not listed."));
    errors::reply(ctx, request, matched, 403, Details { text, ..Details::default() })
}

fn keep_in_worker_cache(
    ctx: &WorkerContext,
    matched: &RouteMatch<'_>,
    resource: Arc<Resource>,
) -> Rc<CacheEntry> {
    let (cache, entry) = (&ctx.shared.cache, new_entry(matched, resource));
    if matched.settings.internal || matched.via.redirects > 0 {
        // The gates of the path that was requested would not be asked again.
        return Rc::new(entry);
    }
    ctx.cache.borrow_mut().insert(cache, entry)
}

/// Sees to it that the worker's Date, which is read once a tick, is not before the Last-Modified of what it sends from now
/// on.
fn let_date_reach(ctx: &WorkerContext, form: &Representation) {
    if form.last_modified.is_some_and(|date| date > ctx.clock.unix()) {
        ctx.clock.update();
    }
}

fn new_entry(matched: &RouteMatch<'_>, resource: Arc<Resource>) -> CacheEntry {
    let own = [b"/", &*resource.file].concat();
    let checks = match matched.path == own {
        true => None,
        false => matched.site.route(&own).checks.clone(),
    };
    CacheEntry::new((matched.site.serial, matched.raw_path), resource, checks)
}

/// Answers with a resource that may be used now, once the gates of its own path were asked as far as
/// they ask for who comes.
fn answer_guarded(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    cache: &'static str,
) -> Reply {
    let Some(checks) = &entry.checks else {
        return answer_from_cache(ctx, request, matched, entry, cache);
    };
    let context =
        matched.context.map_or_else(|| Rc::new(RequestContext::new(matched.client)), Rc::clone);
    match checks.check_identity(&CheckInput {
        ctx,
        request,
        context: &context,
        now: context.routed_at,
        at_once: None,
    }) {
        Decision::Allow | Decision::ReceiveBody => {
            answer_from_cache(ctx, request, matched, entry, cache)
        }
        Decision::Reject(refused) => route::refuse(ctx, request, matched, refused),
        Decision::Wait(waiting) => {
            let (ctx, entry) = (Rc::clone(ctx), Rc::clone(entry));
            let (request, matched) = (request.to_owned(), matched.to_owned());
            Reply::Streaming(Box::new(move |incoming| {
                Box::pin(async move {
                    context.set_ends(incoming.ends);
                    let result = waiting.await;
                    let (request, matched) = (request.as_request(), matched.borrow());
                    let reply = match result {
                        Ok(()) => answer_from_cache(&ctx, &request, &matched, &entry, cache),
                        Err(refused) => route::refuse(&ctx, &request, &matched, refused),
                    };
                    route::complete(&request, reply, incoming).await
                })
            }))
        }
    }
}

/// The same question again, asked where waiting for a disk holds up nobody.
fn later(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    previous: Option<Arc<Resource>>,
    copy: bool,
) -> Reply {
    let may_run_script = matched.may_run_script();
    let context = matched.context.cloned();
    let (ctx, request, matched) = (Rc::clone(ctx), request.to_owned(), matched.to_owned());
    let (shared, now) = (Arc::clone(&ctx.shared), ctx.clock.now());
    let (site, settings) = (Arc::clone(&matched.site), Arc::clone(&matched.settings));
    let (path, query) = (matched.path.clone(), matched.query.clone());
    let result = move || {
        let query = query.as_deref();
        let wanted = Wanted { site: &site, route: &settings, path: &path, query };
        let mode = Mode::Blocking;
        resolve(&wanted, &Resolver { shared: &shared, previous, copy, now, mode })
    };
    let reply = async move |request: &Request<'_>| {
        let files = &ctx.shared.blocking.files;
        let result = files.run(result).await.unwrap_or(Err(Failure::Broken));
        conclude(&ctx, request, &matched.borrow().with(context.as_ref()), result)
    };
    if may_run_script {
        return Reply::Streaming(Box::new(move |incoming| {
            Box::pin(async move {
                let request = request.as_request();
                let reply = reply(&request).await;
                route::complete(&request, reply, incoming).await
            })
        }));
    }
    Reply::Future(Box::pin(async move {
        let request = request.as_request();
        let reply = reply(&request).await;
        into_response(&request, reply).await
    }))
}

/// Waits for whatever a reply still needs.
pub(crate) async fn into_response(request: &Request<'_>, reply: Reply) -> Response {
    match reply {
        Reply::Response(response) => *response,
        Reply::Future(job) => job.await,
        Reply::Cached(cached) => from_cached(request, &cached),
        // Only a route's own handler begins an exchange, and this is none of a script's.
        Reply::Streaming(_) => error_response(500, true),
    }
}

/// The same reply in a form to which fields can be added.
pub(crate) fn unprepared(request: &Request<'_>, reply: Reply) -> Reply {
    match reply {
        Reply::Cached(cached) => from_cached(request, &cached).into(),
        reply => reply,
    }
}

fn from_cached(request: &Request<'_>, cached: &CachedResponse) -> Response {
    let resource = &cached.entry.resource;
    let form = match resource.representation(cached.coding) {
        Some(Some(form)) => form,
        _ => &resource.identity,
    };
    let mut response = match cached.not_modified {
        true => answer::not_modified(form),
        false => answer::whole(form, cached.body(form)),
    };
    response.cache = cached.cache;
    if request.method() == Method::Head { response.without_body() } else { response }
}

fn list(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    directory: std::fs::File,
) -> ResponseFuture {
    let ctx = Rc::clone(ctx);
    let (request, matched) = (request.to_owned(), matched.to_owned());
    Box::pin(async move {
        let listings = &ctx.shared.blocking.listings;
        let protected = Arc::clone(&ctx.shared.protected);
        let made = listings.run(move || {
            directory::respond(&request.as_request(), &matched.borrow(), directory, &protected)
        });
        made.await.unwrap_or_else(|_| error_response(500, true))
    })
}

/// An error of that status: the page that the route names for it, or the plain one. It has `extra`
/// besides.
pub(crate) fn error_reply(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    status: u16,
    extra: FieldLines,
) -> Reply {
    errors::reply(ctx, request, matched, status, Details { fields: extra, text: None })
}

/// The file of an error page; `None` when there is none that may be sent.
pub(crate) async fn find_page(
    ctx: &Rc<WorkerContext>,
    site: &Arc<Site>,
    path: &[u8],
) -> Option<Arc<Resource>> {
    let (site, page) = (Arc::clone(site), path.to_vec());
    let (shared, now) = (Arc::clone(&ctx.shared), ctx.clock.now());
    let found = ctx.shared.blocking.files.run(move || {
        let settings = Arc::clone(site.route(&page));
        let key = Key { site: site.serial, path: page.as_slice().into() };
        let previous = shared.cache.get(&key);
        if let Some(resource) = previous.as_ref().filter(|r| r.validity.is_fresh(now)) {
            return Ok(Found::File(Arc::clone(resource)));
        }
        let wanted = Wanted { site: &site, route: &settings, path: &page, query: None };
        let mode = Mode::Blocking;
        resolve(&wanted, &Resolver { shared: &shared, previous, copy: false, now, mode })
    });
    match found.await {
        Ok(Ok(Found::File(resource))) => Some(resource),
        _ => None,
    }
}
