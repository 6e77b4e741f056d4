//! Responses from replies.

use dunlin_exchange::{Body, Incoming, Response};
use dunlin_http::Request;
use dunlin_http::semantics::Method;

use super::errors;
use crate::route::reply::{Awaited, CachedResponse, Reply};
use dunlin_files::file_response::FileResponse;
use dunlin_files::select;

impl Reply {
    /// Waits for the response. `incoming` is what the handler gets of the request besides its head; without it, there is no
    /// response of a handler that reads.
    pub(crate) async fn response(
        self,
        request: &Request<'_>,
        incoming: impl Into<Option<Box<Incoming>>>,
    ) -> Response {
        match (self, incoming.into()) {
            (Self::Response(response), _) => *response,
            (Self::Cached(cached), _) => from_cached(request, &cached),
            (Self::Awaited(Awaited::Alone(response)), _) => response.await,
            (Self::Awaited(Awaited::Reading(handler)), Some(incoming)) => handler(incoming).await,
            // Only the handler of a route that runs scripts reads, and its callers have what it reads.
            (Self::Awaited(Awaited::Reading(_)), None) => errors::plain_page(500, None, true),
        }
    }

    /// Returns the same reply in a form to which fields can be added.
    pub(crate) fn editable(self, request: &Request<'_>) -> Self {
        match self {
            Self::Cached(cached) => from_cached(request, &cached).into(),
            reply => reply,
        }
    }
}

/// Returns the response with content of a file. `cache` is the cache status for the log.
pub(super) fn from_file(method: Method, response: FileResponse, cache: &'static str) -> Response {
    // The content of parts is not here.
    let stated_length = (!response.parts.is_empty()).then(|| response.length());
    let FileResponse { status, fields, body, coding, .. } = response;
    let body = Body::of(body);
    let is_coding_final = true;
    let response = Response {
        fields,
        body,
        cache,
        coding,
        stated_length,
        is_coding_final,
        ..Response::new(status)
    };
    if method == Method::Head { response.without_body() } else { response }
}

fn from_cached(request: &Request<'_>, cached: &CachedResponse) -> Response {
    let resource = &cached.entry.resource;
    let form = match resource.representation(cached.coding) {
        Some(Some(form)) => form,
        _ => &resource.identity,
    };
    let response = match cached.not_modified {
        true => select::not_modified(resource, form),
        false => select::whole(resource, form),
    };
    from_file(request.method(), response, cached.cache)
}
