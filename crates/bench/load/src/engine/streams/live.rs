//! An established connection with streams, as its users see it, and the adapter of its protocol.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::engine::job::Job;
use crate::engine::recorder::{ConnectionRecord, SharedRecorder};
use crate::engine::response::PartialResponse;
use crate::outcome::ErrorKind;

/// The adapter of a protocol whose connections have streams. A value is the handle of a connection.
pub(in crate::engine) trait StreamProtocol: Sized {
    /// Opens a connection, and records its phases.
    ///
    /// # Errors
    /// Connecting or a handshake fails.
    async fn open(
        job: &Job,
        recorder: &SharedRecorder,
        record: &mut ConnectionRecord,
        seen: &Rc<Seen>,
    ) -> io::Result<Self>;

    /// Returns the number of streams that the server permits at a time.
    fn max_streams(&self) -> usize;

    /// Sends the request of the URL with that index on a stream, and reads the response.
    ///
    /// # Errors
    /// There is no complete response.
    async fn exchange(
        live: &LiveConnection<Self>,
        job: &Job,
        recorder: &SharedRecorder,
        url: u32,
    ) -> Result<PartialResponse, Failed>;
}

/// The signs of the server on the byte stream of a connection.
#[derive(Default)]
pub(in crate::engine) struct Seen {
    /// The server has closed its side.
    pub(in crate::engine) ended: Cell<bool>,
    /// The server has reset the connection.
    pub(in crate::engine) reset: Cell<bool>,
    /// Time of the last byte.
    pub(in crate::engine) last: Cell<u64>,
}

impl Seen {
    /// Returns `true` if the server has ended the connection.
    pub(in crate::engine) fn is_ended(&self) -> bool {
        self.ended.get() || self.reset.get()
    }
}

/// An established connection.
pub(in crate::engine) struct LiveConnection<P> {
    pub(in crate::engine) client: P,
    pub(in crate::engine) seen: Rc<Seen>,
    pub(super) record: RefCell<ConnectionRecord>,
    /// Streams in flight.
    pub(super) open: Cell<usize>,
    /// The number of streams that the server has not refused.
    permitted: Cell<usize>,
    /// Requests that were sent.
    pub(super) issued: Cell<u64>,
    /// Responses so far.
    pub(super) responses: Cell<u64>,
    end: Cell<Option<EndedBy>>,
    /// Notified when a stream ends.
    pub(super) freed: Notify,
    /// Notified when the connection takes no more streams.
    pub(super) ended: Notify,
}

/// The reason why a connection takes no more streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum EndedBy {
    /// The server sent GOAWAY.
    GoAway,
    /// It is broken.
    Failure,
    /// The generator gave it up, since nothing arrived for the time of a response.
    Silence,
    /// The server has rejected its early data.
    Rejected,
    /// It has served as many requests as it was to serve.
    Limit,
}

impl<P> LiveConnection<P> {
    pub(super) fn new(client: P, seen: Rc<Seen>, record: ConnectionRecord) -> Self {
        Self {
            client,
            seen,
            record: RefCell::new(record),
            open: Cell::new(0),
            permitted: Cell::new(usize::MAX),
            issued: Cell::new(0),
            responses: Cell::new(0),
            end: Cell::new(None),
            freed: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Returns why it takes no more streams; `None` while it does.
    pub(super) fn end(&self) -> Option<EndedBy> {
        self.end.get()
    }

    /// Ends the use of the connection. The first reason counts, but a failure precedes GOAWAY.
    pub(in crate::engine) fn end_by(&self, reason: EndedBy) {
        if self.end.get().is_none() || reason == EndedBy::Failure {
            self.end.set(Some(reason));
        }
        self.ended.notify_waiters();
        self.freed.notify_waiters();
    }

    /// Returns `true` if the server permits another stream.
    pub(super) fn has_room(&self) -> bool
    where
        P: StreamProtocol,
    {
        self.open.get() < self.client.max_streams().min(self.permitted.get())
    }

    /// Records that the server has refused a stream while those that are open now were in flight. Returns whether there was none.
    pub(super) fn reject_stream(&self) -> bool {
        let others = self.open.get();
        self.permitted.set(self.permitted.get().min(others.max(1)));
        others == 0
    }

    /// Returns `true` if the server, and not the generator, has ended the connection.
    pub(super) fn is_ended_by_server(&self) -> bool {
        self.end() == Some(EndedBy::GoAway) || self.seen.is_ended()
    }
}

/// The reason why a request has no response.
pub(in crate::engine) enum Failed {
    /// The server has not processed it, since it ends the connection (RFC 9113 §6.8): it can be sent again.
    NotProcessed,
    /// The server has refused the stream before any processing (RFC 9113 §8.7): it can be sent again.
    Refused,
    /// The connection ended before the first byte of its response.
    Lost(ErrorKind, String),
    /// Any other error.
    For(ErrorKind, String),
}
