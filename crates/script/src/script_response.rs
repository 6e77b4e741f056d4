//! The response that a script requests, on its way from the task that runs the script to the request.

use dunlin_exchange::{EarlyHints, Incoming, Named};
use tokio::sync::oneshot;

use super::body_buffer::BodyBuffer;
use super::failure::Failure;
use super::head::ScriptHead;

/// The response that a script requests.
pub(super) enum ScriptResponse {
    /// A complete body.
    Buffered(ScriptHead, BodyBuffer),
    /// A body that is streamed.
    Streamed(ScriptHead),
    /// The body is that of another protocol.
    Switched(ScriptHead),
    /// A whole HTTP message that is streamed, with its status.
    Message(u16),
    /// The response for this path (RFC 3875 §6.2.2).
    LocalRedirect(Vec<u8>),
    /// The resource that the header names, with the header's fields.
    Named(ScriptHead, Named),
}

/// Takes Early Hints, and then the response or the failure.
pub(super) struct ResponseSender {
    pub(super) response: oneshot::Sender<Result<ScriptResponse, Failure>>,
    pub(super) early_hints: EarlyHints,
}

/// Receives the response or the failure.
pub(super) type ResponseReceiver = oneshot::Receiver<Result<ScriptResponse, Failure>>;

/// Returns the channel from the task that runs the script to the task that responds.
pub(super) fn response_channel(incoming: &Incoming) -> (ResponseSender, ResponseReceiver) {
    let (response, receiver) = oneshot::channel();
    (ResponseSender { response, early_hints: incoming.early_hints.clone() }, receiver)
}
