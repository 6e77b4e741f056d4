//! Events between an exchange and its connection, for every version of HTTP.

use bytes::Bytes;
use dunlin_http::{FieldLines, InvalidRequest, ResponseHead};

use crate::ErrorKind;

/// A part of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Interim(ResponseHead),
    Head(ResponseHead),
    Data(Bytes),
    /// The response is complete; its trailer fields.
    End(FieldLines),
}

/// Why an exchange failed; the origin is added by its owner.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) reason: String,
    /// The connection ended before any byte of the response arrived.
    pub(crate) is_without_response: bool,
    /// The server has stated that it did not process the request.
    pub(crate) is_unprocessed: bool,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, reason: impl ToString) -> Self {
        Self { kind, reason: reason.to_string(), is_without_response: false, is_unprocessed: false }
    }
}

impl From<InvalidRequest> for Failure {
    fn from(error: InvalidRequest) -> Self {
        Self::new(ErrorKind::InvalidRequest, error)
    }
}

/// A request's body on its way.
#[derive(Debug)]
pub(crate) struct Sending<B> {
    pub(crate) body: B,
    pub(crate) state: SendState,
}

/// The progress of sending a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendState {
    /// The body waits for a 100 response.
    Held,
    Streaming,
    /// All of the body has been taken, or no more of it is wanted.
    Ended,
}
