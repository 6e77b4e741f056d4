//! Waits for the response of a reply.

use dunlin_http::Request;

use super::reply::Reply;
use crate::exchange::{Incoming, Response};
use crate::handler::reply::into_response;

/// Waits for a reply, whose handler may read the request's body.
pub(crate) async fn complete(request: &Request<'_>, reply: Reply, incoming: Incoming) -> Response {
    match reply {
        Reply::Streaming(begin) => begin(incoming).await,
        reply => Box::pin(into_response(request, reply)).await,
    }
}
