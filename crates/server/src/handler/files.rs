//! The handler for files: makes replies from the results of [`dunlin_files`].

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_exchange::{Incoming, RequestContext, Response};
use dunlin_http::semantics::Method;
use dunlin_http::{OwnedRequest, Request};
use dunlin_net::clock;
use dunlin_net::log_limiter::LogLimiter;

use super::error_page::quoted;
use super::errors::{self, Details};
use super::{objects, redirect, reply};
use crate::checks::Selection;
use crate::handler::checked::{CheckRun, check};
use crate::handler::rejection::{error_response, not_for_files};
use crate::route::reply::{CachedResponse, Reply};
use crate::route::route_match::RouteMatch;
use crate::route::sites::CacheEntry;
use crate::worker::WorkerContext;
use dunlin_files::cache::resource::Resource;
use dunlin_files::cache::shared_cache::LookUp;
use dunlin_files::listing::respond::{Listable, Listed, ListingRequest};
use dunlin_files::resolve::{Resolved, Resolver, resolve};
use dunlin_files::search::{Found, Wanted};
use dunlin_files::select::{Selected, select, select_identity, select_with_dictionary};
use dunlin_files::{dictionaries, encoded, uncached};
use dunlin_fs::failure::Failure;
use dunlin_fs::mode::Mode;

/// Responds to a GET or HEAD that the worker's cache cannot serve.
pub(crate) fn respond(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
) -> Reply {
    let (files, settings) = (&ctx.files, matched.settings);
    let is_read = matches!(request.method(), Method::Get | Method::Head);
    let (mut previous, mut keep) = (None, false);
    if settings.cache.enabled && is_read {
        match files.look_up(matched.site.serial, matched.path) {
            LookUp::Found(resource) if files.is_usable(&resource) => {
                files.count_shared_hit(&resource);
                files.update_clock_for(resource.identity.last_modified);
                let entry = cache_entry(ctx, matched, resource);
                return respond_checked(ctx, request, matched, &entry, "hit");
            }
            LookUp::Found(resource) => (previous, keep) = (Some(resource), true),
            LookUp::Missing { admit } => keep = admit,
        }
    }
    files.count_miss();
    if let Some(root) = &settings.objects {
        return objects::respond(ctx, request, matched, root, (previous, keep));
    }
    if !keep
        && is_read
        && let Some(whole) = uncached::respond(files, request, settings, matched.path)
    {
        files.count_miss_bytes(whole.length);
        files.update_clock_for(whole.last_modified);
        return reply::from_file(request.method(), whole.response, cache_status(matched)).into();
    }
    let copy = previous.as_ref().is_some_and(|resource| files.shared.is_worth_a_copy(resource));
    let resolver = Resolver {
        shared: &files.shared,
        site: matched.site.serial,
        previous,
        keep,
        copy,
        now: ctx.clock.now(),
        mode: Mode::Inline,
    };
    match resolve(&wanted(matched), &resolver) {
        Err(Failure::WouldBlock) => {
            let Resolver { previous, keep, copy, .. } = resolver;
            resolve_blocking(ctx, request, matched, previous, (keep, copy))
        }
        result => conclude(ctx, request, matched, listable(result)),
    }
}

/// Returns the cache status of a response that did not come from the cache.
fn cache_status(matched: &RouteMatch<'_>) -> &'static str {
    if matched.settings.cache.enabled { "miss" } else { "off" }
}

pub(super) fn wanted<'a>(matched: &RouteMatch<'a>) -> Wanted<'a> {
    Wanted {
        site: matched.site.config(),
        route: matched.settings.configured(),
        path: matched.path,
        query: matched.query,
    }
}

/// Responds with the file, or with an error if the path has none.
pub(super) fn conclude(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    result: Result<Found<Arc<Resource>, Listable>, Failure>,
) -> Reply {
    let error = |status| errors::reply(ctx, request, matched, status, Details::default());
    let is_as_nginx = ctx.shared.config.server.nginx_statuses;
    let is_for_all = match (request.method(), &result) {
        (Method::Get | Method::Head, _) | (Method::Post, Err(_)) => true,
        (method, Ok(Found::Directory)) if is_as_nginx => method == Method::Post,
        // nginx looks for the paths of the list before it looks at the method.
        (_, Err(Failure::Missing)) if is_as_nginx && !matched.settings.try_files.is_empty() => true,
        (_, result) => matches!(
            result,
            Ok(Found::Elsewhere(_) | Found::Directory | Found::Status(_) | Found::Proxy)
        ),
    };
    if !is_for_all {
        return not_for_files(ctx, request, matched);
    }
    match result {
        Ok(Found::File(resource)) => {
            ctx.files.update_clock_for(resource.identity.last_modified);
            ctx.files.count_miss_bytes(resource.identity.length);
            let entry = if resource.is_cached() {
                cache_entry(ctx, matched, resource)
            } else {
                Rc::new(new_entry(matched, resource))
            };
            respond_checked(ctx, request, matched, &entry, cache_status(matched))
        }
        Ok(Found::Directory) => redirect::to_slash(ctx, request, matched).into(),
        Ok(Found::Listing(directory)) => list(ctx, request, matched, directory),
        Ok(Found::Status(status)) => error(status),
        Ok(Found::Proxy) => ctx.router.forward(ctx, request, matched),
        Ok(Found::Elsewhere(target)) => ctx.router.reroute(ctx, request, matched, &target),
        // It would look for the last path again.
        Err(Failure::Missing) if is_as_nginx && matched.settings.ends_with_path() => error(500),
        Err(Failure::Unlisted) => unlisted(ctx, request, matched),
        Err(Failure::Unavailable) => objects::unavailable(ctx, request, matched),
        Err(failure) => error(failure.status()),
    }
}

/// Returns the result of a search in a directory.
fn listable(result: Resolved) -> Result<Found<Arc<Resource>, Listable>, Failure> {
    match result {
        Ok(Found::Listing(directory)) => Ok(Found::Listing(Listable::Directory(directory))),
        other => other.map(Found::without_listing),
    }
}

/// Returns the response for a directory that has no index file and is not listed.
fn unlisted(ctx: &Rc<WorkerContext>, request: &Request<'_>, matched: &RouteMatch<'_>) -> Reply {
    static LOG_LIMITER: LogLimiter = LogLimiter::new();
    let (settings, path) = (matched.settings, quoted(matched.path));
    if LOG_LIMITER.is_due() {
        tracing::info!(
            "{}{path}: 403: there is no index file ({}), and `listing` is off in {}",
            settings.root.display(),
            settings.index.join(", "),
            settings.place(&matched.site.name),
        );
    }
    let text = Some(format!("{path} has no index page, and its files are not listed."));
    errors::reply(ctx, request, matched, 403, Details { text, ..Details::default() })
}

/// Makes an entry, and caches it if the next request for its path may use it.
fn cache_entry(
    ctx: &WorkerContext,
    matched: &RouteMatch<'_>,
    resource: Arc<Resource>,
) -> Rc<CacheEntry> {
    let entry = new_entry(matched, resource);
    let transforms = matched.settings.transforms.as_ref();
    let is_changed = transforms.is_some_and(|of| of.concern(resource_type(&entry.resource)));
    let is_elsewhere = matched.settings.internal || matched.via.redirects > 0;
    if is_elsewhere || matched.via.error.is_some() || is_changed {
        // A hit would skip the checks of the requested path and the changes of its content, or be the page of an error with
        // status 200.
        return Rc::new(entry);
    }
    ctx.files.cache.borrow_mut().insert(&ctx.files.shared.cache, entry)
}

fn resource_type(resource: &Resource) -> &[u8] {
    resource.content_type.media_type.as_bytes()
}

fn new_entry(matched: &RouteMatch<'_>, resource: Arc<Resource>) -> CacheEntry {
    let own = matched.settings.url_path(&resource.file);
    let owner = match matched.path == own {
        true => None,
        false => Some(matched.site.route(&own).into_owned()).filter(|route| route.checks.is_some()),
    };
    let key = (matched.site.serial, matched.raw_path);
    CacheEntry::new(key, Arc::clone(matched.settings), resource, owner)
}

/// Responds from an entry that may be used now. Runs the checks of the file's own path first, as far as they concern the
/// identity of the client.
fn respond_checked(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    cache: &'static str,
) -> Reply {
    let Some(checks) = entry.owner.as_ref().and_then(|owner| owner.checks.as_ref()) else {
        return respond_from_cache(ctx, request, matched, entry, cache);
    };
    let context =
        matched.context.map_or_else(|| Rc::new(RequestContext::new(matched.client)), Rc::clone);
    let run = CheckRun { checks, selected: Selection::IDENTITY, context: &context, at_once: None };
    let later = Rc::clone(entry);
    check(ctx, request, matched, run, move |ctx, request, matched| {
        respond_from_cache(ctx, request, matched, &later, cache)
    })
    .unwrap_or_else(|| respond_from_cache(ctx, request, matched, entry, cache))
}

/// Responds from a fresh entry. `cache` is the cache status for the log.
#[inline]
pub(crate) fn respond_from_cache(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    cache: &'static str,
) -> Reply {
    if matched.client.encrypted
        && let Some(work) = dictionaries::work(&ctx.files.shared, &entry.resource, request)
    {
        return after_work(ctx, request, matched, entry, cache, work);
    }
    respond_now(ctx, request, matched, entry, cache)
}

/// Responds from a fresh entry with the forms that there are of dictionaries.
fn respond_now(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    cache: &'static str,
) -> Reply {
    match selected(ctx, request, matched, entry) {
        Selected::Unknown(coding) => {
            let (ctx, entry) = (Rc::clone(ctx), Rc::clone(entry));
            let (context, owned) = (matched.context.cloned(), matched.to_owned());
            deferred(request.to_owned(), matched.may_run_script(), async move |request| {
                let resource = &entry.resource;
                encoded::search(&ctx.files.shared, resource, coding).await;
                if let Some(Some(form)) = resource.representation(coding) {
                    ctx.files.update_clock_for(form.last_modified);
                }
                let matched = owned.borrow().with(context.as_ref());
                if resource.representation(coding).is_some() {
                    return respond_now(&ctx, request, &matched, &entry, cache);
                }
                let selected = select_identity(request, resource, ctx.clock.unix());
                respond_selected(&ctx, request, &matched, &entry, cache, selected)
            })
        }
        selected => respond_selected(ctx, request, matched, entry, cache, selected),
    }
}

/// Responds when the work for dictionaries has ended.
fn after_work(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    cache: &'static str,
    work: dictionaries::Work,
) -> Reply {
    let (ctx, entry) = (Rc::clone(ctx), Rc::clone(entry));
    let (context, owned) = (matched.context.cloned(), matched.to_owned());
    deferred(request.to_owned(), matched.may_run_script(), async move |request| {
        work.run(&ctx.files.shared).await;
        let matched = owned.borrow().with(context.as_ref());
        // Work that a pool has rejected is not begun again for this request.
        respond_now(&ctx, request, &matched, &entry, cache)
    })
}

/// Selects the response, with a dictionary if the client has one.
fn selected(
    ctx: &WorkerContext,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &CacheEntry,
) -> Selected {
    let (resource, now) = (&entry.resource, ctx.clock.unix());
    let form = dictionaries::form(request, resource).filter(|_| matched.client.encrypted);
    let Some(form) = form else { return select(request, entry, now) };
    let selected = select_with_dictionary(request, resource, &form, now);
    if let Selected::Response(response) = &selected
        && response.status == 200
    {
        ctx.files.shared.dictionaries.count(resource.identity.length, form.length);
    }
    selected
}

/// Returns the reply with the offer of the file as a dictionary.
fn offered(
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &CacheEntry,
    reply: Reply,
) -> Reply {
    if !matched.client.encrypted || matched.via.redirects > 0 || matched.via.error.is_some() {
        return reply;
    }
    let Some(value) = dictionaries::offer(request, &entry.resource) else { return reply };
    match reply.editable(request) {
        Reply::Response(mut response) if matches!(response.status, 200 | 304) => {
            response.fields.push("Use-As-Dictionary", value);
            Reply::Response(response)
        }
        reply => reply,
    }
}

fn respond_selected(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    entry: &Rc<CacheEntry>,
    cache: &'static str,
    selected: Selected,
) -> Reply {
    let (coding, not_modified) = match selected {
        Selected::Whole(coding) => (coding, false),
        Selected::NotModified(coding) => (coding, true),
        Selected::Response(response)
            if !response.parts.is_empty() && request.method() == Method::Get =>
        {
            return objects::stream(ctx, request, matched, entry, (response, cache));
        }
        Selected::Response(response) => {
            let reply = reply::from_file(request.method(), response, cache).into();
            return offered(request, matched, entry, reply);
        }
        Selected::Error(status, fields) => {
            return errors::reply_with_fields(ctx, request, matched, status, fields);
        }
        // Only a search that has not ended leaves the variant unknown.
        Selected::Unknown(_) => return error_response(500, true).into(),
    };
    let cached = CachedResponse { entry: Rc::clone(entry), coding, not_modified, cache };
    offered(request, matched, entry, Reply::Cached(cached))
}

/// Resolves the path on the pool for files, where it may wait for a disk.
fn resolve_blocking(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    previous: Option<Arc<Resource>>,
    (keep, copy): (bool, bool),
) -> Reply {
    let (ctx, owned, context) = (Rc::clone(ctx), matched.to_owned(), matched.context.cloned());
    let (shared, now) = (Arc::clone(&ctx.files.shared), ctx.clock.now());
    let (site, route) =
        (Arc::clone(matched.site.config()), Arc::clone(matched.settings.configured()));
    let (serial, path, query) = (matched.site.serial, owned.path.clone(), owned.query.clone());
    let job = move || {
        let query = query.as_deref();
        let wanted = Wanted { site: &site, route: &route, path: &path, query };
        let (shared, site, mode) = (&shared, serial, Mode::Blocking);
        resolve(&wanted, &Resolver { shared, site, previous, keep, copy, now, mode })
    };
    deferred(request.to_owned(), matched.may_run_script(), async move |request| {
        let pool = &ctx.files.shared.pools.files;
        let result = pool.run(job).await.unwrap_or(Err(Failure::Broken));
        conclude(&ctx, request, &owned.borrow().with(context.as_ref()), listable(result))
    })
}

/// Returns a reply that `make` makes later. Its handler reads if a script may respond, for example with an error page.
pub(super) fn deferred(
    request: OwnedRequest,
    may_run_script: bool,
    make: impl AsyncFnOnce(&Request<'_>) -> Reply + 'static,
) -> Reply {
    let respond = async move |incoming: Option<Box<Incoming>>| {
        let request = request.as_request();
        make(&request).await.response(&request, incoming).await
    };
    match may_run_script {
        true => Reply::reading(move |incoming| respond(Some(incoming))),
        false => Reply::later(respond(None)),
    }
}

fn list(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    directory: Listable,
) -> Reply {
    let (ctx, owned, context) = (Rc::clone(ctx), matched.to_owned(), matched.context.cloned());
    let wanted = Box::new(ListingRequest {
        request: request.to_owned(),
        settings: Arc::clone(matched.settings.configured()),
        path: matched.path.into(),
        query: matched.query.map(Into::into),
        directory,
        protected: Arc::clone(&ctx.files.shared.protected),
        cache: Arc::clone(&ctx.files.shared.listings),
        arrived: clock::now(),
    });
    deferred(request.to_owned(), matched.may_run_script(), async move |request| {
        let pools = &ctx.files.shared.pools;
        let mut listed = pools.listings.run(move || wanted.list()).await;
        if let Ok(Ok(Listed::Large(wanted))) = listed {
            listed = pools.large_listings.run(move || wanted.list_large()).await;
        }
        let matched = owned.borrow().with(context.as_ref());
        match listed.map_err(io::Error::from).flatten() {
            Ok(Listed::Response(response)) => {
                let response = reply::from_file(request.method(), response, "-");
                Response { is_coding_final: false, ..response }.into()
            }
            Ok(Listed::Error(status, fields, text)) => errors::reply(
                &ctx,
                request,
                &matched,
                status,
                Details { fields, text, ..Details::default() },
            ),
            // Only the first pool finds that a directory is large.
            Ok(Listed::Large(_)) => error_response(500, true).into(),
            Err(error) => {
                tracing::error!("listing {}: {error}", String::from_utf8_lossy(matched.path));
                errors::reply(&ctx, request, &matched, 500, Details::default())
            }
        }
    })
}
