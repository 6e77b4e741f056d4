//! Responses to requests that an engine, the router or a limit rejects.

use std::rc::Rc;

use dunlin_exchange::{
    Client, ConnectionFacts, EarlyHints, Incoming, RequestContext, Response, ResponseFuture, stream,
};
use dunlin_http::{BodyLength, Request, RequestError};
use dunlin_net::address::SocketAddresses;
use dunlin_net::clock;
use dunlin_telemetry::ScriptContext;

use crate::handler::reply::complete;
use crate::route::dispatch::{error_page, invalid_request};
use crate::worker::WorkerContext;

/// The response to a request that is rejected.
pub(in super::super) enum Rejected {
    Now(Response),
    /// An error page of the route, which takes time.
    Later(ResponseFuture),
}

/// The connection of a request that is rejected.
pub(in super::super) struct RejectedFrom<'a> {
    pub(in super::super) facts: &'a ConnectionFacts,
    pub(in super::super) ends: Option<SocketAddresses>,
}

/// Logs the rejection of a request and returns the response. `request` is absent if its head was not read; `is_head`: its
/// method is HEAD.
pub(in super::super) fn reject(
    ctx: &Rc<WorkerContext>,
    origin: &RejectedFrom<'_>,
    error: &RequestError,
    request: Option<&Request<'_>>,
    context: Option<&Rc<RequestContext>>,
    is_head: bool,
) -> Rejected {
    let RejectedFrom { facts, ends } = *origin;
    tracing::debug!(peer = %facts.peer, status = error.status, reason = error.reason, "request rejected");
    let Some(request) = request else {
        return Rejected::Now(invalid_request(ctx, None, error, !is_head));
    };
    let client = context.map_or_else(|| Client::of(facts), |context| context.client);
    let Some(page) = error_page(ctx, client, request, context, error.status) else {
        return Rejected::Now(invalid_request(ctx, Some(request), error, !is_head));
    };
    let incoming = Box::new(Incoming {
        body: stream::empty(),
        length: BodyLength::None,
        received: None,
        ends,
        encrypted: client.encrypted,
        tls: facts.tls.as_deref().cloned(),
        script_context: Rc::new(ScriptContext::new(clock::now(), None)),
        redirects: 0,
        early_hints: EarlyHints::new(false),
    });
    let request = request.to_owned();
    Rejected::Later(Box::pin(async move {
        let request = request.as_request();
        complete(&request, page, incoming).await
    }))
}
