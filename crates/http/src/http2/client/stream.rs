//! The streams of a client's connection.

use hashbrown::HashMap;

use crate::section::IncomingResponse;

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
    pub(super) response: IncomingResponse,
}

/// The streams by number. A stream is removed when both sides are complete or one is reset.
pub(super) type ClientStreams = HashMap<u32, ClientStream>;
