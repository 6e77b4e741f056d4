//! The interface of every kind whose workers outlive a request.
//!
//! A [`Backend`] differs from another in four points only: how a worker and a connection to it are obtained, how a request
//! is encoded, how a response is decoded, and what the end of a response means for the connection. Everything else
//! is here, once: [`respond`] runs the attempts, [`retry`] is the retry policy, [`run`] moves both bodies.

mod attempt;
mod retry;
mod run;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

pub(super) use self::attempt::respond;
use dunlin_exchange::{Incoming, stream};

use super::call::Call;
use super::failure::Failure;
use super::resolved_script::ResolvedScript;
use super::source::Source;
use super::workers::Worker;

/// A request that is sent to a worker; to another one after a [retry].
pub(super) struct Outgoing<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) incoming: Box<Incoming>,
    pub(super) located: &'a ResolvedScript,
    /// The script's name in the log.
    pub(super) name: &'a Arc<str>,
    /// Length of the body, where it is known before the body is sent.
    pub(super) length: Option<u64>,
    /// The part of the body that is not encoded yet; `None` when there is no such part.
    pub(super) body: Option<stream::Receiver>,
}

/// A kind of worker. One value serves one request, and keeps what its attempts have in common.
pub(super) trait Backend {
    /// A worker with a connection to it.
    type Connection: Connection;
    /// A request that a worker has.
    type InFlight: InFlight;

    /// Waits for a worker and connects to it.
    ///
    /// # Errors
    /// [`Failure::NotSent`] when the worker cannot be reached; others when no worker can be had.
    async fn connect(&mut self, request: &Outgoing<'_>) -> Result<Self::Connection, Failure>;

    /// Encodes the request and writes as much of it as the connection takes at once. What is encoded of the body leaves
    /// `request.body`, which becomes `None` when that is all of it.
    ///
    /// # Errors
    /// [`Failure::NotSent`] when nothing could be written; others when the request cannot be encoded.
    async fn send(
        &mut self,
        request: &mut Outgoing<'_>,
        connection: Self::Connection,
    ) -> Result<Self::InFlight, Failure>;

    /// Returns `true` if the response may switch to another protocol.
    fn may_switch(&self) -> bool {
        false
    }

    /// Returns `true` if the script writes a whole HTTP message, which is sent as it is.
    fn writes_message(&self, _request: &Outgoing<'_>) -> bool {
        false
    }
}

/// A connection to a worker before a request is sent on it.
pub(super) trait Connection {
    /// Returns the worker, when the server has started it.
    fn worker(&self) -> Option<&Arc<Worker>>;

    /// Returns the worker's process; 0 when it is not known.
    fn pid(&self) -> i32 {
        self.worker().map_or(0, |worker| worker.pid)
    }
}

/// A request that a worker has. Its [`Source`] is the response.
///
/// Exactly one of `complete`, `fail` and `abandon` ends it. Dropped otherwise, it leaves the worker in an unknown
/// state, and the pool probes or ends the worker.
pub(super) trait InFlight: Source + 'static {
    /// Returns `true` if all that was encoded is written.
    fn is_written(&self) -> bool;

    /// Writes the rest of what was encoded. Calls `progress` after each write.
    async fn write_rest(&self, progress: &impl Fn()) -> io::Result<()>;

    /// Writes a part of the body. Calls `progress` after each write.
    async fn write_body(&self, bytes: Bytes, progress: &impl Fn()) -> io::Result<()>;

    /// Marks the end of a body.
    async fn end_body(&self) -> io::Result<()>;

    /// The response is complete: the worker can take another request if it has read all of this one.
    fn complete(self);

    /// The response failed; `is_late` when a time limit has passed, so that the worker may hang.
    fn fail(self, is_late: bool);

    /// The client has left while the worker works on the request. Notifies the worker, where the protocol can.
    fn abandon(&self);
}
