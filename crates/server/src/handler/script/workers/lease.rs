//! The right to give a worker one request.

use std::sync::Arc;
use std::thread::ThreadId;

use super::{Pool, Worker};
use crate::handler::script::cgiplus::Streams;
use crate::handler::script::socket::Link;

/// A connection to a worker between two requests. It stays registered with the loop that used it
/// last, which then uses it again without a system call.
#[derive(Debug)]
pub(in super::super) struct Kept {
    pub(super) home: ThreadId,
    connection: Connection,
}

/// What a worker is reached by.
#[derive(Debug)]
enum Connection {
    Link(Link),
    Streams(Streams),
}

impl Kept {
    /// Keeps a connection that is registered with this thread's loop.
    pub(in super::super) fn new(link: Link) -> Self {
        Self { home: std::thread::current().id(), connection: Connection::Link(link) }
    }

    /// The connection, registered with this thread's loop.
    pub(in super::super) fn into_link(self) -> std::io::Result<Link> {
        match self.connection {
            Connection::Link(link) if self.home == std::thread::current().id() => Ok(link),
            Connection::Link(link) => link.reregister(),
            Connection::Streams(_) => Err(std::io::Error::other("it is reached by streams")),
        }
    }

    /// The streams, registered with this thread's loop.
    pub(in super::super) fn into_streams(self) -> std::io::Result<Streams> {
        match self.connection {
            Connection::Streams(streams) if self.home == std::thread::current().id() => Ok(streams),
            Connection::Streams(streams) => streams.reregister(),
            Connection::Link(_) => Err(std::io::Error::other("it is reached by a connection")),
        }
    }
}

impl From<Streams> for Kept {
    /// Keeps streams that are registered with this thread's loop.
    fn from(streams: Streams) -> Self {
        let home = std::thread::current().id();
        Self { home, connection: Connection::Streams(streams) }
    }
}

/// The right to give a worker one request. Dropped while the worker may be at work, it has the
/// worker looked after until that is done.
#[derive(Debug)]
pub(in super::super) struct Lease {
    pool: Arc<Pool>,
    pub(in super::super) worker: Arc<Worker>,
    holder: u64,
    kept: Option<Kept>,
    /// The worker has been told of a request.
    pub(in super::super) is_used: bool,
    is_over: bool,
}

impl Lease {
    pub(super) fn new(
        pool: Arc<Pool>,
        worker: Arc<Worker>,
        holder: u64,
        kept: Option<Kept>,
    ) -> Self {
        Self { pool, worker, holder, kept, is_used: false, is_over: false }
    }

    /// A connection that is open since an earlier request.
    pub(in super::super) fn take_kept(&mut self) -> Option<Kept> {
        self.kept.take()
    }

    /// What was taken, and was not used.
    pub(in super::super) fn put_back(&mut self, kept: Kept) {
        self.kept = Some(kept);
    }

    /// The worker seems to have ended; should it not have, it is ended.
    pub(in super::super) fn lose(mut self) {
        self.is_over = true;
        self.pool.lose(&self.worker);
    }

    /// The worker is done with the request; `kept` is a connection for the next one.
    pub(in super::super) fn release(mut self, kept: Option<Kept>) {
        self.is_over = true;
        self.pool.give_back(&self.worker, self.holder, kept);
    }

    /// The worker hangs: it is ended.
    pub(in super::super) fn end(mut self) {
        self.is_over = true;
        self.pool.end(&self.worker);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.is_used {
            self.pool.suspect(&self.worker, self.holder);
        } else {
            self.pool.give_back(&self.worker, self.holder, self.kept.take());
        }
    }
}
