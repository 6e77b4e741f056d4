//! The attempts to have a worker respond to a request.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use dunlin_exchange::{Incoming, Response, stream};
use dunlin_http::BodyLength;
use dunlin_http::semantics::Method;

use super::super::call::Call;
use super::super::failure::Failure;
use super::super::outcome::Outcome;
use super::super::reply::{self, DOWNLOAD};
use super::super::resolved_script::ResolvedScript;
use super::super::script_response::{self, ScriptResponse};
use super::super::{buffered, spool};
use super::retry::Retries;
use super::run::{Abandon, BackendRun};
use super::{Backend, Connection, InFlight, Outgoing};

/// The result of one attempt.
enum Attempt {
    /// All of the response was there at once.
    Complete(Response),
    /// A response, and where its body comes from.
    Begun(ScriptResponse, stream::Receiver),
}

/// Forwards the request to a worker, and to another one where [`Retries`] allows it.
pub(in super::super) async fn respond<B: Backend>(
    mut backend: B,
    call: &Call<'_>,
    mut incoming: Box<Incoming>,
    located: &ResolvedScript,
    name: &Arc<str>,
) -> Result<Outcome, Failure> {
    let length = spool::with_known_length(call, &mut incoming).await?;
    let body = (incoming.length != BodyLength::None && length != Some(0))
        .then(|| spool::take_stream(&call.scripts.ctx, &mut incoming));
    let is_idempotent = call.request.method().is_idempotent();
    let mut request = Outgoing { call, incoming, located, name, length, body };
    let mut retries = Retries::default();
    let mut is_whole = true;
    loop {
        match attempt(&mut backend, &mut request, &mut is_whole).await {
            Ok(Attempt::Complete(response)) => return Ok(Outcome::Response(response)),
            Ok(Attempt::Begun(written, body)) => {
                return Ok(reply::outcome(call, request.incoming, written, body));
            }
            Err(failure) if retries.allow(&failure, is_whole, is_idempotent) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Sends the request to one worker and waits for the head of its response. `is_whole` becomes false when a part of the
/// body is gone afterwards.
async fn attempt<B: Backend>(
    backend: &mut B,
    request: &mut Outgoing<'_>,
    is_whole: &mut bool,
) -> Result<Attempt, Failure> {
    let connection = backend.connect(request).await?;
    let pid = connection.pid();
    if let Some(worker) = connection.worker() {
        request.call.note_worker(worker);
    }
    let chosen = Instant::now();
    let in_flight = backend.send(request, connection).await?;
    request.incoming.script_context.start(chosen, Instant::now());
    let (call, name) = (request.call, request.name);
    let script_context = &request.incoming.script_context;
    let is_bodiless = call.request.method() == Method::Head;
    let writes_message = backend.writes_message(request);
    let mut early = Vec::new();
    if request.body.is_none() && in_flight.is_written() && !writes_message {
        let abandoned = Abandon::when_dropped(&in_flight);
        let output =
            buffered::read(&in_flight, call.response_context(script_context, is_bodiless)).await;
        abandoned.disarm();
        match output {
            Ok((head, content)) => {
                script_context.log_timestamps(name, pid);
                in_flight.complete();
                return Ok(Attempt::Complete(reply::whole(call, head, content)));
            }
            Err(pieces) => early = pieces,
        }
    }
    *is_whole = request.body.is_none();
    let (sender, receiver) = stream::channel_of_connection(DOWNLOAD);
    let (report, receive_response) = script_response::response_channel(&request.incoming);
    let run = BackendRun {
        ctx: Rc::clone(&call.scripts.ctx),
        rules: Arc::clone(call.rules),
        name: Arc::clone(name),
        pid,
        writes_message,
        may_switch: backend.may_switch(),
        is_bodiless,
        script_context: Rc::clone(script_context),
        in_flight,
        early,
        body: request.body.take(),
        sender,
        report,
    };
    // Boxed, so that the future of a response that was there at once stays small.
    let written = Box::pin(reply::receive(run.supervise(), receive_response)).await?;
    Ok(Attempt::Begun(written, receiver))
}
