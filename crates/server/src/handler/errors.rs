//! Error responses: the page that the route configures for a status (a file, or the response of another route), or the
//! plain page.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::field_edits::{apply_to_message, edit_retry_after};
use dunlin_config::{Candidate, ErrorPage, Handler, Mapping, PageStatus, Settings};
use dunlin_exchange::{Body, Response};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::{ContentCoding, Method};
use dunlin_http::{FieldLines, FieldName, Request};

use super::error_page;
use super::object_search;
pub(crate) use super::plain_page::plain_page;
use super::plain_page::plain_page_of;
use super::redirect;
use super::rewrite::RewrittenRequest;
use crate::route::reply::Reply;
use crate::route::route_match::{RouteMatch, Via};
use crate::route::sites::Site;
use crate::worker::WorkerContext;
use dunlin_files::cache::resource::Resource;
use dunlin_files::cache::shared_cache::Key;
use dunlin_files::media_type::ContentType;
use dunlin_files::resolve::{Resolver, resolve};
use dunlin_files::search::{Found, Wanted};
use dunlin_fs::failure::Failure;
use dunlin_fs::mode::Mode;

/// The parts of an error response besides its status.
#[derive(Debug, Default)]
pub(crate) struct Details {
    /// Additional fields.
    pub(crate) fields: FieldLines,
    /// A sentence for the plain page. It contains only what the client knows.
    pub(crate) text: Option<String>,
    /// The id of the request, if the error log has it.
    pub(crate) request_id: Option<String>,
}

/// Request fields that can make the response differ from the complete page.
const CONDITIONS: [&str; 6] =
    ["if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range"];

/// Returns the error response with this status: the page that the route configures, or the plain page.
pub(crate) fn reply(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    status: u16,
    mut details: Details,
) -> Reply {
    let settings = matched.settings;
    if status == 503 && details.fields.get("Retry-After").is_none() {
        details.fields.push("Retry-After", "1");
    }
    edit_retry_after(settings, status, &mut details.fields);
    let page = settings.error_pages.get(&status).filter(|_| matched.via.error.is_none());
    let Some(page) = page else { return plain(settings, status, request, &details).into() };
    if let Some(rule) = page.redirect() {
        return match redirect::respond(request, matched, rule) {
            Some(response) => response.into(),
            None => plain(settings, status, request, &details).into(),
        };
    }
    let Some(candidate) = page.candidate(matched.path, matched.query) else {
        return plain(settings, status, request, &details).into();
    };
    let owner = &*matched.site.route(&candidate.path);
    let file = page.fixed_path().filter(|_| page.status != Some(PageStatus::OfPage));
    let Some(path) = file.filter(|path| !is_generated(owner, path.as_bytes())) else {
        return by_route(ctx, request, matched, (page, &candidate), status, details)
            .unwrap_or_else(|details| plain(settings, status, request, &details).into());
    };
    let sent = match page.status {
        Some(PageStatus::Code(code)) => code,
        _ => status,
    };
    let (ctx, path, owner) = (Rc::clone(ctx), path.to_owned(), Arc::clone(owner));
    let (request, matched) = (request.to_owned(), matched.to_owned());
    Reply::later(async move {
        let (settings, request) = (&matched.settings, request.as_request());
        match find_page(&ctx, &matched.site, path.as_bytes()).await {
            Ok(resource) => {
                let mut response = with_content(settings, sent, &resource);
                edit_retry_after(&owner, sent, &mut response.fields);
                finish(response, settings, &request, &details.fields)
            }
            Err(failure) => {
                log_missing(&matched.borrow(), &path, status, failure);
                plain(settings, status, &request, &details)
            }
        }
    })
}

/// Returns the same with additional fields.
pub(crate) fn reply_with_fields(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    status: u16,
    fields: FieldLines,
) -> Reply {
    reply(ctx, request, matched, status, Details { fields, ..Details::default() })
}

/// Returns `true` if the route responds to the path with something other than a file.
fn is_generated(settings: &Settings, path: &[u8]) -> bool {
    match &settings.handler {
        Handler::Files | Handler::AddSlash => false,
        Handler::Script(script) => {
            let by_name = script.mapping != Mapping::Application && !script.extensions.is_empty();
            !by_name || script.is_script(path)
        }
        Handler::Proxy(_)
        | Handler::Redirect(_)
        | Handler::Respond(_)
        | Handler::Rewrite(_)
        | Handler::Status(_)
        | Handler::Readiness
        | Handler::Close => true,
    }
}

/// Returns the response of the route of the page. Its status is that of the page's rule; without one, that of the error unless the
/// route responds with another than 200.
///
/// # Errors
/// Returns `details` if the request for the page would exceed a limit.
fn by_route(
    ctx: &Rc<WorkerContext>,
    request: &Request<'_>,
    matched: &RouteMatch<'_>,
    (rule, target): (&ErrorPage, &Candidate),
    status: u16,
    details: Details,
) -> Result<Reply, Details> {
    let limits = &ctx.http1.limits;
    let Some(rewritten) = RewrittenRequest::new(request, request.target(), &CONDITIONS, limits)
    else {
        return Err(details);
    };
    let page = RouteMatch {
        settings: &matched.site.route(&target.path),
        path: &target.path,
        query: target.query.as_deref(),
        via: Via { error: Some(status), ..matched.via },
        ..*matched
    };
    let (page, matched, context) = (page.to_owned(), matched.to_owned(), matched.context.cloned());
    let (ctx, sent) = (Rc::clone(ctx), rule.status);
    Ok(Reply::reading(async move |incoming| {
        let request = rewritten.as_request();
        let reply = ctx.router.handle(&ctx, &request, &page.borrow().with(context.as_ref())).reply;
        let incoming = Box::new(incoming.with_empty_body());
        let mut response = Box::pin(reply.response(&request, incoming)).await;
        let settings = &matched.settings;
        if response.is_error {
            let path = String::from_utf8_lossy(&page.path);
            log_missing(&matched.borrow(), &path, status, Failure::Missing);
            return plain(settings, status, &request, &details);
        }
        match sent {
            // It is no page of an error any more, but a response as any other.
            Some(PageStatus::OfPage) => return response,
            Some(PageStatus::Code(code)) => response.status = code,
            None if response.status == 200 => response.status = status,
            None => {}
        }
        for name in ["Accept-Ranges", "ETag", "Last-Modified"] {
            response.fields.remove(name);
        }
        finish(response, settings, &request, &details.fields)
    }))
}

/// Returns the file of an error page.
///
/// # Errors
/// Why it cannot be sent.
async fn find_page(
    ctx: &Rc<WorkerContext>,
    site: &Arc<Site>,
    path: &[u8],
) -> Result<Arc<Resource>, Failure> {
    if let Some(root) = &site.route(path).objects {
        return object_search::whole(ctx, site, root, path).await.ok_or(Failure::Missing);
    }
    let (serial, site, page) = (site.serial, Arc::clone(site.config()), path.to_vec());
    let (shared, now) = (Arc::clone(&ctx.files.shared), ctx.clock.now());
    let found = ctx.files.shared.pools.files.run(move || {
        let key = Key { site: serial, path: page.as_slice().into() };
        let previous = shared.cache.get(&key);
        if let Some(resource) = previous.as_ref().filter(|r| r.validity.is_fresh(now)) {
            return Ok(Found::File(Arc::clone(resource)));
        }
        let wanted = Wanted { site: &site, route: &site.route(&page), path: &page, query: None };
        let (shared, site, mode) = (&shared, serial, Mode::Blocking);
        resolve(&wanted, &Resolver { shared, site, previous, keep: true, copy: false, now, mode })
    });
    match found.await {
        Ok(Ok(Found::File(resource))) => Ok(resource),
        Ok(Err(failure)) => Err(failure),
        _ => Err(Failure::Missing),
    }
}

fn log_missing(matched: &RouteMatch<'_>, page: &str, status: u16, failure: Failure) {
    let place = matched.settings.place(&matched.site.name);
    let what = match failure {
        Failure::Forbidden => {
            "may not be sent: its permissions forbid it, or it is behind a symlink that is not followed"
        }
        Failure::Exhausted | Failure::Unavailable | Failure::Broken => "cannot be read now",
        _ => "is not there; check `error_pages` and that its route has the file or runs it",
    };
    tracing::warn!(status, "the error page {page} of {place} {what}");
}

/// Returns the content of a file, with the status of the error.
fn with_content(settings: &Settings, status: u16, resource: &Resource) -> Response {
    let mut response = Response::new(status);
    let form = &resource.identity;
    let ContentType { media_type, coding, .. } = &resource.content_type;
    response.fields.push("Content-Type", &**media_type);
    if *coding != ContentCoding::Identity {
        response.fields.push("Content-Encoding", coding.as_str());
    }
    if settings.nosniff {
        response.fields.push("X-Content-Type-Options", "nosniff");
    }
    let mut body = Body::default();
    body.push(Piece::of(&form.body, 0..form.length));
    response.body = body;
    response
}

/// Returns the plain error response of the server.
fn plain(settings: &Settings, status: u16, request: &Request<'_>, details: &Details) -> Response {
    let host = request.field(FieldName::Host).unwrap_or_default();
    let advice = || error_page::advice(status, request.method_text(), host, &details.fields);
    let text = details.text.clone().or_else(advice);
    let mut response = plain_page_of(status, text.as_deref(), details.request_id.as_deref());
    response.is_error = true;
    finish(response, settings, request, &details.fields)
}

fn finish(
    mut response: Response,
    settings: &Settings,
    request: &Request<'_>,
    extra: &FieldLines,
) -> Response {
    // The page's own value holds.
    let own = response.fields.get("Retry-After").map(<[u8]>::to_vec);
    response.fields.extend(extra);
    if let Some(own) = own {
        response.fields.set("Retry-After", own);
    }
    apply_to_message(settings, response.status, &mut response.fields);
    if request.method() == Method::Head { response.without_body() } else { response }
}
