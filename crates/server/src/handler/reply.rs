//! Responses from replies.

use dunlin_exchange::{Body, Incoming, Response};
use dunlin_http::Request;
use dunlin_http::semantics::Method;

use super::errors;
use crate::route::reply::{CachedResponse, Reply};
use dunlin_files::file_response::FileResponse;
use dunlin_files::select;

/// Waits for the response of a reply.
pub(crate) async fn into_response(request: &Request<'_>, reply: Reply) -> Response {
    match reply {
        Reply::Response(response) => *response,
        Reply::Future(job) => job.await,
        Reply::Cached(cached) => from_cached(request, &cached),
        // Only the handler of a route that runs scripts streams, and the caller completes its replies.
        Reply::Streaming(_) => errors::plain_page(500, None, true),
    }
}

/// Returns the same reply in a form to which fields can be added.
pub(crate) fn to_editable(request: &Request<'_>, reply: Reply) -> Reply {
    match reply {
        Reply::Cached(cached) => from_cached(request, &cached).into(),
        reply => reply,
    }
}

/// Returns the response with content of a file. `cache` is the cache status for the log.
pub(super) fn from_file(method: Method, response: FileResponse, cache: &'static str) -> Response {
    // The content of parts is not here.
    let stated_length = (!response.parts.is_empty()).then(|| response.length());
    let FileResponse { status, fields, body, coding, .. } = response;
    let body = Body::of(body);
    let response = Response { fields, body, cache, coding, stated_length, ..Response::new(status) };
    if method == Method::Head { response.without_body() } else { response }
}

fn from_cached(request: &Request<'_>, cached: &CachedResponse) -> Response {
    let resource = &cached.entry.resource;
    let form = match resource.representation(cached.coding) {
        Some(Some(form)) => form,
        _ => &resource.identity,
    };
    let response = match cached.not_modified {
        true => select::not_modified(form),
        false => select::whole(form),
    };
    from_file(request.method(), response, cached.cache)
}

/// Waits for a reply, whose handler may read the request's body.
pub(crate) async fn complete(
    request: &Request<'_>,
    reply: Reply,
    incoming: Box<Incoming>,
) -> Response {
    match reply {
        Reply::Streaming(begin) => begin(incoming).await,
        reply => Box::pin(into_response(request, reply)).await,
    }
}
