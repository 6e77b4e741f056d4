//! From what a script answers with to the response.

use std::rc::Rc;

use dunlin_http::semantics::{Method, status};

use super::head::ScriptHead;
use super::output::{Answer, Gathered, Told};
use super::{Call, Failure, instead, redirect};
use crate::handler::file::apply_edits;
use crate::response::{Body, Piece, Response, Stream, StreamKind};
use crate::route::{Incoming, Origin};
use crate::stream;
use crate::telemetry::ScriptContext;

/// Bytes of the answer that wait for the client, besides those on their way to the socket.
pub(super) const DOWNLOAD: usize = 64 * 1024;

/// What a run tells. One that goes on after it has told does so by itself.
pub(super) async fn told(
    run: impl Future<Output = ()> + 'static,
    mut told: Told,
) -> Result<Answer, Failure> {
    let mut run = Box::pin(run);
    tokio::select! {
        biased;
        () = &mut run => told.try_recv().unwrap_or(Err(Failure::Abandoned)),
        answer = &mut told => {
            tokio::task::spawn_local(run);
            answer.unwrap_or(Err(Failure::Abandoned))
        }
    }
}

/// The response that `answer` asks for; `body` is where one that follows comes from.
pub(super) async fn response(
    call: &Call,
    incoming: Incoming,
    answer: Answer,
    body: stream::Receiver,
) -> Result<Response, Failure> {
    let script_context = Rc::clone(&incoming.script_context);
    let response = match answer {
        Answer::Local(target) => {
            body.discard();
            let followed = redirect::follow(call, incoming, &target, Origin::Client);
            return Box::pin(followed).await;
        }
        Answer::Instead(head, instead) => {
            body.discard();
            Box::pin(instead::respond(call, incoming, head, instead)).await?
        }
        Answer::Message(status) => {
            let mut response = Response::new(status);
            let stream = Stream { source: body, length: None, kind: StreamKind::Message };
            response.body = Body::streamed(stream);
            return Ok(response);
        }
        Answer::Whole(head, gathered) => {
            body.discard();
            whole(call, head, gathered)
        }
        Answer::Streamed(head) if !status::allows_content(head.status()) => {
            body.discard();
            whole(call, head, Gathered::default())
        }
        Answer::Streamed(head) => {
            let stream =
                Stream { source: body, length: head.content_length, kind: StreamKind::Body };
            begin(head, Body::streamed(stream))
        }
    };
    Ok(finish(call, response, &script_context))
}

/// The response to an answer that was there at once.
pub(super) fn at_once(
    call: &Call,
    head: ScriptHead,
    content: Gathered,
    script_context: &ScriptContext,
) -> Response {
    finish(call, whole(call, head, content), script_context)
}

/// An answer that was there as a whole before its head was sent.
fn whole(call: &Call, head: ScriptHead, gathered: Gathered) -> Response {
    let length = gathered.length;
    let mut body = Body::default();
    if !status::allows_content(head.status()) {
        return begin(head, body);
    }
    if call.request.as_request().method() == Method::Head {
        // What an answer to GET would have held is not known from one without content.
        let length = head.content_length.or((length > 0).then_some(length as u64));
        body = Body::streamed(Stream { source: stream::empty(), length, kind: StreamKind::Body });
    } else {
        gathered.pieces.into_iter().for_each(|bytes| body.push(Piece::Memory(bytes)));
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
    let settings = &call.subject.settings;
    apply_edits(settings, &mut response.fields);
    if settings.server_timing {
        response.fields.push("Server-Timing", script_context.server_timing());
    }
    if call.rules.tell_request_id {
        response.fields.set("X-Request-Id", script_context.id());
    }
    response
}
