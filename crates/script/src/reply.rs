//! Generates a response from a script's output.

use dunlin_exchange::{Body, Incoming, Response, Stream, StreamKind, stream};
use dunlin_fs::content::Piece;
use dunlin_http::semantics::{Method, status};

use super::body_buffer::BodyBuffer;
use super::call::Call;
use super::failure::Failure;
use super::head::ScriptHead;
use super::outcome::{Outcome, Target};
use super::script_response::{ResponseReceiver, ScriptResponse};

/// Maximum of buffered bytes of a body, besides the buffers of the socket.
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

/// Returns the outcome of a script that has written `written`. `body` is the stream of a body that follows.
pub(super) fn outcome(
    call: &Call<'_>,
    incoming: Box<Incoming>,
    written: ScriptResponse,
    body: stream::Receiver,
) -> Outcome {
    Outcome::Response(match written {
        ScriptResponse::LocalRedirect(target) => {
            body.detach();
            return Outcome::internal(Target::LocalRedirect(target), incoming);
        }
        ScriptResponse::Named(head, named) => {
            body.detach();
            return Outcome::internal(Target::Named(head.fields, named), incoming);
        }
        ScriptResponse::Message(status) => {
            let mut response = Response::new(status);
            let stream = Stream { source: body, length: None, kind: StreamKind::Message };
            response.body = Body::streamed(stream);
            return Outcome::Message(response);
        }
        ScriptResponse::Buffered(head, buffer) => {
            body.detach();
            whole(call, head, buffer)
        }
        ScriptResponse::Switched(head) => {
            let stream = Stream { source: body, length: None, kind: StreamKind::Endless };
            Response { status: 101, ..begin(head, Body::streamed(stream)) }
        }
        ScriptResponse::Streamed(head) if !status::allows_content(head.status()) => {
            body.detach();
            whole(call, head, BodyBuffer::default())
        }
        ScriptResponse::Streamed(head) => {
            let stream =
                Stream { source: body, length: head.content_length, kind: StreamKind::Body };
            begin(head, Body::streamed(stream))
        }
    })
}

/// Returns a response whose body is complete before its head is sent.
pub(super) fn whole(call: &Call<'_>, head: ScriptHead, buffer: BodyBuffer) -> Response {
    let length = buffer.length;
    let mut body = Body::default();
    if !status::allows_content(head.status()) {
        return begin(head, body);
    }
    if call.request.method() == Method::Head {
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
