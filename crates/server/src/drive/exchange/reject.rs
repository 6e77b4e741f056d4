//! Responses to requests that an engine, the router or a limit rejects.

use dunlin_exchange::Response;
use dunlin_http::{Request, RequestError};
use dunlin_net::address::Peer;

use crate::route::dispatch::invalid_request;
use crate::worker::WorkerContext;

/// Logs the rejection of a request and returns the response.
pub(in super::super) fn reject(
    ctx: &WorkerContext,
    peer: Peer,
    error: &RequestError,
    request: Option<&Request<'_>>,
    is_head: bool,
) -> Response {
    tracing::debug!(%peer, status = error.status, reason = error.reason, "request rejected");
    invalid_request(ctx, request, error, !is_head)
}
