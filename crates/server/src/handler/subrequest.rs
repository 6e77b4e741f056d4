//! The services of the worker that the checks need, with requests that the server makes to itself for forward authentication.

use std::io;
use std::pin::Pin;
use std::rc::Rc;

use bytes::BytesMut;
use dunlin_client as client;
use dunlin_exchange::{Body, Client, Incoming, RequestContext, Response, StreamKind, stream};
use dunlin_fs::content::Piece;
use dunlin_http::http1::Http1Connection;
use dunlin_http::{Head, Request};
use dunlin_net::blocking::Pool;
use dunlin_telemetry::redact::Redactor;

use crate::checks::{MAX_BODY, Services};
use crate::route::route_match::TargetSource;
use crate::worker::WorkerContext;

impl Services for WorkerContext {
    fn passwords(&self) -> &Pool {
        &self.shared.blocking.passwords
    }

    fn client(&self) -> &client::Client {
        &self.client
    }

    fn redactor(&self) -> &Redactor {
        &self.shared.redactor
    }

    fn subrequest(
        self: Rc<Self>,
        context: Rc<RequestContext>,
        message: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = io::Result<Response>>>> {
        Box::pin(async move { subrequest(&self, &context, &message).await })
    }
}

/// Returns the worker as the checks see it.
pub(crate) fn services(ctx: &Rc<WorkerContext>) -> Rc<dyn Services> {
    Rc::<WorkerContext>::clone(ctx)
}

/// Routes the request of `message` and waits for its response.
async fn subrequest(
    ctx: &Rc<WorkerContext>,
    context: &RequestContext,
    message: &[u8],
) -> io::Result<Response> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidInput, "the request is malformed");
    let mut head = Head::default();
    match Http1Connection::default().head(message, &ctx.http1.limits, &mut head) {
        Ok(Some(length)) if length == message.len() => {}
        _ => return Err(malformed()),
    }
    let request = Request::new(message, &head);
    let client = Client { is_subrequest: true, ..context.client.admitted() };
    let routed = ctx.router.dispatch(ctx, client, TargetSource::Server, &request, &mut Vec::new());
    // Interim responses of the endpoint are not sent to the client.
    let incoming = Incoming::without_content(context.ends(), client.encrypted, None);
    let reply = routed.map_err(|_| malformed())?.reply;
    let mut response = reply.response(&request, incoming).await;
    if let Some(stream) = response.body.take_stream() {
        match response.status {
            300..500 if stream.kind == StreamKind::Body => {
                response.body = collect(stream.source).await?;
            }
            // It is not sent to the client. Its script does not wait for a reader.
            _ => stream.source.detach(),
        }
    }
    Ok(response)
}

/// Returns the whole body of the page with which an endpoint rejects a request.
async fn collect(mut source: stream::Receiver) -> io::Result<Body> {
    let mut all = BytesMut::new();
    while let Some(bytes) = source.next().await.map_err(|_| io::Error::other("its body is cut"))? {
        if all.len() + bytes.len() > MAX_BODY {
            return Err(io::Error::other(format!("its body is larger than {MAX_BODY} bytes")));
        }
        all.extend_from_slice(&bytes);
    }
    let mut body = Body::default();
    body.push(Piece::Memory(all.freeze()));
    Ok(body)
}
