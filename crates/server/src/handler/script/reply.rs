//! Makes a response of what a script asks for.

use std::rc::Rc;

use dunlin_http::semantics::{Method, status};

use super::head::ScriptHead;
use super::output::{BodyBuffer, ResponseReceiver, ScriptResponse};
use super::{Call, Failure, redirect, send_target};
use crate::exchange::{Body, Incoming, Piece, Response, Stream, StreamKind, stream};
use crate::field_edits::apply_edits;
use crate::route::Origin;
use crate::telemetry::ScriptContext;

/// Bytes of a body that wait for the client, besides those in the socket's buffers.
pub(super) const DOWNLOAD: usize = 64 * 1024;

/// Polls `run` until it has a response or a failure. If it is not finished then, it goes on as a task.
pub(super) async fn receive(
    run: impl Future<Output = ()> + 'static,
    mut response: ResponseReceiver,
) -> Result<ScriptResponse, Failure> {
    let mut run = Box::pin(run);
    tokio::select! {
        biased;
        () = &mut run => response.try_recv().unwrap_or(Err(Failure::Abandoned)),
        received = &mut response => {
            tokio::task::spawn_local(run);
            received.unwrap_or(Err(Failure::Abandoned))
        }
    }
}

/// The response that `answer` asks for. `body` is the stream of a body that follows.
pub(super) async fn response(
    call: &Call,
    incoming: Incoming,
    answer: ScriptResponse,
    body: stream::Receiver,
) -> Result<Response, Failure> {
    let script_context = Rc::clone(&incoming.script_context);
    let response = match answer {
        ScriptResponse::LocalRedirect(target) => {
            body.discard();
            let followed = redirect::follow(call, incoming, &target, Origin::Client);
            return Box::pin(followed).await;
        }
        ScriptResponse::SendTarget(head, target) => {
            body.discard();
            Box::pin(send_target::respond(call, incoming, head, target)).await?
        }
        ScriptResponse::Message(status) => {
            let mut response = Response::new(status);
            let stream = Stream { source: body, length: None, kind: StreamKind::Message };
            response.body = Body::streamed(stream);
            return Ok(response);
        }
        ScriptResponse::Buffered(head, buffer) => {
            body.discard();
            whole(call, head, buffer)
        }
        ScriptResponse::Streamed(head) if !status::allows_content(head.status()) => {
            body.discard();
            whole(call, head, BodyBuffer::default())
        }
        ScriptResponse::Streamed(head) => {
            let stream =
                Stream { source: body, length: head.content_length, kind: StreamKind::Body };
            begin(head, Body::streamed(stream))
        }
    };
    Ok(finish(call, response, &script_context))
}

/// The response for a complete output.
pub(super) fn buffered(
    call: &Call,
    head: ScriptHead,
    content: BodyBuffer,
    script_context: &ScriptContext,
) -> Response {
    finish(call, whole(call, head, content), script_context)
}

/// A response whose body is complete before its head is sent.
fn whole(call: &Call, head: ScriptHead, buffer: BodyBuffer) -> Response {
    let length = buffer.length;
    let mut body = Body::default();
    if !status::allows_content(head.status()) {
        return begin(head, body);
    }
    if call.request.as_request().method() == Method::Head {
        // Without content, the length of a response to GET is not known.
        let length = head.content_length.or((length > 0).then_some(length as u64));
        body = Body::streamed(Stream { source: stream::empty(), length, kind: StreamKind::Body });
    } else {
        buffer.pieces.into_iter().for_each(|bytes| body.push(Piece::Memory(bytes)));
    }
    begin(head, body)
}

fn begin(head: ScriptHead, body: Body) -> Response {
    let mut response = Response::new(head.status());
    response.fields = head.fields;
    response.body = body;
    response
}

fn finish(call: &Call, mut response: Response, script_context: &ScriptContext) -> Response {
    let settings = &call.matched.settings;
    apply_edits(settings, &mut response.fields);
    if settings.server_timing {
        response.fields.push("Server-Timing", script_context.server_timing());
    }
    if call.rules.send_request_id {
        response.fields.set("X-Request-Id", script_context.id());
    }
    response
}
