//! The streams of a client's connection.

use std::collections::HashMap;

use crate::message::InterimResponses;

/// A stream that is not closed.
#[derive(Debug)]
pub(super) struct ClientStream {
    /// Bytes that the server permits on the stream.
    pub(super) send: i64,
    /// Bytes that the server may still send.
    pub(super) receive: i64,
    /// Bytes that the caller has consumed and that are not credited to the server yet.
    pub(super) consumed: u32,
    /// The request is complete.
    pub(super) is_sent: bool,
    /// The final head has arrived.
    pub(super) has_head: bool,
    /// Interim responses that have arrived.
    pub(super) interim_responses: InterimResponses,
    pub(super) is_head_request: bool,
    pub(super) is_connect: bool,
    /// Remaining bytes of the body, if the head states its length.
    pub(super) left: Option<u64>,
}

/// The streams by number. A stream is removed when both sides are complete or one is reset.
pub(super) type ClientStreams = HashMap<u32, ClientStream>;
